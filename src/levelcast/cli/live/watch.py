"""`levelcast watch`: print the trades that a region's edge sends, as they arrive."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import numpy as np
import typer

from levelcast.cli.errors import duration_ns
from levelcast.cli.options import NETWORK_FILE, NetworkFile, interface_option, option
from levelcast.cli.output import csv_text
from levelcast.client.edge_sockets import groups_of, line_room
from levelcast.client.subscriber import Batch, Start, Subscriber, together_bound_ns
from levelcast.edge.subscriber.delivery import Ended, Grade, Lost, Stuck, SubscriberConfig
from levelcast.edge.subscriber.plan_follower import Replaced, Unfit
from levelcast.errors import NetError
from levelcast.network import Network, load_network
from levelcast.network.sessions import stripe_session
from levelcast.records import RTYPE_TRADE, UNDEF_PRICE, UNDEF_TIMESTAMP, RecordArray, price_to_decimal
from levelcast.runtime.sockets import LOOPBACK
from levelcast.units import show_ns

COLUMNS = ("seq", "ts_event", "ts_recv", "floor", "symbol", "price", "size", "condition")
_WIDTHS = (12, 18, 18, 5, 8, 14, 10, 9)
_QUIET_S = 2.0
"""Report when nothing was received for this time."""

_CLOCKS_APART_NS = 1_000_000
"""Report records that arrive this long before their release."""

_PATIENCE = {"retry_ns": 50_000_000, "attempts": 20}
"""Skip messages after 1 s of requests without a reply."""

Row = tuple[Any, ...]


def watch(
    network_file: NetworkFile = NETWORK_FILE,
    region: Annotated[str | None, option("Region of the edge groups.", unset="the only one")] = None,
    symbol: Annotated[list[str] | None, option("Print only this symbol (repeatable).", unset="all")] = None,
    start: Annotated[
        str,
        option(
            "Start with the next record, the last price of each symbol, or this sequence of the session.",
            "--from",
            metavar="now|snapshot|SEQ",
        ),
    ] = "now",
    grade: Annotated[
        str,
        option(
            "Request missing messages, skip them, or request only those that may hold a symbol's newest price.",
            metavar="guaranteed|best-effort|latest-only",
        ),
    ] = "guaranteed",
    line: Annotated[
        str | None,
        option(
            "Capacity of the line, such as 1.5Mbit: join only groups that fit, and name the symbols that do not.",
            metavar="RATE",
            unset="unlimited",
        ),
    ] = None,
    merged: Annotated[
        bool, option("Merge all sessions into one order: by time, stripe and tape position.", "--merged")
    ] = False,
    together: Annotated[
        str | None,
        option(
            "Print each trade this long after its release time, as all subscribers with the same bound; off: as it "
            "arrives.",
            metavar="TIME|off",
            unset="`together` of the network file",
        ),
    ] = None,
    count: Annotated[int | None, option("Stop after this number of trades.", min=1, unset="never")] = None,
    limit: Annotated[str | None, option("Stop after this time.", "--for", metavar="TIME", unset="never")] = None,
    as_json: Annotated[bool, option("Print one JSON object per line.", "--json")] = False,
    interface: Annotated[str, interface_option("IP address of the network interface for the edge groups.")] = LOOPBACK,
    unicast: Annotated[
        bool, option("Register with the edges of the region and receive copies, without multicast.", "--unicast")
    ] = False,
) -> None:
    """Print the trades of a region's edge: a table on a terminal, CSV otherwise.

    Only trades are printed; definitions, quotes and status records are skipped. `seq` is the position on the tape.
    Until the first watermark arrives, usually within 100 ms, only its low 32 bits are shown.

    Examples:

    levelcast watch --region europe

    levelcast watch --region asia-pacific --symbol 7203 --from snapshot --json
    """
    network = load_network(network_file)
    _check_region(network, region)
    _check_line(network, region, line)
    _check_together(network, together)
    limit_s = None if limit is None else duration_ns(limit) / 1e9
    printer = _Printer(network, as_json=as_json)
    chosen = _start(start, network)
    how = _grade(grade)
    watcher = _Watcher(
        network, region, symbol, chosen, how, line, merged, together, printer, count, interface, unicast=unicast
    )
    asyncio.run(watcher.run(limit_s))


def _check_region(network: Network, region: str | None) -> None:
    """Raise BadParameter unless the edge has groups of the region."""
    try:
        groups_of(network, region)
    except NetError as error:
        if not network.edge.groups:
            raise
        raise typer.BadParameter(str(error), param_hint="--region") from None


def _check_line(network: Network, region: str | None, line: str | None) -> None:
    """Raise BadParameter unless a line carries a group."""
    if line is not None:
        try:
            line_room(network, groups_of(network, region), line)
        except NetError as error:
            raise typer.BadParameter(str(error), param_hint="--line") from None


def _check_together(network: Network, together: str | None) -> None:
    """Raise BadParameter unless the bound is a time or `off`."""
    try:
        together_bound_ns(network, together)
    except NetError as error:
        raise typer.BadParameter(str(error), param_hint="--together") from None


def _start(text: str, network: Network) -> Start:
    if text in ("now", "snapshot"):
        return "now" if text == "now" else "snapshot"
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(f'"{text}" is not now, snapshot or a sequence from 1 on', param_hint="--from")
    return {stripe_session(stripe).decode().rstrip(): int(text) for stripe in network.stripes}


def _grade(text: str) -> Grade:
    known = {each.value.replace(" ", "-"): each for each in Grade}
    found = known.get(text.replace(" ", "-"))
    if found is None:
        raise typer.BadParameter(f'"{text}" is not one of {", ".join(known)}', param_hint="--grade")
    return found


def _say(text: str) -> None:
    typer.echo(f"levelcast: {text}", err=True)


class _Watcher:
    """State of one run of the command."""

    def __init__(
        self,
        network: Network,
        region: str | None,
        symbols: list[str] | None,
        start: Start,
        grade: Grade,
        line: str | None,
        merged: bool,
        together: str | None,
        printer: _Printer,
        count: int | None,
        interface: str,
        *,
        unicast: bool,
    ) -> None:
        self._printer = printer
        self._left = count
        self._from_snapshot = start == "snapshot"
        what = "edges" if unicast else "edge groups"
        self._where = f"the {what} of {region}" if region is not None else f"the {what}"
        self._tape = Subscriber(
            network,
            region,
            start=start,
            symbols=symbols,
            line=line,
            merged=merged,
            together=together,
            interface=interface,
            transport="unicast" if unicast else "multicast",
            on_event=self._on_event,
            config=SubscriberConfig(grade, **_PATIENCE),
        )

    async def run(self, limit_s: float | None) -> None:
        """Print until the count, the time, a signal or the end of all sessions."""
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        reminder = loop.call_later(_QUIET_S, self._remind)
        began_s = time.monotonic()
        try:
            with suppress(asyncio.CancelledError, TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._follow()
        finally:
            reminder.cancel()
        self._summarise(time.monotonic() - began_s)

    async def _follow(self) -> None:
        async with self._tape as tape:
            self._printer.begin()
            if tape.clock_doubt is not None:
                _say(tape.clock_doubt)
            if all(self._print(batch) for batch in (tape.last if self._from_snapshot else ())):
                async for batch in tape:
                    if not self._print(batch):
                        return

    def _print(self, batch: Batch) -> bool:
        """Print the trades of a batch; return False when the count is reached."""
        if batch.kind.rtype == RTYPE_TRADE:
            if self._left is not None:
                batch = batch._replace(records=batch.records[: self._left])
                self._left -= len(batch.records)
            self._printer.print(batch, self._tape.symbols)
        return self._left != 0

    # -- messages -----------------------------------------------------------------------------------------

    def _remind(self) -> None:
        if not self._tape.heard:
            _say(
                f"nothing received from {self._where} yet; check that the network runs (`levelcast status`) and that "
                "--interface is right. Waiting"
            )

    def _on_event(self, event: Lost | Stuck | Ended | Replaced | Unfit) -> None:
        if isinstance(event, Unfit):
            self._name_unfit(event)
            return
        if isinstance(event, Replaced):
            _say(f"plan {event.number} is active")
            return
        session = event.session.decode().rstrip()
        if isinstance(event, Ended):
            _say(f"session {session}: ended before sequence {event.sequence}")
        elif isinstance(event, Lost):
            _say(f"session {session}: continuing without {event.messages} messages from sequence {event.sequence}")
        else:
            last, why = event.sequence + event.messages - 1, "no edge answered the requests"
            if event.left:
                last, why = (
                    min(last, event.left - 1),
                    f"no edge has them any more; its tape begins with {event.left}",
                )
            _say(f"session {session}: messages {event.sequence} to {last} are missing; {why}")
            asyncio.get_running_loop().call_soon(self._tape.skip, session, event.left or None)

    def _name_unfit(self, event: Unfit) -> None:
        """Print the symbols of a stripe that the line does not carry."""
        stripes, symbols = self._tape.network.stripes, self._tape.symbols
        names = ", ".join(sorted(symbols.get(each, str(each)) for each in event.instruments))
        what = f"does not carry {len(event.instruments):,} symbols: {names}" if names else "carries all symbols"
        stripe = f"stripe {stripes[event.stripe].name}: " if len(stripes) > 1 else ""
        width = shutil.get_terminal_size().columns
        text = f"levelcast: {stripe}the line {what}"
        typer.echo(textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False), err=True)

    def _summarise(self, seconds: float) -> None:
        counts, printed = self._tape.counts, self._printer.printed
        typer.echo(
            f"{printed:,} trades printed in {seconds:.1f} s; {counts.packets:,} packets, {counts.gaps:,} gaps, "
            f"{counts.requests:,} requests, {counts.lost:,} messages lost, {counts.duplicates:,} duplicates"
            + (f", {counts.superseded:,} superseded" if counts.superseded else ""),
            err=True,
        )
        self._summarise_together()
        for line in self._tape.lines.values() if len(self._tape.lines) > 1 else ():
            came = line.counts
            typer.echo(
                f"line {line.name}: {came.packets:,} packets, {came.share_first:.1%} of its messages arrived first, "
                f"{came.missing:,} missing",
                err=True,
            )
        for session, following in self._tape.positions.items():
            typer.echo(f"session {session}: next sequence {following}", err=True)

    def _summarise_together(self) -> None:
        """Print how many records were delivered together, and how many missed the bound."""
        counts, bound_ns = self._tape.together, self._tape.together_ns
        if counts is None or bound_ns is None:
            return
        text = f"together: {counts.records:,} records {show_ns(bound_ns)} after their release, {counts.late:,} late"
        if counts.late:
            text += f" by at most {show_ns(counts.largest_late_ns)}"
        typer.echo(text, err=True)
        if counts.largest_early_ns > _CLOCKS_APART_NS:
            _say(
                f"records arrived up to {show_ns(counts.largest_early_ns)} before their release time; "
                "check the clocks of this machine and of the receivers (`levelcast status`)"
            )


class _Printer:
    """Print rows as a table, CSV or JSON."""

    def __init__(self, network: Network, *, as_json: bool) -> None:
        self.printed = 0
        self._json = as_json
        self._plain = not as_json and sys.stdout.isatty()
        self._floors = {floor.publisher: floor.name for floor in network.floors}

    def begin(self) -> None:
        """Print the names of the columns."""
        if not self._json:
            self._write(self._line(COLUMNS) if self._plain else csv_text([COLUMNS]))

    def print(self, batch: Batch, symbols: dict[int, str]) -> None:
        whole = batch.global_sequences
        sequences = batch.records["sequence"].tolist() if whole is None else whole.tolist()
        rows = list(self._rows(batch.records, sequences, symbols))
        self.printed += len(rows)
        if self._json:
            text = "".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in rows)
        elif self._plain:
            text = "".join(self._line(row) for row in rows)
        else:
            text = csv_text(["" if value is None else value for value in row] for row in rows)
        self._write(text)

    def _rows(self, trades: RecordArray, sequences: list[int], symbols: dict[int, str]) -> Iterator[Row]:
        names = ("ts_event", "ts_recv", "publisher_id", "instrument_id", "price", "size", "condition")
        columns = [trades[name].tolist() for name in names]
        for seq, ts_event, ts_recv, floor, number, price, size, condition in zip(sequences, *columns, strict=True):
            yield (
                seq,
                None if ts_event == UNDEF_TIMESTAMP else ts_event,
                ts_recv,
                self._floors.get(floor, str(floor)),
                symbols.get(number, str(number)),
                None if price == UNDEF_PRICE else f"{price_to_decimal(price):f}",
                size,
                condition,
            )

    def _line(self, row: Row) -> str:
        """Format a row for a terminal: times as the time of day in UTC, prices without trailing zeros."""
        cells = []
        for name, width, value in zip(COLUMNS, _WIDTHS, row, strict=True):
            text = "" if value is None else str(value)
            if name.startswith("ts_") and text.isdigit():
                text = str(np.datetime64(int(text), "ns"))[11:]
            elif name == "price" and "." in text:
                text = text.rstrip("0").rstrip(".")
            cells.append(text.ljust(width) if name in ("floor", "symbol") else text.rjust(width))
        return " ".join(cells).rstrip() + "\n"

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
