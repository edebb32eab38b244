"""Print the results of commands: tables, JSON, CSV, problems, and progress."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table
from rich.text import Text


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]], *, no_wrap: bool = False, **settings: Any) -> Table:
    """Return a table with its title on the left. Column names that begin with ">" are right-aligned."""
    made = Table(**{"title_justify": "left", **settings})
    for name in columns:
        side: Any = "right" if name.startswith(">") else "left"
        made.add_column(name.removeprefix(">"), justify=side, no_wrap=no_wrap)
    for row in rows:
        made.add_row(*map(cell, row))
    return made


def cell(value: Any) -> str | Text:
    """Format a value for a table: integers in groups of three digits, None as an empty cell."""
    if isinstance(value, str | Text):
        return value
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def print_json(found: Any, indent: int | None = 2, *, ensure_ascii: bool = True) -> None:
    typer.echo(json.dumps(found, indent=indent, ensure_ascii=ensure_ascii))


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def print_after(console: Console, title: str, text: str, style: str = "bold") -> None:
    """Print a paragraph that begins with its title in a style."""
    console.print(Text.assemble((title, style), text), highlight=False, soft_wrap=not console.is_terminal)


def print_problems(console: Console, what: str, problems: Iterable[str]) -> None:
    """Print the problems of tapes that failed a check."""
    console.print(f"{what} FAILED the check:", style="bold red", highlight=False)
    for problem in problems:
        console.print(f"- {problem}", style="red", highlight=False, markup=False, soft_wrap=True)


def print_unfinished(console: Console, reasons: Iterable[str], *, agree: bool) -> None:
    """Print why a run was stopped before its end; `agree`: its tapes have no error."""
    told = "; the tapes agree as far as they go" if agree else ""
    console.print(f"The run is NOT COMPLETE{told}:", style="bold yellow", highlight=False)
    for reason in reasons:
        console.print(f"- {reason}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def counting(*columns: str, quiet: bool = False) -> Progress:
    """Return a progress bar on stderr with a count and more text columns; it is disabled without a terminal."""
    console = Console(stderr=True, quiet=quiet)
    shown = ("{task.description}", BarColumn(), MofNCompleteColumn())
    left = TimeRemainingColumn()
    return Progress(*shown, *columns, left, console=console, transient=True, disable=not console.is_terminal)
