"""CPU time of an order at a floor, from the socket to the engine's report, with the share of each step.

A client in another process sends limit orders over loopback as fast as the floor reads them. Each gets two reports:
150=A when it is in the journal, and the engine's 150=0. Journal and tape are written. The floor's loop runs here
without other work, so the CPU time of this process is its cost. The steps are measured in a run of their own, because
the clock's calls are part of it.
"""

from __future__ import annotations

import multiprocessing
import select
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.market.fix.values import time_text
from levelcast.market.fix.writer import HeadWriter
from levelcast.node.floor.accounts import AccountStore
from levelcast.node.floor.process import DATABASE, FloorOptions, FloorProcess
from levelcast.runtime.realtime import calm_garbage_collection
from levelcast.units import quantiles

TARGET = 50_000.0
ORDERS, QUICK_ORDERS = 60_000, 1_000
IDLE_SESSIONS, QUICK_IDLE_SESSIONS, IDLE_S = 1_000, 10, 20.0
PASSWORD = "secret"
HEAD = HeadWriter(b"ANN", b"FLOOR")
BODY = b"11=ORD-%07d\x0121=1\x0138=300\x0140=2\x0144=%d.%02d\x0154=1\x0155=IBM\x0159=0\x0160=%b\x01"


def order_bytes(first: int, count: int) -> bytes:
    """Return orders with their MsgSeqNum from 2 on; the first message is the Logon."""
    now = time_text(time.time_ns())
    return b"".join(
        HEAD.message(b"D", number + 2, now, BODY % (number, 100 + number % 7, number % 89, now))
        for number in range(first, first + count)
    )


def logon_bytes() -> bytes:
    body = b"98=0\x01108=0\x01553=ANN\x01554=" + PASSWORD.encode() + b"\x01"
    return HEAD.message(b"A", 1, time_text(time.time_ns()), body)


def send_orders(port: int, count: int, authority: str, rate: float, results: Any) -> None:
    """Send orders, and read everything that comes back; put the delays of the engine's reports into `results`."""
    client: socket.socket = socket.create_connection(("127.0.0.1", port))
    if authority:
        client = ssl.create_default_context(cafile=authority).wrap_socket(client, server_hostname="localhost")
    client.sendall(logon_bytes())
    client.recv(65_536)
    if rate:
        results.put(_paced(client, count, rate))
    else:
        _flood(client, order_bytes(0, count))
        results.put([])
    client.close()


def _flood(client: socket.socket, data: bytes) -> None:
    total, wanted = 0, data.count(b"\x0135=D\x01")
    client.setblocking(False)
    view, seen, at = memoryview(data), b"", 0
    while total < wanted:
        readable, writable, _ = select.select([client], [client] if at < len(view) else [], [], 10)
        if not readable and not writable:
            return
        try:
            if writable:
                at += client.send(view[at : at + 65_536])
            if readable:
                seen += client.recv(1 << 20)
                total += seen.count(b"\x01150=0\x01")
                seen = seen[seen.rfind(b"\x01150=") + 2 :] if b"\x01150=" in seen else seen[-8:]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            continue


def _paced(client: socket.socket, count: int, rate: float) -> list[int]:
    """Send at a rate; return the delay of the report of each order, in ns."""
    messages = [order_bytes(number, 1) for number in range(count)]
    sent: list[int] = []
    delays: list[int] = []
    seen = b""
    began = time.monotonic_ns()
    while len(delays) < count:
        due = min(count, int((time.monotonic_ns() - began) * rate / 1e9) + 1)
        if due > len(sent):
            now = time.monotonic_ns()
            client.sendall(b"".join(messages[len(sent) : due]))
            sent += [now] * (due - len(sent))
        readable, _, _ = select.select([client], [], [], 0.0005)
        if readable:
            seen += client.recv(1 << 20)
            found, now = seen.count(b"\x01150=0\x01"), time.monotonic_ns()
            delays += [now - sent[number] for number in range(len(delays), len(delays) + found)]
            last = seen.rfind(b"\x01150=0\x01")
            seen = seen[last + 2 :] if last >= 0 else seen
    return delays


@contextmanager
def a_floor(directory: Path, **settings: Any) -> Iterator[FloorProcess]:
    """Yield a floor with one account that has everything."""
    store = AccountStore(directory / DATABASE)
    store.add_account("ann")
    store.add_login("ANN", PASSWORD)
    store.grant("ANN", "ann")
    store.close()
    options = FloorOptions(
        directory=directory, address=("127.0.0.1", 0), feed=None, tables=False, rate_bytes=10**12, **settings
    )
    floor = FloorProcess(options)
    for request in (
        {"op": "instrument", "symbol": "IBM"},
        {"op": "open"},
        {"op": "deposit", "account": "ann", "amount": "4000000000", "asset": "USD"},
    ):
        floor.operate({"by": "benchmark", **request})
    calm_garbage_collection()
    try:
        yield floor
    finally:
        floor.close()


