"""`levelcast sweep`: run scenarios × parameters × seeds on Spark's executors, one row per history."""

from __future__ import annotations

import itertools
import json
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from levelcast.cli.lake.spark import spark_errors
from levelcast.cli.options import AsJson, Master, option
from levelcast.cli.output import counting, print_json, table
from levelcast.cli.sim.histories import parse_seeds
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.session import require_spark, spark_session, tasks
from levelcast.pipeline.sweep.plots import SweepPlot, check, names_of, plot, value_of
from levelcast.pipeline.sweep.run import (
    FileStore,
    Item,
    LakeStore,
    ProcessEngine,
    Row,
    RowStore,
    SparkEngine,
    SweepEngine,
    SweepStopped,
    Swept,
    key_of,
    sweep,
)
from levelcast.sim.history_rows import HELD, as_text, code_version, crashed, run_items
from levelcast.sim.parameters import PARAMETERS, STEADY, WORLD, Value, complete, read_value
from levelcast.sim.run import replay_command
from levelcast.units import quantiles

MAX_BROKEN_SHOWN = 5
FIGURES = {
    STEADY: ("control_per_packet", "ready_p99_ms", "late_share_late"),
    WORLD: ("hold_ms", "latency_p99_ms", "customer_p99_ms"),
}
"""Metrics shown by default; other scenarios show `_OF_RING`."""
_OF_RING = ("liveness_ratio", "latency_p99_ms", "reformations")
_KEYS = {"scenario", "seeds", "set", "plot"}


@dataclass(frozen=True, slots=True)
class SweepPart:
    """A scenario, the values of each parameter, seeds, and the plots of these histories."""

    scenario: str
    values: Mapping[str, Sequence[Value]]
    seeds: range
    pictures: tuple[SweepPlot, ...] = ()

    def points(self) -> list[dict[str, Value]]:
        """Return every combination; raise ValueError if values contradict each other."""
        made = itertools.product(*self.values.values())
        return [complete(self.scenario, dict(zip(self.values, each, strict=True))) for each in made]

    def items(self) -> list[Item]:
        return [(self.scenario, as_text(values), seed) for values in self.points() for seed in self.seeds]


def sweep_command(
    file: Annotated[Path | None, typer.Argument(metavar="FILE.toml", help="Sweep file.")] = None,
    scenario: Annotated[
        str | None, option(f"Scenario to run: {', '.join(PARAMETERS)}.", metavar="SCENARIO", unset="ring")
    ] = None,
    seeds: Annotated[str | None, option("Seed, or range of seeds.", metavar="N|FROM..TO", unset="0..99")] = None,
    sets: Annotated[
        list[str] | None, option("Values of a parameter (repeatable).", "--set", metavar="NAME=VALUE,…")
    ] = None,
    lake: Annotated[Path | None, option("Store rows in the table sweeps of this lake.", metavar="DIR")] = None,
    out: Annotated[Path | None, option("Store rows in this file.", "--out", "-o", metavar="FILE.parquet")] = None,
    master: Master = None,
    jobs: Annotated[int | None, option("Number of local processes to use instead of Spark; needs -o.", min=1)] = None,
    figures: Annotated[list[str] | None, option("Metric to show (repeatable).", "--figure", metavar="NAME")] = None,
    pictures: Annotated[
        list[str] | None,
        option("Plot a metric against a parameter (repeatable).", "--plot", metavar="FIGURE:AGAINST[:BY]"),
    ] = None,
    plots: Annotated[Path, option("Directory for plots.", metavar="DIR")] = Path("plots"),
    as_json: AsJson = False,
) -> None:
    """Run every combination of parameter values with every seed on Spark, one row per history.

    A history that violates a guarantee, or fails, is a row with its seed and the reason; then the exit code is 1.
    Histories that the same code has already stored are not run again, so a sweep that was stopped resumes.

    Examples:

    levelcast sweep --scenario steady --set members=3,5,7 --set loss=0.1%,1%,5% --seeds 0..99 -o out.parquet

    levelcast sweep examples/sweep.toml --lake lake --master spark://host:7077

    levelcast sweep --seeds 0..9999 --lake lake --plot latency_p99_ms:members:mode
    """
    with spark_errors():
        parts = _asked(file, scenario, seeds, sets or (), pictures or ())
        items = [item for part in parts for item in part.items()]
        _check_output(lake, out, jobs, master)
        # By seed first, so that a sweep that is stopped has equally many histories of every point.
        ordered = sorted(dict.fromkeys(items), key=lambda item: item[2])
        found, took = _execute(ordered, lake, out, jobs, master, quiet=as_json)
        rows = {key_of(row): row for row in found.rows}
        results = [PartResult(part, [rows[item] for item in part.items()], tuple(figures or ())) for part in parts]
        for result in results:
            result.check()
        written = _draw(results, plots)
    if as_json:
        print_json(_as_json(found, results, written, took))
    else:
        _show(found, results, took)
        for path in written:
            typer.echo(f"plot: {path}")
    if any(row["verdict"] != HELD for row in found.rows):
        raise typer.Exit(1)


