"""`levelcast publish`: publish the trades of files to the ring, through their floors."""

from __future__ import annotations

import re
import shlex
import sys
import time
from datetime import date
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from levelcast.cli.errors import duration_ns, on_interrupt, parse_day
from levelcast.cli.options import NETWORK_FILE, Impair, Interface, JsonAtEnd, NetworkFile, option
from levelcast.cli.output import print_json, table
from levelcast.client.replay import Replay
from levelcast.formats.trade_files import FORMATS, Survey, open_trades, survey
from levelcast.network import SymbolDirectory, load_network
from levelcast.runtime.sockets import LOOPBACK
from levelcast.storage.disk import create_data

SILENCE_S = 5.0
"""Report a ring from which nothing was received for this time."""
_PLAIN_LINE_EVERY_S = 5.0


def publish(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of trades; for LEAN also a directory.")],
    network_file: NetworkFile = NETWORK_FILE,
    floor: Annotated[
        str | None, option("Floor of files that specify none; for others, publish only its trades.", metavar="CODE")
    ] = None,
    data: Annotated[
        Path | None, option("Directory of the floors' journals; needed to resume a publication.", metavar="DIR")
    ] = None,
    format: Annotated[str | None, option("File format.", metavar="|".join(FORMATS), unset="from the names")] = None,
    day: Annotated[str | None, option("Day of LEAN files.", "--date", metavar="YYYY-MM-DD")] = None,
    speed: Annotated[str, option("Replay speed, or max: as fast as credit allows.", metavar="1x|100x|max")] = "max",
    check: Annotated[bool, option("Only read the files and summarise them.", "--check")] = False,
    timeout: Annotated[
        str | None, option("Stop when nothing was witnessed for this time.", metavar="TIME", unset="never")
    ] = None,
    impair: Impair = False,
    interface: Interface = LOOPBACK,
    as_json: JsonAtEnd = False,
) -> None:
    """Publish the trades of files, each through its floor, and wait until the ring has witnessed all of them.

    All files are read and checked before the first packet is sent. Restarted with the same files and --data, the
    command resumes after the last trade in a journal.

    Examples:

    levelcast publish --data data --floor XNYS trades.csv

    levelcast publish --data data --format lean --date 2013-10-07 --speed 100x ticks/
    """
    network = load_network(network_file)
    directory, on = SymbolDirectory(network), _day(day, format)
    batches = partial(open_trades, files, directory, format=format, floor=floor, day=on, network=str(network_file))
    factor = _speed(speed)
    limit_s = None if timeout is None else duration_ns(timeout, "--timeout") / 1e9
    console = Console(stderr=True, quiet=as_json)
    if check:
        _tell_survey(survey(batches()), directory, as_json)
        return
    if data is not None:
        create_data(data)
    with Replay(network, batches, data=data, speed=factor, impair=impair, interface=interface) as replay:
        watch = _Watch(replay, console, limit_s)
        watch.run()
    outcome = _outcome(replay, watch)  # now that nothing more can get into a packet
    if as_json:
        print_json(outcome)
    else:
        typer.echo(_sentence(outcome, data))
    raise typer.Exit(0 if outcome["complete"] else 130 if replay.stopping and not watch.gave_up else 1)


def _day(text: str | None, format: str | None) -> date | None:
    if text is None:
        return None
    if format != "lean":
        raise typer.BadParameter("only LEAN files need a day; add --format lean", param_hint="--date")
    return parse_day(text)


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)x", text, re.ASCII)
    if match is None or not float(match[1]):
        raise typer.BadParameter(f'"{text}" is not a speed such as 1x, 100x or max', param_hint="--speed")
    return float(match[1])


# -- while it runs ----------------------------------------------------------------------------------------


