"""The matching engine: commands per second of CPU time, with and without accounts, beside engines on PyPI.

- The generated flow has 54 % new orders, 42 % cancels and 4 % replacements over 1,000 symbols. With accounts, every
  command passes the ledger, the limits and the client order id rule. Events are returned as bytes in every run.
- A rebuild applies the flow as frames of a tape, with the hash chain of the events.
- A peer gets the flow from its start until `PEER_S` of CPU time are over, through its Python interface; the engine is
  measured on the same part. Conversion to the peer's objects is not measured. A peer that is not installed is left out.
- Recorded flows need LEVELCAST_DATA. There the engine runs without accounts.
- Times are CPU times of the process, the best of several runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.cli.book.flows import read_flow
from levelcast.market.engine import BookFrame, MatchingEngine
from levelcast.market.synthetic_orders import order_flow, prepared
from levelcast.native.book import COMPILED, BookKernel
from levelcast.native.book_codes import NO_SIZE, UNDEFINED, BookPhase
from levelcast.records import RecordArray, orders

COMMANDS, SYMBOLS, BATCH, FRAME = 10_000_000, 1_000, 100_000, 1_000
RUNS, LIVE, PEER_S = 5, 1_000_000, 20.0
TARGET, FLOW_TARGET, REBUILD_TARGET, SNAPSHOT_TARGET_S = 6_000_000, 8_000_000, 4_000_000, 1.0
"""Commands per second of a quiet core, and seconds for a snapshot of `LIVE` orders."""
QUICK = 200
"""A quick run does this many times less."""
FLOWS = {
    "CME ES": ("cme_es_mbo_20231225/esh4-glbx-mdp3-20231225.mbo.dbn.zst", "dbn"),
    "LOBSTER AAPL": ("lobster_aapl_20120621/AAPL_2012-06-21_34200000_37800000_message_50.csv.gz", "lobster"),
    "LOBSTER AMZN": ("lobster_amzn_20120621/AMZN_2012-06-21_34200000_57600000_message_1.csv.gz", "lobster"),
}


def run(options: Options) -> Result:
    """Measure the flows, the snapshot and the peers."""
    less = QUICK if options.quick else 1
    runs = 1 if options.quick else RUNS
    result = Result("engine")
    flow = order_flow(COMMANDS // less, SYMBOLS)
    tell(f"{len(flow):,} commands over {SYMBOLS:,} symbols")
    rows: list[tuple[Cell, ...]] = []
    rates = {}
    for accounts in (True, False):
        rates[accounts], kernel = best(runs, flow, accounts)
        name = "with ledger, limits and events" if accounts else "without accounts"
        rows.append((name, len(flow), rates[accounts], kernel.trade_count, kernel.live))
    rebuilt = _rebuild(flow, runs)
    rows.append((f"rebuild from frames of {FRAME:,}", len(flow), rebuilt, kernel.trade_count, kernel.live))
    result.tables.append(Table("Generated flow", ("engine", "commands", "commands/s", "trades", "live"), rows))
    result.figures.append(Figure("all on", rates[True], "commands/s", "target", TARGET))
    result.figures.append(Figure("rebuild from a tape", rebuilt, "commands/s", "target", REBUILD_TARGET))
    _compare(result, flow, runs)
    _snapshots(result, LIVE // less)
    _recorded(result, runs)
    if not COMPILED:
        result.notes.append("The compiled engine is not in use: these are the rates of its equivalent in Python.")
    return result


def measured(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def best(runs: int, flow: RecordArray, accounts: bool) -> tuple[float, BookKernel]:
    """Return the best rate, and the engine at the end."""
    batches = [flow[at : at + BATCH].tobytes() for at in range(0, len(flow), BATCH)]
    rates = []
    for _ in range(runs):
        kernel = BookKernel(accounts=accounts)
        prepared(kernel, SYMBOLS, accounts=accounts)

        def work(kernel: BookKernel = kernel) -> None:
            for batch in batches:
                kernel.run(batch)
                kernel.finish()

        rates.append(len(flow) / measured(work))
    return max(rates), kernel


def _rebuild(flow: RecordArray, runs: int) -> float:
    """Return the best rate of frames with ledger, limits and the hash chain."""
    frames = [
        BookFrame(at + FRAME, 1 + at, flow[at : at + FRAME].tobytes())
        for at in range(0, len(flow) // FRAME * FRAME, FRAME)
    ]
    times = []
    for _ in range(runs):
        engine = MatchingEngine()
        prepared(engine.kernel, SYMBOLS, accounts=True)
        times.append(measured(lambda engine=engine: engine.frames(frames)))  # type: ignore[misc]
    return len(frames) * FRAME / min(times)


# -- peers --------------------------------------------------------------------------------------------------


def _compare(result: Result, flow: RecordArray, runs: int) -> None:
    for name, peer in PEERS.items():
        if find_spec(name) is None:
            result.notes.append(f"{name} is not installed: left out.")
            continue
        done, seconds = peer(flow)
        rate, _ = best(runs, flow[:done], accounts=True)
        result.figures.append(Figure(f"first {done:,} commands, all on", rate, "commands/s", name, done / seconds))


def _lightmatchingengine(flow: RecordArray) -> tuple[int, float]:
    """Run the flow for `PEER_S`; return the commands and seconds. It has no replacement: a cancel and a new order."""
    module = import_module("lightmatchingengine.lightmatchingengine")
    engine, side = module.LightMatchingEngine(), module.Side
    live: dict[int, Any] = {}
    names = ("action", "instrument_id", "price", "size", "side", "client_order_id", "original_client_order_id")

    def given(part: RecordArray) -> Iterator[tuple[Any, ...]]:
        for action, symbol, price, size, way, client, original in zip(*(part[n].tolist() for n in names), strict=True):
            yield action, str(symbol), price / 1e9, size, side.BUY if way == b"B" else side.SELL, client, original

    def work(commands: list[tuple[Any, ...]]) -> None:
        for action, symbol, price, size, way, client, original in commands:
            if action != b"A":
                order = live.pop(original, None)
                if order is None or order.leaves_qty <= 0:  # it fails for an order that is filled
                    continue
                engine.cancel_order(order.order_id, symbol)
            if action != b"C":
                live[client], _ = engine.add_order(symbol, price, size, way)

    done, seconds = 0, 0.0
    while done < len(flow) and seconds < PEER_S:
        commands = list(given(flow[done : done + BATCH]))
        seconds += measured(lambda commands=commands: work(commands))  # type: ignore[misc]
        done += len(commands)
    return done, seconds


PEERS = {"lightmatchingengine": _lightmatchingengine}


def _nautilus(flow: RecordArray) -> float:
    """Build the book of the CME file; it does not match."""
    book, enums, data = (
        import_module(f"nautilus_trader.{name}") for name in ("model.book", "model.enums", "model.data")
    )
    ids, things = import_module("nautilus_trader.model.identifiers"), import_module("nautilus_trader.model.objects")
    name = ids.InstrumentId.from_str("ESH4.GLBX")
    made = book.OrderBook(name, enums.BookType.L3_MBO)
    actions = {b"A": enums.BookAction.ADD, b"M": enums.BookAction.UPDATE, b"C": enums.BookAction.DELETE}
    left: dict[int, int] = {}
    deltas = []
    for event in flow:
        order, size = int(event["order"]), int(event["size"])
        action = bytes(event["action"])
        left[order] = left.get(order, 0) - size if action == b"C" else size
        kind = actions[b"M" if action == b"C" and left[order] > 0 else action]
        side = enums.OrderSide.BUY if event["side"] == b"B" else enums.OrderSide.SELL
        price, quantity = things.Price(int(event["price"]) / 1e9, 2), things.Quantity(max(1, left[order]), 0)
        deltas.append(data.OrderBookDelta(name, kind, data.BookOrder(side, price, quantity, order), 0, 0, 0, 0))

    def work() -> None:
        for delta in deltas:
            made.apply_delta(delta)

    return measured(work)


# -- recorded flows, snapshots ------------------------------------------------------------------------------


def book_commands(flow: RecordArray) -> RecordArray:
    """Return adds, modifies and cancels of a recorded flow as commands; an execution is an order against it."""
    kept = flow[np.isin(flow["action"], [b"A", b"M", b"C", b"E"])]
    made = orders(len(kept))
    made["instrument_id"] = made["account"] = 1
    made["time_in_force"] = b"1"
    for name, other in (("price", "price"), ("action", "action"), ("client_order_id", "order"), ("side", "side")):
        made[name] = kept[other]
    made["original_client_order_id"] = kept["order"]
    left: dict[int, int] = {}
    sizes, actions = [], []
    for order, size, action in zip(kept["order"].tolist(), kept["size"].tolist(), kept["action"].tolist(), strict=True):
        left[order] = left.get(order, 0) - size if action in (b"C", b"E") else size
        sizes.append(size if action == b"E" else max(0, left[order]))
        actions.append(b"A" if action == b"E" else b"M" if action == b"C" and left[order] > 0 else action)
    made["size"], made["action"] = sizes, actions
    executed = np.flatnonzero(kept["action"] == b"E")
    made["side"][executed] = np.where(kept["side"][executed] == b"B", b"A", b"B")
    made["time_in_force"][executed], made["client_order_id"][executed] = b"3", 2**62 + executed
    made["self_trade_policy"] = b"A"
    return made


def _recorded(result: Result, runs: int) -> None:
    folder = os.environ.get("LEVELCAST_DATA")
    if not folder:
        result.notes.append("LEVELCAST_DATA is not set: recorded flows are left out.")
        return
    for name, (path, form) in FLOWS.items():
        flow = read_flow(Path(folder) / path, form, None).events
        made = book_commands(flow)
        commands = made.tobytes()
        times = []
        for _ in range(4 * runs):
            kernel = BookKernel(accounts=False)
            kernel.define(1, 1, 1, 1, NO_SIZE - 1, UNDEFINED, 0, -1, 0)
            kernel.status(1, int(BookPhase.PRE_OPEN if form == "dbn" else BookPhase.TRADING))
            times.append(measured(lambda kernel=kernel, commands=commands: kernel.run(commands)))  # type: ignore[misc]
        rate = len(made) / min(times)
        result.figures.append(Figure(f"{name} without accounts", rate, "commands/s", "target", FLOW_TARGET))
        if form != "dbn":
            continue
        if find_spec("nautilus_trader") is None:
            result.notes.append("nautilus_trader is not installed: left out.")
            continue
        kept = flow[np.isin(flow["action"], [b"A", b"M", b"C"])]
        theirs = len(kept) / min(_nautilus(kept) for _ in range(runs))
        result.figures.append(
            Figure(f"{name} without accounts", rate, "commands/s", "nautilus_trader OrderBook", theirs)
        )


def _snapshots(result: Result, live: int) -> None:
    made = orders(live)
    made["instrument_id"], made["account"] = np.arange(live) % SYMBOLS + 1, np.arange(live) % 500 + 1
    made["client_order_id"], made["time_in_force"], made["size"] = np.arange(live) + 1, b"1", 1
    made["side"] = np.where(np.arange(live) // SYMBOLS % 2, b"A", b"B")
    step = 1 + np.arange(live) // SYMBOLS % 997
    made["price"] = (10_000 + np.where(made["side"] == b"B", -step, step)) * 10_000_000
    engine = MatchingEngine()
    prepared(engine.kernel, SYMBOLS, accounts=True)
    engine.kernel.run(made.tobytes())
    octets = engine.snapshot()
    for name, work in (("snapshot", engine.snapshot), ("restore", lambda: MatchingEngine.restore(octets))):
        figure = Figure(
            f"{name} of {engine.kernel.live:,} live orders", measured(work), "s", "target", SNAPSHOT_TARGET_S
        )
        result.figures.append(figure)
