"""The audits: how often a clean day is called faulty, which faults are found, and what long tapes cost.

    python -m benchmarks.audit --false-alarms 100
    python -m benchmarks.audit --millions 10 30 100 --tapes 5

`--false-alarms N`: N clean simulated days of `--seconds`, each with its own seed, through all three audits. Then the
same days with planted effects of several sizes: which share is found, and named as what it is and nothing else.

`--millions N ...`: the audits *order* and *fairness* on Spark over tapes of so many million trades at every receiver;
time, memory of all processes together, and every stage with its worst task beside the median.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.audit_stage import simulate
from benchmarks.audit_tapes import make_day
from benchmarks.processes import peak_memory
from benchmarks.report import Stopwatch, Table, machine_facts, show_contention, show_facts
from benchmarks.stages import log_settings, stages
from levelcast.pipeline.audit import fairness, order, timeliness
from levelcast.pipeline.audit.base import AuditOptions, Job, Result
from levelcast.pipeline.audit.fairness import StripeMeasures, judge, measured_of
from levelcast.pipeline.audit.inputs import Inputs, gather
from levelcast.pipeline.audit.stats import wilson
from levelcast.pipeline.session import spark_session
from levelcast.storage.release_log import read_file, write_file

NAMES = ("new-york-1", "london-1", "frankfurt-1", "tokyo-1", "sydney-1")
REGION_MS = (0.4, 0.6, 0.7, 0.8, 1.0, 1.5)
EARLY_MS = (0.05, 0.3, 0.5, 1.0, 2.0)
SOURCE_MS = (5.0, 8.0, 10.0, 12.5, 15.0, 20.0)
EARLY = "released early"
MS = 1_000_000


# -- clean days, and days with one effect -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plant:
    """An effect of a size, planted in what was measured, and the one finding that it should give."""

    kind: str
    subject: str
    ms: float
    plant: Callable[[StripeMeasures, float], None]


def _late_region(measured: StripeMeasures, ns: float) -> None:
    for name in ("london-1", "frankfurt-1"):
        place = measured.releases.receivers.index(name)
        measured.releases.delays[:, place] += ns * measured.releases.compared


def _late_receiver(measured: StripeMeasures, ns: float) -> None:
    place = measured.releases.receivers.index("tokyo-1")
    measured.releases.delays[:, place] += ns * measured.releases.compared


def _late_source(measured: StripeMeasures, ns: float) -> None:
    waits = measured.waits["XTKS"]
    assert waits.beyond is not None
    waits.beyond = waits.beyond + ns * waits.counts


PLANTS = (
    *(Plant("region late", "europe", ms, _late_region) for ms in REGION_MS),
    *(Plant("receiver late", "tokyo-1", ms, _late_receiver) for ms in REGION_MS),
    *(Plant("source served late", "XTKS", ms, _late_source) for ms in SOURCE_MS),
)


@dataclass(slots=True)
class Audited:
    """What came of one clean day, and of the same day with each effect."""

    seed: int
    seconds: float
    alarms: list[str]
    slots: int
    tests: int
    found: list[tuple[str, float]]


def audited(unit: tuple[int, float]) -> Audited:
    """Simulate a day, audit it, and plant every effect in turn."""
    seed, seconds = unit
    day = simulate(seed, seconds)
    with tempfile.TemporaryDirectory() as place:
        day.write(Path(place))
        inputs = gather([Path(place)], day.network)
        job = Job(None, inputs)
        results = {result.audit: result for result in (audit.run(job) for audit in (order, fairness, timeliness))}
        alarms = [name for name, result in results.items() if not result.passed]
        clean = measured_of(job, Result("fairness"))
        regions = {each.receiver: each.region or "" for each in inputs.stripes[0]}
        found = [
            (plant.kind, plant.ms)
            for plant in PLANTS
            if [(f.kind, f.subject) for f in _planted(clean, plant, regions, job)] == [(plant.kind, plant.subject)]
        ]
        found += [(EARLY, ms) for ms in EARLY_MS if _released_early(inputs, Path(place), ms)]
    looked_at = results["fairness"].looked_at
    return Audited(seed, seconds, alarms, looked_at["slots"], looked_at["tests"], found)


def false_alarms(days: int, seconds: float, first_seed: int, processes: int, kept: Path | None = None) -> None:
    """Print the rate over clean days, and the power over the same days with an effect. A run that was stopped goes on
    from the days that are `kept`."""
    wanted = {(seed, seconds) for seed in range(first_seed, first_seed + days)}
    done = [each for each in _kept(kept) if (each.seed, each.seconds) in wanted]
    left = sorted(wanted - {(each.seed, each.seconds) for each in done})
    began = time.perf_counter()
    with get_context("spawn").Pool(processes) as pool:
        for each in pool.imap_unordered(audited, left):
            done.append(each)
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(asdict(each)) + "\n")
            if len(done) % 5 == 0:
                wrong = sum(bool(one.alarms) for one in done)
                _say(f"{len(done)} of {days} days, {wrong} with a false alarm, {_since(began):.0f} s")
    rows: list[tuple[str | int | float, ...]] = []
    for name in ("order", "fairness", "timeliness", "any"):
        alarms = sum(name in each.alarms or (name == "any" and bool(each.alarms)) for each in done)
        share = wilson(alarms, days, 0.05)
        rows.append((name, days, alarms, f"{share.value:.1%}", f"{share.low:.1%} to {share.high:.1%}"))
    slots = sum(each.slots for each in done) / days
    _say(f"{days} clean days of {seconds:g} s, {slots:,.0f} slots and {done[0].tests} tests each, level 0.001")
    _say(Table("false alarms", ("audit", "days", "alarms", "rate", "95 % interval"), rows))
    found = Counter(one for each in done for one in each.found)
    sizes = [(plant.kind, plant.ms) for plant in PLANTS] + [(EARLY, ms) for ms in EARLY_MS]
    power: list[tuple[str | int | float, ...]] = [
        (kind, f"{ms:g} ms", f"{found[kind, ms] / days:.0%}") for kind, ms in sizes
    ]
    _say(Table("found, and named as that and nothing else", ("fault", "size", "days"), power))


def _kept(path: Path | None) -> list[Audited]:
    if path is None or not path.exists():
        return []
    told = [json.loads(line) for line in path.read_text().splitlines()]
    return [Audited(**{**each, "found": [(kind, ms) for kind, ms in each["found"]]}) for each in told]


def _planted(clean: Sequence[StripeMeasures], plant: Plant, regions: dict[str, str], job: Job) -> list[Any]:
    measured = copy.deepcopy(list(clean))
    plant.plant(measured[0], plant.ms * MS)
    result = Result("fairness")
    judge(result, measured, regions, job)
    return result.findings


def _released_early(inputs: Inputs, data: Path, ms: float) -> bool:
    """All releases of one receiver so much earlier, by its own log."""
    path = next((data / "sydney-1" / "releases").glob("*.releases"))
    before = path.read_bytes()
    entries = read_file(path)
    entries["released_ns"] = (entries["released_ns"].astype(np.int64) - int(ms * MS)).astype(np.uint64)
    write_file(path, entries)
    try:
        findings = fairness.run(Job(None, inputs)).findings
    finally:
        path.write_bytes(before)
    return [(each.kind, each.subject) for each in findings] == [(EARLY, "sydney-1")]


# -- long tapes -------------------------------------------------------------------------------------------


def long_tapes(millions: Sequence[float], tapes: int, work: Path, master: str, *, read_bytes: bool) -> None:
    """Print time, memory and stages for each length."""
    rows: list[tuple[str | int | float, ...]] = []
    for number in millions:
        data, log = work / "data", work / "log"
        for path in (data, log):
            shutil.rmtree(path, ignore_errors=True)
        began = time.perf_counter()
        size = make_day(data, int(number * 1e6), NAMES[:tapes])
        print(
            f"{number:g} million trades on {tapes} tapes, {size / 1e9:.1f} GB, made in {_since(began):.0f} s",
            flush=True,
        )
        with peak_memory() as peak:
            began = time.perf_counter()
            with spark_session(master, "audit benchmark", settings=log_settings(log)) as spark:
                started = _since(began)
                job = Job(spark, gather([data]), AuditOptions(bytes=read_bytes), lambda step: _say(f"  {step}"))
                taken: dict[str, float] = {}
                for audit in (order, fairness):
                    began = time.perf_counter()
                    result = audit.run(job)
                    taken[result.audit] = _since(began)
                    print(
                        f"  {result.audit}: {result.verdict}, {taken[result.audit]:.1f} s: {result.sentence}",
                        flush=True,
                    )
                    assert result.passed, result.findings
        rate = number * tapes / taken["order"]
        rows.append((f"{number:g}", size / 1e9, started, taken["order"], rate, taken["fairness"], peak.bytes / 1e9))
        told: list[tuple[str | int | float, ...]] = [
            (stage.name, stage.tasks, stage.median_s, stage.worst_s, stage.total_s, stage.peak_memory / 1e9)
            for stage in stages(log)
        ]
        titles = ("stage", "tasks", "median s", "worst s", "all tasks s", "memory GB")
        _say(Table(f"stages at {number:g} million", titles, told))
        shutil.rmtree(data)
        shutil.rmtree(log)
    columns = ("million trades", "GB", "start s", "order s", "million/s over all tapes", "fairness s", "memory GB")
    print(Table(f"{tapes} tapes, {master}, {'bytes read' if read_bytes else 'indexes only'}", columns, rows))


def _say(text: object) -> None:
    print(text, flush=True)


def _since(began: float) -> float:
    return time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> int:
    """One or both parts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__.partition("\n")[0])
    parser.add_argument("--false-alarms", type=int, default=0, metavar="DAYS", help="clean days to audit")
    parser.add_argument("--seconds", type=float, default=120, help="how long a simulated day is (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1000, help="of the first day (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="days at a time (default: %(default)s)")
    parser.add_argument("--keep", type=Path, default=None, metavar="FILE", help="file of finished days, to resume from")
    parser.add_argument("--millions", type=float, nargs="*", default=[], help="lengths of tapes, in million trades")
    parser.add_argument("--tapes", type=int, default=5, choices=range(1, 6), help="receivers (default: %(default)s)")
    parser.add_argument("--master", default="local[2]", help="Spark's (default: %(default)s)")
    parser.add_argument("--no-bytes", action="store_true", help="compare indexes only")
    parser.add_argument("--work", type=Path, default=None, help="directory for the tapes")
    chosen = parser.parse_args(arguments)
    print(show_facts(machine_facts()))
    with Stopwatch() as watch:
        if chosen.false_alarms:
            false_alarms(chosen.false_alarms, chosen.seconds, chosen.seed, chosen.processes, chosen.keep)
        if chosen.millions:
            with tempfile.TemporaryDirectory(dir=chosen.work) as place:
                long_tapes(chosen.millions, chosen.tapes, Path(place), chosen.master, read_bytes=not chosen.no_bytes)
    for line in show_contention(watch.contention):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