# -- request ----------------------------------------------------------------------------------------------


def _asked(
    file: Path | None, scenario: str | None, seeds: str | None, sets: Sequence[str], pictures: Sequence[str]
) -> list[SweepPart]:
    wanted = tuple(SweepPlot.read(text) for text in pictures)
    if file is None:
        chosen = "ring" if scenario is None else scenario
        values: dict[str, list[Value]] = {}
        for text in sets:
            name, equals, told = text.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or not name:
                raise LakeError(f"--set {text}: no value; write NAME=VALUE, such as members=3,5,7")
            if name in values:
                raise LakeError(f"--set {name}: specified twice; write all its values once, with commas")
            values[name] = [read_value(chosen, name, each) for each in told.split(",")]
        complete(chosen, {})
        return [SweepPart(chosen, values, _seeds(seeds or "0..99"), wanted)]
    if scenario is not None or sets or wanted:
        raise LakeError(f"{file}: specifies what to run; omit --scenario, --set and --plot")
    return read_file(file, seeds)


def read_file(file: Path, seeds: str | None = None) -> list[SweepPart]:
    """Read a sweep file; raise LakeError if it is not valid. `seeds` replaces the seeds of the file."""
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LakeError(f"{file}: sweep file not found; check the path") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LakeError(f"{file}: cannot be read ({str(error).splitlines()[0].rstrip('.')})") from None
    if unknown := set(told) - {"sweep"}:
        raise LakeError(f"{file}: unknown key {min(unknown)!r}; use [[sweep]]")
    entries = told.get("sweep")
    if not isinstance(entries, list) or not entries or not all(isinstance(each, dict) for each in entries):
        raise LakeError(f"{file}: no [[sweep]] table; add one with scenario, seeds, set and plot")
    try:
        return [_entry(each, seeds) for each in entries]
    except ValueError as error:
        raise LakeError(f"{file}: {error}") from None


def _entry(told: Mapping[str, Any], seeds: str | None) -> SweepPart:
    if unknown := set(told) - _KEYS:
        raise ValueError(f"unknown key {min(unknown)!r} in [[sweep]]; use scenario, seeds, set and plot")
    scenario, values, pictures = told.get("scenario"), told.get("set", {}), told.get("plot", [])
    if not isinstance(scenario, str):
        raise ValueError("a [[sweep]] needs a scenario; use one of " + ", ".join(PARAMETERS))
    if not isinstance(values, dict):
        raise ValueError("set must be a table, such as set = { members = [3, 5, 7] }")
    if not isinstance(pictures, list) or not all(isinstance(each, str) for each in pictures):
        raise ValueError('plot must be a list, such as plot = ["latency_p99_ms:members"]')
    complete(scenario, {})
    read: dict[str, list[Value]] = {}
    for name, given in values.items():
        each = given if isinstance(given, list) else [given]
        if not each:
            raise ValueError(f"{name} has no value")
        read[name] = [read_value(scenario, name, _text(value)) for value in each]
    chosen = _seeds(seeds if seeds is not None else str(told.get("seeds", "0..99")))
    return SweepPart(scenario, read, chosen, tuple(SweepPlot.read(text) for text in pictures))


