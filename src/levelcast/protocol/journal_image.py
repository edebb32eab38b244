"""State of a node after a restart: the result of applying its journal's entries.

`Listener`, `ReformationServer` and `Source` start from this image. A driver keeps the entries on disk in any format and
builds this image by applying them in order.

- `Promise`, `Ring`, `ServerCounter`: the last one counts (rule 12).
- `Token`, `Data`: held until a `Forget` (rules 2, 8, 9).
- `Checkpoint`: the tape holds everything up to that slot, so the journal need not (rule 9).
"""

from __future__ import annotations

from collections.abc import Mapping

from levelcast.protocol.effects import Checkpoint, JournalEntry, Promise, ServerCounter, SourceMark
from levelcast.wire.messages import Data, Ring, Token
from levelcast.wire.packets import singles


class JournalImage:
    """The image of one node's journal. `life` identifies the disk it is on."""

    def __init__(self, life: int = 1) -> None:
        self.life = life
        self.promised = 0
        self.ring: Ring | None = None
        self.checkpoint: Checkpoint | None = None
        self.counter = 0
        self.mark: SourceMark | None = None
        self.tokens: dict[tuple[int, int], Token] = {}
        self.packets: dict[tuple[int, int, int], Data] = {}
        """Each packet separately: (source, incarnation, number)."""

    def apply(self, entry: JournalEntry) -> None:
        """Apply one entry, in the order in which it was written."""
        if isinstance(entry, Data):
            for single in singles(entry):
                self.packets[single.source, single.incarnation, single.first] = single
        elif isinstance(entry, Token):
            self.tokens[entry.generation, entry.slot] = entry
        elif isinstance(entry, Promise):
            self.promised = entry.generation
        elif isinstance(entry, Ring):
            self.ring = entry
        elif isinstance(entry, Checkpoint):
            self.checkpoint = entry
        elif isinstance(entry, ServerCounter):
            self.counter = entry.generation
        elif isinstance(entry, SourceMark):
            self.mark = entry
            for key in [key for key in self.packets if key[1:] <= (entry.incarnation, entry.number)]:
                del self.packets[key]

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        """Drop tokens up to `slot`, and packets below `ordered`: source -> (incarnation, next number)."""
        for key in [key for key in self.tokens if key[1] <= slot]:
            del self.tokens[key]
        for packet in [key for key in self.packets if key[0] in ordered and key[1:] < ordered[key[0]]]:
            del self.packets[packet]
