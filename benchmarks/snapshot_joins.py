"""1,000 subscribers that join one receiver by snapshot within a second: when each has its snapshot, and what it costs.

Three receivers, two reformation servers and two floors as processes, 20,000 records a second, 1,000 symbols. One
process connects to the edge of one receiver 1,000 times, evenly over one second, reads every snapshot and checks its
CRC. Four subscribers join by snapshot in a third process and follow everything: they need what was sent after it as
well. Releases that are late by protocol, and the scheduling delay of all receivers, are counted from the release logs,
before the joins and while they are served.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import numpy as np

import levelcast
from benchmarks.report import Figure, Options, Result, Table, tell
from benchmarks.room import RECEIVERS, write_network
from levelcast.network import Network, load_network
from levelcast.network.roles import RECEIVER
from levelcast.node.cluster import Cluster, ClusterRun
from levelcast.node.options import NodeOptions
from levelcast.node.status_client import ask_all
from levelcast.node.verdict import judge
from levelcast.storage.release_log import is_late, read_together, scheduling_ns
from levelcast.units import quantile
from levelcast.wire.header import Malformed
from levelcast.wire.snapshot import HEADER_SIZE, snapshot_size

JOINS, RATE, SYMBOLS = 1_000, 20_000.0, 1_000
QUICK_JOINS, QUICK_RATE, QUICK_SYMBOLS = 50, 1_000.0, 50
OVER_S, LIMIT_S, BEFORE_S = 1.0, 60.0, 5.0
TARGET_S = 5.0
"""All joins are complete within this time after the first one (docs/edge.md)."""
SUBSCRIBERS, FOLLOWED = 4, 1_000
"""A subscriber has joined when it was given so many records after its snapshot."""
_CHUNK = 1 << 20
_CRC_BYTES = 4
_FILES = 4_096


# -- the joining processes ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Join:
    """One connection, and the snapshot as far as it has come."""

    began_s: float
    size: int = 0
    crc: int = 0
    head: bytes = b""
    tail: bytes = b""
    """The last bytes: they may be the CRC, which is not part of what it covers."""
    took_s: float | None = None

    def add(self, part: memoryview) -> None:
        self.size += len(part)
        if len(self.head) < HEADER_SIZE:
            self.head += bytes(part[: HEADER_SIZE - len(self.head)])
        if len(part) >= _CRC_BYTES:
            self.crc = crc32(part[:-_CRC_BYTES], crc32(self.tail, self.crc))
            self.tail = bytes(part[-_CRC_BYTES:])
        else:
            content = self.tail + bytes(part)
            self.crc, self.tail = crc32(content[:-_CRC_BYTES], self.crc), content[-_CRC_BYTES:]

    @property
    def intact(self) -> bool:
        try:
            return self.size == snapshot_size(self.head) and self.crc == int.from_bytes(self.tail, "little")
        except Malformed:
            return False


def join_all(address: tuple[str, int], joins: int) -> list[Join]:
    """Connect `joins` times within `OVER_S`, and read everything. A join that fails has no `took_s`."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    readable, done = selectors.DefaultSelector(), []
    began = time.monotonic()
    opened, buffer = 0, memoryview(bytearray(_CHUNK))
    while (opened < joins or readable.get_map()) and time.monotonic() - began < LIMIT_S:
        now = time.monotonic()
        while opened < joins and now - began >= opened * OVER_S / joins:
            client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect(address)
            done.append(Join(time.monotonic()))
            readable.register(client, selectors.EVENT_READ, done[-1])
            opened += 1
        for key, _ in readable.select(0.0005):
            reader, join = key.fileobj, key.data
            assert isinstance(reader, socket.socket)
            try:
                count = reader.recv_into(buffer)
            except OSError:
                count, join.size = 0, 0
            if count:
                join.add(buffer[:count])
            else:
                join.took_s = time.monotonic() - join.began_s if join.intact else None
                readable.unregister(reader)
                reader.close()
    return done


async def follow(file: Path, took_s: list[float]) -> None:
    """Join by snapshot; note the time until the records after it come."""
    began, records = time.monotonic(), 0
    async with levelcast.Subscriber(file, start="snapshot") as tape:
        async for batch in tape:
            records += len(batch.records)
            if records >= FOLLOWED:
                took_s.append(time.monotonic() - began)
                return


async def follow_all(file: Path) -> list[float]:
    took_s: list[float] = []
    tasks = []
    for _ in range(SUBSCRIBERS):
        tasks.append(asyncio.create_task(asyncio.wait_for(follow(file, took_s), LIMIT_S)))
        await asyncio.sleep(OVER_S / SUBSCRIBERS)
    await asyncio.gather(*tasks, return_exceptions=True)
    return took_s


