"""Show an order book in the terminal while it changes."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console
from rich.live import Live

from levelcast.cli.book.text import book_table
from levelcast.records import RecordArray

Book = tuple[str, int, RecordArray]
"""Title, number of events so far, and the best levels."""
REFRESH_S = 0.1


class BookScreen:
    """Shows books at a rate of events on a terminal; elsewhere, only the last one."""

    def __init__(self, console: Console, rate: int) -> None:
        self.console, self._rate = console, rate

    def show(self, books: Iterable[Book]) -> None:
        """Show each book when its events are due, ten times a second; leave the last one on the screen."""
        last: Book | None = None
        begun, shown = time.monotonic(), 0.0
        with Live(console=self.console, transient=True, auto_refresh=False) as live:
            for last in books:
                if not self.console.is_terminal:
                    continue
                due = last[1] / self._rate
                if due - shown >= REFRESH_S:
                    shown = due
                    live.update(book_table(last[0], last[2]), refresh=True)
                    time.sleep(max(0.0, begun + due - time.monotonic()))
        if last is not None:
            self.console.print(book_table(last[0], last[2]))
