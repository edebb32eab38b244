"""Run the two ends of the throughput benchmarks as processes: a floor that sends, a subscriber that decodes.

`python -m benchmarks.roles pump ...` and `python -m benchmarks.roles customer ...` use the public classes, as a program
of a floor or of a customer would. Both print their progress as JSON lines, four times a second, and end on SIGTERM or
when nothing reads the lines any more. On SIGUSR1 the floor sends nothing new, and continues until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelcast import Publisher, Subscriber
from levelcast.network import load_network
from levelcast.records import RTYPE_TRADE, TRADE, RecordArray, trades
from levelcast.runtime.realtime import calm_garbage_collection, keep_freed_memory
from levelcast.wire.packets import DATA_OVERHEAD

TELL_EVERY_NS = 250_000_000
TOGETHER_BYTES = 240_000
"""Bytes of records that a floor publishes in one call."""
TICK_S = 0.001
WAIT_S = 0.05


class Trader:
    """Makes the trades of a floor, in whole packets, at most `rate` records/s. With a `market` their prices, sizes and
    instruments are random."""

    def __init__(self, floor: Publisher, packet_bytes: int, rate: float | None, *, market: bool = False) -> None:
        self.made = 0
        self.over = False
        """Set to make no more."""
        self._per_packet = (packet_bytes - DATA_OVERHEAD) // TRADE.itemsize
        self._rate = rate
        self._began = time.time_ns()
        self._batch = batch = trades(max(1, TOGETHER_BYTES // packet_bytes) * self._per_packet)
        self._ids = np.arange(1, len(batch) + 1, dtype=np.uint64)
        instruments = np.array(sorted(floor.directory.ids_of(floor.floor).values()), np.uint32)
        batch["publisher_id"] = floor.floor.publisher
        batch["instrument_id"] = instruments[np.arange(len(batch)) % len(instruments)]
        batch["price"], batch["size"] = 100_000_000_000, 100
        if market:
            rng = np.random.default_rng(1)
            batch["instrument_id"] = rng.choice(instruments, len(batch))
            batch["price"] = rng.integers(1_000, 50_000, len(batch)) * 10_000_000
            batch["size"] = rng.integers(1, 20, len(batch)) * 100

    def due(self) -> RecordArray:
        """The next trades: those of all packets that should have been sent by now, as far as the batch goes."""
        now, count = time.time_ns(), len(self._batch)
        if self._rate is not None:
            packets = int(((now - self._began) * self._rate / 1e9 - self.made) // self._per_packet)
            count = max(0, min(count, packets * self._per_packet))
        batch = self._batch[: 0 if self.over else count]
        batch["ts_event"] = now
        batch["trade_id"] = self._ids[: len(batch)] + np.uint64(self.made)
        return batch


class Teller:
    """Says how far a process is."""

    def __init__(self, figures: Callable[[], dict[str, Any]]) -> None:
        self.stopping = False
        self._figures = figures
        self._next_ns = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def on_turn(self, now: int) -> None:
        if now < self._next_ns:
            return
        self._next_ns = now + TELL_EVERY_NS
        used = os.times()
        try:
            print(json.dumps({"at_ns": now, "cpu_s": used.user + used.system, **self._figures()}), flush=True)
        except BrokenPipeError:
            self.stopping = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def pump(options: argparse.Namespace) -> None:
    """A floor of the network that does nothing but send."""
    network = load_network(options.network)
    packet_bytes = network.carriage.packet_bytes
    floor = Publisher(network, network.floors[0].name, data=options.data)
    trader = Trader(floor, packet_bytes, options.rate, market=options.market)
    definitions = len(floor.directory.ids_of(floor.floor))

    def finish(*_: object) -> None:
        trader.over = True

    signal.signal(signal.SIGUSR1, finish)
    teller = Teller(
        lambda: {
            "records": floor.published,
            "witnessed_records": floor.witnessed,
            "defined": definitions if floor.published else 0,
            "witnessed": floor.source.witnessed,
            "unwitnessed": floor.unwitnessed,
        }
    )
    while not teller.stopping:
        batch = trader.due()
        if len(batch):
            trader.made += floor.publish(batch, timeout=WAIT_S)
        else:
            time.sleep(TICK_S)
        teller.on_turn(time.time_ns())
    floor.close()


async def customer(options: argparse.Namespace) -> None:
    """A feed handler: it decodes every record, and requests what it misses."""
    volume = 0
    noted = options.arrivals is not None
    subscriber = Subscriber(options.network, options.region, watermarks=True, arrivals=noted)
    async with subscriber as tape:
        teller = Teller(lambda: {"records": tape.counts.records, "gaps": tape.counts.gaps, "volume": volume})
        teller.on_turn(time.time_ns())
        async for batch in tape:
            if batch.kind.rtype == RTYPE_TRADE:
                volume += int(batch.records["size"].sum())
            teller.on_turn(time.time_ns())
            if teller.stopping:
                break
        if noted:
            (line,) = tape.lines.values()
            options.arrivals.write_text(json.dumps(line.arrivals), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roles")
    roles = parser.add_subparsers(dest="role", required=True)
    sends = roles.add_parser("pump")
    sends.add_argument("--network", type=Path, required=True)
    sends.add_argument("--data", type=Path, required=True)
    sends.add_argument("--rate", type=float, help="records/s; as many as there is credit for if omitted")
    sends.add_argument("--market", action="store_true", help="random instruments, prices and sizes")
    reads = roles.add_parser("customer")
    reads.add_argument("--network", type=Path, required=True)
    reads.add_argument("--region", required=True)
    reads.add_argument("--arrivals", type=Path, help="file for the arrival time of each slot")
    options = parser.parse_args(arguments)
    calm_garbage_collection()
    keep_freed_memory()
    if options.role == "pump":
        pump(options)
    else:
        asyncio.run(customer(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
