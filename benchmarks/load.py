"""What a rate costs: CPU of a floor, a receiver and a customer, from an idle ring to as much as it carries.

    python -m benchmarks load

The way of `throughput` with datagrams of 60,000 bytes, at steady rates. An idle ring costs something, because tokens go
round; what a record costs on top is what the first line and the last differ by. For sizing machines, and to see what
batching saves: a slot's work is done once, however much came in it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.throughput import CASES, KEEPING
from benchmarks.way import NAMES, Spent, at_work
from levelcast.extras import ExtraMissing
from levelcast.plots.style import BLUE, ORANGE, canvas

CASE = next(case for case in CASES if case.name == "large")
RATES: tuple[float | None, ...] = (1_000.0, 50_000.0, 100_000.0, 250_000.0, 500_000.0, 1_000_000.0, 1_500_000.0, None)
"""Records a second; None is as many as it takes."""
WARM_S = 1.5
QUICK_RATES: tuple[float | None, ...] = (1_000.0, 20_000.0)


class Load(NamedTuple):
    """What a rate took, in cores."""

    records_per_s: float
    floor: float
    receiver: float
    customer: float
    whole: float

    @classmethod
    def of(cls, spent: Spent) -> Load:
        cores = {role: cpu / spent.took_s for role, cpu in spent.cpu_s.items()}
        receiver, customer = (cores[role] / len(NAMES) for role in ("receivers", "customers"))
        return cls(spent.records_per_s, cores["floor"], receiver, customer, sum(cores.values()))


def run(options: Options) -> Result:
    rates, seconds = (QUICK_RATES, 1.0) if options.quick else (RATES, 5.0)
    result = Result("load")
    loads: list[Load] = []
    for rate in rates:
        tell(f"load: {'maximum rate' if rate is None else f'{rate:,.0f} records/s'}")
        with at_work(CASE, rate, more=KEEPING) as way:
            time.sleep(WARM_S)
            loads.append(Load.of(way.spend(seconds)))
            way.end()
    idle, most = loads[0], loads[-1]
    result.figures += [
        Figure(f"a receiver at {load.records_per_s:,.0f} records/s", load.receiver, "cores", "idle", idle.receiver)
        for load in loads[1:]
    ]
    more = most.records_per_s - idle.records_per_s
    result.notes.append(f"a record more costs a receiver {1e9 * (most.receiver - idle.receiver) / more:,.0f} ns")
    rows: list[tuple[Cell, ...]] = [tuple(load) for load in loads]
    columns = ("records/s", "floor", "a receiver", "a subscriber", "all eight processes")
    result.tables.append(Table("Cores at a rate", columns, rows))
    _plot(loads, options, result)
    return result


def _plot(loads: Sequence[Load], options: Options, result: Result) -> None:
    path = options.plot_dir / "load.svg"
    millions = [load.records_per_s / 1e6 for load in loads]
    try:
        with canvas(path, 6.4, 3.2) as (_, (axes,)):
            for values, name, colour in (
                ([load.receiver for load in loads], "a receiver", BLUE),
                ([load.customer for load in loads], "a subscriber", ORANGE),
            ):
                axes.plot(millions, values, "o-", color=colour, ms=4, lw=1.2)
                axes.annotate(
                    name, (millions[-1], values[-1]), (-6, 7), textcoords="offset points", color=colour, ha="right"
                )
            axes.set_xlabel("million records/s")
            axes.set_ylabel("cores")
            axes.set_ylim(bottom=0)
            axes.grid(axis="y")
    except ExtraMissing as missing:
        result.notes.append(str(missing))
        return
    result.plots.append(str(path))
