"""A whole network and its customers as real processes: everybody gets every record, whoever is killed.

Nothing here depends on how fast the machine is: what customers got is compared with the tapes.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import levelcast
from levelcast.network import MulticastGroup, Network, load_network
from levelcast.node.cluster import Cluster, ClusterRun, Kill
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import judge
from levelcast.records import RecordArray, trades
from levelcast.storage.tape.reader import TapeReader
from levelcast.wire import mold
from tests.conftest import lacking
from tests.net_edge_parts import network_text

LISTEN = Path(__file__).resolve().parents[2] / "examples" / "listen.py"
RECEIVERS = ("a-1", "b-1", "c-1")
TRADING_S = 2.5
LIMIT_S = 30.0
MARKS_APART = 20
"""Watermarks of two seconds: they go on, ten a second, until a receiver has ended, and one may take longer."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(network_text(), encoding="utf-8")
    return path


@pytest.fixture
def network(file: Path) -> Network:
    return load_network(file)


@contextmanager
def ending(command: list[str], output: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes to a file, and is ended in any case."""
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def bare_listener(group: MulticastGroup, output: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-u", str(LISTEN), group.address, str(group.port), "127.0.0.1"]
    with ending(command, output) as listener:
        assert listener.stderr is not None
        assert "listening" in listener.stderr.readline()
        yield listener


async def trade(file: Path, network: Network, data: Path, kills: list[Kill]) -> Cluster:
    """The network's life: floors trade, everything is released, all nodes end in order."""
    options = NodeOptions(rate=1_000, run_ns=int(TRADING_S * 1e9), impair=True)
    cluster = Cluster(network, file, data, options)
    run = ClusterRun(cluster, TRADING_S, 15.0, kills)
    steps = run.steps()
    while await asyncio.to_thread(lambda: next(steps, "over")) != "over":
        pass
    verdict = judge(data, RECEIVERS, run.problems)
    assert verdict.problems == []
    return cluster


def trades_on(tape: Path) -> RecordArray:
    found = [batch.records for frame in TapeReader(tape).frames() for batch in frame.batches()]
    return np.concatenate([each for each in found if each.dtype.names == trades(0).dtype.names])


class Customer:
    """A subscriber that takes whatever comes until it has as many trades as there are."""

    def __init__(self, network: Network, region: str, **more: Any) -> None:
        self.batches: list[RecordArray] = []
        self.sequences: list[int | None] = []
        self.tape = levelcast.Subscriber(network, region, **more)

    @property
    def trades(self) -> RecordArray:
        return np.concatenate([trades(0), *self.batches])

    async def follow(self) -> None:
        async with self.tape as tape:
            async for batch in tape:
                if batch.kind.name == "trade":
                    self.batches.append(np.asarray(batch.records))
                    self.sequences.append(batch.global_sequence)

    def check(self, wanted: RecordArray) -> None:
        found = self.trades
        assert np.array_equal(found, wanted)
        assert self.tape.counts.lost == 0
        known = [(s, int(b["sequence"][0])) for s, b in zip(self.sequences, self.batches, strict=True) if s is not None]
        assert known
        assert all(whole == low for whole, low in known)


async def patience(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not done():
            await asyncio.sleep(0.05)


def check_listener(lines: list[str], wanted: RecordArray) -> None:
    """session, sequence, floor, instrument, ts_event, price, size."""
    rows = [line.split(",") for line in lines]
    for column, name in ((2, "publisher_id"), (3, "instrument_id"), (4, "ts_event"), (6, "size")):
        assert [int(row[column]) for row in rows] == wanted[name].tolist()
    assert [float(row[5]) for row in rows] == (wanted["price"] / 1e9).tolist()
    sequences = [int(row[1]) for row in rows]
    assert sequences == sorted(set(sequences))


async def story(file: Path, network: Network, data: Path, kills: list[Kill]) -> tuple[Cluster, list[Customer]]:
    """Two subscribers and a bare listener beside a network from its start to its end."""
    (west,), (east,) = network.groups_of_region("west"), network.groups_of_region("east")
    customers = [Customer(network, west.name), Customer(network, east.name)]
    output = data.parent / "listener.csv"
    with bare_listener(west, output) as listener:
        tasks = [asyncio.create_task(each.follow()) for each in customers]
        try:
            await asyncio.sleep(0.1)
            cluster = await trade(file, network, data, kills)
            wanted = trades_on(data / "a-1" / "tape")
            assert len(wanted) > 500
            await patience(lambda: all(len(each.trades) >= len(wanted) for each in customers))
            await patience(lambda: output.read_text(encoding="utf-8").count("\n") >= len(wanted))
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in results), results
        listener.terminate()
        assert listener.stderr is not None
        assert listener.stderr.read() == "", "the bare listener missed something"
    for customer in customers:
        customer.check(wanted)
    check_listener(output.read_text(encoding="utf-8").splitlines(), wanted)
    return cluster, customers


@contextmanager
def capture(require_tool: Callable[[str], str], group: MulticastGroup, path: Path) -> Iterator[None]:
    """What is sent to a group while this is open, as a capture file."""
    dumpcap = require_tool("dumpcap")
    command = [dumpcap, "-q", "-i", "lo", "-f", f"udp and dst host {group.address}", "-w", str(path)]
    capturing = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert capturing.stderr is not None
    try:
        said = ""
        while "File:" not in said:  # it says so when it captures
            line = capturing.stderr.readline()
            said += line
            if not line:
                lacking(f"the right to capture on lo ({said.strip().splitlines()[-1]})")
        yield
        time.sleep(1.0)  # it writes now and then
    finally:
        capturing.terminate()
        capturing.communicate(timeout=20)


def test_everybody_gets_every_record_and_tshark_reads_the_packets(
    file: Path, network: Network, tmp_path: Path, require_tool: Callable[[str], str]
) -> None:
    tshark, (east,) = require_tool("tshark"), network.groups_of_region("east")
    path = tmp_path / "edge.pcapng"
    with capture(require_tool, east, path):
        cluster, _ = asyncio.run(story(file, network, tmp_path / "data", []))
    status = cluster.members["c-1"].status["edge"]
    command = [tshark, "-r", str(path), "-d", f"udp.port=={east.port},moldudp64", "-T", "fields"]
    for name in ("session", "sequence", "count", "msglen"):
        command += ["-e", f"moldudp64.{name}"]
    command += ["-e", "_ws.malformed", "-e", "_ws.expert.severity", "-e", "udp.length"]
    shown = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout
    rows = [line.split("\t") for line in shown.splitlines()]
    assert len(rows) >= status["packets"]
    following = 1
    for session, sequence, count, lengths, malformed, severity, size in rows:
        assert (session.rstrip(), malformed, severity) == ("main", "", "")
        assert int(sequence, 0) == following
        found = [int(each, 0) for each in lengths.split(",") if each]
        assert len(found) == int(count, 0)
        assert int(size) == 8 + mold.HEADER_SIZE + sum(found) + mold.LENGTH_SIZE * len(found)
        following += int(count, 0)
    assert following == status["sessions"]["main"]


def test_with_one_of_two_receivers_killed_no_customer_of_the_region_has_a_gap(
    file: Path, network: Network, tmp_path: Path
) -> None:
    cluster, customers = asyncio.run(story(file, network, tmp_path / "data", [Kill("b-1", 1.5, 2.2)]))
    assert cluster.members["b-1"].kills == 1
    edges = {name: cluster.members[name].status["edge"] for name in RECEIVERS}
    following = [each["sessions"]["main"] for each in edges.values()]
    assert max(following) - min(following) <= MARKS_APART
    assert customers[0].tape.counts.duplicates > 0
    states = [re.sub(r"^.*/", "", str(each)) for each in (tmp_path / "data" / "b-1" / "edge").iterdir()]
    assert "state" in states
