"""Measure the core with keys against the core without, on the whole way of `throughput`, in interleaved pairs.

    python -m benchmarks secured

A pair is one window without keys and one with keys, in turn, the first one alternately. Both cases have the same
records in a packet: with keys a packet has 12 bytes more. The CPU time of a record covers all processes: floor,
receivers with edges, and subscribers, and with keys also signatures, MACs of beats and the checks of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks.report import Figure, Options, Result, Table, tell
from benchmarks.throughput import QUICK_RATE, Measured, measure
from benchmarks.way import Case
from levelcast.native import seal

CASES = (Case("1,400-byte trains", 1_400, 1_400, trains=True), Case("8,900-byte packets", 8_900, 8_900, trains=True))
MORE_BYTES = 12
PAIRS, WINDOW_S = 10, 3.0
KEPT_1400 = {"3.5": 0.9}
"""Share of the records per CPU time that must be kept at 1,400 bytes, by the version of libcrypto."""
KEPT_BEFORE = 0.8
SPREAD_GROWS = 1.1

Pair = tuple[Measured, Measured]


def run(options: Options) -> Result:
    """Run the pairs of each case."""
    result = Result("secured")
    result.notes.append(f"packets by {seal.IMPLEMENTATION}")
    pairs, window_s, rate = (1, 1.0, QUICK_RATE) if options.quick else (PAIRS, WINDOW_S, None)
    columns = ("case", "pairs", "records/s off", "on", "kept", "CPU ns off", "on", "kept by CPU", "spread µs off", "on")
    table = Table("with keys against without, medians of pairs", columns, [])
    for case in CASES[: 1 if options.quick else None]:
        found = [_pair(case, number, pairs, window_s, rate) for number in range(pairs)]
        table.rows.append(_row(case, found))
        if case is CASES[0]:
            result.figures += _figures(found)
        if not all(each.identical and not each.gaps for pair in found for each in pair):
            result.notes.append(f"{case.name}: a run had gaps or different tapes")
    result.tables += [table, _by_role(found)]
    return result


def _pair(case: Case, number: int, pairs: int, window_s: float, rate: float | None) -> Pair:
    tell(f"{case.name}: pair {number + 1} of {pairs}")
    secured = replace(case, core_bytes=case.core_bytes + MORE_BYTES, keys=True)
    if number % 2:
        on, off = (measure(each, window_s, rate=rate) for each in (secured, case))
    else:
        off, on = (measure(each, window_s, rate=rate) for each in (case, secured))
    return off, on


def cpu_ns(measured: Measured) -> float:
    """Return the CPU time of all processes for one record."""
    return sum(measured.cpu_s.values()) / max(1, measured.records) * 1e9


def _kept(pairs: Sequence[Pair]) -> float:
    return median(cpu_ns(off) / cpu_ns(on) for off, on in pairs)


def _row(case: Case, pairs: Sequence[Pair]) -> tuple[str | int | float, ...]:
    offs, ons = [off for off, _ in pairs], [on for _, on in pairs]
    return (
        case.name,
        len(pairs),
        round(median(each.records_per_s for each in offs)),
        round(median(each.records_per_s for each in ons)),
        round(median(on.records_per_s / off.records_per_s for off, on in pairs), 3),
        round(median(map(cpu_ns, offs))),
        round(median(map(cpu_ns, ons))),
        round(_kept(pairs), 3),
        round(median(each.spread_us[0] for each in offs)),
        round(median(each.spread_us[0] for each in ons)),
    )


def _by_role(pairs: Sequence[Pair]) -> Table:
    """Return the CPU time of a packet by role, of the last case."""
    table = Table("CPU µs a packet by role, medians, last case", ("role", "off", "on"), [])
    for role in pairs[0][0].cpu_s:
        table.rows.append((role, *(round(median(pair[at].us_of(role) for pair in pairs), 2) for at in (0, 1))))
    return table


def _figures(pairs: Sequence[Pair]) -> list[Figure]:
    wanted = next(
        (kept for version, kept in KEPT_1400.items() if f"OpenSSL {version}" in seal.IMPLEMENTATION), KEPT_BEFORE
    )
    spread = median(on.spread_us[0] / off.spread_us[0] for off, on in pairs)
    return [
        Figure("records per CPU time with keys, 1,400 bytes", _kept(pairs), "of without", "at least", wanted),
        Figure("spread p50 with keys, 1,400 bytes", spread, "of without", "at most", SPREAD_GROWS),
    ]
