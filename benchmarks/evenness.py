"""How even the release is: three receivers with real-time priority aim at the same instants, at two steady rates.

Spread is between the first and the last receiver's first byte of a slot, as their release logs have it; extra is from
the floor to the release, less Δ_A and half a slot. The spread at the customers is between the moments at which three
customers, one of each receiver and without real-time priority, have read the first byte of a slot. Everything else is
as in `benchmarks.throughput`, large datagrams.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.throughput import Measured, measure
from benchmarks.way import Case

CASE = Case("even", 60_000, 65_000, trains=False)
RATES = (100_000.0, 1_000_000.0)
QUICK_RATES = (20_000.0,)
SPREAD_US, SPREAD_P99_US, EXTRA_US = 300, 1_500, 1_500
"""The targets."""


def run(options: Options) -> Result:
    rates, window_s = (QUICK_RATES, 1.0) if options.quick else (RATES, 8.0)
    result = Result("evenness")
    even: list[Measured] = []
    for rate in rates:
        at = f"at {rate:,.0f} records/s"
        tell(f"evenness {at}")
        each = measure(CASE, window_s, rate=rate, arrivals=True)
        even.append(each)
        result.figures += [
            Figure(f"release spread {at}, p50", each.spread_us[0], "µs", "target", SPREAD_US),
            Figure(f"release spread {at}, p99", each.spread_us[1], "µs", "target", SPREAD_P99_US),
            Figure(f"spread at subscribers {at}, p50", each.customers_us[0], "µs", "at receivers", each.spread_us[0]),
            Figure(f"source to release minus (Δ_A + τ/2) {at}, p50", each.extra_us, "µs", "target", EXTRA_US),
        ]
    result.tables.append(_table(even, rates))
    return result


def _table(even: Sequence[Measured], rates: Sequence[float]) -> Table:
    columns = (
        "records/s",
        "released/s",
        "spread p50 µs",
        "p99",
        "at subscribers p50 µs",
        "p99",
        "release lag p50 µs",
        "p99",
        "late fraction",
        "source to release minus Δ_A + τ/2, p50 µs",
        "other cores",
    )
    rows: list[tuple[Cell, ...]] = [
        (
            f"{rate:,.0f}",
            each.records_per_s,
            *each.spread_us,
            *each.customers_us,
            *each.lateness_us,
            each.late_share,
            each.extra_us,
            each.others_cores,
        )
        for each, rate in zip(even, rates, strict=True)
    ]
    return Table("How even the release is over three receivers", columns, rows)
