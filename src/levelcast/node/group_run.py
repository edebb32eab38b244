"""Run the processes of a wide-area group, send messages from each in turn, and measure them.

Message k is sent by the process k mod n in the order of ids, k intervals after it has joined. `GroupMember` is one
process. `GroupRun` runs all of them on this machine, each forked, and collects the times of their reports.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from levelcast.client.group import START_S, WideGroup
from levelcast.errors import describe
from levelcast.network import Network
from levelcast.overlay.wide.config import PACKET_BYTES
from levelcast.overlay.wide.matrix import NEAR_NS
from levelcast.overlay.wide.measure import BufferMeter, GroupFigures, MessageTimes, figures_of
from levelcast.protocol.effects import Effect, WideDeliver, WideSettle
from levelcast.runtime.group_setup import ALLOWED_LOSS, group_members
from levelcast.wire.wide_messages import WideId

PATIENCE_S = 30.0
"""Time without progress after which a run is given up."""
STOP_S = 5.0
"""Time in which a process must report after its stop."""
_REPORT_S = 0.25
_SENT = struct.Struct("<Q")
MIN_SIZE, MAX_SIZE = _SENT.size, PACKET_BYTES
"""Size of a message, which is sent in one packet."""


class GroupRunOptions(NamedTuple):
    """Protocol and messages of a run."""

    protocol: str
    copies: str | None = None
    messages: int = 100
    every_s: float = 0.1
    size: int = 64
    near_s: float = NEAR_NS / 1e9
    defer_s: float = 0.0
    impair: bool = True
    seed: int = 1
    port: int | None = None
    start_s: float = START_S
    allowed_loss: float = ALLOWED_LOSS


class MemberCounts(NamedTuple):
    """Progress of one process; the receipts are those by all, of messages that were sent or received here."""

    sent: int = 0
    delivered: int = 0
    known: int = 0


@dataclass(slots=True)
class MemberReport:
    """Messages that one process sent, delivered and knew to be received, by number, in ns of the wall clock."""

    name: str
    process: int
    sent_ns: dict[int, int] = field(default_factory=dict)
    delivered_ns: dict[int, int] = field(default_factory=dict)
    known_ns: dict[int, int] = field(default_factory=dict)
    delays_ns: list[int] = field(default_factory=list)
    """From the sending of each message to its delivery here."""
    datagrams: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    """Received datagrams that were dropped, by reason."""
    buffers: BufferMeter = field(default_factory=BufferMeter)
    cpu_s: float = 0.0

    @property
    def counts(self) -> MemberCounts:
        return MemberCounts(len(self.sent_ns), len(self.delivered_ns), len(self.known_ns))


class GroupMember:
    """One process of a run."""

    def __init__(self, network: Network, name: str, options: GroupRunOptions) -> None:
        self.options = options
        self.group = WideGroup(
            network,
            name,
            protocol=options.protocol,
            copies=options.copies,
            near_s=options.near_s,
            defer_s=options.defer_s,
            impair=options.impair,
            seed=options.seed,
            port=options.port,
            start_s=options.start_s,
            allowed_loss=options.allowed_loss,
        )
        self._processes = self.group.config.members
        self.own = range(self._processes.index(self.group.node), options.messages, len(self._processes))
        """Numbers of the messages that are sent here."""
        self.report = MemberReport(name, self.group.node)
        self.group.watchers.append(self._note)

    @property
    def is_done(self) -> bool:
        """Return whether all messages were delivered here, and are known to be received by all."""
        every = self.options.messages
        return self.report.counts == (len(self.own), every - len(self.own), every)

    async def run(self) -> None:
        """Join the group, send the messages of this process, and wait until it is done."""
        await self.group.start()
        reading = asyncio.create_task(self._read())
        try:
            await self._send_all()
            while not self.is_done:
                if reading.done():
                    await reading
                await asyncio.sleep(_REPORT_S / 5)
        finally:
            reading.cancel()

    async def _send_all(self) -> None:
        begin_s = time.monotonic()
        for number in self.own:
            await asyncio.sleep(max(0.0, begin_s + number * self.options.every_s - time.monotonic()))
            self.report.sent_ns[number] = now = time.time_ns()
            await self.group.send(_SENT.pack(now).ljust(self.options.size, b"\0"))

    async def _read(self) -> None:
        async for _ in self.group:
            pass

    def _number(self, each: WideId) -> int:
        """Return the number of a message in the run."""
        return self._processes.index(each.source) + (each.number - 1) * len(self._processes)

    def _note(self, effect: Effect, now: int) -> None:
        """Note the time of a delivery or receipt."""
        self.report.buffers.set(self.group.process.buffered, now)
        if isinstance(effect, WideDeliver):
            self.report.delivered_ns[self._number(effect.id)] = now
            self.report.delays_ns.append(now - _SENT.unpack_from(effect.payload)[0])
        elif isinstance(effect, WideSettle) and effect.by_all:
            self.report.known_ns[self._number(effect.id)] = now

    def finish(self) -> MemberReport:
        """Close the group and return the report."""
        report, group = self.report, self.group
        report.buffers.set(0, time.time_ns())
        if group.socket is not None:
            report.datagrams = Counter(group.socket.sent)
            report.dropped = Counter(group.socket.malformed)
            if group.socket.counts.unknown_address:
                report.dropped["unknown address"] = group.socket.counts.unknown_address
        report.cpu_s = time.process_time()
        group.close()
        return report

    def problems(self) -> list[str]:
        """Return what is missing here."""
        report, every, name = self.report, self.options.messages, self.report.name
        found = []
        if (left := len(self.own) - len(report.sent_ns)) > 0:
            found.append(f"{name} did not send {left:,} of its {len(self.own):,} messages")
        if (left := every - len(self.own) - len(report.delivered_ns)) > 0:
            found.append(f"{name} did not deliver {left:,} of {every - len(self.own):,} messages")
        if (left := every - len(report.known_ns)) > 0:
            found.append(f"{name} does not know of {left:,} of {every:,} messages that all have received them")
        return found


async def run_alone(member: GroupMember) -> tuple[MemberReport, list[str]]:
    """Run one process of a group whose others run elsewhere; return its report and problems."""
    options = member.options
    running = asyncio.create_task(member.run())
    counts, last_s = member.report.counts, time.monotonic() + options.start_s
    while not running.done():
        await asyncio.wait([running], timeout=_REPORT_S)
        if counts != member.report.counts:
            counts, last_s = member.report.counts, time.monotonic()
        if time.monotonic() > last_s + PATIENCE_S + options.every_s * len(member.group.config.members):
            running.cancel()
            break
    with suppress(asyncio.CancelledError):
        await running
    if member.is_done:
        await member.group.leave()
    return member.finish(), member.problems()


class GroupRun:
    """All processes of a group on this machine."""

    def __init__(self, network: Network, options: GroupRunOptions) -> None:
        self.options = options
        self.names = {each.id: each.name for each in group_members(network)}
        self.counts = dict.fromkeys(self.names.values(), MemberCounts())
        self.reports: dict[str, MemberReport] = {}
        self.problems: list[str] = []
        self.interrupted = False
        self._done: set[str] = set()
        self._children: dict[Connection, tuple[str, Any]] = {}
        self._network = network
        for name in self.names.values():
            GroupMember(network, name, options)  # so that bad input ends this process, before others start

    def steps(self) -> Iterator[None]:
        """Run the group until all are done; yield several times a second. Then `reports` and `problems` are final."""
        context = get_context("fork")
        for name in self.names.values():
            here, there = context.Pipe()
            child = context.Process(target=_serve, args=(there, self._network, name, self.options), daemon=True)
            child.start()
            there.close()
            self._children[here] = name, child
        try:
            yield from self._watch()
        finally:
            self._stop()

    def _watch(self) -> Iterator[None]:
        progress_s = time.monotonic() + self.options.start_s
        while len(self._done) < len(self.names) and not self.problems:
            if self._take_all(list(self._children)):
                progress_s = time.monotonic()
            if self.interrupted:
                self.problems.append("the run was interrupted")
            elif time.monotonic() > progress_s + PATIENCE_S + self.options.every_s * len(self.names):
                self.problems.append(f"no progress for {PATIENCE_S:.0f} s")
            yield

    @property
    def pids(self) -> dict[str, int]:
        """Return the process ids, while the run goes on."""
        return {name: child.pid for name, child in self._children.values()}

    @property
    def _silent(self) -> list[Connection]:
        """Return the connections to processes that have not reported."""
        return [each for each, (name, _) in self._children.items() if name not in self.reports]

    def _take_all(self, connections: list[Connection]) -> bool:
        """Handle a message of each process that has sent one; return whether there was progress."""
        ready = wait(connections, timeout=_REPORT_S)
        taken = [self._take(each) for each in connections if each in ready]
        return any(taken)

    def _take(self, connection: Connection) -> bool:
        """Handle a message of a process; return whether it is progress."""
        name, child = self._children[connection]
        try:
            kind, value = connection.recv()
        except EOFError:
            child.join(STOP_S)
            self.problems.append(f"{name} ended by itself, with exit code {child.exitcode}")
            del self._children[connection]
            return False
        if kind == "counts":
            before, self.counts[name] = self.counts[name], value
            return bool(before != value)
        if kind == "done":
            self._done.add(name)
        elif kind == "error":
            self.problems.append(value)
        elif kind == "report":
            report, problems = value
            self.reports[name] = report
            self.problems += problems
        return True

    def _stop(self) -> None:
        """Request the report of each process, and end it."""
        for connection in self._children:
            with suppress(OSError):
                connection.send("stop")
        until_s = time.monotonic() + STOP_S
        while self._silent and time.monotonic() < until_s:
            self._take_all(self._silent)
        for connection, (_, child) in self._children.items():
            connection.close()
            child.join(STOP_S)
            if child.is_alive():
                child.kill()
                child.join()

    @property
    def all_received(self) -> bool:
        """Return whether each message was delivered to all, and all know it."""
        return not self.problems and len(self.reports) == len(self.names)

    def figures(self) -> GroupFigures:
        """Return what the messages needed; all must be received."""
        times = {}
        for report in self.reports.values():
            others = tuple(each for each in self.names if each != report.process)
            for number, at_ns in report.sent_ns.items():
                times[number] = MessageTimes(report.process, at_ns, others)
        sent: Counter[str] = Counter()
        for report in self.reports.values():
            sent += report.datagrams
            for number, at_ns in report.delivered_ns.items():
                times[number].delivered_ns[report.process] = at_ns
            for number, at_ns in report.known_ns.items():
                times[number].known_ns[report.process] = at_ns
        return figures_of(times.values(), sent, (report.buffers for report in self.reports.values()))


def _serve(connection: Connection, network: Network, name: str, options: GroupRunOptions) -> None:
    """Run one process until the parent stops it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = 0
    try:
        asyncio.run(_serve_member(connection, GroupMember(network, name, options)))
    except Exception as error:
        with suppress(OSError):
            connection.send(("error", describe(error)))
        status = 1
    connection.close()
    os._exit(status)  # without the exit handlers of the parent


async def _serve_member(connection: Connection, member: GroupMember) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_reader(connection.fileno(), stopped.set)
    running = asyncio.create_task(member.run())
    stopping = asyncio.create_task(stopped.wait())
    told = False
    while not stopping.done():
        await asyncio.wait(
            [stopping] if told else [stopping, running], timeout=_REPORT_S, return_when="FIRST_COMPLETED"
        )
        connection.send(("counts", member.report.counts))
        if running.done() and not told:
            await running
            told = True
            connection.send(("done", None))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    connection.send(("report", (member.finish(), member.problems())))
