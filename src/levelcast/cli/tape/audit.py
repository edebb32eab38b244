"""`levelcast audit`: tapes and release logs in, verdicts out, that a regulator or a rival can run again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from levelcast.cli.errors import duration_ns
from levelcast.cli.lake.spark import AsJson, Master, spark_errors, working
from levelcast.network import load_network
from levelcast.pipeline.session import require_spark, spark_session

if TYPE_CHECKING:
    from levelcast.pipeline.audit.base import AuditOptions, AuditTable, Finding, Result, Tell
    from levelcast.pipeline.audit.inputs import Inputs
    from levelcast.pipeline.audit.run import AuditOutcome

MOST_ROWS = 40


def audit(
    which: Annotated[str, typer.Argument(help="order, fairness, timeliness, or all.", metavar="AUDIT")],
    directories: Annotated[
        list[Path], typer.Argument(help="Receivers' directories, tapes', or one with all receivers in it.")
    ],
    network: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The network file: regions, delays, who must be there.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Leave this receiver out; may be given again.")
    ] = None,
    lake: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Add the verdict to the tables audits and audit_findings.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write everything to this file, as JSON.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
    read_bytes: Annotated[
        bool, typer.Option("--bytes/--no-bytes", help="order: read the records, not only their indexes.")
    ] = True,
    early: Annotated[
        str, typer.Option(metavar="TIME", help="fairness: how much before its instant a release may be.")
    ] = "0.1ms",
    threshold: Annotated[
        str, typer.Option(metavar="TIME", help="fairness: a mean difference between receivers that is no matter.")
    ] = "0.5ms",
    wait_threshold: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="fairness: the same for the waiting of sources.",
            show_default="a tenth of a slot and twice the clock error",
        ),
    ] = None,
    late_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="fairness: the share of late releases that is allowed.")
    ] = 0.01,
    level: Annotated[
        float, typer.Option(min=1e-12, max=0.5, help="How likely a clean run may give a false finding.")
    ] = 1e-3,
    older: Annotated[str, typer.Option("--old", metavar="TIME", help="timeliness: what is old at its place.")] = "1s",
    old_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="timeliness: the share of old or future records that is allowed.")
    ] = 0.01,
    ahead: Annotated[
        str, typer.Option(metavar="TIME", help="timeliness: how far a floor's clock may be ahead.")
    ] = "2ms",
    master: Master = None,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Do all of it in this process: for small tapes, and without Java.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask the recorded tapes: is it one order, was everybody treated alike, were the floors in time?

    Exit code 0: it passes; 1: something was found, and is named; 2: the question could not be asked of this input.

    Examples:

    levelcast audit all data --network network.toml

    levelcast audit order data/tokyo-1 data/london-1 data/sydney-1 --json

    levelcast audit fairness data --network network.toml --threshold 0.2ms --lake lake -o verdict.json
    """
    if output is not None and output.exists() and not force:
        raise typer.BadParameter(f"{output} exists; --force replaces it")
    if no_spark and (lake is not None or master is not None):
        raise typer.BadParameter("a lake and a cluster need Spark", param_hint="--no-spark")
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
        if output is not None:
            _write(output, document)
    if as_json:
        typer.echo(json.dumps(document))
    else:
        show(Console(), outcome)
        if output is not None:
            typer.echo(f"All of it is in {output}.")
    raise typer.Exit(outcome.exit_code)


def _on_spark(
    names: Sequence[str], inputs: Inputs, options: AuditOptions, lake: Path | None, master: str | None, tell: Tell
) -> tuple[AuditOutcome, str | None]:
    from levelcast.pipeline.audit import run as audit_run
    from levelcast.pipeline.audit.base import Job

    require_spark()
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


def _write(output: Path, document: dict[str, Any]) -> None:
    unfinished = output.with_name(output.name + ".new")
    try:
        unfinished.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)


# -- on a terminal ----------------------------------------------------------------------------------------


def show(console: Console, outcome: AuditOutcome) -> None:
    """Verdict, sentence, findings, figures, remarks."""
    for result in outcome.results:
        style, word = ("bold green", "PASSED") if result.passed else ("bold red", "FOUND")
        console.print(f"{result.audit}: {word}", style=style, highlight=False)
        console.print(result.sentence, highlight=False, soft_wrap=True)
        if result.findings:
            console.print(_findings(result), highlight=False)
            if len(result.findings) > MOST_ROWS:
                console.print(f"and {len(result.findings) - MOST_ROWS} more: --json has all", highlight=False)
        for figures in result.figures:
            if 0 < len(figures.rows) <= MOST_ROWS:
                console.print(_figures(figures), highlight=False)
        for remark in result.remarks:
            console.print(f"- {remark}", style="dim", highlight=False, soft_wrap=True)
        console.print()
    for name, why in outcome.not_run.items():
        console.print(f"{name}: NOT RUN", style="bold yellow", highlight=False)
        console.print(why, highlight=False, soft_wrap=True)


def _findings(result: Result) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("kind", "whose", "slot", "record", "byte", "what"):
        table.add_column(title, overflow="fold", justify="right" if title in ("slot", "record", "byte") else "left")
    for finding in result.findings[:MOST_ROWS]:
        table.add_row(finding.kind, finding.subject, *_place(finding), finding.says)
    return table


def _place(finding: Finding) -> list[str]:
    return ["" if number is None else str(number) for number in (finding.slot, finding.record, finding.offset)]


def _figures(figures: AuditTable) -> Table:
    table = Table(title=figures.name, title_justify="left", box=None, pad_edge=False)
    for name in figures.columns:
        table.add_column(name.replace("_ns", " ms"), justify="right")
    for row in figures.rows:
        table.add_row(*(_cell(name, value) for name, value in zip(figures.columns, row, strict=True)))
    return table


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if column.endswith("_ns"):
        return f"{value / 1e6:,.3f}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
