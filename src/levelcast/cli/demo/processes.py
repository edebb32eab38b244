"""Run the demo as processes: prepare the network, show the run, and print the results."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from levelcast.cli.demo.event_text import EventText, Sentence
from levelcast.cli.demo.screen import line_of, picture, ring_number
from levelcast.cli.errors import on_interrupt, parse_day
from levelcast.cli.keys.create import create_keys
from levelcast.cli.lake.pipeline import Format, execute, print_rows
from levelcast.cli.live.up import CONTENTION_EFFECT, DOWN_S, parse_kill, show_ms
from levelcast.cli.network_file.hold import plan_holds, store_holds
from levelcast.cli.output import print_after, print_json, print_problems, print_unfinished, table
from levelcast.formats.symbols_of_files import census, first_records
from levelcast.formats.trade_files import TradeFileError, open_trades
from levelcast.network import Network, SymbolDirectory, five_cities, load_network, parse_network
from levelcast.network.roles import RECEIVER, REFORMATION
from levelcast.node.cluster import Cluster, Kill
from levelcast.node.demo.network import LOSS_RATIO, SCALE, Stage, require_empty, set_stage
from levelcast.node.demo.outcome import DemoOutcome, assess, explain_delay, explain_late, percent
from levelcast.node.demo.run import DemoTrader, Show
from levelcast.node.fork_server import ForkServer
from levelcast.node.options import NodeOptions
from levelcast.pipeline.session import require_spark
from levelcast.records import RecordArray
from levelcast.runtime.cpu_contention import explain_contention
from levelcast.units import show_ns

_VICTIM = "tokyo-1"
_PLAIN_LINE_EVERY_S = 2.0
_STOPPED = 130


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of the demo."""

    run_ns: int
    rate: float
    loss_ratio: float | None = None
    kill: Sequence[str] | None = None
    seed: int = 1
    trades: Sequence[Path] = ()
    floor: str | None = None
    day: date | None = None
    keep: Path | None = None
    as_json: bool = False
    quiet: bool = False
    pipeline: bool = False
    keys: bool = False


def perform(wishes: DemoOptions, server: ForkServer) -> int:
    """Run the demo and return the exit code; `server` starts its nodes."""
    kills = _kills(parse_network(five_cities(), "five cities"), wishes)
    console = Console(quiet=wishes.as_json, highlight=False)
    with _directory(wishes.keep) as directory:
        if wishes.pipeline:
            require_spark()
        stage, batches = _stage(directory, wishes)
        if wishes.keys:
            create_keys(stage.file)
            stage = replace(stage, network=load_network(stage.file))
        show = _show(stage, wishes, kills, batches, server)
        world = describe(stage.network)
        tale = EventText(stage.network)
        _watch(console, show, tale, world, quiet=wishes.quiet or wishes.as_json)
        if show.interrupted and not sum(floor.published for floor in show.floors()):
            typer.echo("levelcast: stopped before the first trade", err=True)
            return _STOPPED
        outcome = assess(show, replayed=bool(batches))
        if not wishes.as_json:
            print_outcome(console, show, outcome, replayed=bool(batches))
        told = _tables(console, stage, directory, quiet=wishes.as_json) if wishes.pipeline else {}
        if wishes.as_json:
            print_json(as_object(stage, wishes, show, outcome) | told)
        else:
            _print_farewell(console, stage, wishes)
    return 0 if outcome.identical else 1


def _tables(console: Console, stage: Stage, directory: Path, *, quiet: bool) -> dict[str, Any]:
    """Create tables and a report page from the tapes."""
    from levelcast.pipeline.lake.lake import Lake
    from levelcast.pipeline.report.page import write_report

    console.print("Tables created from the tapes with Spark:")
    done = execute([stage.data], directory / "lake", Format.TAPE, quiet=quiet)
    write_report(Lake(directory / "lake"), directory / "report.html")
    print_rows(console, done["rows"])
    return {"pipeline": done}


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """Yield the directory of the network file and data: the one to keep, or a temporary one."""
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="levelcast-demo-", ignore_cleanup_errors=True) as name:
        yield Path(name)


# -- setup ------------------------------------------------------------------------------------------------


