"""Show an order book in the terminal while it changes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import typer
from rich.console import Console
from rich.live import Live

from levelcast.cli.book.tapes import frames_after, instruments_of, open_tape, required_instruments, top_of
from levelcast.cli.book.text import book_table, state_line
from levelcast.market.engine import MatchingEngine
from levelcast.market.replay import TOP
from levelcast.market.synthetic_orders import order_flow, prepared
from levelcast.native.book import BookKernel
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


def watch_generated(screen: BookScreen, count: int, levels: int) -> None:
    """Show the book of the first of three instruments with generated orders."""
    kernel = BookKernel(accounts=True)
    prepared(kernel, 3, accounts=True)

    def books() -> Iterator[Book]:
        for number, command in enumerate(order_flow(count, 3), 1):
            kernel.run(command.tobytes())
            yield f"generated 1 after {number:,} events", number, np.frombuffer(kernel.top(1, levels), TOP)

    screen.show(books())
    kernel.finish()
    screen.console.print(
        f"{count:,} commands of 500 accounts in 3 instruments: {kernel.trade_count:,} trades, {kernel.live:,} live "
        "orders. Every asset is conserved."
    )


def watch_tape(screen: BookScreen, directory: Path, chosen: int, levels: int, treasury: int) -> None:
    """Show the book of an instrument of a tape, or of the first one (0)."""
    engine = MatchingEngine(treasury=treasury)

    def books() -> Iterator[Book]:
        for frame in frames_after(open_tape(directory), 0):
            engine.frame(frame)
            shown = chosen or next(iter(instruments_of(engine)), 0)
            title = f"instrument {shown} at sequence {engine.sequence:,}"
            yield title, engine.kernel.count, top_of(engine, shown, levels)

    screen.show(books())
    required_instruments(engine, [chosen] if chosen else [])
    typer.echo(state_line(engine))
