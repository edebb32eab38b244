"""ZeroMQ, as many people would fan out prices: one publisher, three subscribers, TCP on loopback, by pyzmq.

It is no total order: with one publisher every subscriber sees that publisher's order, and with two there would be
none. Nothing is dropped, because the publisher waits when a subscriber's queue is full (XPUB_NODROP).
"""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from struct import Struct
from typing import Any

from benchmarks.peers.machine import (
    KSOFTIRQD,
    RECORD_BYTES,
    Failed,
    Load,
    Missing,
    PeerResult,
    load_beside,
    percentiles,
    records_in,
)
from levelcast.wire.mold import DEFAULT_PACKET_BYTES

SUBSCRIBERS = 3
QUEUE = 10_000
"""Messages that may wait for one subscriber, on either side."""
LIGHT_RATE = 500
"""Messages a second for the delay at light load."""
_HEAD = Struct("<Q")
"""A message starts with the time of sending, where delays are wanted."""
_PATIENCE_S = 30.0
_CHECK_EVERY = 256
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Told:
    """What one process counted."""

    messages: int
    begun_ns: int
    ended_ns: int
    cpu_s: float
    delays_us: Sequence[float] = ()


def check() -> Any:
    """The module zmq; `Missing` if it is not installed."""
    try:
        return importlib.import_module("zmq")
    except ModuleNotFoundError:
        raise Missing("pyzmq is not installed: pip install pyzmq") from None


def run(records: int = 1, seconds: float = 2.0, *, record_bytes: int = RECORD_BYTES, delay: bool = True) -> PeerResult:
    """Messages of so many records as fast as they go, and the delay at light load."""
    size = records * record_bytes
    with load_beside() as load:
        told = _play(size, seconds, 0)
    case = f"TCP, {records} record{'s' if records > 1 else ''} a message"
    result = result_of(told, case, records, size, load)
    if delay:
        light = _play(record_bytes, seconds, LIGHT_RATE)
        result = replace(result, delay_us=percentiles(us for each in light[1:] for us in each.delays_us))
    return result


def run_all(seconds: float = 2.0) -> Iterator[PeerResult]:
    """One record a message, as people use it, and packed as Levelcast packs."""
    first = run(1, seconds)
    yield first
    yield replace(run(records_in(DEFAULT_PACKET_BYTES), seconds, delay=False), delay_us=first.delay_us)


def result_of(told: Sequence[Told], case: str, records_per_message: int, size: int, load: Load) -> PeerResult:
    """The result of what the publisher, who comes first, and the subscribers counted."""
    publisher, *subscribers = told
    delivered = tuple(each.messages for each in subscribers)
    cpu = {"publisher": publisher.cpu_s, **{f"subscriber {i}": each.cpu_s for i, each in enumerate(subscribers, 1)}}
    return PeerResult(
        name="ZeroMQ",
        case=case,
        seconds=(max(each.ended_ns for each in subscribers) - publisher.begun_ns) / 1e9,
        datagrams=publisher.messages,
        delivered=delivered,
        records=min(delivered) * records_per_message,
        bytes=min(delivered) * size,
        cpu_seconds={**cpu, KSOFTIRQD: load.ksoftirqd_s},
        other_load=load.other_load,
        stolen_load=load.stolen_load,
    )


# ---------------------------------------------------------------------------------------------------------
# Processes


def _play(size: int, seconds: float, rate: float) -> list[Told]:
    """What the publisher and the subscribers counted; all of them have ended."""
    check()
    if size < _HEAD.size:
        raise ValueError(f"a message has at least {_HEAD.size} bytes, not {size}")
    parent = os.getpid()
    with _process(_publish, parent, size, seconds, rate) as publisher:
        port = _hear(publisher, _PATIENCE_S)
        with (
            _process(_subscribe, parent, port, rate > 0) as first,
            _process(_subscribe, parent, port, rate > 0) as second,
            _process(_subscribe, parent, port, rate > 0) as third,
        ):
            told = [_hear(each, seconds + _PATIENCE_S) for each in (first, second, third)]
            publisher.send("all have everything")
            return [_hear(publisher, _PATIENCE_S), *told]


@contextmanager
def _process(work: Any, *arguments: Any) -> Iterator[Connection]:
    """A fresh interpreter that runs `work` with a pipe to us, and is killed at the end of the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process: SpawnProcess = context.Process(target=work, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(1.0)
        if process.is_alive():
            process.kill()
        process.join(5.0)


def _hear(pipe: Connection, patience_s: float) -> Any:
    with suppress(EOFError):
        if pipe.poll(patience_s):
            return pipe.recv()
    raise Failed(f"a process of ZeroMQ said nothing within {patience_s:.0f} s")


def _die_with(parent: int) -> None:
    """End when the parent ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _publish(pipe: Connection, parent: int, size: int, seconds: float, rate: float) -> None:
    _die_with(parent)
    zmq = check()
    with zmq.Context() as context, context.socket(zmq.XPUB) as out:
        out.set(zmq.LINGER, 0)
        out.set(zmq.SNDHWM, QUEUE)
        out.set(zmq.XPUB_NODROP, 1)
        out.set(zmq.XPUB_VERBOSE, 1)
        out.set(zmq.RCVTIMEO, int(_PATIENCE_S * 1e3))
        out.set(zmq.SNDTIMEO, int(_PATIENCE_S * 1e3))
        pipe.send(out.bind_to_random_port("tcp://127.0.0.1"))
        for _ in range(SUBSCRIBERS):
            out.recv()
        cpu, begun_ns = time.process_time(), time.time_ns()
        sent = _send_slowly(out, size, seconds, rate) if rate else _send_fast(out, size, seconds)
        out.send(b"")
        _hear(pipe, _PATIENCE_S)
        pipe.send(Told(sent, begun_ns, time.time_ns(), time.process_time() - cpu))


def _send_fast(out: Any, size: int, seconds: float) -> int:
    message, send, sent = bytes(size), out.send, 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(_CHECK_EVERY):
            send(message)
        sent += _CHECK_EVERY
    return sent


def _send_slowly(out: Any, size: int, seconds: float, rate: float) -> int:
    begun, count, rest = time.monotonic(), round(seconds * rate), bytes(size - _HEAD.size)
    for i in range(count):
        time.sleep(max(0.0, begun + i / rate - time.monotonic()))
        out.send(_HEAD.pack(time.time_ns()) + rest)
    return count


def _subscribe(pipe: Connection, parent: int, port: int, delays: bool) -> None:
    _die_with(parent)
    zmq = check()
    with zmq.Context() as context, context.socket(zmq.SUB) as into:
        into.set(zmq.RCVHWM, QUEUE)
        into.set(zmq.RCVTIMEO, int(_PATIENCE_S * 1e3))
        into.connect(f"tcp://127.0.0.1:{port}")
        into.subscribe(b"")
        cpu, begun_ns, receive, got = time.process_time(), time.time_ns(), into.recv, 0
        delays_us: list[float] = []
        while message := receive():
            got += 1
            if delays:
                delays_us.append((time.time_ns() - _HEAD.unpack_from(message)[0]) / 1e3)
        pipe.send(Told(got, begun_ns, time.time_ns(), time.process_time() - cpu, delays_us))
