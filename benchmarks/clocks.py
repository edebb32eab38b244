"""Who falls silent with a wrong clock, after how long, and who else does (C1 to C4), in virtual time.

Each row is a kind of error of the scenario `clocks` with the receivers' own classes: five members whose paths differ by
up to 5 % from the way back, 6 ms of jitter, up to 2 % loss, other clocks within 0.5 ms of UTC, `clock_error` 1 ms and
`asymmetry` 3 ms. The time counts from the error, or from the beginning of a drift, until the last token, beat or
release. False alarms are counted among all receivers whose clocks are right.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass, replace

from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.sim.scenarios.clocks import KINDS, SET_WHILE_RUNNING, SMEARED_ALONE, ClockFault, ClocksHistory
from levelcast.units import quantile

JOBS = 2
RUNS, QUICK_RUNS = 10, 1
CLEAN_RUNS, QUICK_CLEAN_RUNS = 100, 2
SMEARED_RUNS = 3
QUICK_S = 25
RIGHT = KINDS[0]
WRONG = (
    replace(KINDS[1], name=f"{KINDS[1].name}, paths differ by up to 1 %"),
    *(replace(kind, paths_differ=RIGHT.paths_differ) for kind in KINDS[1:5]),
    *SET_WHILE_RUNNING,
    *KINDS[5:],
)


@dataclass(frozen=True, slots=True)
class Case:
    """One history: what was wrong, who fell silent and when."""

    kind: str
    never_sent: int
    """Receivers with a wrong clock that have sent nothing, of `wrong`."""
    silent: int
    """Those that are silent at the end."""
    wrong: int
    after_s: tuple[float, ...]
    """Time from the error to the last token, beat or release of those that are silent and have sent."""
    alarms: int
    """Receivers with a right clock that fell silent."""
    others: int
    doubts: tuple[str, ...]
    releases: int


def run(options: Options) -> Result:
    """Run all kinds over several seeds, and the clean ones."""
    runs, clean = (QUICK_RUNS, QUICK_CLEAN_RUNS) if options.quick else (RUNS, CLEAN_RUNS)
    work = [(RIGHT, seed) for seed in range(clean)]
    work += [(kind, seed) for kind in WRONG for seed in range(runs) if not options.quick or kind.lasting_s <= QUICK_S]
    if not options.quick:
        work += [(SMEARED_ALONE, seed) for seed in range(SMEARED_RUNS)]
    tell(f"clocks: {len(work)} histories")
    with multiprocessing.get_context("fork").Pool(JOBS) as pool:
        cases = list(pool.imap(measure, work))
    result = Result("clocks")
    names = list(dict.fromkeys(kind.name for kind, _ in work))
    by_kind = {name: [case for case in cases if case.kind == name] for name in names}
    right = by_kind[RIGHT.name]
    result.figures = [
        Figure("false alarms, clean runs", sum(case.alarms for case in right), "receivers", "receivers",
               sum(case.others for case in right)),
        Figure("false alarms, beside a wrong clock", sum(case.alarms for case in cases if case not in right),
               "receivers", "receivers", sum(case.others for case in cases if case not in right)),
    ]  # fmt: skip
    result.tables = [_table(by_kind)]
    result.notes.append(
        f"{clean} clean runs of {RIGHT.lasting_s:g} s, {runs} of each other kind, {SMEARED_RUNS} of the smeared clock "
        "alone; a drift and a lost source have to reach the limit first: 4 ms, or 1 ms of bound"
    )
    return result


def measure(work: tuple[ClockFault, int]) -> Case:
    """One history."""
    kind, seed = work
    history = ClocksHistory(seed, kind)
    history.run()
    silence, wrong = history.silence, history.wrong
    right = [member for member in history.roles.members if member not in wrong]
    after = [history.silent_after_s(member) for member in wrong]
    silent = [not history.node(member).trusted for member in wrong]
    return Case(
        kind.name,
        sum(each is None for each in after),
        sum(silent),
        len(wrong),
        tuple(each for each, is_silent in zip(after, silent, strict=True) if each is not None and is_silent),
        sum(member in silence.doubted for member in right),
        len(right),
        tuple(sorted({str(event.doubt) for member in wrong for _, event in silence.doubted.get(member, ())})),
        sum(silence.releases.get(member, 0) > 0 for member in right),
    )


def _table(by_kind: dict[str, list[Case]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, cases in by_kind.items():
        after = sorted(each for case in cases for each in case.after_s)
        wrong, never = sum(case.wrong for case in cases), sum(case.never_sent for case in cases)
        if not wrong:
            times: tuple[Cell, ...] = ("-", "-", "-")
        elif not after:
            times = ("never sent",) * 3
        else:
            times = tuple(f"{quantile(after, at):.1f}" for at in (0.0, 0.5, 1.0))
        silent = f"{sum(case.silent for case in cases)} of {wrong}" if wrong else "-"
        alarms = f"{sum(case.alarms for case in cases)} of {sum(case.others for case in cases)}"
        doubts = ", ".join(sorted({doubt for case in cases for doubt in case.doubts})) or ("was set" if wrong else "-")
        rows.append((name, len(cases), silent, never if wrong else "-", *times, doubts, alarms))
    columns = (
        "clock", "runs", "silent", "never sent", "silent after s, min", "p50", "max", "reason", "others silent",
    )  # fmt: skip
    return Table("who falls silent, how long after the error, and who else", columns, rows)
