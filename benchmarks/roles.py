"""The two ends of the throughput benchmark as processes: a floor that sends as fast as it may, a customer that decodes.

`python -m benchmarks.roles pump ...` and `python -m benchmarks.roles customer ...`; both tell what they have done as
JSON lines, four times a second, and end on SIGTERM or when nobody reads any more. On SIGUSR1 the floor sends nothing
new, and goes on until all that it has sent is witnessed and it is ended.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelcast import native
from levelcast.client.line_stats import LineStats
from levelcast.edge.subscriber.delivery import Ask, Deliver
from levelcast.edge.subscriber.session_reader import SessionReader
from levelcast.network import load_network
from levelcast.network.stripe_config import ring_config
from levelcast.protocol.effects import Effect
from levelcast.records import TRADE, instruments, trades
from levelcast.ring.source import Source
from levelcast.runtime.driver import Driver
from levelcast.runtime.realtime import calm_garbage_collection, keep_freed_memory
from levelcast.runtime.sockets import LOOPBACK, CoreSockets
from levelcast.storage.journal.file import JournalFile, initialise
from levelcast.storage.node_store import JournalStore
from levelcast.wire.mold import Block
from levelcast.wire.packets import DATA_OVERHEAD

TELL_EVERY_NS = 250_000_000
TOGETHER_BYTES = 240_000
"""What a floor makes at once when it has much to say."""
TICK_NS = 1_000_000
SYMBOLS = 50
MAX_DRAIN = 256


class Pump:
    """Submits packets of trades whenever there is credit, at most `rate` records a second. With a `market` its
    instruments are defined first, and prices and sizes differ."""

    def __init__(
        self, source: Source, packet_bytes: int, rate: float | None, now: int, *, market: bool = False
    ) -> None:
        self.source = source
        self.packet_bytes = packet_bytes
        self.per_packet = (packet_bytes - DATA_OVERHEAD) // TRADE.itemsize
        self.records = 0
        self.defined = 0
        self.wake_ns: int | None = now
        self._rate = rate
        self._began = now
        self._batch = trades(max(1, TOGETHER_BYTES // packet_bytes) * self.per_packet)
        self._batch["publisher_id"] = 1
        self._batch["instrument_id"] = np.arange(len(self._batch)) % SYMBOLS + 1
        self._batch["price"] = 100_000_000_000
        self._batch["size"] = 100
        self._ids = np.arange(1, len(self._batch) + 1, dtype=np.uint64)
        self._over = False
        self._market = market
        if market:
            rng = np.random.default_rng(1)
            self._batch["instrument_id"] = rng.integers(1, SYMBOLS + 1, len(self._batch))
            self._batch["price"] = rng.integers(1_000, 50_000, len(self._batch)) * 10_000_000
            self._batch["size"] = rng.integers(1, 20, len(self._batch)) * 100

    def step(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._market and self.source.room >= SYMBOLS:
            self._market = False
            effects += self._define(now)
        while not self._market and (packets := min(self.source.room, self._due(now))) > 0:
            batch = self._batch[: packets * self.per_packet]
            batch["ts_event"] = now
            batch["trade_id"] = self._ids[: len(batch)] + np.uint64(self.records)
            submitted = self.source.submit_all(batch.data.cast("B"), self.packet_bytes, now)
            effects += submitted.effects
            self.records += submitted.records
        self.wake_ns = None if self._rate is None else now + TICK_NS
        return effects

    def finish(self) -> None:
        """Send nothing new from now on."""
        self._over = True

    def _define(self, now: int) -> list[Effect]:
        """Say what the instruments are called."""
        definitions = instruments(SYMBOLS)
        definitions["publisher_id"] = 1
        definitions["instrument_id"] = np.arange(1, SYMBOLS + 1)
        definitions["raw_symbol"] = [f"S{number:02}" for number in range(1, SYMBOLS + 1)]
        definitions["exchange"] = "XBEN"
        submitted = self.source.submit_all(definitions.data.cast("B"), self.packet_bytes, now)
        self.defined += submitted.records
        return submitted.effects

    def _due(self, now: int) -> int:
        """Packets of which all records should have been sent by now."""
        if self._over:
            return 0
        if self._rate is None:
            return self.source.room
        return int(((now - self._began) * self._rate / 1e9 - self.records) // self.per_packet)


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
    floor = network.floors[0]
    config = ring_config(network)
    directory = options.data / floor.name / "journal"
    initialise(directory, 1)
    journal, image = JournalFile.open(directory)
    group = network.core_group()
    now = time.time_ns()
    source = Source(config, floor.id, image.life, image, now)
    work = Pump(source, network.carriage.packet_bytes, options.rate, now, market=options.market)
    signal.signal(signal.SIGUSR1, lambda *_: work.finish())
    sockets = CoreSockets(group.address, group.port, hears_data=False)
    sockets.trains = sockets.trains and options.trains
    driver = Driver(floor.id, config.stripe, source, sockets, JournalStore(journal), work=work)
    teller = Teller(
        lambda: {
            "records": work.records,
            "defined": work.defined,
            "packets": work.records // work.per_packet,
            "witnessed": source.witnessed,
            "unwitnessed": source.unwitnessed,
        }
    )
    driver.run(lambda: teller.stopping, teller.on_turn)
    driver.close()


def customer(options: argparse.Namespace) -> None:
    """A feed handler: it decodes every record, and asks for what it misses."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
    listener.bind((options.group, options.port))
    membership = socket.inet_aton(options.group) + socket.inet_aton(LOOPBACK)
    listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    asking.bind((LOOPBACK, 0))
    if options.trains:
        for each in (listener, asking):
            each.setsockopt(socket.IPPROTO_UDP, 104, 1)
    core = SessionReader()
    line = LineStats("", arrivals=True) if options.arrivals is not None else None
    seen = {"volume": 0, "packets": 0}
    teller = Teller(lambda: {"records": core.counts.records, "gaps": core.counts.gaps, **seen})
    server: tuple[str, int] | None = None
    filenos = (listener.fileno(), asking.fileno())
    while not teller.stopping:
        due = core.next_ns
        wait_s = 0.05 if due is None else min(0.05, max(0.0, (due - time.time_ns()) / 1e9))
        ready = select.select(filenos, (), (), wait_s)[0]
        now = time.time_ns()
        arrivals = [each for fileno in ready for each in native.drain_molds(fileno, MAX_DRAIN, Block)]
        if arrivals:
            server = arrivals[0][1]
            seen["packets"] += sum(item.packets if isinstance(item, Block) else 1 for item, _ in arrivals)
            if line is not None:
                for item, _ in arrivals:
                    line.take(item, now, core.config.max_sessions)
        effects = core.receive([item for item, _ in arrivals], now)
        if due is not None and due <= now:
            effects += core.wake(now)
        for effect in effects:
            if isinstance(effect, Deliver):
                if effect.size == TRADE.itemsize:
                    rows = np.frombuffer(effect.payload, TRADE)
                    seen["volume"] += int(rows["size"].sum())
            elif isinstance(effect, Ask) and server is not None:
                asking.sendto(effect.datagram, server)
        teller.on_turn(now)
    if line is not None:
        options.arrivals.write_text(json.dumps(line.arrivals), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roles")
    roles = parser.add_subparsers(dest="role", required=True)
    sends = roles.add_parser("pump")
    sends.add_argument("--network", type=Path, required=True)
    sends.add_argument("--data", type=Path, required=True)
    sends.add_argument("--rate", type=float, help="records a second; without it as many as there is credit for")
    sends.add_argument("--market", action="store_true", help="define the instruments first; prices and sizes differ")
    sends.add_argument("--no-trains", dest="trains", action="store_false")
    reads = roles.add_parser("customer")
    reads.add_argument("--group", required=True)
    reads.add_argument("--port", type=int, required=True)
    reads.add_argument("--no-trains", dest="trains", action="store_false")
    reads.add_argument("--arrivals", type=Path, help="where to write when each slot came")
    options = parser.parse_args(arguments)
    calm_garbage_collection()
    keep_freed_memory()
    (pump if options.role == "pump" else customer)(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
