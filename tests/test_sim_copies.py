"""A ring with additional copies in the simulator: as the model says, and within the factor of the bytes."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest

from levelcast.native.layout import KIND_AT, KIND_DATA
from levelcast.ring.source import Source
from levelcast.sim.engine.network import Copy, LinkNetwork
from levelcast.sim.engine.world import SimNode
from levelcast.sim.scenarios.steady import MS, PAYLOAD, SteadyWorld
from levelcast.timing.copies import Copies
from levelcast.timing.hold import count_slots
from levelcast.timing.hold_rules import HoldRules
from levelcast.wire.header import HEADER_SIZE
from levelcast.wire.parity import KIND_PARITY
from levelcast.wire.token_codec import KIND_BEAT, KIND_TOKEN
from tests.bulk_parts import Small, config_of, links_of, roles_of
from tests.test_timing_hold_secondaries import group_of

REDUNDANCY, PACKETS = 1.4, 6
SMALL = Small(5, 0, 0.05, gap_ms=60)
COPIES = Copies(1, 3)


@dataclass
class CountingNetwork(LinkNetwork):
    """Counts the bytes of every copy that is sent, by kind, and those of a token beyond its two copies."""

    sent_bytes: Counter[int] = field(default_factory=Counter)
    further_bytes: int = 0
    tokens: Counter[tuple[int, int]] = field(default_factory=Counter)

    def copies(self, sender: int, receivers: Sequence[int], datagram: bytes) -> list[Copy]:
        kind = datagram[KIND_AT]
        self.sent_bytes[kind] += len(datagram) * len(receivers)
        if kind == KIND_TOKEN:
            (slot,) = struct.unpack_from("<Q", datagram, HEADER_SIZE)
            for receiver in receivers:
                self.tokens[slot, receiver] += 1
                self.further_bytes += len(datagram) * (self.tokens[slot, receiver] > 2)
        return super().copies(sender, receivers, datagram)


class Trains(SteadyWorld):
    """Sources that send trains."""

    def _submit(self, node: SimNode) -> None:
        source = node.machine
        assert isinstance(source, Source)
        if source.room < PACKETS:
            self.refused += 1
            return
        packets = []
        for _ in range(PACKETS):
            self._numbers[node.id] += 1
            packets.append((PAYLOAD.pack(node.id, self._numbers[node.id]) * 12, 12))
        node.perform(source.submit_together(packets, node.local_ns))


def run(redundancy: float, copies: Copies, lasting_ms: int) -> tuple[Trains, CountingNetwork]:
    """Run the ring's own classes, with all checkers."""
    network = CountingNetwork(Random(5), {}, links=links_of(SMALL))
    config = config_of(SMALL)
    plan = dict.fromkeys(roles_of(SMALL).members, copies)
    config = replace(config, redundancy=redundancy, copies=plan if any(copies) else {})
    ring = Trains(config, roles_of(SMALL), network, 5, SMALL.gap_ms * MS, MS // 2)
    ring.form()
    ring.samples.ready_ns = type(ring.samples.ready_ns)("q")
    ring.samples.requests = 0
    ring.load(lasting_ms * MS)
    ring.drain()
    return ring, network


def test_slots_are_ready_when_the_model_says_and_the_bytes_stay_within_the_factor() -> None:
    ring, network = run(REDUNDANCY, COPIES, 8_000)
    group = replace(group_of(SMALL), packets=PACKETS, rules=HoldRules(common_time=False))
    counts = count_slots(replace(group, copies=(COPIES,) * 5), 40_000, 1)
    needed, ready = counts.needed.sum(axis=0), np.asarray(ring.samples.ready_ns) / MS
    for share, tolerance in ((0.1, 0.06), (0.5, 0.06), (0.9, 0.06), (0.99, 0.15)):
        assert counts.quantile_ms(needed, 1 - share) == pytest.approx(np.quantile(ready, share), rel=tolerance)
    without = count_slots(group, 40_000, 1)
    assert without.quantile_ms(without.needed.sum(axis=0), 0.01) > 1.2 * np.quantile(ready, 0.99)

    sent = network.sent_bytes
    assert 0.25 * sent[KIND_DATA] < sent[KIND_PARITY] <= (REDUNDANCY - 1.0) * sent[KIND_DATA]
    control = sent[KIND_TOKEN] + sent[KIND_BEAT] - network.further_bytes
    assert 0 < network.further_bytes <= (REDUNDANCY - 1.0) * control
    copied = sent[KIND_PARITY] + network.further_bytes
    assert sent.total() <= REDUNDANCY * (sent.total() - copied)


def test_with_a_factor_of_1_nothing_more_is_sent() -> None:
    for copies in (Copies(), COPIES):
        _, network = run(1.0, copies, 1_000)
        assert network.sent_bytes[KIND_PARITY] == network.further_bytes == 0
        assert max(network.tokens.values()) == 2
