"""Measure what beats cost: CPU and datagrams of a member by the interval of the beats, with 5 and 21 members.

    python -m benchmarks beats

Every node is a real process, over multicast on loopback, without added loss or delay. A run starts a ring with one
interval β, or without beats, and measures it idle, then with one floor that publishes. CPU is that of the receivers'
processes (/proc), datagrams are the counts of their status. Runs of all intervals take turns, so that a busy machine
disturbs all of them alike. Without beats a member claims in its tokens alone, once in m·τ.

Two cores cannot run 21 members on schedule. So slots and β of a large ring are stretched: a member has the same work
per slot and per beat, less often, so that the cost of its beats is `stretch` times the measured one. The small ring,
stretched too, shows how well this holds. Stretched rings are measured idle only.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple
from unittest.mock import patch

from benchmarks.processes import cpu_s
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.room import free_ports
from benchmarks.way import wait_for
from levelcast.network import load_network
from levelcast.network.placement import Placement
from levelcast.network.roles import FLOOR, RECEIVER, REFORMATION
from levelcast.node.cluster import Cluster, ClusterNode
from levelcast.node.options import NodeOptions

RINGS, QUICK_RINGS = ((5, 1), (5, 8), (21, 8)), ((3, 1), (3, 2))
"""Members, and the factor by which slots and β are longer."""
BEATS_MS, QUICK_BEATS_MS = (0, 50, 25, 10), (0, 25)
"""β; 0: no beats. W6 permits 10 to 50 ms."""
ROUNDS = 2
RATE = 20_000.0
SECONDS, WARM_S = 8.0, 2.0
QUICK_SECONDS, QUICK_WARM_S = 1.5, 0.5
FORM_S = 180.0
FLOOR_NAME = "XBEN"


class Cost(NamedTuple):
    """The mean member of one run: cores, and datagrams/s."""

    cores: float
    sent: float
    received: float


Costs = dict[tuple[int, int, int, str], list[Cost]]
"""The runs by members, stretch, β in ms before it, and load."""


def run(options: Options) -> Result:
    """Measure every interval in turn, several times."""
    rings, beats_ms, rounds = (QUICK_RINGS, QUICK_BEATS_MS, 1) if options.quick else (RINGS, BEATS_MS, ROUNDS)
    costs: Costs = {}
    result = Result("beats")
    cases = [(*ring, beat_ms) for _ in range(rounds) for ring in rings for beat_ms in beats_ms]
    for number, (m, stretch, beat_ms) in enumerate(cases, 1):
        case = f"{m} members{f', stretched {stretch} times' if stretch > 1 else ''}, {_name(beat_ms)}"
        try:
            found = measure(m, stretch, beat_ms, options)
        except RuntimeError as error:  # the machine is too busy for so many processes
            result.notes.append(f"left out: {case}: {error}")
            tell(f"beats: {number} of {len(cases)}, {result.notes[-1]}")
            continue
        for load, cost in found.items():
            costs.setdefault((m, stretch, beat_ms, load), []).append(cost)
            about = f"{case}, {load}: {1e3 * cost.cores:.0f} ms/s"
            tell(f"beats: {number} of {len(cases)}, {about}, {cost.sent:.0f} sent/s, {cost.received:.0f} received/s")
    rows: list[tuple[Cell, ...]] = []
    for (m, stretch, beat_ms, load), runs in sorted(costs.items(), key=_order):
        cores = [1e3 * each.cores for each in runs]
        datagrams = (median(each[place] for each in runs) for place in (1, 2))
        middle = f"{median(cores):.1f} ({min(cores):.1f} to {max(cores):.1f})"
        of_beats = ""
        if beat_ms and (m, stretch, 0, load) in costs:
            without = 1e3 * median(each.cores for each in costs[m, stretch, 0, load])
            of_beats = f"{stretch * (median(cores) - without):.0f}"
            name = f"CPU of a member, {m} members, stretch {stretch}, {load}, {_name(beat_ms)}"
            result.figures.append(Figure(name, median(cores), "ms/s", "no beats", without))
        rows.append((m, stretch, load, _name(beat_ms), middle, *(f"{each:,.0f}" for each in datagrams), of_beats))
    runs_of = f"median of {rounds} run{'s' if rounds > 1 else ''} of {_seconds(options):g} s"
    columns = (
        "members", "stretch", "load", "beats", "CPU, ms/s (min to max)", "datagrams/s sent", "received",
        "of beats × stretch, ms/s",
    )  # fmt: skip
    result.tables.append(Table(f"a member, {runs_of}", columns, rows))
    return result


def _order(item: tuple[tuple[int, int, int, str], list[Cost]]) -> tuple[int, int, str, int]:
    members, stretch, beat_ms, load = item[0]
    return members, stretch, load, beat_ms


def _name(beat_ms: int) -> str:
    return f"β = {beat_ms} ms" if beat_ms else "no beats"


def _seconds(options: Options) -> float:
    return QUICK_SECONDS if options.quick else SECONDS


def network_text(members: int, stretch: int, port: int) -> str:
    """Members at a site each, one reformation server and one floor, with longer slots."""
    receivers = "".join(
        f'[[site]]\nname = "s{i}"\n[[receiver]]\nname = "s{i}-1"\nid = {101 + i}\nsite = "s{i}"\n'
        for i in range(members)
    )
    return f"""\
