"""Two lines into a region, from two receivers of three: `kill -9` of one holder, and no customer has a gap (MS §4.1).

Nothing here depends on how fast the machine is: every step waits for what it needs.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import levelcast
from levelcast.edge.subscriber.delivery import Grade
from levelcast.network import Network, load_network
from levelcast.node.verdict import judge
from levelcast.records import RecordArray, trades
from levelcast.storage.tape.reader import TapeReader
from tests.net_edge_parts import network_text
from tests.network_parts import free_ports
from tests.system.processes import Nodes, in_ring, nodes_of
from tests.system.processes import levelcast as run_levelcast

RECEIVERS = ("a-1", "b-1", "c-1")
OTHERS = ("reform-a", "reform-b")
LIMIT_S = 60.0


def write_network(path: Path) -> Path:
    """Both groups are lines of the west, where a-1 and b-1 stand; c-1 is in the east."""
    text = network_text()
    head, west, east = text.split("[[edge.group]]")
    west = west.replace('region = "west"', 'region = "west"\nline = "a"')
    east = east.replace('region = "east"', 'region = "west"\nline = "b"')
    text = "[[edge.group]]".join((head, west, east))
    path.write_text(f"{text}\n[status]\nport = {free_ports()}\n", encoding="utf-8")
    return path


class Customer:
    """A subscriber of one grade."""

    def __init__(self, network: Network, grade: Grade) -> None:
        self.tape = levelcast.Subscriber(network, "west", grade=grade)
        self.batches: list[RecordArray] = []

    @property
    def trades(self) -> RecordArray:
        return np.concatenate([trades(0), *self.batches])

    async def follow(self) -> None:
        async with self.tape as tape:
            async for batch in tape:
                if batch.kind.name == "trade":
                    self.batches.append(np.asarray(batch.records))


async def story(nodes: Nodes, network: Network, data: Path) -> list[Customer]:
    customers = [Customer(network, grade) for grade in (Grade.GUARANTEED, Grade.LATEST_ONLY)]
    guaranteed = customers[0]
    tasks = [asyncio.create_task(each.follow()) for each in customers]

    async def until(done: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not done():
                await asyncio.sleep(0.05)

    async def groups_are(**wanted: list[str]) -> None:
        def are(said: dict[str, Any]) -> bool:
            return all(said[name.replace("_", "-")]["edge"]["groups"] == wanted[name] for name in wanted)

        await asyncio.to_thread(nodes.wait_for, are)

    for name in (*RECEIVERS, *OTHERS):
        nodes.start(name, data)
    nodes.start("XNYS", data, "--rate", 500)
    await asyncio.to_thread(nodes.wait_for, lambda said: in_ring(said, *RECEIVERS))
    await groups_are(a_1=["west"], b_1=["east"], c_1=[])
    await until(lambda: min(line.counts.packets for line in guaranteed.tape.lines.values()) > 20)

    assert await asyncio.to_thread(nodes.end, "a-1", signal.SIGKILL) == -signal.SIGKILL
    had = len(guaranteed.trades)
    await groups_are(b_1=["east"], c_1=["west"])  # the ring is formed anew, and the line has another sender
    before = guaranteed.tape.lines["a"].counts.packets
    await until(lambda: guaranteed.tape.lines["a"].counts.packets > before + 20)
    assert len(guaranteed.trades) > had

    nodes.start("a-1", data)
    await asyncio.to_thread(nodes.wait_for, lambda said: in_ring(said, *RECEIVERS))
    await groups_are(a_1=["west"], b_1=["east"], c_1=[])  # it is given back
    before = guaranteed.tape.lines["a"].counts.packets
    await until(lambda: guaranteed.tape.lines["a"].counts.packets > before + 20)

    await asyncio.to_thread(nodes.end, "XNYS")

    def all_released(said: dict[str, Any]) -> bool:
        return len({said[name]["tape_records"] for name in RECEIVERS}) == 1

    sent = await asyncio.to_thread(nodes.wait_for, all_released)
    await asyncio.to_thread(nodes.wait_for, lambda said: said["b-1"]["released_slot"] > sent["b-1"]["have"])
    wanted = trades_on(data / "b-1" / "tape")
    await until(lambda: len(guaranteed.trades) >= len(wanted))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for name in (*RECEIVERS, *OTHERS):
        assert await asyncio.to_thread(nodes.end, name) == 0
    return customers


def trades_on(tape: Path) -> RecordArray:
    found = [batch.records for frame in TapeReader(tape).frames() for batch in frame.batches()]
    return np.concatenate([each for each in found if each.dtype.names == trades(0).dtype.names])


def newest(found: RecordArray) -> dict[int, int]:
    """The sequence of the last trade of each instrument."""
    return dict(zip(found["instrument_id"].tolist(), found["sequence"].tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_holder_of_a_line_is_killed_and_no_customer_has_a_gap(tmp_path: Path) -> None:
    file, data = write_network(tmp_path / "network.toml"), tmp_path / "data"
    network = load_network(file)
    assert run_levelcast("disk", "init", "--network", file, "--data", data, "--all").returncode == 0
    with nodes_of(file, tmp_path) as nodes:
        guaranteed, latest = asyncio.run(story(nodes, network, data))
    assert judge(data, RECEIVERS).problems == []
    wanted = trades_on(data / "b-1" / "tape")
    assert np.array_equal(guaranteed.trades, wanted[-len(guaranteed.trades) :])
    assert len(guaranteed.trades) > len(wanted) - 100
    assert guaranteed.tape.counts.lost == 0
    assert newest(latest.trades) == newest(wanted)
    a, b = (guaranteed.tape.lines[name].counts for name in "ab")
    assert min(a.packets, b.packets) > 40
    assert 0 < a.first + b.first <= guaranteed.tape.counts.records
