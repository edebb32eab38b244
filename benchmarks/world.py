"""A world in bulk: 10,000 receivers in two layers and 1,000,000 customers over the pings between 242 cities.

`levelcast.sim.bulk.run` runs it with 1 % and 10 % loss, three seeds each; the figures are the middle one, beside what
they are compared with. Then the same with one line instead of two, with answers that stay in their group, with loss
that whole cities share (MS §3.9), and with other numbers of regions. Without the recorded pings the cities are made up,
and the report says so.

    python -m benchmarks.world --large     one run of 100,000 receivers in three layers and 10,000,000 subscribers
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.campaign import conduct
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.extras import ExtraMissing
from levelcast.network.regions.delays import Delays, Matrix, load_delays, load_weights
from levelcast.sim.bulk.cities import Globe, Size, build_globe, made_up_cities
from levelcast.sim.bulk.edge import BulkEdge, EdgeRules
from levelcast.sim.bulk.plots import plot_world
from levelcast.sim.bulk.run import Conditions, WorldRun, run_world

LOSSES = (0.01, 0.1)
SEEDS = (1, 2, 3)
REGIONS = (10, 20, 40, 60, 100)
LARGE = Size(receivers=100_000, layers=3, customers=10_000_000)
LARGE_LIMIT_GB = 16 * 1.024**3
PROGRESS_S = 10.0
QUICK = Size(primaries=10, receivers=100, customers=2_000, regions=6, sources=5)

TABLE: tuple[tuple[str, str, float, int], ...] = (
    ("hold time Δ_A, s", "hold_ms", 1e-3, 3),
    ("releases on time, %", "on_time", 100.0, 4),
    ("held by a receiver, p50, ms", "held_p50_ms", 1.0, 0),
    ("held by a receiver, p99.9, ms", "held_p99.9_ms", 1.0, 0),
    ("held by the last receiver, ms", "held_max_ms", 1.0, 0),
    ("held and witnessed, p50, ms", "ready_p50_ms", 1.0, 0),
    ("held and witnessed, last, ms", "ready_max_ms", 1.0, 0),
    ("rule 7's release time, latest slot, ms", "instant_max_ms", 1.0, 0),
    ("release times, first to last receiver, ms", "release_spread_ms", 1.0, 2),
    ("NACKs per packet, busiest primary", "primary_nacks_busiest", 1.0, 2),
    ("NACKs per packet, mean primary", "primary_nacks_mean", 1.0, 2),
    ("simultaneous NACKs at one primary, maximum", "primary_nacks_peak", 1.0, 0),
    ("NACKs per packet, complete core", "core_nacks_per_packet", 1.0, 0),
    ("copies of replies per packet and receiver", "answer_copies_per_packet", 1.0, 1),
    ("requests of one receiver for one item, maximum", "attempts_most", 1.0, 0),
    ("NACKs per packet, busiest retransmit server", "edge_nacks_busiest", 1.0, 3),
    ("NACKs per packet, mean retransmit server", "edge_nacks_mean", 1.0, 4),
    ("arrival at a subscriber, p50, ms", "customer_p50_ms", 1.0, 1),
    ("arrival at a subscriber, p90, ms", "customer_p90_ms", 1.0, 1),
    ("arrival at a subscriber, p99, ms", "customer_p99_ms", 1.0, 1),
    ("arrival at a subscriber, p99.9, ms", "customer_p99.9_ms", 1.0, 1),
    ("arrival at a subscriber, p99.99, ms", "customer_p99.99_ms", 1.0, 1),
    ("arrival at a subscriber, maximum, ms", "customer_max_ms", 1.0, 0),
    ("spread in the world, p1 to p99, ms", "world_spread_p1_p99_ms", 1.0, 1),
    ("spread in a region, p1 to p99, median, ms", "region_spread_p1_p99_median_ms", 1.0, 1),
    ("spread in a region, p1 to p99, worst, ms", "region_spread_p1_p99_worst_ms", 1.0, 1),
    ("packets by the first line, %", "by_first_line", 100.0, 3),
    ("packets by the second line, %", "by_second_line", 100.0, 3),
    ("packets by a retransmission, %", "by_repair", 100.0, 4),
    ("latency from source to subscriber, p50, s", "latency_p50_ms", 1e-3, 3),
    ("latency from source to subscriber, p99, s", "latency_p99_ms", 1e-3, 3),
    ("latency from source to subscriber, p99.9, s", "latency_p99.9_ms", 1e-3, 3),
)


def run(options: Options) -> Result:
    """Every loss with every seed, and the variants."""
    delays, weights, made_up = world_cities(options)
    size = QUICK if options.quick else Size()
    usual = Conditions(LOSSES[0], 40, 10) if options.quick else Conditions(LOSSES[0])
    globe = build_globe(delays, weights, size)
    result = Result("world")
    figures: dict[float, list[dict[str, float]]] = {loss: [] for loss in LOSSES}
    drawn: list[WorldRun] = []
    for loss in LOSSES:
        for seed in SEEDS:
            tell(f"world: {loss:.0%} loss, seed {seed}")
            one = run_world(globe, replace(usual, loss=loss, seed=seed))
            figures[loss].append(one.figures())
            if seed == SEEDS[0]:
                drawn.append(one)
    result.tables.append(_main_table(figures))
    lines = _one_line(globe, drawn, usual)
    _add_figures(result, globe, figures, lines)
    result.tables += [_variants(globe, usual, figures, lines), _regions(globe, drawn[0], usual, weights)]
    try:
        result.plots += [str(path) for path in plot_world(drawn, options.plot_dir)]
    except ExtraMissing as error:
        result.notes.append(str(error))
    _add_notes(result, globe, figures, made_up=made_up)
    return result


def world_cities(options: Options) -> tuple[Delays, Matrix, bool]:
    """The recorded pings and populations, or made-up cities; whether they are made up."""
    given = os.environ.get("LEVELCAST_DATA")
    data = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = data / "wan_wondernetwork_20181110"
    if options.quick or not folder.is_dir():
        return *made_up_cities(40 if options.quick else 242), True
    delays = load_delays(folder / "pings.csv.gz")
    return delays, load_weights(folder / "cities.csv", delays.names), False


def _middle(figures: list[dict[str, float]], key: str) -> float:
    return float(np.median([each[key] for each in figures]))


def _main_table(figures: dict[float, list[dict[str, float]]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, key, scale, digits in TABLE:
        cells = []
        for each in figures.values():
            low, high = (round(extreme(one[key] for one in each) * scale, digits) for extreme in (min, max))
            cells += [f"{round(_middle(each, key) * scale, digits):,.{digits}f}"]
            cells += ["" if low == high else f"{low:,.{digits}f} to {high:,.{digits}f}"]
        rows.append((name, *cells))
    columns = tuple(text for loss in figures for text in (f"{loss:.0%} loss", "three seeds"))
    return Table("the world", ("", *columns), rows)


def _one_line(globe: Globe, runs: list[WorldRun], usual: Conditions) -> dict[float, dict[str, float]]:
    """The same customers with their nearer line alone."""
    found = {}
    for run in runs:
        core = globe.core(run.conditions.loss)
        edge = BulkEdge(core.delays, core.city, globe.customers, EdgeRules(two_lines=False), 2)
        alone = edge.run(run.core, run.hold_ms, globe.size.slot_ms, usual.follow // 4 + 1)
        found[run.conditions.loss] = replace(run, edge=alone).figures()
    return found


def _add_figures(
    result: Result, globe: Globe, figures: dict[float, list[dict[str, float]]], lines: dict[float, dict[str, float]]
) -> None:
    size = globe.size
    for loss, each in figures.items():
        at = f"{loss:.0%} loss"
        result.figures += [
            Figure(f"releases on time, {at}", _middle(each, "on_time"), "of all", "all of them", 1.0),
            Figure(f"simultaneous NACKs at one primary, maximum, {at}", _middle(each, "primary_nacks_peak"), "NACKs",
                   "without layers, requests to the site for one lost multicast", loss * (size.receivers - 1)),
            Figure(f"NACKs per packet, busiest primary, {at}", _middle(each, "primary_nacks_busiest"), "NACKs",
                   "mean primary", _middle(each, "primary_nacks_mean")),
            Figure(f"NACKs per packet, busiest retransmit server, {at}", _middle(each, "edge_nacks_busiest"), "NACKs",
                   "with one line instead of two", lines[loss]["edge_nacks_busiest"]),
            Figure(f"arrival at subscribers, p99, {at}", _middle(each, "customer_p99_ms"), "ms",
                   "with one line instead of two", lines[loss]["customer_p99_ms"]),
            Figure(f"latency from source to subscriber, p50, {at}", _middle(each, "latency_p50_ms") / 1e3, "s",
                   "Δ_A", _middle(each, "hold_ms") / 1e3),
            Figure(f"longest that a receiver needed, {at}", max(one["ready_max_ms"] for one in each) / 1e3, "s",
                   "Δ_A", _middle(each, "hold_ms") / 1e3),
        ]  # fmt: skip


def _variants(
    globe: Globe,
    usual: Conditions,
    figures: dict[float, list[dict[str, float]]],
    lines: dict[float, dict[str, float]],
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    shorter = replace(usual, slots=max(usual.slots // 2, 2), follow=max(usual.follow // 4, 1))
    for loss, each in figures.items():
        tell(f"world: variants at {loss:.0%} loss")
        shared = replace(shorter, loss=loss, branch_loss=0.01)
        variants = {
            "as it is": each[0],
            "one line per subscriber": lines[loss],
            "1 % of multicasts lost per city": run_world(globe, shared).figures(),
        }
        for name, one in variants.items():
            rows.append(
                (
                    f"{loss:.0%} loss, {name}",
                    f"{one['on_time']:.4%}",
                    round(one["primary_nacks_busiest"], 2),
                    one["primary_nacks_peak"],
                    round(one["answer_copies_per_packet"], 1),
                    f"{one['ready_max_ms'] / 1000:.2f}",
                    round(one["edge_nacks_busiest"], 2),
                    f"{one['customer_p99_ms']:.1f}",
                    f"{one['customer_p99.9_ms']:.1f}",
                )
            )
    columns = (
        "",
        "on time",
        "NACKs busiest",
        "simultaneous",
        "copies of replies",
        "ready s",
        "edge NACKs",
        "p99 ms",
        "p99.9 ms",
    )
    return Table("variants (half as many slots)", columns, rows)


def _regions(globe: Globe, run: WorldRun, usual: Conditions, weights: Matrix) -> Table:
    """Other numbers of regions: the instants of release do not depend on them while nothing is late."""
    rows: list[tuple[Cell, ...]] = []
    for count in (each for each in REGIONS if each <= globe.size.primaries and 2 * each <= len(weights)):
        tell(f"world: {count} regions")
        other = build_globe(globe.delays, weights, replace(globe.size, regions=count))
        lossy = other.delays.with_loss(LOSSES[0])
        edge = BulkEdge(lossy, other.city, other.customers, EdgeRules(), 2)
        seen = edge.run(run.core, run.hold_ms, globe.size.slot_ms, max(usual.follow // 5, 1))
        inner = [seen.quantile_ms(0.99, each) - seen.quantile_ms(0.01, each) for each in range(count)]
        rows.append(
            (
                str(count),
                len(np.unique(other.city)),
                round(other.longest_ms, 0),
                *(round(seen.quantile_ms(share), 1) for share in (0.5, 0.9, 0.99)),
                round(float(np.median(inner)), 1),
                round(max(inner), 1),
                round(float(seen.nacks.max()) / seen.slots, 2),
            )
        )
    columns = (
        "regions",
        "cities",
        "core ms",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "in a region",
        "worst region",
        "edge NACKs",
    )
    return Table("arrival at subscribers, by the number of regions, 1 % loss", columns, rows)


def _add_notes(result: Result, globe: Globe, figures: dict[float, list[dict[str, float]]], *, made_up: bool) -> None:
    size = globe.size
    one = figures[LOSSES[0]][0]
    cities = "synthetic cities" if made_up else "WonderNetwork's pings of 10 November 2018, subscribers by population"
    result.notes += [
        f"{size.receivers:,} receivers in {size.layers} layers: {size.primaries} groups of "
        f"{size.receivers // size.primaries}, in {len(np.unique(globe.city))} of {len(globe.delays.names)} cities; "
        f"{size.customers:,} subscribers in {size.regions} regions; {cities}",
        f"{one['slots']:,.0f} slots of {size.slot_ms:g} ms and {one['packets']:,.0f} packets per run, "
        f"{one['releases']:,.0f} releases; subscribers simulated for {one['followed']:,.0f} slots; "
        f"seeds {', '.join(str(seed + 1) for seed in range(len(figures[LOSSES[0]])))}",
        "messages/s at a receiver in addition to its packets, at 1 % loss: "
        f"{one['tokens_per_s']:.0f} tokens, {one['group_tokens_per_s']:.0f} tokens of its group, "
        f"{one['answers_per_s']:,.0f} answers, against {one['packets_per_s']:.0f} packets",
        f"peak memory {_peak_gb() * 1e3:,.0f} MB",
    ]


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


# -- the largest world


def large(options: Options) -> Result:
    """Run the largest world once, with 1 % loss: its time and memory, and what it comes to."""
    delays, weights, made_up = world_cities(options)
    size = replace(QUICK, layers=3) if options.quick else LARGE
    conditions = Conditions(LOSSES[0], 40, 10) if options.quick else Conditions(LOSSES[0])
    begun, cpu, told = time.monotonic(), time.process_time(), 0.0

    def report(part: str, done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if done == total or now - told >= PROGRESS_S:
            told = now
            tell(f"world: {part}, {done} of {total}, {now - begun:.0f} s, {_peak_gb():.1f} GB")

    globe = build_globe(delays, weights, size)
    run = run_world(globe, conditions, report)
    figures, result = run.figures(), Result("world-large")
    result.figures += [
        Figure("peak memory", _peak_gb(), "GB", "limit of 16 GiB", LARGE_LIMIT_GB),
        Figure("wall time", time.monotonic() - begun, "s", "CPU time", time.process_time() - cpu),
        Figure("releases on time, 1% loss", figures["on_time"], "of all", "all of them", 1.0),
        Figure("longest that a receiver needed, 1% loss", figures["ready_max_ms"] / 1e3, "s",
               "Δ_A", figures["hold_ms"] / 1e3),
    ]  # fmt: skip
    result.tables.append(_main_table({LOSSES[0]: [figures]}))
    below, lowest = size.groups
    result.notes.append(f"{size.primaries} primaries, each with {below} secondaries, each of them with {lowest}")
    _add_notes(result, globe, {LOSSES[0]: [figures]}, made_up=made_up)
    result.more["held"] = _peak_gb() <= LARGE_LIMIT_GB and figures["on_time"] == 1.0
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the run keeps to its memory and every release is on time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.world", description="Simulate the largest world.")
    parser.add_argument("--large", action="store_true", required=True, help="100,000 receivers in three layers")
    parser.add_argument("--quick", action="store_true", help="run for a few seconds, as a test")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    options = Options(quick=chosen.quick, out=chosen.out)

    def campaign() -> tuple[Result, bool]:
        result = large(options)
        return result, bool(result.more["held"])

    return conduct(campaign, options)


if __name__ == "__main__":
    sys.exit(main())