def _text(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _seeds(text: str) -> range:
    try:
        return parse_seeds(text)
    except typer.BadParameter as error:
        raise LakeError(error.message) from None


def _check_output(lake: Path | None, out: Path | None, jobs: int | None, master: str | None) -> None:
    if (lake is None) == (out is None):
        raise LakeError("specify where to store the rows: --lake DIR or -o FILE.parquet")
    if jobs is not None and (lake is not None or master is not None):
        raise LakeError("--jobs runs without Spark; use -o FILE.parquet and neither --lake nor --master")
    if jobs is None:
        require_spark(master)


# -- running ----------------------------------------------------------------------------------------------


def _execute(
    items: Sequence[Item], lake: Path | None, out: Path | None, jobs: int | None, master: str | None, *, quiet: bool
) -> tuple[Swept, float]:
    begun = time.perf_counter()
    with _stage(lake, out, jobs, master) as (engine, store), _bar(len(items), quiet=quiet) as tell:
        try:
            found = sweep(items, engine, store, code_version(), crashed, tell)
        except SweepStopped as error:
            raise LakeError(str(error)) from None
    return found, time.perf_counter() - begun


@contextmanager
def _stage(
    lake: Path | None, out: Path | None, jobs: int | None, master: str | None
) -> Iterator[tuple[SweepEngine, RowStore]]:
    """Yield the engine that runs histories and the store of their rows."""
    file = FileStore(out) if out is not None else None
    if jobs is not None and file is not None:
        with closing(ProcessEngine(jobs, run_items)) as processes:
            yield processes, file
        return
    with spark_session(master, "levelcast sweep") as spark:
        engine = SparkEngine(spark, run_items)
        if file is not None:
            yield engine, file
            return
        from levelcast.pipeline.lake.lake import Lake

        tables = Lake.create(lake or Path())
        with tables.alone():
            yield engine, LakeStore(spark, tables)


@contextmanager
def _bar(total: int, *, quiet: bool) -> Iterator[Any]:
    with counting("{task.fields[state]}", quiet=quiet) as progress:
        task = progress.add_task("histories", total=total, state="")

        def tell(done: int, bad: int) -> None:
            under_way = "{}/{} tasks".format(*tasks()) if progress.console.is_terminal else ""
            progress.update(task, completed=done, state=f"{bad} broken {under_way}")

        yield tell


# -- showing ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartResult:
    """Histories of a part."""

    part: SweepPart
    rows: list[Row]
    asked: tuple[str, ...]

    @property
    def figures(self) -> tuple[str, ...]:
        return self.asked or FIGURES.get(self.part.scenario, _OF_RING)

    def check(self) -> None:
        """Raise ValueError for metrics that no history has."""
        known = names_of(self.rows)
        for name in self.asked:
            check(SweepPlot(name, name), known)

    def by_point(self) -> list[dict[str, Any]]:
        rows: dict[str, list[Row]] = {}
        for row in self.rows:
            rows.setdefault(row["parameters"], []).append(row)
        made = []
        for values in self.part.points():
            mine = rows[as_text(values)]
            numbers = {name: sorted(v for row in mine if _is_number(v := value_of(row, name))) for name in self.figures}
            verdicts = {verdict: sum(row["verdict"] == verdict for row in mine) for verdict in ("broken", "crashed")}
            quantiles = {name: _halves(each) for name, each in numbers.items()}
            made.append({"parameters": values, "histories": len(mine), **verdicts, "figures": quantiles})
        return made


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _halves(ordered: Sequence[float]) -> dict[str, float] | None:
    shares = {"p5": 0.05, "p50": 0.5, "p95": 0.95}
    return dict(zip(shares, quantiles(ordered, shares.values()), strict=True)) if ordered else None


def _draw(results: Sequence[PartResult], folder: Path) -> list[Path]:
    drawn = [(each.file_name, plot(found.rows, each)) for found in results for each in found.part.pictures]
    if drawn:
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in drawn:
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name, _ in drawn]


def _as_json(swept: Swept, results: Sequence[PartResult], written: Sequence[Path], took: float) -> dict[str, Any]:
    names = ("scenario", "parameters", "seed", "verdict", "broken")
    return {
        "code": code_version(),
        "histories": len(swept.rows),
        "ran": swept.ran,
        "sweeps": [{"scenario": found.part.scenario, "points": found.by_point()} for found in results],
        "broken": [{name: row[name] for name in names} for row in swept.rows if row["verdict"] != HELD],
        "cpu_s": round(sum(row["cpu_s"] or 0.0 for row in swept.rows), 2),
        "wall_seconds": round(took, 2),
        "plots": [str(path) for path in written],
    }


def _show(swept: Swept, results: Sequence[PartResult], took: float) -> None:
    console = Console()
    for found in results:
        console.print(_table(found))
    kept = len(swept.rows) - swept.ran
    rest = f", {kept:,} already stored" if kept else ""
    cpu = sum(row["cpu_s"] or 0.0 for row in swept.rows)
    console.print(f"{swept.ran:,} histories run in {took:.1f} s{rest}; {cpu:,.1f} s of CPU in total.", highlight=False)
    bad = [row for row in swept.rows if row["verdict"] != HELD]
    if not bad:
        console.print("[green]Every guarantee held in every history.[/green]")
        return
    console.print(f"[red]{len(bad):,} histories violated a guarantee or failed.[/red]")
    for row in bad[:MAX_BROKEN_SHOWN]:
        line = f"  {row['scenario']} {row['parameters']} seed {row['seed']}: {row['verdict']}: {row['broken']}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
        if row["scenario"] not in (STEADY, WORLD):
            again = replay_command(row["scenario"], row["seed"], json.loads(row["parameters"])["without"])
            console.print(f"    {again}", markup=False, highlight=False, soft_wrap=True)


def _quantiles(found: dict[str, float] | None) -> str:
    return "" if found is None else f"{_short(found['p50'])} ({_short(found['p5'])}–{_short(found['p95'])})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def _table(found: PartResult) -> Table:
    varied = [name for name, values in found.part.values.items() if len(values) > 1]
    columns = (*varied, ">histories", ">broken", *(f">{name}" for name in found.figures))
    rows = []
    for point in found.by_point():
        numbers = [_quantiles(point["figures"][name]) for name in found.figures]
        values = ["none" if (v := point["parameters"][name]) is None else _text(v) for name in varied]
        rows.append((*values, point["histories"], point["broken"] + point["crashed"], *numbers))
    return table(columns, rows, title=f"{found.part.scenario}: median (p5–p95) of the histories")
