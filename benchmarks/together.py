"""Five subscribers at different distances from their receiver, with and without a common bound after the release time.

    python -m benchmarks together

Each subscriber is a process. It receives the packets of the edge through a relay that delays them by the delay of its
city and a jitter, and delivers every record twice: as it arrives, and together. The spread of a slot is between the
first and the last of the five subscribers that deliver it. All have the clock of this machine, so the figures contain
no clock error. The nodes, the relays and the subscribers share its cores: the load is printed beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.room import write_network
from levelcast.client.subscriber import Subscriber
from levelcast.network import Network, load_network
from levelcast.network.model import MulticastGroup
from levelcast.runtime.sockets import LOOPBACK, listener

DELAYS_MS = {"new-york": 1.0, "chicago": 9.0, "london": 35.0, "singapore": 48.0, "sydney": 60.0}
"""From the receiver to the subscriber."""
JITTER_MS = 3.0
BOUND = "92ms"
"""Above all delays; not a multiple of the slot, so that the ring, which shares the cores, is idle then."""
TARGET_MS = 1.0
SYMBOLS = {"XNYS": ["IBM", "GE", "F", "T"]}


class Relay(threading.Thread):
    """Forward the packets of a group to another group after a delay."""

    def __init__(self, group: MulticastGroup, to: MulticastGroup, delay_ms: float) -> None:
        super().__init__(daemon=True)
        self._in = listener(group.address, group.port, LOOPBACK, group.name)
        self._in.setblocking(False)
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
        self._to = (to.address, to.port)
        self._delay_ms = delay_ms
        self._chance = Random(delay_ms)

    def run(self) -> None:
        waiting: list[tuple[float, int, bytes]] = []
        number = 0
        while True:
            left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 1.0
            select.select([self._in], [], [], left)
            with suppress(BlockingIOError):
                while True:
                    packet = self._in.recv(65_535)
                    delay_s = (self._delay_ms + self._chance.uniform(0, JITTER_MS)) / 1e3
                    number += 1
                    heapq.heappush(waiting, (time.monotonic() + delay_s, number, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                self._out.sendto(heapq.heappop(waiting)[2], self._to)


def behind(network: Network, place: int) -> Network:
    """Return the network as a subscriber sees it that is the relay's."""
    (group,) = network.edge.groups
    first, _, _, last = group.address.split(".")
    other = replace(group, address=f"{first}.193.{place + 1}.{last}", line=None)
    return replace(network, edge=replace(network.edge, groups=(other,)))


async def read(tape: Subscriber, times: dict[int, int]) -> None:
    """Note the first delivery of each slot."""
    async with tape:
        async for batch in tape:
            now = time.time_ns()
            for timestamp_ns in np.unique(batch.records["ts_recv"]).tolist():
                times.setdefault(timestamp_ns, now)


async def subscribe(path: Path, place: int, seconds: float) -> None:
    """Print when records were delivered on arrival and together."""
    network = load_network(path)
    theirs = behind(network, place)
    Relay(network.edge.groups[0], theirs.edge.groups[0], list(DELAYS_MS.values())[place]).start()
    alone, together = (Subscriber(theirs, grade="best effort", together=each) for each in ("off", BOUND))
    found: list[dict[int, int]] = [{}, {}]
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(read(alone, found[0]), read(together, found[1]))
    counts = together.together
    assert counts is not None
    print(json.dumps({"times": found, "late": counts.late, "records": counts.records}))


def run(options: Options) -> Result:
    seconds = 12.0 if options.quick else 40.0
    result = Result("together")
    with TemporaryDirectory() as folder:
        path = write_network(Path(folder), SYMBOLS, 1, "100ms", one_sends=True)
        text = path.read_text(encoding="utf-8").replace('slot = "10ms"', 'slot = "50ms"')
        path.write_text(text, encoding="utf-8")
        tell("together: five subscribers")
        answers, load = measure(path, Path(folder) / "data", seconds)
    _report(result, answers, load)
    return result


def measure(path: Path, data: Path, seconds: float) -> tuple[list[dict[str, object]], float]:
    """Run the nodes and the subscribers; return what each subscriber has noted, and the load of the machine."""
    log = path.with_name("up.log").open("w", encoding="utf-8")
    command = [sys.executable, "-m", "levelcast", "up", "--network", str(path), "--data", str(data), "--rate", "50"]
    nodes = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        time.sleep(8.0)
        mine = [sys.executable, "-m", "benchmarks.together", str(path), "--seconds", str(seconds), "--place"]
        readers = [
            subprocess.Popen([*mine, str(place)], stdout=subprocess.PIPE, text=True) for place in range(len(DELAYS_MS))
        ]
        answers = deque(json.loads(each.communicate(timeout=seconds + 120)[0]) for each in readers)
        load = os.getloadavg()[0]
    finally:
        nodes.send_signal(signal.SIGTERM)
        try:
            nodes.wait(60)
        except subprocess.TimeoutExpired:
            nodes.kill()
        log.close()
    return list(answers), load


def spreads_ms(times: list[dict[str, int]]) -> list[float]:
    """Return the spread of each slot that all subscribers have delivered, without the first second."""
    common = sorted(set.intersection(*(set(each) for each in times)), key=int)[20:]
    return [(max(found) - min(found)) / 1e6 for slot in common if (found := [each[slot] for each in times])]


def _report(result: Result, answers: list[dict[str, object]], load: float) -> None:
    rows: list[tuple[Cell, ...]] = []
    before_ms = 0.0
    for which, name in enumerate(("on arrival", f"together, {BOUND}")):
        spreads = spreads_ms([each["times"][which] for each in answers])  # type: ignore[index]
        p50, p99 = (float(np.quantile(spreads, share)) for share in (0.5, 0.99))
        late = "" if not which else " / ".join(f"{each['late']:,}" for each in answers)
        records = "" if not which else f"{answers[0]['records']:,}"
        rows.append((name, len(spreads), round(p50, 3), round(p99, 3), round(max(spreads), 3), records, late))
        if which:
            result.figures.append(Figure("spread between five subscribers, p50", p50, "ms", "target", TARGET_MS))
            result.figures.append(Figure("spread between five subscribers, p99", p99, "ms", "on arrival", before_ms))
        before_ms = p99
    columns = ("delivery", "slots", "spread p50 ms", "p99 ms", "max ms", "records", "late, by subscriber")
    result.tables.append(Table("spread of a slot over five subscribers", columns, rows))
    result.notes.append(f"load average {load:.1f} on {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("network", type=Path)
    parser.add_argument("--place", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    asyncio.run(subscribe(given.network, given.place, given.seconds))


if __name__ == "__main__":
    main()
