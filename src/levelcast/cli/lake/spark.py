"""Progress bar with Spark's tasks, and error messages, for commands that use Spark or the lake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn

from levelcast.errors import UserError
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.session import failure, tasks


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise LakeError for errors of Spark, Delta Lake or a missing package; ours inside Spark keep their text."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise LakeError(str(error)) from error
    except ImportError as error:
        package = error.name or str(error)
        raise LakeError(f"{package} is not installed; run pip install 'levelcast[spark]'") from error
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if package == "deltalake":
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise LakeError(f"the lake cannot be read ({first})") from error
        if package not in ("pyspark", "py4j"):
            raise
        from levelcast.pipeline.input.tape_source import sentence_of

        raise LakeError(sentence_of(error) or failure(error)) from error


@contextmanager
def working(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the step and Spark's tasks in a bar on a terminal; on stderr, so that results can be piped."""
    console = Console(stderr=True, quiet=quiet)
    columns = ("{task.description}", BarColumn(bar_width=30), "{task.fields[tasks]}", TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
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

        if console.is_terminal:
            threading.Thread(target=watch, daemon=True).start()
        try:
            yield tell
        finally:
            over.set()