[network]
name = "beats"
[timing]
slot = "{50 * stretch}ms"
hold = "{400 * stretch}ms"
clock_error = "100us"
process = "10ms"
[links]
delay = "20ms"
jitter = "5ms"
{receivers}[[reformation]]
name = "server"
id = 201
site = "s0"
[[floor]]
name = "{FLOOR_NAME}"
publisher = 1
site = "s0"
symbols = ["S1", "S2"]
[core]
address = "239.192.76.1"
port = {port}
rate = "10MB"
"""


def measure(members: int, stretch: int, beat_ms: int, options: Options) -> dict[str, Cost]:
    """Start a ring with this β, stretched, and return the cost of a mean member by load."""
    command = [sys.executable, "-m", "benchmarks.beats", str(stretch * beat_ms)]

    def launcher(_: Placement) -> tuple[list[str], list[str]]:
        return command, []

    with tempfile.TemporaryDirectory(prefix="levelcast-bench-") as temporary, ExitStack() as running:
        file = Path(temporary) / "network.toml"
        file.write_text(network_text(members, stretch, free_ports()), encoding="utf-8")
        rate = RATE / 10 if options.quick else RATE
        cluster = Cluster(load_network(file), file, Path(temporary) / "data", NodeOptions(rate=rate), launcher)
        running.callback(cluster.stop)
        cluster.start_all(RECEIVER, REFORMATION)
        receivers = cluster.of_role(RECEIVER)
        wait_for("forming a ring", lambda: all(each.status.get("state") == "ACTIVE" for each in receivers), FORM_S)
        costs = {"idle": member_cost(receivers, options)}
        if stretch > 1:
            return costs
        (floor,) = cluster.of_role(FLOOR)
        cluster.start_all(FLOOR)
        wait_for("starting the floor", lambda: bool(floor.status.get("datagrams_out")), FORM_S)
        costs[f"{rate:,.0f} records/s"] = member_cost(receivers, options)
        return costs


def member_cost(receivers: Sequence[ClusterNode], options: Options) -> Cost:
    """Measure the mean member of a running ring."""
    time.sleep(QUICK_WARM_S if options.quick else WARM_S)
    begun, used, counts = time.monotonic(), _cpu_s(receivers), _datagrams(receivers)
    time.sleep(_seconds(options))
    took_s = (time.monotonic() - begun) * len(receivers)
    sent, received = (after - before for after, before in zip(_datagrams(receivers), counts, strict=True))
    return Cost((_cpu_s(receivers) - used) / took_s, sent / took_s, received / took_s)


def _cpu_s(receivers: Sequence[ClusterNode]) -> float:
    return sum(cpu_s(each.process.pid) for each in receivers if each.process is not None)


def _datagrams(receivers: Sequence[ClusterNode]) -> tuple[int, int]:
    sent, received = (sum(int(each.status[key]) for each in receivers) for key in ("datagrams_out", "datagrams_in"))
    return sent, received


def _node(beat_ms: int, arguments: list[str]) -> None:
    """Run the command of a node (PYTHON -m levelcast …) with another β."""
    from levelcast.cli.main import run as levelcast

    sys.argv = ["levelcast", *arguments[arguments.index("levelcast") + 1 :]]
    with patch("levelcast.timing.derive.beat_interval_ns", return_value=beat_ms * 1_000_000):
        levelcast()


if __name__ == "__main__":
    _node(int(sys.argv[1]), sys.argv[2:])
