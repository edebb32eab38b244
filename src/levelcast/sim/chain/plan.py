"""Senders outside the group, and changes of epoch, of a simulated history of chain multicast."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from levelcast.byzantine.signatures import KeyedHashVerifier, Verifier
from levelcast.wire.chain_messages import EpochKey, EpochRecord


def key_of(node: int) -> EpochKey:
    """Return the entry of a node in an epoch record; simulated signatures follow from the node alone."""
    return EpochKey(node, node.to_bytes(32, "little"))


def verifier_of(record: EpochRecord) -> Verifier:
    """Return the verifier of an epoch."""
    return KeyedHashVerifier(tuple(record.keys))


class GroupPlan:
    """What a seed draws besides the first set: its own generator keeps the rest of a history as it is."""

    def __init__(self, rng: Random, members: tuple[int, ...], liars: frozenset[int], *, extras: bool) -> None:
        self.rng = rng
        first_id = max(members) + 1
        outside = tuple(range(first_id, first_id + rng.choice((0, 0, 1, 2)))) if extras else ()
        self.outside_liars = frozenset(each for each in outside if rng.random() < 0.5)
        self.records = [EpochRecord(1, _keys(members), _keys(outside))]
        """The records that the operator wants, in the order of their epochs."""
        joiners = iter(range(first_id + len(outside), first_id + len(outside) + 8))
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2)) if extras else 0):
            self.records.append(self._next(joiners))
        self.confused = rng.random() < 0.25
        """Some members get another record first."""
        self.nodes = tuple(sorted({node for record in self.records for node in record.keys}))

    def _next(self, joiners: Iterator[int]) -> EpochRecord:
        """Return a successor of the last record: not smaller, so that f members may lie in it too."""
        rng, last = self.rng, self.records[-1]
        members, outside = [each.node for each in last.members], [each.node for each in last.outside]
        joining = rng.choice((0, 1, 1, 2))
        for _ in range(joining):
            if rng.random() < 0.6:
                members.remove(rng.choice(members))
        while len(members) < len(last.members) + (joining > 1):
            members.append(next(joiners))
        if outside and rng.random() < 0.2:
            outside.pop()
        rng.shuffle(members)
        return EpochRecord(last.epoch + 1, _keys(members), _keys(outside))

    def proposals(self, lasting_ns: int) -> Iterator[tuple[int, int, EpochRecord]]:
        """Yield when the operator proposes which record at which member."""
        rng = self.rng
        for number, record in enumerate(self.records[1:], 1):
            begin_ns = lasting_ns * number // (len(self.records) + 1)
            for each in self.records[number - 1].members:
                chosen = record
                if self.confused and rng.random() < 0.3:
                    chosen = record._replace(members=tuple(reversed(record.members)))
                yield begin_ns + rng.randint(0, lasting_ns // 5), each.node, chosen


def _keys(nodes: list[int] | tuple[int, ...]) -> tuple[EpochKey, ...]:
    return tuple(key_of(node) for node in nodes)
