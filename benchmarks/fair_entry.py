"""Compare rules of order entry: who is first, for every pair of 20 cities (MS §7.2; docs/entry.md).

    python -m benchmarks fair-entry
    python -m benchmarks.fair_entry --releases 3000     a run on the ring's own classes, to compare with the model

`levelcast.sim.bulk.entry` draws releases, stamps and packets over the recorded pings (LEVELCAST_DATA); a quick run has
synthetic cities. Every rule sees the same releases. The tables have the chance of being first for equally fast traders,
and of the faster one for the pair for which it is worst.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.campaign import conduct
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.extras import ExtraMissing
from levelcast.network.regions.delays import Delays, load_delays
from levelcast.plots.style import canvas
from levelcast.sim.bulk import entry as model_of
from levelcast.sim.bulk.cities import made_up_cities
from levelcast.sim.bulk.entry import EntryModel, FirstChances, Rule
from levelcast.sim.entry_run import run_entry

CITIES = (
    "New York", "Chicago", "Dallas", "Toronto", "San Francisco", "Mexico", "Sao Paulo", "London", "Frankfurt",
    "Paris", "Zurich", "Stockholm", "Tel Aviv", "Johannesburg", "Dubai", "Singapore", "Hong Kong", "Tokyo", "Seoul",
    "Sydney",
)  # fmt: skip
RING = ("New York", "London", "Frankfurt", "Tokyo", "Sydney")
DEFAULT = "Levelcast, q = 5 ms"
RULES: dict[str, Rule] = {
    "direct to New York": model_of.direct,
    "portal (MS §7.2)": model_of.portal,
    "lockstep, 4 s": model_of.by_slot(4000.0),
    "pipelined, 50 ms": model_of.by_slot(50.0),
    "pipelined, 5 ms": model_of.by_slot(5.0),
    "windows by slot, 250 ms": model_of.window_by_slot(50.0, 250.0),
    "windows by slot, 1 s": model_of.window_by_slot(50.0, 1000.0),
    "windows by slot, 8 s": model_of.window_by_slot(50.0, 8000.0),
    "windows by stamp, 100 ms": model_of.window_by_stamp(100.0),
    "synchronised stamps": model_of.window_by_stamp(0.0),
    "release clock, exact": model_of.fair(0.0),
    DEFAULT: model_of.fair(5.0),
}
FASTER_MS = (0.0, 0.1, 1.0, 10.0, 100.0)
RELEASES, DEFAULT_RELEASES, QUICK_RELEASES = 60_000, 400_000, 1_000
LIMIT = 0.51
SEED = 24
CRITERIA = {
    # stamp error, quantum, faster by: least chance of the faster one
    (0.05, 5.0): {1.0: 0.58, 5.0: 0.98},
    (0.01, 1.0): {0.1: 0.53, 1.0: 0.97},
}
RESPONSE_MS = (0.02, 1.0, 5.0)
PUBLISHED = {"DBO, published": ("1.000", "1.000", "1.000"), "CloudEx, published": ("0.978 to 0.995",) * 3}


def cities(options: Options) -> Delays:
    """Return the delays of the 20 cities; synthetic ones in a quick run or without data."""
    given = os.environ.get("LEVELCAST_DATA")
    pings = Path(given or "") / "wan_wondernetwork_20181110" / "pings.csv.gz"
    if options.quick or given is None or not pings.is_file():
        return made_up_cities(len(CITIES))[0]
    delays = load_delays(pings)
    return delays.only(np.array([delays.names.index(name) for name in CITIES]))


def model(delays: Delays, loss: float = 0.01) -> EntryModel:
    """Return the model with a ring of five and a gateway in each city."""
    real = delays.names == CITIES
    ring = tuple(CITIES.index(name) for name in RING) if real else (0, 4, 8, 12, 16)
    away = ~np.eye(len(delays.names), dtype=bool)
    cap_ms = min(1.0, float(delays.delay_ms[away].min()) / 2)  # as `levelcast timing` derives it
    return EntryModel(delays, ring, exchange=0, loss=np.full(len(delays.names), loss), cap_ms=cap_ms)


def run(options: Options) -> Result:
    """Measure all rules, the default with 400,000 releases, and the attacks."""
    result = Result("fair-entry")
    delays = cities(options)
    if delays.names != CITIES:
        result.notes.append("The cities are synthetic: a quick run, or LEVELCAST_DATA is not set.")
    world = model(delays)
    few = QUICK_RELEASES if options.quick else RELEASES
    many = QUICK_RELEASES if options.quick else DEFAULT_RELEASES
    away = ~np.eye(world.cities, dtype=bool)
    result.notes.append(
        f"{world.cities} cities, one-way delay {delays.delay_ms[away].min():.2f} to {delays.delay_ms[away].max():.0f} "
        f"ms, median {np.median(delays.delay_ms[away]):.0f} ms; {few:,} releases, {many:,} for the default."
    )
    tell("all rules")
    found = model_of.chances(world, RULES, FASTER_MS, few, SEED)
    result.tables.append(_rules_table(found))
    tell("the default")
    _add_default(result, world, many)
    _add_unequal_loss(result, world, many)
    _add_few_gateways(result, world, few)
    _add_lines(result, world, few)
    _add_response(result, world, few)
    tell("attacks")
    _add_attacks(result, world, few)
    _add_closing(result, world, few // 6)
    result.more["pairs"] = {name: found[name, 0.0].chance.round(4).tolist() for name in RULES}
    result.more["cities"] = list(delays.names)
    try:
        result.plots.append(str(plot(delays, found, options.plot_dir / "entry.svg")))
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result


def _rules_table(found: dict[tuple[str, float], FirstChances]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in RULES:
        equal = found[name, 0.0]
        faster = [f"{found[name, each].least:.2f}" for each in FASTER_MS[1:]]
        rows.append((name, f"{equal.worst:.3f}", f"{equal.mean_deviation:.3f}", *faster))
    columns = ("rule", "worst pair", "mean deviation", *(f"faster by {each:g} ms" for each in FASTER_MS[1:]))
    return Table("chance of being first, and of the faster one for its worst pair", columns, rows)


def _add_default(result: Result, world: EntryModel, releases: int) -> None:
    rows: list[tuple[Cell, ...]] = []
    for (error_ms, quantum_ms), limits in CRITERIA.items():
        chosen = replace(world, stamp_error_ms=error_ms)
        found = model_of.chances(chosen, {"": model_of.fair(quantum_ms)}, (0.0, *limits), releases, SEED + 1)
        worst = found["", 0.0].worst
        result.figures.append(Figure(f"worst pair, q = {quantum_ms:g} ms", worst, "of 1", "limit", LIMIT))
        for faster, least in limits.items():
            chance = found["", faster].least
            result.figures.append(
                Figure(f"faster by {faster:g} ms wins, q = {quantum_ms:g} ms", chance, "of 1", "at least", least)
            )
        rows.append((f"{quantum_ms:g} ms", f"{error_ms * 1000:g} µs", f"{worst:.4f}", f"{releases:,}"))
    result.tables.append(Table("Levelcast", ("quantum", "stamp error", "worst pair", "releases"), rows))


def _add_unequal_loss(result: Result, world: EntryModel, releases: int) -> None:
    loss = np.where(np.arange(world.cities) % 2 == 0, 0.001, 0.1)
    found = model_of.chances(replace(world, loss=loss), {"": model_of.fair(5.0)}, (0.0,), releases, SEED + 2)
    worst = found["", 0.0].worst
    result.figures.append(Figure("worst pair, loss 0.1 % and 10 %", worst, "of 1", "limit", LIMIT))


def _add_few_gateways(result: Result, world: EntryModel, releases: int) -> None:
    """Gateways only in the cities of the ring; the others use the nearest."""
    delay = world.delays.delay_ms
    homes = tuple(
        city if city in world.ring else min(world.ring, key=lambda each: float(delay[city, each]))
        for city in range(world.cities)
    )
    found = model_of.chances(replace(world, gateway_of=homes), {"": model_of.fair(5.0)}, (0.0,), releases, SEED + 3)
    chance = found["", 0.0].chance
    rows: list[tuple[Cell, ...]] = []
    names = world.delays.names
    for city in sorted(range(world.cities), key=lambda each: float(delay[each, homes[each]])):
        own = city == homes[city]
        behind = "-" if own else f"{delay[city, homes[city]]:.1f} ms"
        first = "-" if own else f"{chance[city, homes[city]]:.3f}"
        others = np.delete(chance[city], city).mean()
        rows.append((names[city], names[homes[city]], behind, first, f"{others:.3f}"))
    columns = ("trader in", "gateway in", "behind by", "first against a trader there", "first against all")
    result.tables.append(Table("gateways in 5 of 20 cities", columns, rows))


def _add_lines(result: Result, world: EntryModel, releases: int) -> None:
    """Loss on the line of one trader: a lost segment is sent again after 200 ms at the earliest."""
    rows: list[tuple[Cell, ...]] = []
    for loss in (0.0, 0.001, 0.01, 0.1):
        chosen = replace(world, line_loss=loss, resend_ms=200.0)
        found = model_of.chances(chosen, {"": model_of.fair(5.0)}, (0.0,), releases, SEED + 4)
        chance = float(np.delete(found["", 0.0].chance[0], 0).mean())
        rows.append((f"{loss:.1%}", f"{chance:.3f}", f"{loss / (1 - loss) * 200:.2f} ms"))
    columns = ("loss on the line", "first against the others", "mean delay")
    result.tables.append(Table("loss on a trader's own line to the gateway (MS §3.6)", columns, rows))


def _add_response(result: Result, world: EntryModel, releases: int) -> None:
    """Response-time fairness as DBO defines it: the share of competing pairs that are ordered by response time."""
    rules = {"release clock, exact": (0.05, 0.0), "q = 1 ms": (0.01, 1.0), "q = 5 ms": (0.05, 5.0)}
    rows: list[tuple[Cell, ...]] = []
    for name, (error_ms, quantum_ms) in rules.items():
        chosen = replace(world, stamp_error_ms=error_ms)
        found = model_of.chances(chosen, {"": model_of.fair(quantum_ms)}, RESPONSE_MS, releases, SEED + 5)
        away = ~np.eye(world.cities, dtype=bool)
        rows.append((name, *(f"{found['', each].chance[away].mean():.3f}" for each in RESPONSE_MS)))
    rows += [(name, *values) for name, values in PUBLISHED.items()]
    columns = ("rule", "20 µs", "1 ms", "5 ms")
    result.tables.append(Table("response-time fairness by the difference of response times", columns, rows))


def _add_attacks(result: Result, world: EntryModel, draws: int) -> None:
    rows: list[tuple[Cell, ...]] = []
    for copies in (2, 10, 100):
        mine, without = model_of.copies_chance(copies, max(100, draws // copies), SEED + 6)
        rows.append((f"{copies} copies, one connection", f"{mine:.3f}", f"{without:.3f}"))
        result.figures.append(Figure(f"{copies} copies down one connection", mine, "of 1", "limit", LIMIT))
        several = model_of.connections_chance(copies, 5.0, draws, SEED + 7)
        exact = model_of.connections_chance(copies, 0.0, draws, SEED + 7)
        rows.append((f"{copies} copies, as many connections", f"{several:.3f}", f"{exact:.3f}"))
        result.figures.append(Figure(f"{copies} copies down as many connections", several, "of 1", "limit", LIMIT))
    others, alone = range(world.cities - 1), world.cities - 1  # the gateway with the longest way to the stamp
    mine = model_of.cities_chance(world, model_of.fair(5.0), others, alone, draws, SEED + 8)
    exact = model_of.cities_chance(world, model_of.fair(0.0), others, alone, draws, SEED + 8)
    rows.append((f"one account in {len(others)} cities", f"{mine:.3f}", f"{exact:.3f}"))
    result.figures.append(Figure(f"one account in {len(others)} cities", mine, "of 1", "limit", LIMIT))
    columns = ("attack", "Levelcast, q = 5 ms", "without the clause")
    result.tables.append(Table("chance against one order of another account", columns, rows))
    away = ~np.eye(world.cities, dtype=bool)
    nearest = float(world.delays.delay_ms[away].min())
    gains: list[tuple[Cell, ...]] = []
    for late in (0.7, 2.0, 10.0, 50.0):
        capped, free = (model_of.late_site_gain_ms(late, nearest, cap) for cap in (world.cap_ms, np.inf))
        gains.append((f"{late:g} ms", f"{capped:.2f} ms", f"{free:.2f} ms"))
    result.tables.append(
        Table("hear at a punctual site, send through a late one", ("late by", "gain, capped", "no cap"), gains)
    )


def _add_closing(result: Result, world: EntryModel, orders: int) -> None:
    rows: list[tuple[Cell, ...]] = []
    for slot_ms, noted in ((50.0, (205, 280)), (20.0, (146, 182)), (5.0, (102, 121))):
        named, closed = model_of.closing_ms(world, 5.0, slot_ms, orders, SEED + 9)
        shares = [np.quantile(each, share) for each in (named, closed) for share in (0.5, 0.99)]
        rows.append((f"{slot_ms:g} ms", *(f"{each:.0f}" for each in shares)))
        for share, value, limit in zip(("p50", "p99"), shares[2:], noted, strict=True):
            result.figures.append(Figure(f"closing, slot {slot_ms:g} ms, {share}", value, "ms", "limit", 1.15 * limit))
    columns = ("slot", "named p50", "named p99", "closed p50", "closed p99")
    result.tables.append(Table("from stamp to token, and to the token that closes the bucket, in ms", columns, rows))


def protocol(options: Options, releases: int) -> tuple[Result, bool]:
    """Run order entry on the ring's own classes: equal traders, and one that is faster. Return whether all was held."""
    result = Result("fair-entry-protocol")
    world = model(cities(options))
    size = world.cities
    away = ~np.eye(size, dtype=bool)
    found = run_entry(world, releases)
    chance = np.array([[found.first_chance(one, other) for other in range(size)] for one in range(size)])[away]
    noise = 0.5 / np.sqrt(len(found.places))
    rows: list[tuple[Cell, ...]] = [
        ("releases", len(found.places), ""),
        (
            "orders late or refused; both members have the same sequence",
            f"{found.late + found.refused}; {found.same}",
            "",
        ),
        ("mean deviation of a pair from 0.5", f"{np.abs(chance - 0.5).mean():.4f}", f"{0.798 * noise:.4f} by chance"),
        ("worst pair", f"{chance.max():.3f}", f"0.505 + {3.0 * noise:.3f} by chance"),
    ]
    faster = run_entry(world, releases // 3, faster_ms=[1.0] + [0.0] * (size - 1), seed=2)
    wins = float(np.mean([faster.first_chance(0, other) for other in range(1, size)]))
    modelled = model_of.chances(world, {"": model_of.fair(5.0)}, (1.0,), 20_000, SEED)["", 1.0].chance[0]
    rows.append(("faster by 1 ms wins", f"{wins:.3f}", f"{np.delete(modelled, 0).mean():.3f}"))
    _, closed = model_of.closing_ms(world, 5.0, 50.0, 10_000, SEED)
    for name, share in (("closing p50, ms", 0.5), ("closing p99, ms", 0.99)):
        measured, expected = (f"{np.quantile(each, share):.0f}" for each in (found.closing_ms, closed))
        rows += [(name, measured, expected)]
    result.tables.append(Table("a run on the ring's classes", ("", "run", "model"), rows))
    return result, bool(found.same and not found.late + found.refused and chance.max() < LIMIT + 4 * noise)


def plot(delays: Delays, found: dict[tuple[str, float], FirstChances], path: Path) -> Path:
    """Draw the chance of every pair, a square per rule: the trader of the row is first."""
    order = np.argsort(delays.delay_ms[0], kind="stable")
    with canvas(path, 10.0, 8.4, panels=4, heights=(1, 1, 1)) as (figure, axes):
        drawn = []
        for axis, name in zip(axes, RULES, strict=True):
            chance = found[name, 0.0].chance[np.ix_(order, order)]
            drawn.append(axis.imshow(chance, cmap="RdBu_r", vmin=0.0, vmax=1.0, interpolation="nearest"))
            axis.set_title(f"{name}: {found[name, 0.0].worst:.3f}", fontsize=8)
            axis.set_xticks([])
            axis.set_yticks([])
        axes[0].set_ylabel("from New York to the farthest city", fontsize=7)
        figure.colorbar(drawn[0], ax=axes, shrink=0.4, label="chance that the trader of the row is first")
    return path


def pairs_table(result: dict[str, object]) -> str:
    """Return the chances of every pair as Markdown, from the JSON of a run."""
    names, pairs = result["cities"], result["pairs"]
    assert isinstance(names, list)
    assert isinstance(pairs, dict)
    lines = ["| pair | " + " | ".join(pairs) + " |", "|---|" + "---|" * len(pairs)]
    for one in range(len(names)):
        for other in range(one + 1, len(names)):
            chances = " | ".join(f"{each[one][other]:.3f}" for each in pairs.values())
            lines.append(f"| {names[one]}, {names[other]} | {chances} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the protocol with a number of releases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fair_entry", description="Run order entry on the ring.")
    parser.add_argument("--releases", type=int, default=3_000, help="releases (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    return conduct(lambda: protocol(Options(), chosen.releases), Options())


if __name__ == "__main__":
    sys.exit(main())
