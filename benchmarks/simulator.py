"""How fast the simulator is on one core, what the cost grows with, and where the time goes.

| part    | figure                                                   | compared with |
|---------|----------------------------------------------------------|---------------|
| speed   | events, packets, histories per CPU second, scenario ring | a loop that does nothing; real time |
| members | CPU per simulated second, fault-free, 3 to 15 members    | growth in proportion to the nodes |
| loss    | the same for 0 to 20 % loss                              | no loss |
| profile | share of CPU by part and by function (cProfile)          | all of it |

An event is one datagram's arrival at one node, or one timer.
"""

from __future__ import annotations

import cProfile
import heapq
import pstats
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.report import Cell, Figure, Options, Result, Stopwatch, Table, least_cpu_s, tell
from levelcast.sim.engine.network import VirtualNetwork, Weather
from levelcast.sim.run import run_seed
from levelcast.sim.scenarios.ring import Outcome
from levelcast.sim.scenarios.steady import SteadyWorld, steady_world
from levelcast.wire.codec import decode_batch, encode
from levelcast.wire.messages import Packet
from levelcast.wire.packets import seal

S = 1_000_000_000
MEMBERS = (3, 5, 7, 9, 15)
LOSSES = (0.0, 0.01, 0.05, 0.1, 0.2)
SOURCES = 3
SERVERS = 2
Function = tuple[str, int, str]
"""A function, as pstats names it: file, line, name."""


def run(options: Options) -> Result:
    """All four parts."""
    result = Result("simulator")
    tell("simulator: histories")
    _measure_speed(result, 10 if options.quick else 200)
    lasting_ns = S if options.quick else 10 * S
    repeats = 1 if options.quick else 5
    tell("simulator: members and loss")
    result.tables.append(_members_table(MEMBERS[:2] if options.quick else MEMBERS, lasting_ns, repeats))
    result.tables.append(_loss_table(LOSSES[:2] if options.quick else LOSSES, lasting_ns, repeats))
    tell("simulator: profile")
    result.tables += _profile(2 if options.quick else 30)
    result.notes.append(
        "CPU time; members and loss: the minimum of "
        f"{repeats} run{'s' if repeats > 1 else ''} in turns, {lasting_ns // S} simulated s each; "
        "the profiler overstates small functions"
    )
    return result


# Speed


def _measure_speed(result: Result, histories: int) -> None:
    outcomes: list[Outcome] = []
    with Stopwatch() as watch:
        for seed in range(1, histories + 1):
            outcomes.append(run_seed("ring", seed))  # noqa: PERF401 - the loop is what is timed
    cpu_s = watch.cpu_s
    events = sum(outcome.events for outcome in outcomes)
    result.figures += [
        Figure("events, scenario ring", events / cpu_s, "per CPU s",
               "a loop that only pops, calls and pushes", bare_loop_rate()),
        Figure("datagram copies sent", sum(outcome.datagrams for outcome in outcomes) / cpu_s, "per CPU s",
               "the network model alone", network_rate()),
        Figure("simulated packets", sum(outcome.packets for outcome in outcomes) / cpu_s, "per CPU s",
               "encoding and decoding one packet alone", codec_rate()),
        Figure("histories", histories / cpu_s, "per CPU s",
               "the design's 210,000 histories on one core in a day", 210_000 / 86_400),
        Figure("simulated time", sum(outcome.simulated_ns for outcome in outcomes) / 1e9 / cpu_s, "s per CPU s",
               "real time", 1.0),
    ]  # fmt: skip
    result.notes.append(
        f"scenario ring: {histories} histories, {events / histories:,.0f} events and "
        f"{sum(outcome.simulated_ns for outcome in outcomes) / 1e9 / histories:.1f} simulated s each, "
        f"{watch.cpu_s:.1f} s CPU in {watch.wall_s:.1f} s of wall time; 210,000 histories need "
        f"{210_000 / histories * cpu_s / 3600:.1f} core hours"
    )


def bare_loop_rate(events: int = 200_000, waiting: int = 200) -> float:
    """Events per second of CPU of a loop that has a heap and nothing else: no simulator in Python beats it."""

    def nothing() -> None:
        pass

    def loop() -> None:
        heap = [(i, i, nothing) for i in range(waiting)]
        pop, push = heapq.heappop, heapq.heappush
        for number in range(waiting, waiting + events):
            when, _, action = pop(heap)
            action()
            push(heap, (when + waiting, number, nothing))

    return events / least_cpu_s(loop, 3)


def network_rate(rounds: int = 5_000, receivers: int = 10) -> float:
    """Copies per second of CPU that the network model alone draws, for multicasts to so many nodes."""
    delays = {(0, to): 1_000_000 for to in range(1, receivers + 1)}
    network = VirtualNetwork(Random(1), delays, {}, Weather(loss=0.01, jitter_ns=1_000_000))
    everybody = list(range(1, receivers + 1))

    def loop() -> None:
        for _ in range(rounds):
            network.copies(0, everybody, b"")

    return rounds * receivers / least_cpu_s(loop, 3)


def codec_rate(rounds: int = 5_000) -> float:
    """Packets per second of CPU that are turned into bytes and back."""
    packet = seal(Packet(201, 1, 1000, 1, bytes(64)), 0)

    def loop() -> None:
        for _ in range(rounds):
            decode_batch((encode(packet, 0),), 0)

    return rounds / least_cpu_s(loop, 3)


