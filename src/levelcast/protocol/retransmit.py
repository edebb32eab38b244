"""Answer requests for tokens and packets, and pass on rings and groups (rules 5, 9, 11, 12).

- A node passes on messages inside a `Repair`, as their authors sealed them: the header of the Repair names the node
  that sends it. Slots that have left the journal are served from the tape (`levelcast.protocol.catchup`).
- Retransmissions that several members request within one request interval are multicast (rule 5, MS §3.9). With NACK
  reduction all are, because others wait for them (MS §5.2). Replies to secondaries are unicast (MS §4.1).
- A repair fits a datagram.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from levelcast.protocol.history import Tip
from levelcast.protocol.holdings import Holdings, PacketRanges
from levelcast.timing.rules import Timing
from levelcast.wire.messages import Data, Group, LineHolders, Repair, Request, Ring, Token
from levelcast.wire.packets import MAX_REPAIR_BYTES, fit_datagrams, singles

MAX_ITEMS_PER_REPAIR = 16
MAX_PACKETS_PER_RUN = 256
MAX_REMEMBERED = 4096


class FoundItems(NamedTuple):
    """The requested items that this member holds."""

    items: list[Token | Data]
    from_tape: bool
    """Some of the items are only on the tape now."""


def look_up(request: Request, held: Holdings, base: Tip, released: int, oldest_slot: int) -> FoundItems:
    """Find the requested items. Before `oldest_slot` the lineage cannot distinguish valid tokens from void ones."""
    items: list[Token | Data] = []
    from_tape = False
    for slot in request.slots:
        token = held.tokens.get(slot)
        if slot <= released and (token is None or slot < oldest_slot):
            from_tape = True
        elif token is not None:
            items.append(token)
    for run in request.packets:
        last = min(run.last, run.first + MAX_PACKETS_PER_RUN)
        shelf = held.packets.get((run.source, run.incarnation)) or PacketRanges()
        for piece in shelf.take(run.first, last):
            items.extend(singles(piece))
        place = base.places.get(run.source)
        absent = next(shelf.missing(run.first, last), None)
        if absent is not None and place is not None and (run.incarnation, absent[0]) < place:
            from_tape = True
    return FoundItems(items, from_tape)


class RetransmitScope:
    """Decides whether a retransmission goes to the requester or to all."""

    def __init__(self, timing: Timing) -> None:
        self._window_ns = timing.request_ns
        self._late_ns = timing.late_ns
        self._served_ns: dict[object, int] = {}
        self._asked: dict[object, tuple[int, int]] = {}

    def split(
        self, items: Iterable[Token | Data], requester: int, now: int, *, others_wait: bool = False
    ) -> tuple[list[Token | Data], list[Token | Data]]:
        """Return the items for the requester alone, and the items for all."""
        if others_wait:
            return [], self.once(items, now)
        for_one: list[Token | Data] = []
        for_all: list[Token | Data] = []
        for item in items:
            (for_all if self.is_everybody(_key(item), requester, now) else for_one).append(item)
        return for_one, for_all

    def once(self, items: Iterable[Token | Data], now: int) -> list[Token | Data]:
        """Return the items to multicast because others wait for them (MS §5.2): each once in δ_N.

        The first requests arrive within δ_N of each other; a repeated request arrives τ_r > 2·δ_N later.
        """
        fresh: list[Token | Data] = []
        for item in items:
            key = _key(item)
            served_ns = self._served_ns.get(key)
            if served_ns is None or now - served_ns > self._late_ns:
                self._served_ns[key] = now
                fresh.append(item)
        if len(self._served_ns) > MAX_REMEMBERED:
            self._served_ns = {key: at_ns for key, at_ns in self._served_ns.items() if now - at_ns <= self._late_ns}
        return fresh

    def is_everybody(self, item: object, requester: int, now: int) -> bool:
        """Return True if another node requested `item` within the last request interval."""
        last = self._asked.get(item)
        self._asked[item] = (requester, now)
        if len(self._asked) > MAX_REMEMBERED:
            self._asked = {key: value for key, value in self._asked.items() if now - value[1] <= self._window_ns}
        return last is not None and last[0] != requester and now - last[1] <= self._window_ns


def _key(item: Token | Data) -> object:
    return item[:3] if isinstance(item, Data) else (item.generation, item.slot)


def pack_repairs(member: int, items: Iterable[Token | Data]) -> Iterator[Repair]:
    """Pack items into as many repairs as needed for each to fit a datagram."""
    groups = fit_datagrams(items, lambda item: len(item.sealed), MAX_ITEMS_PER_REPAIR, MAX_REPAIR_BYTES)
    return (Repair(member, group) for group in groups)


def passed_on(message: Ring | Group | LineHolders, sender: int) -> Ring | Group | LineHolders | Repair:
    """Return a message of a server for a node that missed it: its author sends it again, others pass it on."""
    return message if message.server == sender else Repair(sender, (message,))