def _kills(network: Network, wishes: DemoOptions) -> list[Kill]:
    """Return the nodes to kill and the times; by default tokyo-1, after a third of the trading time."""
    run_s = wishes.run_ns / 1e9
    if wishes.kill is None:
        return [Kill(_VICTIM, run_s / 3, run_s / 3 + DOWN_S)]
    if [text.casefold() for text in wishes.kill] == ["none"]:
        return []
    known = [
        name for name in network.node_names if not wishes.trades or name not in {each.name for each in network.floors}
    ]
    kills = []
    for text in wishes.kill:
        kills.append(parse_kill(text, known, ' or "none"', run_s / 3))
        if kills[-1].at_s >= run_s:
            raise typer.BadParameter(f'"{text}" is not before the floors close at {run_s:g} s', param_hint="--kill")
    for one, other in combinations(kills, 2):
        if one.name == other.name and abs(one.at_s - other.at_s) <= DOWN_S:
            raise typer.BadParameter(f"{one.name} cannot be killed again before it is back", param_hint="--kill")
    return kills


def _stage(directory: Path, wishes: DemoOptions) -> tuple[Stage, list[RecordArray]]:
    """Write the network file, and read the trades to replay: as many as the run has time for."""
    loss_ratio = LOSS_RATIO if wishes.loss_ratio is None else wishes.loss_ratio
    if not wishes.trades:
        return _with_hold(set_stage(directory, loss_ratio)), []
    require_empty(directory)  # before the files are read, which may be slow
    limit = max(1, int(wishes.rate * wishes.run_ns / 1e9))
    cities = parse_network(five_cities(), "five cities")
    found = census(wishes.trades, cities, limit, floor=wishes.floor, day=wishes.day)
    if not found:
        raise TradeFileError(f"{wishes.trades[0]}: no trades found")
    stage = _with_hold(set_stage(directory, loss_ratio, found))
    symbols, format = SymbolDirectory(stage.network), "lean" if wishes.day is not None else None
    trades = open_trades(wishes.trades, symbols, format=format, floor=wishes.floor, day=wishes.day)
    return stage, list(first_records(trades, limit))


def _with_hold(stage: Stage) -> Stage:
    """Store the hold time in a network file that has none."""
    network, text = stage.network, stage.file.read_text(encoding="utf-8")
    stripes = [stripe.name for stripe in network.stripes if stripe.rules.hold_ns is None]
    text = store_holds(text, stage.file, network, plan_holds(network, stripes)[0])
    stage.file.write_text(text, encoding="utf-8")
    return replace(stage, network=parse_network(text, str(stage.file)))


def _show(
    stage: Stage, wishes: DemoOptions, kills: Sequence[Kill], batches: Sequence[RecordArray], server: ForkServer
) -> Show:
    options = NodeOptions(wishes.rate, wishes.run_ns, impair=True, seed=wishes.seed)
    cluster = Cluster(stage.network, stage.file, stage.data, options, floors=not batches, server=server)
    bound_s = sum(term.ns for term in stage.network.liveness()) / 1e9 + 15.0
    trader = DemoTrader(stage.network, stage.data, batches, wishes.rate, wishes.seed) if batches else None
    return Show(cluster, wishes.run_ns / 1e9, bound_s, kills, trader)


def describe(network: Network) -> str:
    """Describe the network in one line."""
    timing = network.timing()
    assert network.links is not None
    delays = [link.delay_ns / 1e6 for (a, b), link in network.links.pairs.items() if a != b]
    loss = max(link.loss_ratio for link in network.links.pairs.values())
    return (
        f"delays ÷ {SCALE} ({min(delays):.1f} to {max(delays):.0f} ms), {100 * loss:g} % loss; "
        f"a token every {show_ns(timing.slot_ns)}, release {timing.hold_ns / 1e9:.2f} s after it"
    )


# -- while it runs ----------------------------------------------------------------------------------------


def _watch(console: Console, show: Show, tale: EventText, world: str, *, quiet: bool) -> None:
    """Run the demo, with a live view on a terminal and plain lines otherwise."""
    on_interrupt(partial(setattr, show, "interrupted", True))
    if quiet:
        for _ in _listening(show, tale):
            pass
        return
    if not console.is_terminal:
        _print_heading(console, show, world)
        _tell(console, show, tale)
        return
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for _ in _listening(show, tale):
            live.update(picture(show, tale, world, console.width, console.height), refresh=True)
    _print_heading(console, show, world)
    for sentence in tale.sentences:
        console.print(line_of(sentence))