# Growth


@dataclass(slots=True)
class Cost:
    """What a load cost, the forming of its ring left out."""

    ring: SteadyWorld
    events: int
    cpu_s: float


def _costs(shapes: list[tuple[int, float]], lasting_ns: int, repeats: int) -> list[Cost]:
    """For each (members, loss) the least CPU of a few runs, taken in turns: a busy minute then hits all alike."""
    costs: dict[tuple[int, float], Cost] = {}
    for _ in range(repeats):
        for members, loss in shapes:
            ring = steady_world(members, loss, sources=SOURCES)
            ring.form()
            before = ring.world.events
            begun = time.process_time()
            ring.load(lasting_ns)
            cost = Cost(ring, ring.world.events - before, time.process_time() - begun)
            costs[members, loss] = min(costs.get((members, loss), cost), cost, key=lambda one: one.cpu_s)
    return [costs[shape] for shape in shapes]


def _members_table(members: tuple[int, ...], lasting_ns: int, repeats: int) -> Table:
    costs = _costs([(count, 0.01) for count in members], lasting_ns, repeats)
    rows: list[tuple[Cell, ...]] = []
    per_s = lasting_ns / 1e9
    for count, cost in zip(members, costs, strict=True):
        grown = cost.cpu_s / costs[0].cpu_s
        nodes = (count + SERVERS + SOURCES) / (members[0] + SERVERS + SOURCES)
        rows.append(
            (str(count), cost.events / per_s, 1e3 * cost.cpu_s / per_s, 1e6 * cost.cpu_s / cost.events, grown,
             cost.events / costs[0].events, nodes, grown / nodes)
        )  # fmt: skip
    columns = ("members", "events/s", "CPU ms/s", "CPU µs/event", "cost", "events", "nodes", "cost/nodes")
    nodes_are = "nodes: with servers and sources"
    title = f"members, 1 % loss: per simulated second, then against {members[0]} members ({nodes_are})"
    return Table(title, columns, rows)


def _loss_table(losses: tuple[float, ...], lasting_ns: int, repeats: int) -> Table:
    costs = _costs([(5, loss) for loss in losses], lasting_ns, repeats)
    rows: list[tuple[Cell, ...]] = []
    per_s = lasting_ns / 1e9
    for loss, cost in zip(losses, costs, strict=True):
        timing = cost.ring.timing
        rows.append(
            (f"{loss:.0%}", timing.attempts, f"{timing.hold_ns / 1e9:.2f}", cost.events / per_s,
             cost.ring.samples.requests / per_s, 1e3 * cost.cpu_s / per_s, 1e6 * cost.cpu_s / cost.events,
             cost.cpu_s / costs[0].cpu_s)
        )  # fmt: skip
    columns = ("loss", "k_r", "Δ_A s", "events/s", "requests/s", "CPU ms/s", "CPU µs/event", "cost")
    return Table("loss, 5 members: per simulated second, and against no loss", columns, rows)


# Profile


def _profile(histories: int) -> list[Table]:
    profiler = cProfile.Profile()
    profiler.enable()
    for seed in range(1, histories + 1):
        run_seed("ring", seed)
    profiler.disable()
    own = own_time(pstats.Stats(profiler))
    total = sum(own.values())
    parts: defaultdict[str, float] = defaultdict(float)
    for function, seconds in own.items():
        parts[part_of(function)] += seconds
    by_part: list[tuple[Cell, ...]] = [
        (part, f"{seconds / total:.1%}") for part, seconds in sorted(parts.items(), key=lambda item: -item[1])
    ]
    by_function: list[tuple[Cell, ...]] = [
        (f"{Path(function[0]).stem}.{function[2]}", part_of(function), f"{seconds / total:.1%}")
        for function, seconds in sorted(own.items(), key=lambda item: -item[1])[:14]
    ]
    return [
        Table(f"profile of {histories} histories, by part", ("part", "fraction"), by_part),
        Table(
            "the same by function, built-ins counted with their callers", ("function", "part", "fraction"), by_function
        ),
    ]


def own_time(stats: pstats.Stats) -> dict[Function, float]:
    """Own seconds by function, where a built-in's time belongs to whoever called it (heapq's excepted)."""
    own: defaultdict[Function, float] = defaultdict(float)
    rows: dict[Function, tuple[int, int, float, float, dict[Function, tuple[int, int, float, float]]]]
    rows = stats.stats  # type: ignore[attr-defined]
    for function, (_, _, seconds, _, callers) in rows.items():
        if function[0] == "~" and "heapq" not in function[2] and callers:
            for caller, (_, _, caused, _) in callers.items():
                own[caller] += caused
        else:
            own[function] += seconds
    return own


PARTS = (
    ("levelcast/ring/", "ring"),
    ("levelcast/wire/", "wire codec"),
    ("levelcast/sim/engine/network.py", "network model"),
    ("levelcast/sim/check/ring.py", "checkers"),
    ("levelcast/sim/engine/world.py", "world: nodes, effects, event loop"),
    ("levelcast/sim/", "scenario, adversary, disk"),
)


def part_of(function: Function) -> str:
    """The part of the simulator that a function belongs to."""
    file, _, name = function
    if "heapq" in name:
        return "heap"
    path = file.replace("\\", "/")
    return next((part for place, part in PARTS if place in path), "Python's library")