def certificate(directory: Path) -> tuple[str, str]:
    """Return a certificate for localhost and its key."""
    cert, key = str(directory / "cert.pem"), str(directory / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", cert, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def measure(
    count: int, *, tls: bool = False, durable: str = "process", rate: float = 0.0,
    prepare: Callable[[FloorProcess], None] = lambda floor: None,
) -> tuple[float, list[int]]:  # fmt: skip
    """Return the CPU seconds of `count` orders, and the delays of their reports if they are sent at a rate."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        cert, key = certificate(directory) if tls else ("", "")
        with a_floor(directory, certificate=cert, key=key, durable=durable) as floor:
            context = multiprocessing.get_context("fork")
            results = context.Queue()
            port = floor.listener.address[1]
            client = context.Process(target=send_orders, args=(port, count, cert, rate, results))
            client.start()
            while floor.gateway.sessions[1].connection is None:
                floor.turn(0.05)
            prepare(floor)
            began = time.process_time()
            while floor.counts["commands"] < count:
                floor.turn(0.05)
            cpu = time.process_time() - began
            while client.is_alive() and results.empty():
                floor.turn(0.05)
            delays = results.get()
            client.join()
            return cpu, delays


STEPS = {
    "socket, in": ("connection", "receive"),
    "session, requests and 150=A": ("gateway", "receive"),
    "journal": ("journal", "append"),
    "sequence": ("sequencer", "release"),
    "tape": ("tape", "append"),
    "engine": ("engine", "frame"),
    "reports of the engine": ("gateway", "apply"),
    "number, encode, pack": ("gateway", "take"),
    "public records": ("recorder", "take"),
    "socket, out": ("process", "_flush"),
}


class StepMeter:
    """Exclusive time of the steps of a floor's loop: a step within another one counts for itself."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._open: list[int] = []

    def wrap(self, owner: Any, method: str, step: str) -> None:
        call = getattr(owner, method)

        def timed(*args: Any, **settings: Any) -> Any:
            began = time.perf_counter_ns()
            self._open.append(0)
            try:
                return call(*args, **settings)
            finally:
                spent = time.perf_counter_ns() - began
                self.spent[step] += spent - self._open.pop()
                if self._open:
                    self._open[-1] += spent

        setattr(owner, method, timed)

    def attach(self, floor: FloorProcess) -> None:
        owners = {
            "gateway": floor.gateway,
            "journal": floor.journal,
            "sequencer": floor.sequencer,
            "tape": floor.tape,
            "engine": floor.floor.engine,
            "recorder": floor.floor._recorder,
            "process": floor,
            "connection": next(iter(floor._connections.values())),
        }
        for step, (owner, method) in STEPS.items():
            self.wrap(owners[owner], method, step)


def idle_share(count: int, duration_s: float) -> float:
    """Return the fraction of a core that idle sessions with a heartbeat of 30 s cost."""
    with tempfile.TemporaryDirectory() as name, a_floor(Path(name)) as floor:
        store = floor.accounts
        for number in range(count):
            _copy_login(store, f"I{number}")
        floor.operate({"op": "rights"})
        for comp_id, stored in store.hashes().items():
            floor.passwords.remember(comp_id, PASSWORD.encode(), stored)
        clients = []
        for number in range(count):
            client = socket.create_connection(floor.listener.address)
            head = HeadWriter(b"I%d" % number, b"FLOOR")
            body = b"98=0\x01108=30\x01554=" + PASSWORD.encode() + b"\x01"
            client.sendall(head.message(b"A", 1, time_text(time.time_ns()), body))
            clients.append(client)
            floor.turn(0.0)
        until = time.monotonic() + 60
        while sum(each.connection is not None for each in floor.gateway.sessions.values()) < count:
            floor.turn(0.05)
            if time.monotonic() > until:
                raise RuntimeError("the sessions are not logged on")
        began, ends = time.process_time(), time.monotonic() + duration_s
        while time.monotonic() < ends:
            floor.turn(0.05)
        cost = time.process_time() - began
        for client in clients:
            client.close()
        return cost / duration_s


def _copy_login(store: AccountStore, comp_id: str) -> None:
    """Add a login with the hash of ANN, which takes no time to compute."""
    store._run(
        """INSERT INTO logins SELECT (SELECT MAX(number) + 1 FROM logins), ?, password, NULL, 0 FROM logins
        WHERE comp_id = 'ANN'""",
        (comp_id,),
    )
    store._connection.commit()


def run(options: Options) -> Result:
    """Measure the cost of orders plainly, with TLS and with `durable = "power"`; its steps; delays; idle sessions."""
    result = Result("floor")
    count = QUICK_ORDERS if options.quick else ORDERS
    tell(f"floor: {count:,} orders in each run")
    plain = min(measure(count)[0] for _ in range(1 if options.quick else 3))
    rates: dict[str, float] = {"plain": count / plain}
    result.figures.append(Figure("orders/s of CPU time", count / plain, "orders/s", "target", TARGET))
    if shutil.which("openssl"):
        rates["TLS"] = count / measure(count, tls=True)[0]
    rates['durable = "power"'] = count / measure(count, durable="power")[0]
    rows: list[tuple[Cell, ...]] = [(name, int(rate), 1e6 / rate) for name, rate in rates.items()]
    result.tables.append(Table("orders/s of CPU time", ("mode", "orders/s", "µs of an order"), rows))
    meter = StepMeter()
    measure(count, prepare=meter.attach)
    total = sum(meter.spent.values())
    steps: list[tuple[Cell, ...]] = [
        (step, spent / count / 1e3, 100 * spent / total) for step, spent in meter.spent.most_common()
    ]
    result.tables.append(Table("steps of an order (wall time)", ("step", "µs", "%"), steps))
    half = count / plain / 2
    _, delays = measure(min(count, int(half * 2)), rate=half)
    p50, p99 = quantiles(delays, (0.5, 0.99))
    result.tables.append(
        Table("delay to the engine's report at half of the rate, ms", ("orders/s", "p50", "p99"),
              [(int(half), p50 / 1e6, p99 / 1e6)])
    )  # fmt: skip
    sessions = QUICK_IDLE_SESSIONS if options.quick else IDLE_SESSIONS
    share = idle_share(sessions, 1.0 if options.quick else IDLE_S)
    result.figures.append(Figure(f"{sessions:,} idle sessions", 100 * share, "% of a core", "target", 2.0))
    result.notes.append("An order has 165 bytes; 16 KiB are read at once. The other process of the run is the client.")
    return result