# -- the run -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What came of the joins, and of the receivers meanwhile."""

    joins: int
    took_s: list[float] = field(default_factory=list)
    """Of the joins that were complete."""
    all_s: float = 0.0
    """From the first connection to the end of the last snapshot."""
    snapshot_bytes: int = 0
    subscribed_s: list[float] = field(default_factory=list)
    late: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Records late by protocol at each receiver: before the joins, and while they were served."""
    delays_ms: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    records_s: float = 0.0
    problems: list[str] = field(default_factory=list)


def edge_address(network: Network, name: str) -> tuple[str, int]:
    """Where a receiver serves snapshots."""
    for answer in ask_all(network):
        if answer.name == name and answer.ok:
            host, _, port = answer.status["edge"]["address"].rpartition(":")
            return host, int(port)
    raise AssertionError(f"{name} does not reply")


def perform(base: Path, joins: int, rate: float, symbols: int) -> Outcome:
    listed = {f"XF{floor:02}": [f"S{each:04}" for each in range(floor - 1, symbols, 2)] for floor in (1, 2)}
    file = write_network(base, listed, 1, "100ms", one_sends=False)
    network = load_network(file)
    cluster = Cluster(network, file, base / "data", NodeOptions(rate=rate))
    run = ClusterRun(cluster, None, sum(term.ns for term in network.liveness()) / 1e9 + 20.0)
    outcome = Outcome(joins)
    joining: list[subprocess.Popen[str]] = []
    begun_ns = ended_ns = 0
    for _ in run.steps():
        if run.phase != "running":
            continue
        records = [member.status.get("records", 0) for member in cluster.of_role(RECEIVER)]
        if not joining and min(records) > rate * BEFORE_S:
            host, port = edge_address(network, RECEIVERS[0])
            command = [sys.executable, "-m", "benchmarks.snapshot_joins"]
            wishes = [["--join", host, str(port), str(joins)], ["--subscribe", str(file)]]
            begun_ns = time.time_ns()
            joining = [subprocess.Popen([*command, *each], stdout=subprocess.PIPE, text=True) for each in wishes]
        elif joining and all(each.poll() is not None for each in joining):
            ended_ns = time.time_ns()
            run.interrupted = True
    found, subscribed = (json.loads(each.communicate()[0]) for each in joining)
    outcome.took_s, outcome.all_s = sorted(found["took_s"]), found["all_s"]
    outcome.snapshot_bytes, outcome.subscribed_s = found["bytes"], sorted(subscribed)
    outcome.problems = judge(base / "data", RECEIVERS, run.problems).problems
    _read_logs(base / "data", outcome, begun_ns, ended_ns)
    return outcome


def _read_logs(data: Path, outcome: Outcome, begun_ns: int, ended_ns: int) -> None:
    """Count late records and delays, before and while the joins were served."""
    for name, log in read_together({name: data / name / "releases" for name in RECEIVERS}).items():
        at = log["released_ns"].astype(np.int64)
        parts = [log[(at >= begun_ns - int(BEFORE_S * 1e9)) & (at < begun_ns)], log[(at >= begun_ns) & (at < ended_ns)]]
        before, during = (int(part["records"][is_late(part)].sum()) for part in parts)
        outcome.late[name] = before, during
        delays = [sorted((scheduling_ns(part) / 1e6).tolist()) for part in parts]
        outcome.delays_ms[name] = delays[0], delays[1]
        if name == RECEIVERS[0]:
            outcome.records_s = float(parts[1]["records"].sum()) / max((ended_ns - begun_ns) / 1e9, 1e-9)


def report(outcome: Outcome, rate: float) -> Result:
    result = Result("snapshot-joins")
    late = sum(during for _, during in outcome.late.values())
    slowest = outcome.took_s[-1] if outcome.took_s else float("nan")
    result.figures += [
        Figure("complete joins", len(outcome.took_s), "joins", "requested", outcome.joins),
        Figure("time until all are complete", outcome.all_s, "s", "target", TARGET_S),
        Figure("slowest join", slowest, "s", "target", TARGET_S),
        Figure("records late by protocol meanwhile", late, "records", "target", 0),
        Figure("records/s released meanwhile", outcome.records_s, "records/s", "requested", rate),
    ]
    rows = [
        (name, len(took), *(quantile(took, share) if took else float("nan") for share in (0.5, 0.99, 1.0)))
        for name, took in (("snapshot", outcome.took_s), ("subscriber, live", outcome.subscribed_s))
    ]
    title = f"time of a join, s; a snapshot has {outcome.snapshot_bytes:,} bytes"
    result.tables.append(Table(title, ("join", "complete", "p50", "p99", "max"), rows))
    delays = [
        (f"{name}, {when}", outcome.late[name][place], *(quantile(some, share) for share in (0.5, 0.99, 1.0)))
        for name, both in outcome.delays_ms.items()
        for place, (when, some) in enumerate(zip(("before", "joins"), both, strict=True))
        if some
    ]
    title = f"receivers; the joins are at {RECEIVERS[0]}; scheduling delay of releases, ms"
    result.tables.append(Table(title, ("receiver", "late", "p50", "p99", "max"), delays))
    result.notes.append("; ".join(outcome.problems) or "all tapes identical")
    return result


def run(options: Options) -> Result:
    """The benchmark."""
    joins, rate, symbols = (QUICK_JOINS, QUICK_RATE, QUICK_SYMBOLS) if options.quick else (JOINS, RATE, SYMBOLS)
    base = Path(tempfile.mkdtemp(prefix="snapshot-joins-"))
    outcome = perform(base, joins, rate, symbols)
    if outcome.problems or len(outcome.took_s) < joins or len(outcome.subscribed_s) < SUBSCRIBERS:
        tell(f"VIOLATED, the data are kept in {base}: {'; '.join(outcome.problems)}")
    else:
        shutil.rmtree(base)
    return report(outcome, rate)


def main(arguments: Sequence[str] | None = None) -> int:
    """One of the joining processes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.snapshot_joins", description="Run the clients of the benchmark snapshot-joins."
    )
    parser.add_argument("--join", nargs=3, metavar=("HOST", "PORT", "JOINS"))
    parser.add_argument("--subscribe", type=Path, metavar="NETWORK")
    chosen = parser.parse_args(arguments)
    if chosen.subscribe is not None:
        print(json.dumps(asyncio.run(follow_all(chosen.subscribe))))
        return 0
    host, port, joins = chosen.join
    done = join_all((host, int(port)), int(joins))
    took = [each.took_s for each in done if each.took_s is not None]
    last = max((each.began_s + each.took_s for each in done if each.took_s is not None), default=0.0)
    size = max((each.size for each in done), default=0)
    print(json.dumps({"took_s": took, "all_s": last - done[0].began_s if took else 0.0, "bytes": size}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
