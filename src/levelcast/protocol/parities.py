"""Parities that a receiver has got, and the packets that it rebuilds with them (TT §4.3; rule W11).

A parity is kept while several of its packets are missing: the others may still arrive, or be repaired. A rebuilt packet
counts like one from the network, and only if

- it decodes, with the seal of its author, as a packet of this stripe;
- it is the missing packet itself: of this source, incarnation and number. A parity of one packet has any content that
  its sender chooses;
- its records are accepted, as those of a packet from the network are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from levelcast.protocol.holdings import Holdings
from levelcast.protocol.seals import NodeSeals
from levelcast.wire.messages import Data, Parity, Run
from levelcast.wire.parity import rebuilt_datagram

MAX_WAITING = 256
"""Parities with several missing packets; the oldest are dropped."""


class Rebuilt(NamedTuple):
    """The result of a parity with one missing packet."""

    number: int
    data: Data | None
    """None: what it contains is not that packet."""


class Parities:
    """The parities of one receiver that may still rebuild a packet."""

    def __init__(self, seals: NodeSeals) -> None:
        self._seals = seals
        self._waiting: list[Parity] = []
        self._new: list[Parity] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, parity: Parity) -> None:
        """Keep a parity until `rebuild`."""
        for parities in (self._waiting, self._new):
            parities.append(parity)
            del parities[:-MAX_WAITING]

    def clear(self) -> None:
        self._waiting.clear()
        self._new.clear()

    def rebuild(
        self, held: Holdings, lowest: Callable[[Parity], int | None], refuses: Callable[[Data], bool]
    ) -> Iterator[tuple[Parity, Rebuilt]]:
        """Yield what parities rebuild; drop those that cannot rebuild anything.

        `lowest` returns the first number of a parity's source that is not ordered, None if its incarnation is over.
        """
        waiting, self._waiting = self._waiting, []
        for parity in waiting:
            first = lowest(parity)
            if first is None:
                continue
            missing, others = _missing(parity, held, first)
            if len(missing) == 1 and len(others) == parity.packets - 1:
                yield parity, Rebuilt(missing[0], self._open(parity, missing[0], others, refuses))
            elif len(missing) > 1:
                self._waiting.append(parity)

    def _open(self, parity: Parity, number: int, others: list[bytes], refuses: Callable[[Data], bool]) -> Data | None:
        datagram = rebuilt_datagram(parity, others)
        data = self._seals.open_packet(datagram) if datagram is not None else None
        return data if data is not None and is_missing_packet(data, parity, number) and not refuses(data) else None

    def trailing(self, held: Holdings, lowest: Callable[[Parity], int | None]) -> list[Run]:
        """Return the packets of new parities after all that are held: no later packet shows that they were sent."""
        new = [parity for parity in self._waiting if any(parity is each for each in self._new)]
        self._new.clear()
        found: dict[tuple[int, int], Run] = {}
        for parity in new:
            key = (parity.source, parity.incarnation)
            first = max(held.last_of(*key) + 1, lowest(parity) or 1)
            last = max(parity.numbers[-1], found[key].last if key in found else 0)
            if first <= last:
                found[key] = Run(*key, first, last)
        return list(found.values())


def is_missing_packet(data: Data, parity: Parity, number: int) -> bool:
    """Return whether a rebuilt packet is the one that was missing."""
    return data[:4] == (parity.source, parity.incarnation, number, number)


def _missing(parity: Parity, held: Holdings, lowest: int) -> tuple[list[int], list[bytes]]:
    """Return the numbers that are neither ordered nor held, and the datagrams of those that are held."""
    ranges = held.packets.get((parity.source, parity.incarnation))
    missing: list[int] = []
    others: list[bytes] = []
    for number in parity.numbers:
        found = next(ranges.take(number, number), None) if ranges is not None else None
        if found is not None:
            others.append(found.sealed)
        elif number >= lowest:
            missing.append(number)
    return missing, others
