"""Tokens and packets that a receiver holds until they are on its tape.

Packets are held as they were received: a `Data` of several packets stays one value until it is cut
(`levelcast.wire.packets`), so the cost is per piece and not per packet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from levelcast.protocol.history import History, SourcePosition
from levelcast.wire.messages import Data, Run, Token
from levelcast.wire.packets import cut


class PacketRanges:
    """Packets of one incarnation of a source: pieces that do not overlap, in the order of their numbers."""

    def __init__(self) -> None:
        self._pieces: list[Data] = []
        self._firsts: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __iter__(self) -> Iterator[Data]:
        return iter(self._pieces)

    @property
    def last(self) -> int:
        """The highest number that is held; 0: none."""
        return self._pieces[-1].last if self._pieces else 0

    def add(self, data: Data) -> list[Data]:
        """Store the parts of `data` that were not held; return these pieces."""
        pieces = self._pieces
        if not pieces or data.first > pieces[-1].last:  # the usual case
            pieces.append(data)
            self._firsts.append(data.first)
            return [data]
        new = [cut(data, *span) for span in self.missing(data.first, data.last)]
        for piece in new:
            at = bisect_right(self._firsts, piece.first)
            pieces.insert(at, piece)
            self._firsts.insert(at, piece.first)
        return new

    def missing(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the spans of `first` to `last` that are not held."""
        wanted = first
        for piece in self._pieces[self._place(first) :]:
            if piece.first > last:
                break
            if piece.first > wanted:
                yield wanted, piece.first - 1
            wanted = max(wanted, piece.last + 1)
        if wanted <= last:
            yield wanted, last

    def take(self, first: int, last: int) -> Iterator[Data]:
        """Yield the held pieces of `first` to `last`, in order."""
        for piece in self._pieces[self._place(first) :]:
            if piece.first > last:
                return
            if piece.last >= first:
                yield cut(piece, max(first, piece.first), min(last, piece.last))

    def contiguous_from(self, first: int) -> int:
        """Return the last number up to which all from `first` on are held; `first - 1` if `first` is not."""
        last = first - 1
        for piece in self._pieces[self._place(first) :]:
            if piece.first > last + 1:
                break
            last = max(last, piece.last)
        return last

    def forget(self, before: int) -> None:
        """Drop all numbers below `before`."""
        gone = 0
        while gone < len(self._pieces) and self._pieces[gone].last < before:
            gone += 1
        del self._pieces[:gone], self._firsts[:gone]
        if self._pieces and self._pieces[0].first < before:
            self._pieces[0] = cut(self._pieces[0], before, self._pieces[0].last)
            self._firsts[0] = before

    def _place(self, number: int) -> int:
        """Return the index of the first piece that can contain `number` or a later one."""
        return max(0, bisect_right(self._firsts, number) - 1)


class Holdings:
    """Valid tokens by slot, packets by (source, incarnation)."""

    def __init__(self) -> None:
        self.tokens: dict[int, Token] = {}
        self.packets: dict[tuple[int, int], PacketRanges] = {}

    def add(self, data: Data) -> list[Data]:
        """Store packets; return those that were not held already."""
        key = (data.source, data.incarnation)
        shelf = self.packets.get(key)
        if shelf is None:
            shelf = self.packets[key] = PacketRanges()
        return shelf.add(data)

    def last_of(self, source: int, incarnation: int) -> int:
        """Return the highest number of a source that is held; 0: none."""
        shelf = self.packets.get((source, incarnation))
        return shelf.last if shelf is not None else 0

    def is_complete(self, runs: Iterable[Run], history: History) -> bool:
        """Return whether every packet that these runs would add to the order is held."""
        for run in history.fresh(runs):
            shelf = self.packets.get((run.source, run.incarnation))
            if shelf is None or shelf.contiguous_from(run.first) < run.last:
                return False
        return True

    def missing(self, runs: Iterable[Run], history: History) -> tuple[Run, ...]:
        """Return the packets of these runs that are neither ordered nor held."""
        missing: list[Run] = []
        for run in history.fresh(runs):
            shelf = self.packets.get((run.source, run.incarnation)) or PacketRanges()
            spans = shelf.missing(run.first, run.last)
            missing.extend(Run(run.source, run.incarnation, first, last) for first, last in spans)
        return tuple(missing)

    def forget(self, slot: int, places: dict[int, SourcePosition]) -> None:
        """Drop tokens up to `slot` and packets below `places` (rule 9)."""
        for held in [held for held in self.tokens if held <= slot]:
            del self.tokens[held]
        for key in list(self.packets):
            source, incarnation = key
            place = places.get(source)
            if place is None or incarnation > place.incarnation:
                continue
            if incarnation < place.incarnation:
                del self.packets[key]
            else:
                self.packets[key].forget(place.next)
