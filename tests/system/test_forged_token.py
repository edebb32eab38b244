"""A well-formed token that contradicts the order reaches real nodes: it is rejected, and nothing else changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import levelcast
from levelcast.network import Network, load_network
from levelcast.network.stripe_config import ring_config
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import judge
from levelcast.protocol.effects import GROUP
from levelcast.records import trades
from levelcast.runtime.sockets import LOOPBACK, CoreSockets
from levelcast.runtime.sockets import RECEIVERS as DATA_GROUP
from levelcast.wire.codec import decode_batch, encode
from levelcast.wire.messages import Packet, Run, Token
from levelcast.wire.packets import seal
from tests.network_parts import TWO_FLOORS, three_rooms

RECEIVERS = ("a-1", "b-1", "c-1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(three_rooms(TWO_FLOORS), encoding="utf-8")
    return path


def wait_until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    ends = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.05)


def newest_token(sockets: CoreSockets, domain: int) -> Token:
    """The last token that was multicast to the core group."""
    newest: Token | None = None
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        came, _ = sockets.wait(0.0 if newest is not None else 0.1, ())
        if newest is not None and not came:
            return newest
        datagrams = [arrival for arrival, *_ in sockets.drain() if isinstance(arrival, bytes)]
        tokens = [message for message in decode_batch(datagrams, domain)[0] if isinstance(message, Token)]
        newest = tokens[-1] if tokens else newest
    raise AssertionError("no token in a minute")


def forge(network: Network, sockets: CoreSockets, members: list[int]) -> None:
    """A packet that no floor sent and leaves a gap, and the token of a slot to come that names it."""
    floor = next(floor for floor in network.floors if floor.name == "XNYS")
    domain = ring_config(network).domain
    stray = seal(Packet(floor.id, 1, 2, 1, trades(1).tobytes()), domain)
    seen = newest_token(sockets, domain)
    slots = 4
    owner = members[(members.index(seen.owner) + slots) % len(members)]
    timestamp_ns = seen.timestamp_ns + slots * network.timing().slot_ns
    run = Run(floor.id, 1, 2, 2)
    bad = Token(seen.generation, seen.slot + slots, timestamp_ns, owner, seen.have, seen.credit, (run,), ())
    sockets.send(DATA_GROUP, [encode(stray, domain)])
    sockets.send(GROUP, [encode(bad, domain)])


def test_it_is_rejected_and_the_ring_and_the_tapes_go_on(file: Path, tmp_path: Path) -> None:
    network, data = load_network(file), tmp_path / "data"
    cluster = Cluster(network, file, data, NodeOptions(), floors=False)
    members = [cluster.members[name] for name in RECEIVERS]
    cluster.start_all()
    group = network.core_group()
    sockets = CoreSockets(group.address, group.port, LOOPBACK)
    try:
        wait_until(lambda: all(member.status.get("state") == "ACTIVE" for member in members))
        ids = members[0].status["members"]
        for _ in range(10):
            forge(network, sockets, ids)
            time.sleep(0.3)
        wait_until(lambda: any(member.status["reports"].get("rejected") for member in members))
        have = max(member.status["have"] for member in members)
        wait_until(lambda: all(member.running and member.status["have"] > have + 50 for member in members))
        with levelcast.Publisher(network, "XLON") as publisher:
            batch = trades(100)
            batch["publisher_id"], batch["instrument_id"] = 2, 2
            publisher.publish(batch)
        horizon_ns = cluster.horizon_ns()
        wait_until(lambda: cluster.complete_upto(horizon_ns))
        cluster.check()
    finally:
        sockets.close()
        cluster.stop()
    verdict = judge(data, RECEIVERS, [])
    assert verdict.problems == []
    assert len({each.chain for each in verdict.receivers}) == 1
    assert min(each.records for each in verdict.receivers) >= 100
