"""The matching engine: commands per second of CPU time, with and without accounts, beside engines on PyPI.

- The generated flow has 54 % new orders, 42 % cancels and 4 % replacements over 1,000 symbols. With accounts, every
  command passes the ledger, the limits and the client order id rule. Events are returned as bytes in every run.
- Peers get the part of the flow that they finish in a reasonable time, through their Python interface: conversion to
  their objects happens before the measurement. A peer that is not installed is left out.
- Recorded flows need LEVELCAST_DATA. There the engine runs without accounts, and executions are what they were.
- Times are CPU times of the process, the best of several runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.cli.book.flows import read_flow
from levelcast.market.synthetic_orders import order_flow, prepared
from levelcast.native.book import COMPILED, BookKernel
from levelcast.native.book_codes import NO_SIZE, UNDEFINED, BookPhase
from levelcast.records import RecordArray, orders

COMMANDS, SYMBOLS, BATCH = 10_000_000, 1_000, 100_000
PEER_COMMANDS, RUNS, LIVE = 200_000, 3, 1_000_000
TARGET = 6_000_000
"""Commands per second of a quiet core."""
QUICK = 200
"""A quick run does this many times less."""
CME = "cme_es_mbo_20231225/esh4-glbx-mdp3-20231225.mbo.dbn.zst"


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
        rates[accounts], trades, live = best(runs, flow, accounts)
        name = "with ledger, limits and events" if accounts else "without accounts"
        rows.append((name, len(flow), rates[accounts], trades, live))
    result.tables.append(Table("Generated flow", ("engine", "commands", "commands/s", "trades", "live"), rows))
    result.figures.append(Figure("commands of CPU time, all on", rates[True], "/s", "target", TARGET))
    _compare(result, flow[: PEER_COMMANDS // less], rates[True])
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


def best(runs: int, flow: RecordArray, accounts: bool) -> tuple[float, int, int]:
    """Return the best rate, and trades and live orders at the end."""
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
    return max(rates), kernel.trade_count, kernel.live


# -- peers --------------------------------------------------------------------------------------------------


def _compare(result: Result, flow: RecordArray, rate: float) -> None:
    for name, peer in PEERS.items():
        if find_spec(name) is None:
            result.notes.append(f"{name} is not installed: left out.")
            continue
        theirs = len(flow) / peer(flow)
        result.figures.append(Figure("commands of CPU time, all on", rate, "/s", name, theirs))


def _lightmatchingengine(flow: RecordArray) -> float:
    """Run the flow; it has no replacement, so that is a cancel and a new order."""
    module = import_module("lightmatchingengine.lightmatchingengine")
    engine, side = module.LightMatchingEngine(), module.Side
    given = [
        (bytes(c["action"]), str(int(c["instrument_id"])), int(c["price"]) / 1e9, int(c["size"]),
         side.BUY if c["side"] == b"B" else side.SELL, int(c["client_order_id"]), int(c["original_client_order_id"]))
        for c in flow
    ]  # fmt: skip

    def work() -> None:
        live: dict[int, Any] = {}
        for action, symbol, price, size, way, client, original in given:
            if action != b"A":
                order = live.pop(original, None)
                if order is None or order.leaves_qty <= 0:  # it fails for an order that is filled
                    continue
                engine.cancel_order(order.order_id, symbol)
            if action != b"C":
                live[client], _ = engine.add_order(symbol, price, size, way)

    return measured(work)


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
    """Return adds, modifies and cancels of a recorded flow as commands."""
    kept = flow[np.isin(flow["action"], [b"A", b"M", b"C"])]
    made = orders(len(kept))
    made["instrument_id"] = made["account"] = 1
    made["time_in_force"] = b"1"
    for name, other in (("price", "price"), ("action", "action"), ("client_order_id", "order"), ("side", "side")):
        made[name] = kept[other]
    made["original_client_order_id"] = kept["order"]
    left: dict[int, int] = {}
    sizes, actions = [], []
    for order, size, action in zip(kept["order"].tolist(), kept["size"].tolist(), kept["action"].tolist(), strict=True):
        left[order] = left.get(order, 0) - size if action == b"C" else size
        sizes.append(max(0, left[order]))
        actions.append(b"M" if action == b"C" and left[order] > 0 else action)
    made["size"], made["action"] = sizes, actions
    return made


def _recorded(result: Result, runs: int) -> None:
    folder = os.environ.get("LEVELCAST_DATA")
    if not folder:
        result.notes.append("LEVELCAST_DATA is not set: recorded flows are left out.")
        return
    flow = read_flow(Path(folder) / CME, "dbn", None).events
    made = book_commands(flow)
    commands = made.tobytes()
    times = []
    for _ in range(4 * runs):
        kernel = BookKernel(accounts=False)
        kernel.define(1, 1, 1, 1, NO_SIZE - 1, UNDEFINED, 0, -1, 0)
        kernel.status(1, int(BookPhase.PRE_OPEN))
        times.append(measured(lambda kernel=kernel: kernel.run(commands)))  # type: ignore[misc]
    rate = len(made) / min(times)
    kept = flow[np.isin(flow["action"], [b"A", b"M", b"C"])]
    if find_spec("nautilus_trader") is None:
        result.notes.append(f"CME file: {rate:,.0f} commands/s. nautilus_trader is not installed: left out.")
        return
    theirs = len(kept) / min(_nautilus(kept) for _ in range(runs))
    result.figures.append(Figure("CME orders without accounts", rate, "/s", "nautilus_trader OrderBook", theirs))


def _snapshots(result: Result, live: int) -> None:
    made = orders(live)
    made["instrument_id"], made["account"] = np.arange(live) % SYMBOLS + 1, np.arange(live) % 500 + 1
    made["client_order_id"], made["time_in_force"], made["size"] = np.arange(live) + 1, b"1", 1
    made["side"] = np.where(np.arange(live) // SYMBOLS % 2, b"A", b"B")
    step = 1 + np.arange(live) // SYMBOLS % 997
    made["price"] = (10_000 + np.where(made["side"] == b"B", -step, step)) * 10_000_000
    kernel = BookKernel(accounts=True)
    prepared(kernel, SYMBOLS, accounts=True)
    kernel.run(made.tobytes())
    octets = kernel.snapshot()
    saved = measured(kernel.snapshot)
    restored = measured(lambda: BookKernel.restore(octets))
    rows: list[tuple[Cell, ...]] = [("snapshot", kernel.live, saved), ("restore", kernel.live, restored)]
    result.tables.append(Table("Snapshot", ("step", "live orders", "CPU s"), rows))
