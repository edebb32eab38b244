"""CPU time of FIX messages: parse with validation, session, encode; compared with a codec without validation.

The messages are an order and its report. Everything runs in one process and one thread without a socket or a disk, so
the results are parts of a gateway's cost, not its rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType

from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.market.fix.config import SessionConfig
from levelcast.market.fix.effects import DeliverMessage, SendBytes
from levelcast.market.fix.framing import FixFrame, Framer
from levelcast.market.fix.journal import SessionImage
from levelcast.market.fix.reader import Reader
from levelcast.market.fix.session import FixSession
from levelcast.market.fix.values import time_text
from levelcast.market.fix.writer import HeadWriter

NOW = 1_767_614_400 * 10**9
BATCH = 50
"""Orders in one read of a socket."""
BUDGET_US = 20.0
"""CPU time of an order at 50,000 orders/s."""
MESSAGES, QUICK_MESSAGES, ROUNDS = 20_000, 500, 5
HEAD = HeadWriter(b"ANN", b"FLOOR")
FLOOR = HeadWriter(b"FLOOR", b"ANN")
TIME = time_text(NOW)
REPORT = (
    b"6=0\x0111=%b\x0114=0\x0117=E%d\x0137=R%d\x0138=300\x0139=0\x0140=2\x0144=181.52\x0154=1\x0155=IBM\x0159=0\x01"
    b"60=%b\x01150=A\x01151=300\x01"
)


def order(seq: int) -> bytes:
    body = b"1=ACC7\x0111=ORD-%07d\x0121=1\x0138=300\x0140=2\x0144=181.52\x0154=1\x0155=IBM\x0159=0\x0160=%b\x01"
    return HEAD.message(b"D", seq, TIME, body % (seq, TIME))


def report_body(seq: int) -> bytes:
    return REPORT % (b"ORD-%07d" % seq, seq, seq, TIME)


IN = "session, in (parse, number, journal entry, delivery)"
OUT = "session, out (number, journal entry, encode a report)"
PARSE, ENCODE, DIVIDE = "parse (divide, split, validate)", "encode a report", "divide the stream"
THEIR_PARSE, THEIR_ENCODE = "simplefix: parse, no validation", "simplefix: encode a report"


def run(options: Options) -> Result:
    """Measure every step, each several times, and take the fastest round of each."""
    result = Result("fix")
    count = QUICK_MESSAGES if options.quick else MESSAGES
    tell(f"fix: {count:,} messages, {ROUNDS} rounds")
    steps: dict[str, Callable[[int], float]] = {
        DIVIDE: divide,
        PARSE: parse,
        IN: session_in,
        OUT: session_out,
        ENCODE: encode,
    }
    try:
        simplefix = import_module("simplefix")
    except ModuleNotFoundError:
        result.notes.append("simplefix is not installed (extra bench), so its rows are missing.")
    else:
        steps[THEIR_PARSE] = partial(simplefix_parse, simplefix)
        steps[THEIR_ENCODE] = partial(simplefix_encode, simplefix)
    best = {name: min(step(count) for _ in range(ROUNDS)) for name, step in steps.items()}
    rows: list[tuple[Cell, ...]] = [(name, 1e6 * cost, int(1 / cost)) for name, cost in best.items()]
    result.tables.append(Table("CPU time of a message", ("step", "µs", "messages/s"), rows))
    for name, mine, theirs in (("parse", PARSE, THEIR_PARSE), ("encode", ENCODE, THEIR_ENCODE)):
        against = theirs if theirs in best else DIVIDE
        result.figures.append(Figure(f"CPU to {name}", 1e6 * best[mine], "µs", against, 1e6 * best[against]))
    both = best[IN] + best[OUT]
    result.figures.append(Figure("an order in, a report out", 1e6 * both, "µs", "50,000 orders/s", BUDGET_US))
    sizes = len(order(1)), len(FLOOR.message(b"8", 1, TIME, report_body(1)))
    result.notes.append(f"Order: {sizes[0]} bytes, report: {sizes[1]} bytes, {BATCH} orders in one read.")
    return result


def timed(call: Callable[[], object], count: int) -> float:
    """Return the CPU seconds of one of `count` messages."""
    began = time.process_time()
    call()
    return max(time.process_time() - began, 1e-9) / count


def batches(count: int, first: int = 1) -> list[bytes]:
    numbers = range(first, first + count)
    return [b"".join(map(order, numbers[at : at + BATCH])) for at in range(0, count, BATCH)]


def divide(count: int) -> float:
    data, framer = batches(count), Framer()

    def call() -> None:
        for batch in data:
            framer.feed(batch)
            while framer.next() is not None:
                pass

    return timed(call, count)


def parse(count: int) -> float:
    data, framer, reader = batches(count), Framer(), Reader()

    def call() -> None:
        for batch in data:
            framer.feed(batch)
            while isinstance(frame := framer.next(), FixFrame):
                reader.read(frame)

    return timed(call, count)


def floor_session() -> FixSession:
    session = FixSession(SessionConfig(sender=b"FLOOR", target=b"ANN"), SessionImage())
    session.connect(NOW)
    session.receive(HEAD.message(b"A", 1, TIME, b"98=0\x01108=30\x01"), NOW)
    return session


def session_in(count: int) -> float:
    data, session = batches(count, first=2), floor_session()
    delivered = 0

    def call() -> None:
        nonlocal delivered
        for batch in data:
            for effect in session.receive(batch, NOW):
                if isinstance(effect, DeliverMessage):
                    delivered += 1

    cost = timed(call, count)
    if delivered != count:
        raise RuntimeError(f"{delivered} of {count} orders were delivered")
    return cost


def session_out(count: int) -> float:
    session = floor_session()
    sent = 0

    def call() -> None:
        nonlocal sent
        for number in range(count):
            for effect in session.send(b"8", report_body(number), NOW, cause=number):
                if isinstance(effect, SendBytes):
                    sent += 1

    cost = timed(call, count)
    if sent != count:
        raise RuntimeError(f"{sent} of {count} reports were sent")
    return cost


def encode(count: int) -> float:
    def call() -> None:
        for number in range(count):
            FLOOR.message(b"8", number, TIME, report_body(number))

    return timed(call, count)


def simplefix_parse(simplefix: ModuleType, count: int) -> float:
    data, parser = batches(count), simplefix.FixParser()

    def call() -> None:
        for batch in data:
            parser.append_buffer(batch)
            while parser.get_message() is not None:
                pass

    return timed(call, count)


def simplefix_encode(simplefix: ModuleType, count: int) -> float:
    def call() -> None:
        for number in range(count):
            message = simplefix.FixMessage()
            message.append_pair(8, b"FIX.4.4", header=True)
            message.append_pair(35, b"8", header=True)
            message.append_pair(34, number, header=True)
            message.append_pair(49, b"FLOOR", header=True)
            message.append_pair(52, TIME, header=True)
            message.append_pair(56, b"ANN", header=True)
            for field in report_body(number).split(b"\x01")[:-1]:
                tag, _, value = field.partition(b"=")
                message.append_pair(tag, value)
            message.encode()

    return timed(call, count)