class _Watch:
    """Run a publication and show its progress: a bar on a terminal, a line every 5 s otherwise."""

    def __init__(self, replay: Replay, console: Console, limit_s: float | None) -> None:
        self.replay = replay
        self.console = console
        self.gave_up = False
        self.seconds = 0.0
        self._limit_s = limit_s
        self._told_s = 0.0
        self._silent = False
        self._namesakes_told = False
        self._progress_at = (time.monotonic(), -1)

    def run(self) -> None:
        replay = self.replay
        for warning in replay.warnings:
            self._say(warning)
        if before := replay.before.total():
            self._say(f"resuming after {before:,} trades that were already published")
        on_interrupt(partial(setattr, replay, "stopping", True))
        began = time.monotonic()
        columns = (BarColumn(), MofNCompleteColumn(), "witnessed", TimeElapsedColumn(), "{task.fields[words]}")
        shown = self.console.is_terminal and not self.console.quiet
        with Progress(*columns, console=self.console, disable=not shown) as bar:
            task = bar.add_task("", total=replay.survey.records, words="")
            for _ in replay.steps():
                self.seconds = time.monotonic() - began
                self._look()
                bar.update(task, completed=replay.witnessed, words=self._words())
        self.seconds = time.monotonic() - began

    def _words(self) -> str:
        replay = self.replay
        rate = (replay.published - replay.before.total()) / max(self.seconds, 0.001)
        waits = f", {replay.waiting:,} waiting for credit" if replay.waiting else ""
        return f"{replay.published:,} published, {rate:,.0f} trades/s{waits}"

    def _look(self) -> None:
        """Check whether the ring replies, and whether there is any progress."""
        replay, now = self.replay, time.monotonic()
        heard_s = (time.time_ns() - replay.heard_ns) / 1e9 if replay.heard_ns else self.seconds
        if heard_s > SILENCE_S and not self._silent:
            core = replay.network.core
            self._say(
                f"no ring found at {core.address} port {core.port}; check that its receivers are running and that "
                "--interface is theirs. Waiting"
            )
        self._silent = heard_s > SILENCE_S
        if replay.namesakes and not self._namesakes_told:
            self._namesakes_told = True
            self._say(f"another process is {', '.join(replay.namesakes)}; stop it, or use levelcast up --no-floors")
        if replay.witnessed != self._progress_at[1] or replay.settled:
            self._progress_at = (now, replay.witnessed)
        elif self._limit_s is not None and now - self._progress_at[0] > self._limit_s:
            self.gave_up = replay.stopping = True
        if not self.console.is_terminal and self.seconds - self._told_s > _PLAIN_LINE_EVERY_S:
            self._told_s = self.seconds
            self._say(f"{replay.witnessed:,} of {replay.survey.records:,} witnessed, {self._words()}")

    def _say(self, sentence: str) -> None:
        self.console.print(f"levelcast: {sentence}", highlight=False, soft_wrap=True, markup=False)


# -- at the end -------------------------------------------------------------------------------------------


def _outcome(replay: Replay, watch: _Watch) -> dict[str, Any]:
    published = replay.published
    return {
        "complete": replay.settled and published == replay.survey.records,
        "records": replay.survey.records,
        "published_before": replay.before.total(),
        "published": published,
        "witnessed": replay.witnessed,
        "unwitnessed_packets": replay.unwitnessed,
        "backwards": replay.survey.backwards,
        "seconds": round(watch.seconds, 3),
        "gave_up": watch.gave_up,
        "floors": {
            floor.floor.name: {
                "records": replay.survey.by_floor[number],
                "published_before": replay.before[number],
                "unwitnessed_packets": floor.unwitnessed,
            }
            for number, floor in replay.floors.items()
        },
    }


def _sentence(outcome: dict[str, Any], data: Path | None) -> str:
    new = outcome["published"] - outcome["published_before"]
    if outcome["complete"]:
        rate = new / max(outcome["seconds"], 0.001)
        before = f", {outcome['published_before']:,} of them published earlier" if outcome["published_before"] else ""
        floors = len(outcome["floors"])
        return (
            f"All {outcome['records']:,} trades of {floors} floor{'s' if floors > 1 else ''} are witnessed{before}: "
            f"{new:,} in {outcome['seconds']:.1f} s, {rate:,.0f} trades/s."
        )
    why = "Timed out, since nothing was witnessed" if outcome["gave_up"] else "Stopped"
    how = f"to resume, run again: {_command()}" if data is not None else "without --data it cannot be resumed"
    if outcome["gave_up"]:
        how = f"check that the network runs (`levelcast status`); {how}"
    return (
        f"{why}: {outcome['published']:,} of {outcome['records']:,} trades are published, "
        f"{outcome['unwitnessed_packets']:,} packets not yet witnessed; {how}"
    )


def _command() -> str:
    return shlex.join(["levelcast", *sys.argv[1:]])


def _tell_survey(found: Survey, directory: SymbolDirectory, as_json: bool) -> None:
    floors = {directory.floor_of(number).name: count for number, count in found.by_floor.most_common()}
    symbols = {directory.symbol_of(number): count for number, count in found.by_symbol.most_common()}
    if as_json:
        words = {"records": found.records, "backwards": found.backwards, "floors": floors, "symbols": symbols}
        print_json(words)
        return
    pairs = zip_longest(floors.items(), symbols.items(), fillvalue=("", ""))
    columns = ("floor", ">trades", "symbol", ">trades ")
    Console(highlight=False).print(table(columns, (one + other for one, other in pairs), box=box.SIMPLE_HEAD))
    typer.echo(f"{found.records:,} trades, {found.backwards:,} of them earlier than the previous trade of their floor.")
