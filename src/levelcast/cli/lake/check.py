"""`levelcast pipeline check`: examine a lake, and remove duplicates from it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levelcast.cli.lake.spark import spark_errors, working
from levelcast.cli.options import AsJson, LakeDir, Master, option
from levelcast.cli.output import print_json
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.session import require_spark, spark_session

if TYPE_CHECKING:
    from levelcast.pipeline.lake.check import LakeFault

FOUND = 1
"""Exit code if the lake has a fault."""


def check(
    lake: LakeDir,
    repair: Annotated[bool, option("Remove duplicates, in one commit of each table.", "--repair")] = False,
    undo: Annotated[bool, option("Undo the last repair.", "--undo")] = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Examine a lake: damaged files, files that no commit knows, repeated keys, duplicates and holes.

    Exits with code 1 if there is a fault. Needs no Java: Spark is used only with --master. After a repair or its undo,
    the next `levelcast pipeline run` computes the derived tables of these days again.

    Examples:

    levelcast pipeline check --lake lake

    levelcast pipeline check --lake lake --repair
    """
    if repair and undo:
        raise typer.BadParameter("use either --repair or --undo")
    with spark_errors():
        done = _examine(lake, master, repair=repair, undo=undo, quiet=as_json)
    found: list[LakeFault] = done["findings"]
    if as_json:
        print_json(done | {"findings": [asdict(each) for each in found]}, None)
    else:
        for each in found:
            typer.echo(f"{each.kind:>10}  {each.table}: {each.says}")
        for name, rows in done["removed"].items():
            typer.echo(f"{name}: {rows:,} rows removed; to undo: levelcast pipeline check --lake {lake} --undo")
        for name, rows in done["restored"].items():
            typer.echo(f"{name}: {rows:,} rows restored")
        if not undo:
            typer.echo(
                f"{lake}: {len(found)} faults" if found else f"{lake}: no fault in {done['rows']:,} rows of tape"
            )
    raise typer.Exit(FOUND if found and not (repair and done["clean"]) else 0)


def _examine(directory: Path, master: str | None, *, repair: bool, undo: bool, quiet: bool) -> dict[str, Any]:
    from levelcast.pipeline.lake import check as job
    from levelcast.pipeline.lake import repair as repairs
    from levelcast.pipeline.lake.duplicates import DuckQueries, QueryEngine, SparkQueries
    from levelcast.pipeline.lake.lake import COMPACT_LOCK, Lake

    if master is not None:
        require_spark(master)
    tables = Lake(directory)
    done: dict[str, Any] = {"lake": str(directory), "findings": [], "removed": {}, "restored": {}, "clean": True}
    with ExitStack() as held:
        tell = held.enter_context(working(quiet=quiet))
        held.enter_context(tables.alone())
        held.enter_context(tables.alone(COMPACT_LOCK))
        tables.check()
        if undo:
            return done | {"restored": repairs.undo(tables), "rows": 0}
        engine: QueryEngine = DuckQueries()
        if master is not None:
            tell("starting Spark")
            engine = SparkQueries(
                held.enter_context(spark_session(master, "levelcast pipeline check", inputs=[directory]))
            )
        checked = job.check(tables, engine, tell)
        done["findings"] = checked.findings
        if repair and (checked.overlaps or checked.repeated or checked.stale):
            if any(each.kind == "damaged" for each in checked.findings):
                raise LakeError(f"{directory}: has damaged files; restore them before a repair")
            done["removed"] = repairs.repair(tables, engine, checked, tell)
            done["clean"] = not [
                each for each in job.check(tables, engine, tell).findings if each.table not in job.DERIVED
            ]
        elif checked.findings:
            done["clean"] = False
        done["rows"] = sum(file.rows for file in tables.files("tape"))
    return done
