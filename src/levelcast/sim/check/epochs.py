"""Check what the epochs of a group promise together (rules E-1 to E-5 of `levelcast.byzantine.epochs`).

| invariant       | checked |
|-----------------|---------|
| One successor   | at every begin of an epoch: all honest nodes have the same record (E-1, E-2) |
| Order of epochs | at every delivery of a first message: what it names is delivered before, by old members (E-5) |
| Source Order    | at every delivery: the packets of an honest sender come in its order, across epochs |
"""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.protocol.effects import ChainDeliver, Effect, EpochBegun, Record
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.engine.world import SimNode
from levelcast.wire.chain_codec import unpack_content
from levelcast.wire.chain_messages import EpochRecord


class EpochChecker:
    """Watcher of all epochs."""

    def __init__(self, honest: Iterable[int]) -> None:
        self._honest = frozenset(honest)
        self._records: dict[int, EpochRecord] = {}
        self._last: dict[tuple[int, int, int], int] = {}
        """Per (node, epoch, sender), the number of the last delivery."""
        self._packet: dict[tuple[int, int], int] = {}
        """Per (node, sender), the number of the last packet."""
        self._outside: set[tuple[int, int]] = set()
        self.from_outside = 0
        self.ordered = 0

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if node.id not in self._honest:
            return
        if isinstance(effect, Record) and isinstance(effect.entry, EpochBegun):
            self._begin(node.id, effect.entry.succession.record)
        elif isinstance(effect, ChainDeliver):
            self._deliver(node.id, effect)

    def _begin(self, node: int, record: EpochRecord) -> None:
        if self._records.setdefault(record.epoch, record) != record:
            raise InvariantBroken("one successor", f"node {node} begins epoch {record.epoch} with another set")

    def _deliver(self, node: int, effect: ChainDeliver) -> None:
        epoch, sender, seq = effect.message.epoch, effect.row.sender, effect.row.seq
        content = unpack_content(effect.message.content)
        self.from_outside += not content.delivered
        prior = content.prior
        if prior.seq and self._takes_part(node, prior.epoch):
            last = self._last.get((node, prior.epoch, sender), 0)
            self.ordered += 1
            if last < prior.seq:
                what = f"node {node} delivers message 1 of {sender} in epoch {epoch} after {last} of {prior}"
                raise InvariantBroken("order of epochs", what)
        self._last[node, epoch, sender] = seq
        if sender in self._honest:
            for packet in effect.packets:
                number = int(packet.split()[0])
                if number <= self._packet.get((node, sender), 0):
                    raise InvariantBroken("source order", f"node {node} delivers packet {number} of {sender} too late")
                self._packet[node, sender] = number

    def _takes_part(self, node: int, epoch: int) -> bool:
        """Return whether a node is a member of an epoch; every honest node is told the first one."""
        if epoch not in self._records:
            return any(number == node and in_epoch == epoch for number, in_epoch, _ in self._last)
        return node in {each.node for each in self._records[epoch].members}
