"""What commands that work on Spark and the lake share: options, a bar with Spark's tasks, errors as one sentence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from levelcast.formats.columns import TradeFileError
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.session import SparkMissing, failure, tasks
from levelcast.planner.model import PlanError
from levelcast.storage.append_file import TapeError

LakeDir = Annotated[Path, typer.Option("--lake", metavar="DIR", help="The directory of the tables.")]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's cluster.", show_default="spark-submit's, or this machine's cores"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@contextmanager
def one_sentence() -> Iterator[None]:
    """What a person can mend is one sentence on stderr and exit code 2; Spark wraps it in many."""
    try:
        yield
    except (LakeError, SparkMissing, TapeError, TradeFileError, PlanError, ValueError) as error:
        _refuse(str(error))
    except ImportError as error:
        _refuse(f"the pipeline needs what is not here ({error}): pip install 'levelcast[spark]'")
    except Exception as error:
        if type(error).__module__.startswith("deltalake"):
            _refuse(f"the lake cannot be read ({next(iter(str(error).splitlines()), type(error).__name__)})")
        sentence = _of_spark(error)
        if sentence is None:
            raise
        _refuse(sentence)


def _refuse(sentence: str) -> None:
    typer.echo(f"levelcast: {sentence}", err=True)
    raise typer.Exit(2) from None


def _of_spark(error: Exception) -> str | None:
    """The sentence in what Spark has made of an error of ours, or one for Spark's own."""
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return None
    from levelcast.pipeline.input.tape_source import sentence_of

    return sentence_of(error) or failure(error)


@contextmanager
def working(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal with the step and Spark's tasks; on stderr, so that results can be piped."""
    console = Console(stderr=True, quiet=quiet)
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[tasks]}"),
        TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    over = threading.Event()
    with progress:
        task = progress.add_task("", total=None, tasks="")

        def tell(step: str) -> None:
            progress.update(task, description=step, completed=0, total=None, tasks="")

        def watch() -> None:
            while not over.wait(0.3):
                done, total = tasks()
                if total:
                    progress.update(task, completed=done, total=total, tasks=f"{done}/{total} tasks")

        watcher = threading.Thread(target=watch, daemon=True)
        if console.is_terminal:
            watcher.start()
        try:
            yield tell
        finally:
            over.set()