def _listening(show: Show, tale: EventText) -> Iterator[list[Sentence]]:
    """Yield the new messages of each step of the run."""
    for _ in chain(show.steps(), (None,)):
        told = []
        while show.cluster.events:
            told.append(tale.add(show.elapsed_s, *show.cluster.events.popleft()))
        yield [sentence for sentence in told if sentence is not None]


def _tell(console: Console, show: Show, tale: EventText) -> None:
    told_s = 0.0
    for news in _listening(show, tale):
        for sentence in news:
            console.print(line_of(sentence), soft_wrap=True)
        if show.phase in ("trading", "releasing") and show.elapsed_s - told_s >= _PLAIN_LINE_EVERY_S:
            told_s = show.elapsed_s
            console.print(line_of(Sentence(told_s, _progress(show), "dim")), soft_wrap=True)


def _progress(show: Show) -> str:
    published = sum(floor.published for floor in show.floors())
    receivers = show.cluster.of_role(RECEIVER)
    tapes = [member.status.get("tape_records", 0) for member in receivers if member.running]
    spread_ns = show.releases.spread_ns()
    even = f", spread {spread_ns / 1e6:.2f} ms" if spread_ns is not None else ""
    lowest, highest = min(tapes, default=0), max(tapes, default=0)
    on_tape = f"{highest:,}" if lowest == highest else f"{lowest:,} to {highest:,}"
    return f"{published:,} published, {on_tape} on {len(tapes)} tapes{even}"


def _print_heading(console: Console, show: Show, world: str) -> None:
    nodes = show.cluster
    processes = len(nodes.members)
    print_after(
        console,
        "Five cities on this machine",
        f": {len(nodes.of_role(RECEIVER))} receivers, {len(nodes.of_role(REFORMATION))} reformation servers, "
        f"{len(nodes.network.floors)} floors, {len(show.customers.all)} subscribers; {processes} processes over UDP "
        f"multicast on loopback. Scaled network: {world}.",
    )


# -- results ----------------------------------------------------------------------------------------------


def print_outcome(console: Console, show: Show, outcome: DemoOutcome, *, replayed: bool) -> None:
    """Print the table, the notes and the verdict."""
    if outcome.receivers:
        console.print(_table(outcome))
    since = "its token's timestamp" if replayed else "the trade"
    kills = [kill.name for kill in show.kills]
    for note in (
        "late, on time: by protocol, whether all that a frame needs had arrived when it",
        "was due; delay: the process ran late, from the time from which it could release",
        f"latency: from {since} to the release; lag: after the slot's first release",
        "requests: for missing data; lost: datagrams dropped by injected loss",
        f"Spread of a slot over the receivers: {show_ms(outcome.spread_ns)} ms (p50 / p99 / max).",
    ):
        console.print(note, style="dim", soft_wrap=not console.is_terminal)
    for sentence in explain_late(outcome, kills):
        console.print(sentence, soft_wrap=not console.is_terminal)
    console.print(explain_delay(outcome), soft_wrap=not console.is_terminal)
    for line in explain_contention(outcome.contention, CONTENTION_EFFECT):
        console.print(line, style="yellow", soft_wrap=not console.is_terminal)
    for customer in outcome.customers:
        filled = f", all filled by {customer.requests:,} requests" if customer.gaps and not customer.lost else ""
        console.print(
            f"Subscriber in {customer.region}: {customer.records:,} records, gaps {customer.gaps:,}{filled}, "
            f"lost {customer.lost:,}.",
        )
    _print_verdict(console, outcome)


def _table(outcome: DemoOutcome) -> Table:
    columns = ["\nreceiver", ">on its\ntape", ">\nlate", ">on\ntime", ">delay, ms\np50/p99", ">latency,\ns p50/p99"]
    columns += [">lag, ms\np50/p99", ">re-\nquests", ">\nlost", ">\nring"]
    rows = []
    for line in outcome.receivers:
        share = percent(line.on_time, line.on_time + line.late).replace(" ", "")
        latency = f"{line.latency_ns[0] / 1e9:.2f}/{line.latency_ns[1] / 1e9:.2f}"
        behind = _in_ms(line.behind_ns) if line.on_time or not line.kills else "–"
        ring = str(ring_number(line.generation))
        times = (line.late, share, _in_ms(line.delay_ns), latency, behind)
        rows.append((line.name, line.records, *times, line.requests, line.lost, ring))
    return table(columns, rows, no_wrap=True, box=box.SIMPLE_HEAD, padding=0, pad_edge=False)


