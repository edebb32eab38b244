"""`levelcast audit`: audit tapes and release logs; third parties can repeat the audit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from levelcast.cli.errors import duration_ns, replacing, require_new
from levelcast.cli.lake.spark import spark_errors, working
from levelcast.cli.options import AsJson, Force, Master, option
from levelcast.cli.output import print_json, table
from levelcast.network import load_network
from levelcast.pipeline.session import require_spark, spark_session

if TYPE_CHECKING:
    from levelcast.pipeline.audit.base import AuditOptions, AuditTable, Result, Tell
    from levelcast.pipeline.audit.inputs import Inputs
    from levelcast.pipeline.audit.run import AuditOutcome

MOST_ROWS = 40


def audit(
    which: Annotated[str, typer.Argument(help="Audit to run.", metavar="order|fairness|timeliness|entry|all")],
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="Directories of receivers or tapes, or one that contains all receivers."),
    ],
    network: Annotated[
        Path | None, option("Network file: regions, delays, required receivers.", metavar="FILE")
    ] = None,
    without: Annotated[list[str] | None, option("Exclude this receiver (repeatable).", metavar="NAME")] = None,
    lake: Annotated[
        Path | None, option("Add the verdict to the tables audits and audit_findings of this lake.", metavar="DIR")
    ] = None,
    out: Annotated[
        Path | None, option("Write all results to this file as JSON.", "--out", "-o", metavar="FILE")
    ] = None,
    force: Force = False,
    read_bytes: Annotated[
        bool, option("order: read the records, not only their indexes.", "--bytes/--no-bytes")
    ] = True,
    early: Annotated[str, option("fairness: maximum time that a release may be early.", metavar="TIME")] = "0.1ms",
    threshold: Annotated[
        str, option("fairness: ignore mean differences between receivers up to this duration.", metavar="TIME")
    ] = "0.5ms",
    wait_threshold: Annotated[
        str | None,
        option(
            "fairness: ignore mean differences between the waits of sources up to this duration.",
            metavar="TIME",
            unset="a tenth of a slot plus twice the clock error",
        ),
    ] = None,
    late_share: Annotated[float, option("fairness: allowed fraction of late releases.", min=0.0, max=1.0)] = 0.01,
    level: Annotated[
        float, option("Maximum probability of a false finding in a clean run.", min=1e-12, max=0.5)
    ] = 1e-3,
    older: Annotated[str, option("timeliness: age from which a record counts as old.", "--old", metavar="TIME")] = "1s",
    old_share: Annotated[
        float, option("timeliness: allowed fraction of old or future records.", min=0.0, max=1.0)
    ] = 0.01,
    ahead: Annotated[str, option("timeliness: maximum lead of a floor's clock.", metavar="TIME")] = "2ms",
    master: Master = None,
    no_spark: Annotated[
        bool, option("Run in this process, without Spark and Java; for small tapes.", "--no-spark")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Audit recorded tapes for identical order, fair release, timely floors and fair order entry.

    Exit code 0: passed; 1: the audit has findings, which are printed; 2: the audit cannot run on this input.

    Examples:

    levelcast audit all data --network network.toml

    levelcast audit order data/tokyo-1 data/london-1 data/sydney-1 --json

    levelcast audit fairness data --network network.toml --threshold 0.2ms --lake lake -o verdict.json
    """
    require_new(out, force=force)
    if no_spark and (lake is not None or master is not None):
        raise typer.BadParameter("--lake and --master need Spark", param_hint="--no-spark")
    with spark_errors():
        from levelcast.pipeline.audit import run as audit_run
        from levelcast.pipeline.audit.base import AuditOptions, Job
        from levelcast.pipeline.audit.inputs import gather

        options = AuditOptions(
            read_bytes,
            duration_ns(early, "--early"),
            duration_ns(threshold, "--threshold"),
            None if wait_threshold is None else duration_ns(wait_threshold, "--wait-threshold"),
            late_share,
            level,
            duration_ns(older, "--old"),
            old_share,
            duration_ns(ahead, "--ahead"),
        )
        names = audit_run.names_of(which)
        inputs = gather(directories, None if network is None else load_network(network), without or ())
        with working(quiet=as_json) as tell:
            if no_spark:
                outcome, run_id = audit_run.run(names, Job(None, inputs, options, tell)), None
            else:
                outcome, run_id = _on_spark(names, inputs, options, lake, master, tell)
        document = {
            "audits": [result.as_json() for result in outcome.results],
            "not_run": outcome.not_run,
            "receivers": inputs.receivers,
            "run": run_id,
            "exit_code": outcome.exit_code,
        }
        if out is not None:
            with replacing(out) as unfinished:
                unfinished.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json(document, None)
    else:
        show(Console(highlight=False), outcome)
        if out is not None:
            typer.echo(f"All results are in {out}.")
    raise typer.Exit(outcome.exit_code)


def _on_spark(
    names: Sequence[str], inputs: Inputs, options: AuditOptions, lake: Path | None, master: str | None, tell: Tell
) -> tuple[AuditOutcome, str | None]:
    from levelcast.pipeline.audit import run as audit_run
    from levelcast.pipeline.audit.base import Job

    require_spark(master)
    tell("starting Spark")
    with spark_session(master, f"levelcast audit {' '.join(names)}") as spark:
        outcome = audit_run.run(names, Job(spark, inputs, options, tell))
        if lake is None:
            return outcome, None
        from levelcast.pipeline.lake.lake import Lake

        tell("writing the lake")
        tables = Lake.create(lake)
        with tables.alone():
            return outcome, audit_run.keep(spark, tables, outcome.results, inputs.receivers)


# -- on a terminal ----------------------------------------------------------------------------------------


def show(console: Console, outcome: AuditOutcome) -> None:
    """Print verdict, summary, findings, tables and remarks."""
    for result in outcome.results:
        style, word = ("bold green", "PASSED") if result.passed else ("bold red", "FOUND")
        console.print(f"{result.audit}: {word}", style=style)
        console.print(result.sentence, soft_wrap=True)
        if result.findings:
            console.print(_findings(result))
            if len(result.findings) > MOST_ROWS:
                console.print(f"and {len(result.findings) - MOST_ROWS} more; --json prints all")
        for figures in result.figures:
            if 0 < len(figures.rows) <= MOST_ROWS:
                console.print(_figures(figures))
        for remark in result.remarks:
            console.print(f"- {remark}", style="dim", soft_wrap=True)
        console.print()
    for name, why in outcome.not_run.items():
        console.print(f"{name}: NOT RUN", style="bold yellow")
        console.print(why, soft_wrap=True)


def _findings(result: Result) -> Table:
    """Return a table of the first `MOST_ROWS` findings."""
    columns = ("kind", "subject", ">slot", ">record", ">byte", "finding")
    rows = [
        (each.kind, each.subject, *map(_number, (each.slot, each.record, each.offset)), each.says)
        for each in result.findings[:MOST_ROWS]
    ]
    made = table(columns, rows, box=None, pad_edge=False)
    for column in made.columns:
        column.overflow = "fold"
    return made


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _figures(figures: AuditTable) -> Table:
    columns = [">" + name.replace("_ns", " ms") for name in figures.columns]
    rows = ([_cell(*each) for each in zip(figures.columns, row, strict=True)] for row in figures.rows)
    return table(columns, rows, title=figures.name, box=None, pad_edge=False)


def _cell(column: str, value: Any) -> Any:
    if column.endswith("_ns") and value is not None:
        return f"{value / 1e6:,.3f}"
    return f"{value:.4g}" if isinstance(value, float) else value
