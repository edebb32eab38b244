"""The tokens and packets that a receiver holds and its tape does not yet make superfluous."""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.ring.order import History, Place
from levelcast.ring.repair import numbers_to_runs
from levelcast.wire.messages import Data, Run, Token


class Holdings:
    """Valid tokens by slot, packets by (source, incarnation) and number."""

    def __init__(self) -> None:
        self.tokens: dict[int, Token] = {}
        self.packets: dict[tuple[int, int], dict[int, Data]] = {}

    def add_packet(self, packet: Data) -> bool:
        """Keep a packet; False if it was held already."""
        by_number = self.packets.setdefault((packet.source, packet.incarnation), {})
        if packet.number in by_number:
            return False
        by_number[packet.number] = packet
        return True

    def is_complete(self, runs: Iterable[Run], history: History) -> bool:
        """Whether every packet that these runs would add to the order is held."""
        for run in history.fresh(runs):
            by_number = self.packets.get((run.source, run.incarnation))
            if by_number is None:
                return False
            for number in range(run.first, run.last + 1):
                if number not in by_number:
                    return False
        return True

    def missing(self, runs: Iterable[Run], history: History) -> tuple[Run, ...]:
        """The packets that these runs name, that are not yet ordered and not held."""
        missing: list[Run] = []
        for run in history.fresh(runs):
            by_number = self.packets.get((run.source, run.incarnation), {})
            absent = (number for number in range(run.first, run.last + 1) if number not in by_number)
            missing.extend(numbers_to_runs(run.source, run.incarnation, absent))
        return tuple(missing)

    def forget(self, slot: int, places: dict[int, Place]) -> None:
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
                continue
            by_number = self.packets[key]
            for number in [number for number in by_number if number < place.next]:
                del by_number[number]