def _in_ms(values_ns: tuple[int, int]) -> str:
    """Format two quantiles in at most 9 characters, below 10 s.

    >>> _in_ms((158_000, 22_810_000)), _in_ms((99_000_000, 1_234_000_000))
    ('0.16/22.8', '99.0/1234')
    """
    values = [ns / 1e6 for ns in values_ns]
    return "/".join(f"{value:.{2 if value < 10 else 1 if value < 99.95 else 0}f}" for value in values)


def _print_verdict(console: Console, outcome: DemoOutcome) -> None:
    if not outcome.identical:
        if outcome.problems:
            print_problems(console, "The tapes", outcome.problems)
        if outcome.unfinished:
            print_unfinished(console, outcome.unfinished, agree=not outcome.problems)
        return
    first = outcome.receivers[0]
    kept = f" but {outcome.kept_back:,} in the floors' journals" if outcome.kept_back else ""
    print_after(
        console,
        "The tapes are identical",
        f": {outcome.trades:,} trades and {first.records - outcome.trades:,} definitions in {outcome.frames:,} "
        f"frames. Every published trade{kept} is on every tape exactly once.",
        "bold green",
    )
    console.print(f"chain hash {first.chain}", style="green", soft_wrap=True)


def _print_farewell(console: Console, stage: Stage, wishes: DemoOptions) -> None:
    if wishes.keep is None:
        text = (
            f"Nothing is kept. With --keep DIR: levelcast tape info DIR/data/{_VICTIM}; during a run: levelcast watch "
            "--network DIR/network.toml --region europe"
        )
    else:
        page = f", {wishes.keep / 'report.html'}" if wishes.pipeline else ""
        next_commands = f"levelcast tape info {stage.data / _VICTIM}, levelcast timing --network {stage.file}"
        text = f"Kept in {wishes.keep}: {next_commands}{page}"
    console.print(text, style="dim", soft_wrap=not console.is_terminal)


def as_object(stage: Stage, wishes: DemoOptions, show: Show, outcome: DemoOutcome) -> dict[str, Any]:
    """Return all results as a JSON object."""
    timing = stage.network.timing()
    return {
        "network": stage.network.name,
        "delays_divided_by": SCALE,
        "loss_ratio": LOSS_RATIO if wishes.loss_ratio is None else wishes.loss_ratio,
        "slot_ns": timing.slot_ns,
        "hold_ns": timing.hold_ns,
        "seed": wishes.seed,
        "seconds": round(show.elapsed_s, 3),
        "load": outcome.load,
        "cores": outcome.cores,
        "realtime": outcome.realtime,
        "contention": asdict(outcome.contention),
        "trades": outcome.published,
        "receivers": [asdict(line) for line in outcome.receivers],
        "floors": [floor._asdict() for floor in outcome.floors],
        "customers": [asdict(customer) for customer in outcome.customers],
        "spread_ns": dict(zip(("p50", "p99", "max"), outcome.spread_ns, strict=True)),
        "delay_ns": dict(zip(("p50", "p99", "max"), outcome.delay_ns, strict=True)),
        "late": explain_late(outcome, [kill.name for kill in show.kills]),
        "kept": str(wishes.keep) if wishes.keep is not None else None,
        "verdict": {"identical": outcome.identical, "problems": outcome.problems, "unfinished": outcome.unfinished},
    }


def check_trades(trades: Sequence[Path], day: str | None) -> date | None:
    """Return the day of LEAN files; raise BadParameter if it is missing or not needed."""
    lean = [path for path in trades if path.is_dir() or "_trade.csv" in path.name]
    if day is None:
        if lean:
            sentence = f"{lean[0]}: LEAN files do not contain their day; add --date YYYY-MM-DD"
            raise typer.BadParameter(sentence, param_hint="--trades")
        return None
    if not trades:
        raise typer.BadParameter("needs --trades", param_hint="--date")
    return parse_day(day)
