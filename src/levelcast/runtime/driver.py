"""Run one protocol class in an event loop with sockets, storage and clocks.

A turn: sleep until a datagram arrives or work is due, drain (bounded), decode, run one step of the machine, and perform
its effects in order. Entries to persist and messages to send are collected: first all entries are written, then all
messages are sent, consecutive ones together. Malformed datagrams are counted by reason and dropped.

- The content of the next release is prepared before its scheduled time, when that frame is final. During a quiet period
  before it, when a turn might not finish in time, sockets are not read, nor in the turn that releases it. So checking
  packets or hashing a token's slot does not delay the release. Datagrams that arrive in this period are processed
  slightly later, which the ring tolerates.
- To release on time, the driver sleeps until `spin_ns` before it and spins for the rest: the kernel wakes a process
  some 50 to 100 µs late. It does not spin for overdue work, nor for work without external observers: tokens, requests,
  slots without a frame.
- A released frame is passed to the services (the edge) first and to the tape after them, because subscribers wait for
  it. It is witnessed, so a process that crashes between the two releases the same bytes again after its restart.
  Between the two, a node with real-time priority yields to others: on one machine they release at the same time.
- The clock is judged between turns for releases: by the monotonic clock in every turn, by the time source and the other
  members twice a second (`levelcast.overlay.clock_check`).
- Whether a release is late does not depend on when this process ran (`levelcast.runtime.lateness`).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from levelcast import native
from levelcast.native.layout import KIND_AT
from levelcast.overlay.clock_check import ClockCheck
from levelcast.overlay.detours import Rows
from levelcast.overlay.hold_feedback import HoldFeedback
from levelcast.overlay.paths import Paths
from levelcast.overlay.probe import Prober
from levelcast.protocol.clock import ClockGuard
from levelcast.protocol.effects import GROUP, Effect, Forget, Persist, Release, Send, ServeTape
from levelcast.protocol.events import Event, event_name
from levelcast.protocol.history import Frame
from levelcast.protocol.machine import Machine
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.lateness import ReadyTimes, latest_ns, split_at_instants
from levelcast.runtime.sockets import RECEIVERS, Address, Arrival
from levelcast.storage.node_store import NodeStore
from levelcast.timing.rules import Timing
from levelcast.wire.codec import RepairItem, decode, encode, kinds_of
from levelcast.wire.header import Malformed, sender_of, wrong_domain
from levelcast.wire.messages import (
    Beat,
    CatchUpPackets,
    Data,
    Echo,
    GroupInvite,
    Message,
    Packet,
    Parity,
    PathRow,
    Probe,
    ReleaseRow,
    Repair,
    Request,
    Token,
)
from levelcast.wire.packets import open_packets
from levelcast.wire.token_codec import KIND_BEAT

LONGEST_SLEEP_NS = 50_000_000
GATHER_NS = 2_000_000
"""Packets in a continuous stream accumulate for this long: only due work, or a datagram to this node, wakes it earlier.

A packet waits for a token to acknowledge it, and a turn for a token starts by reading all packets.
"""
QUIET_NS = 2_000_000
"""Maximum quiet period before a release, in which sockets are not read; less if turns or slots are short."""
CLOCK_TOLERANCE_NS = 5_000_000
"""A wall clock that moves this much against the monotonic clock has been stepped."""
MISSING_QUANTILE = 0.999
"""Quantile of a measured delay after which a token counts as missing (W1)."""
READ_TOGETHER_NS = 200_000
"""Two clocks that were read further apart than this are not compared."""

BAD_RECORDS = "bad records"
"""Reason for rejecting a well-formed datagram: its records cannot be written to a tape."""


class Work(Protocol):
    """Work that a node starts on its own, such as a floor's trading."""

    wake_ns: int | None

    def step(self, now: int) -> list[Effect]: ...


class Service(Protocol):
    """A service of a node in the same loop and thread as the ring: the edge, the status page.

    Nothing here may block: it would delay the ring.
    """

    @property
    def filenos(self) -> Sequence[int]:
        """Descriptors that wake the loop when they are readable. They may change after each call."""
        ...

    @property
    def wake_ns(self) -> int | None:
        """Latest time of the next step, by the wall clock."""
        ...

    def step(self, ready: Collection[int], now: int) -> None:
        """Do pending work, once per turn; `ready` are the readable ones of `filenos`."""
        ...

    def released(self, release: Release, content: bytes | bytearray, now: int) -> None:
        """Handle the release of a frame; `content` are its stamped records, as they will be on the tape."""
        ...

    def close(self) -> None: ...


class Sockets(Protocol):
    """The interface of `levelcast.runtime.sockets.CoreSockets` that the loop uses."""

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]: ...

    def drain(self, domain: int | None = None) -> list[Arrival]: ...

    def learn(self, node: int, address: Address) -> None: ...

    def send(self, to: int, datagrams: Sequence[bytes]) -> None: ...

    def send_buffer(self, to: int, buffer: bytes, ends: bytes) -> None: ...

    def close(self) -> None: ...


class Overlay(Protocol):
    """The interface of `levelcast.runtime.overlay_sockets.OverlaySockets` beside that of sockets."""

    def is_repeated(self, datagram: bytes, source: Address, at_ns: int) -> bool:
        """Return whether a datagram is a token that arrived lately; pass a new one on over a detour."""
        ...

    def learn_paths(self, rows: Rows, now: int) -> None:
        """Choose the detours by the rows that all nodes have published."""
        ...

    def take(self, data: Data, source: Address, at_ns: int) -> Sequence[Data]:
        """Return the packets that are new, and forward them if this is the node's duty."""
        ...


class OpenedDatagram(Protocol):
    """A message whose sender is known (`levelcast.keys.core_security`)."""

    @property
    def domain(self) -> int: ...

    @property
    def message(self) -> Message: ...

    @property
    def address(self) -> Address | None: ...


class Security(Protocol):
    """The interface of `levelcast.keys.core_security.CoreSecurity` that the loop uses."""

    rejected: Counter[str]
    wants: Callable[[RepairItem], bool]

    def begin_turn(self, now: int) -> None: ...

    def accepts(self, data: Data) -> bool:
        """Return whether packets that the sockets have opened count."""
        ...

    def open(self, datagram: bytes, source: Address) -> OpenedDatagram | None:
        """Return the message of a datagram; None if it is not for this node. Raise `Malformed`."""
        ...

    def seal(self, message: Message) -> list[bytes]:
        """Return the datagrams of a message that this node sends."""
        ...


class Clock(Protocol):
    def wall_ns(self) -> int: ...

    def sleep_ns(self, duration: int) -> None:
        """Sleep for this duration, regardless of arrivals."""
        ...

    def both_ns(self) -> tuple[int, int]:
        """Return the wall clock and the monotonic clock, read at the same time."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def sleep_ns(self, duration: int) -> None:
        time.sleep(duration / 1e9)

    def both_ns(self) -> tuple[int, int]:
        wall = before = after = 0
        for _ in range(4):  # retry: preemption between the two reads must not look like a clock step
            before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
            if after - before <= READ_TOGETHER_NS:
                break
        return wall, (before + after) // 2


@dataclass(slots=True)
class Counters:
    """Counts of a node since its start."""

    received: int = 0
    malformed: Counter[str] = field(default_factory=Counter)
    """Datagrams that were not delivered, by reason."""
    namesakes: int = 0
    """Datagrams of another process that runs under this node's name."""
    requests: int = 0
    frames: int = 0
    records: int = 0
    late: int = 0
    """Frames that were late by protocol (`levelcast.runtime.lateness`)."""
    delayed: int = 0
    """Frames with a scheduling delay of more than `punctual_ns`."""
    max_behind_ns: int = 0
    """Maximum delay of a release after its scheduled time."""
    tokens: int = 0
    """Own tokens sent."""
    tokens_delayed: int = 0
    """Own tokens with a delay of more than `punctual_ns`."""
    max_token_delay_ns: int = 0
    reports: Counter[str] = field(default_factory=Counter)


def quiet_before_release(timing: Timing) -> int:
    """Return the maximum quiet period before a release: a small part of a slot, and of a token's time."""
    return min(QUIET_NS, 2 * timing.slot_ns // 5, timing.late_ns // 2)


class Driver:
    """The event loop of one node."""

    def __init__(
        self,
        node: int,
        domain: int,
        machine: Machine,
        sockets: Sockets,
        keeper: NodeStore,
        *,
        most_served: int = 64,
        punctual_ns: int = 1_000_000,
        packet_fault: Callable[[Packet], str | None] | None = None,
        impairment: Impairment | None = None,
        work: Work | None = None,
        services: Sequence[Service] = (),
        prober: Prober | None = None,
        paths: Paths | None = None,
        feedback: HoldFeedback | None = None,
        clock_check: ClockCheck | None = None,
        overlay: Overlay | None = None,
        security: Security | None = None,
        quiet_ns: int = QUIET_NS,
        spin_ns: int = 0,
        on_event: Callable[[Event], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.node = node
        self.domain = domain
        self.machine = machine
        self.sockets = sockets
        self.keeper = keeper
        self.counters = Counters()
        self.impairment = impairment
        self.work = work
        self.services = tuple(services)
        self.prober = prober
        self.paths = paths
        self.feedback = feedback
        self.clock_check = clock_check
        self._overlay = overlay
        self._security = security
        self._quiet_ns = quiet_ns
        self._busy_ns = 0
        """Duration of recent turns that received datagrams: a maximum that decays."""
        self._spin_ns = spin_ns
        self._most_served = most_served
        self._punctual_ns = punctual_ns
        self._packet_fault = packet_fault
        self._on_event = on_event
        self._clock: Clock = clock or SystemClock()
        now, monotonic = self._clock.both_ns()
        self._guard = ClockGuard(now, monotonic, CLOCK_TOLERANCE_NS)
        self._ready_times = ReadyTimes(machine.ready_slot, now)
        self._due_ns = now
        """Time at which the present step was due by the clock: that of the step, unless the process runs late."""
        self._own_tokens: list[Token] = []
        """Own tokens in the outbox."""
        self._listens = machine.LISTENS
        if packet_fault is not None:
            machine.refuses = self._is_bad  # type: ignore[method-assign]
        self._drops_beats = Beat not in machine.LISTENS
        if security is not None:
            security.wants = machine.wants
        measured = {Probe, Echo, PathRow, ReleaseRow} if paths is not None else {Probe}
        self._unread_kinds = kinds_of() - kinds_of(machine.LISTENS | measured)
        """Kinds of messages that a node with keys drops, because each would cost it a signature."""
        self._known: dict[int, Address] = {}
        self._probes: list[tuple[Probe | Echo, int]] = []
        self._rows: list[PathRow] = []
        self._streaming = False
        """Packets arrived in the last turn: the next ones may accumulate for `GATHER_NS`."""
        self._deaf = False
        """This turn is for a release and does not read sockets; the next one does."""
        self._prepared: tuple[Frame, bytearray] | None = None
        """The next frame to be released, and its stamped records."""
        self._uncommitted = False
        self._outbox: list[bytes] = []
        self._outbox_to = 0

    @property
    def clock_was_set(self) -> bool:
        """Return whether the wall clock was set against the monotonic one, and not set back."""
        return not self._guard.trusted

    @property
    def clock_trusted(self) -> bool:
        return self._guard.trusted and (self.clock_check is None or self.clock_check.trusted)

    def run(self, stop: Callable[[], bool], on_turn: Callable[[int], None] | None = None) -> None:
        """Run turns until `stop` returns true; `on_turn` gets the wall clock after each turn."""
        while not stop():
            now = self.turn()
            if on_turn is not None:
                on_turn(now)

    def close(self) -> None:
        """Write pending data, and close services, storage and sockets."""
        with ExitStack() as closing:
            closing.callback(self.sockets.close)
            closing.callback(self.keeper.close)
            for service in self.services:
                closing.callback(service.close)

    def turn(self) -> int:
        """Sleep, receive, step, perform effects. Return the wall clock of the step."""
        came, ready = self._wait()
        began = self._clock.wall_ns()
        if self._security is not None:
            self._begin_secured(self._security, began)
        takes_in = (came or self._streaming) and not self._deaf
        arrivals: Sequence[Arrival] = self._drain() if takes_in else ()
        now, monotonic = self._clock.both_ns()
        if self.impairment is not None:
            self.impairment.hold(arrivals)
            arrivals = self.impairment.due(now)
        self._guard.check(now, monotonic)
        trusted = self.clock_trusted
        for some in split_at_instants(arrivals, self.machine.open_instants if arrivals else None):
            self._step(some, now, trusted)
        if self.work is not None:
            self._perform(self.work.step(now))
        if self.prober is not None:
            self._perform(self.prober.step(self._probes, now))
            self._probes.clear()
        if self.paths is not None and (self._rows or now >= self.paths.wake_ns):
            self._publish_paths(self.paths, now)
        if self.feedback is not None and now >= self.feedback.wake_ns:
            self._publish_needs(self.feedback, now, trusted)
        if self.clock_check is not None and now >= self.clock_check.wake_ns and not self._deaf:
            self._check_clock(self.clock_check, now, monotonic)
        for service in self.services:
            service.step(ready, now)
        self._prepare()
        if arrivals:
            self._busy_ns = max(self._clock.wall_ns() - began, self._busy_ns * 7 // 8)
        return now

    def _begin_secured(self, security: Security, now: int) -> None:
        """Renew the budget of signatures, and count what was refused in the last turn."""
        security.begin_turn(now)
        if security.rejected:
            self.counters.malformed.update(security.rejected)
            security.rejected.clear()

    def _publish_paths(self, paths: Paths, now: int) -> None:
        """Take in the rows of others. When the own row is due, publish it, and tell the machine the delays."""
        effects = paths.step(self._rows, now)
        self._rows.clear()
        if effects:
            self._perform(effects)
            self.machine.learn_delays(paths.delays_ns(MISSING_QUANTILE))
            if self._overlay is not None:
                self._overlay.learn_paths(paths.rows, now)

    def _publish_needs(self, feedback: HoldFeedback, now: int, trusted: bool) -> None:
        """Publish what slots have needed, or a timing record, which is for the own machine too (rule W10)."""
        effects = feedback.step(now, clock_trusted=trusted)
        self._perform(effects)
        own = [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Data)]
        if own:
            self._perform(self.machine.step(own, now, clock_trusted=trusted))

    def _check_clock(self, check: ClockCheck, now: int, monotonic: int) -> None:
        """Judge the clock, send the probes that this needs, and tell the machine what its beats state."""
        self._perform(check.step(now, monotonic, was_set=self.clock_was_set))
        self.machine.learn_clock(check.error_us, check.offset_us)

    def _step(self, arrivals: Sequence[Arrival], now: int, trusted: bool) -> None:
        """Run one step of the machine, note the slots that it made ready, and perform its effects."""
        machine = self.machine
        self._due_ns = now if machine.wake_ns is None else min(machine.wake_ns, now)
        effects = machine.step(self._decode(arrivals), now, clock_trusted=trusted)
        self._ready_times.note(machine.ready_slot, latest_ns(arrivals) if arrivals else self._due_ns)
        self._perform(effects)

    def _wait(self) -> tuple[bool, list[int]]:
        """Sleep until an arrival or due work; return whether sockets are ready, and the ready `filenos` of services."""
        quiet_from, now = self._quiet_from(), self._clock.wall_ns()
        if quiet_from is None or now < quiet_from:
            came, ready = self._listen(now, quiet_from)
            if quiet_from is None or came or ready or self._clock.wall_ns() < quiet_from:
                self._deaf = False
                return came, ready
        self._deaf = True
        self._meet_release()
        return False, []

    def _quiet_from(self) -> int | None:
        """Return the start of the quiet period: None unless a prepared frame is next, and after a turn for one."""
        due = self.machine.wake_ns
        if due is None or self._prepared is None or self._deaf or not self.machine.release_is_next:
            return None
        return due - max(self._spin_ns, min(self._quiet_ns, 2 * self._busy_ns))

    def _listen(self, now: int, quiet_from: int | None) -> tuple[bool, list[int]]:
        """Sleep until an arrival, due work or the quiet period."""
        due = self.machine.wake_ns if quiet_from is None else quiet_from
        until = self._next_of_others(now)
        if due is not None:
            until = min(until, due)
        if self._streaming:
            until = min(until, now + GATHER_NS)
        others = [fileno for service in self.services for fileno in service.filenos]
        return self.sockets.wait(max(0, until - now) / 1e9, others, packets=not self._streaming)

    def _meet_release(self) -> None:
        """Wait for the scheduled release time, within a few microseconds. A clock that is set back ends the spin."""
        due, clock = self.machine.wake_ns, self._clock
        assert due is not None
        clock.sleep_ns(max(0, due - self._spin_ns - clock.wall_ns()))
        while 0 < due - clock.wall_ns() <= self._spin_ns:
            pass

    def _next_of_others(self, now: int) -> int:
        """Return the time at which anything but the machine is due."""
        until = now + LONGEST_SLEEP_NS
        if self.work is not None and self.work.wake_ns is not None:
            until = min(until, self.work.wake_ns)
        if self.impairment is not None and self.impairment.next_ns is not None:
            until = min(until, self.impairment.next_ns)
        if self.prober is not None and self.prober.wake_ns is not None:
            until = min(until, self.prober.wake_ns)
        if self.paths is not None:
            until = min(until, self.paths.wake_ns)
        if self.feedback is not None:
            until = min(until, self.feedback.wake_ns)
        if self.clock_check is not None:
            until = min(until, self.clock_check.wake_ns)
        for service in self.services:
            wake_ns = service.wake_ns
            if wake_ns is not None:
                until = min(until, wake_ns)
        return until

    # -- receiving ----------------------------------------------------------------------------------------

    def _drain(self) -> list[Arrival]:
        """Read the sockets; the compiled module opens and checks packets, unless each datagram is to be delayed."""
        arrivals = self.sockets.drain(self.domain if self.impairment is None else None)
        self._streaming = False
        received = len(arrivals)
        for content, *_ in arrivals:
            if type(content) is Data:
                self._streaming = True
                received += content.last - content.first
        self.counters.received += received
        return arrivals

    def _decode(self, arrivals: Iterable[Arrival]) -> list[Message]:
        """Return the messages for this machine. Learn the sender's address only from a datagram that decodes.

        The items of a Repair yield no address: their authors did not send this datagram.
        """
        batch: list[Message] = []
        for datagram, source, at_ns in arrivals:
            if isinstance(datagram, Data):
                if datagram.source == self.node:
                    self.counters.namesakes += 1
                elif self._security is None or self._security.accepts(datagram):
                    if self._security is None:
                        self._learn(datagram.source, source)
                    batch += [datagram] if self._overlay is None else self._overlay.take(datagram, source, at_ns)
                continue
            if self._security is None and self._is_repeated(datagram, source, at_ns):
                continue
            if self._drops_beats and len(datagram) > KIND_AT and datagram[KIND_AT] == KIND_BEAT:
                continue  # unread: beats are most of the traffic of an idle ring
            if self._security is not None and len(datagram) > KIND_AT and datagram[KIND_AT] in self._unread_kinds:
                continue
            try:
                opened = self._open(datagram, source)
            except Malformed as malformed:
                self.counters.malformed[malformed.reason.value] += 1
                continue
            if opened is None or (self._security is not None and self._is_repeated(datagram, source, at_ns)):
                continue  # with keys, a token counts as arrived, and is passed on, only if its author has signed it
            found, message, address = opened
            sender = sender_of(datagram)
            if reason := wrong_domain(found, self.domain):
                self.counters.malformed[reason.value] += 1
            elif sender == self.node:
                self._on_namesake(message, source)
            else:
                if sender is not None and address is not None:
                    self._learn(sender, address)
                if isinstance(message, Probe | Echo | Beat | PathRow):
                    self._measure(message, at_ns)
                elif isinstance(message, ReleaseRow) and self.feedback is not None:
                    self.feedback.hear(message, at_ns)
                if type(message) not in self._listens:
                    continue
                if self._overlay is not None and isinstance(message, Data):
                    for part in self._overlay.take(message, source, at_ns):
                        self._take(part, batch)
                else:
                    self._take(message, batch)
        return batch

    def _is_repeated(self, datagram: bytes, source: Address, at_ns: int) -> bool:
        """Return whether the overlay has had this token lately, over another path."""
        return self._overlay is not None and self._overlay.is_repeated(datagram, source, at_ns)

    def _open(self, datagram: bytes, source: Address) -> tuple[int, Message, Address | None] | None:
        """Return domain, message and address of the sender: where it came from, or with keys what is signed (K14)."""
        if self._security is None:
            return *decode(datagram), source
        opened = self._security.open(datagram, source)
        return None if opened is None else (opened.domain, opened.message, opened.address)

    def _datagrams(self, message: Message) -> list[bytes]:
        """Return a message as this node sends it."""
        return [encode(message, self.domain)] if self._security is None else self._security.seal(message)

    def _measure(self, message: Probe | Echo | Beat | PathRow, at_ns: int) -> None:
        """Hand a message that measures a path, and the time of its arrival, to prober and meters."""
        if self.prober is not None and isinstance(message, Probe | Echo):
            self._probes.append((message, at_ns))
        if self.paths is None:
            return
        if isinstance(message, Beat):
            self.paths.hear_beat(message.sender, message.sequence, message.sent_ns, at_ns)
            if self.clock_check is not None:
                self.clock_check.hear_beat(message)
        elif isinstance(message, Probe):
            self.paths.hear_probe(message.sender, message.number, message.sent_ns, at_ns)
        elif isinstance(message, PathRow):
            self._rows.append(message)

    def _on_namesake(self, message: Message, source: Address) -> None:
        """Count a message of a process that runs under this node's id. A probe is from one that starts: it is told."""
        self.counters.namesakes += 1
        if isinstance(message, Probe):
            self.sockets.learn(self.node, source)
            now = self._clock.wall_ns()
            echo = Echo(self.node, self.node, message.number, message.sent_ns, now, now)
            self.sockets.send(self.node, self._datagrams(echo))

    def _learn(self, sender: int, address: Address) -> None:
        if self._known.get(sender) != address:
            self._known[sender] = address
            self.sockets.learn(sender, address)

    def _take(self, message: Message, batch: list[Message]) -> None:
        """Add a message to the batch, unless it has records that cannot be written to a tape.

        If such a packet were acknowledged, every receiver would have to release it and none could.
        """
        if type(message) is Data and self._is_bad(message):
            return
        if type(message) is Repair:
            items = tuple(item for item in message.items if not (type(item) is Data and self._is_bad(item)))
            if len(items) < len(message.items):
                message = Repair(message.sender, items)
        elif type(message) is CatchUpPackets and any(map(self._is_bad_packet, message.packets)):
            return
        batch.append(message)

    def _is_bad(self, data: Data) -> bool:
        """Return whether packets have records that no tape holds; keyed ones were checked when they were opened."""
        if self._packet_fault is None or self._security is not None:
            return False
        if native.open_data(data.sealed, self.domain, Data) is not None:
            return False
        return any(map(self._is_bad_packet, open_packets(data)))

    def _is_bad_packet(self, packet: Packet) -> bool:
        if self._packet_fault is None or self._packet_fault(packet) is None:
            return False
        self.counters.malformed[BAD_RECORDS] += 1
        return True

    # -- effects ------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Effect]) -> None:
        """Perform effects in order."""
        for effect in effects:
            kind = type(effect)
            if kind is Persist:
                assert isinstance(effect, Persist)
                self._persist(effect)
            elif kind is Send:
                assert isinstance(effect, Send)
                self._send(effect.to, effect.message)
            elif isinstance(effect, Event):
                self.counters.reports[event_name(effect)] += 1
                if self._on_event is not None:
                    self._on_event(effect)
            else:
                self._flush()
                self._do(effect)
        self._flush()

    def _do(self, effect: Effect) -> None:
        """Perform an effect that is neither collected nor an event."""
        if isinstance(effect, Release):
            self._release(effect)
        elif isinstance(effect, Forget):
            self.keeper.forget(effect.slot, effect.places)
        elif isinstance(effect, ServeTape):
            for message in self.keeper.serve(self.node, effect, self._most_served):
                self._send(effect.to, message)

    def _persist(self, effect: Persist) -> None:
        self.keeper.persist(effect.entry)
        self._uncommitted = True

    def _send(self, to: int, message: Message) -> None:
        if isinstance(message, Data | Parity) and to == GROUP:
            to = RECEIVERS
        elif type(message) is GroupInvite and to not in self._known and self._overlay is None:
            to = GROUP  # its address is unknown since the start of this server: invite the group, and it replies
        if self._outbox and self._outbox_to != to:
            self._flush()
        if isinstance(message, Data) and message.first < message.last:
            self._flush()
            self.sockets.send_buffer(to, message.sealed, native.ends(message.sealed))
            return
        if type(message) is Token and message.owner == self.node:
            self._own_tokens.append(message)
        self._outbox_to = to
        self._outbox += self._datagrams(message)
        self.counters.requests += type(message) is Request

    def _flush(self) -> None:
        """Write collected entries, then send collected messages: no message may depend on an unwritten entry."""
        if self._uncommitted:
            self.keeper.commit()
            self._uncommitted = False
        if self._outbox:
            self.sockets.send(self._outbox_to, self._outbox)
            self._outbox = []
            if self._own_tokens:
                self._note_tokens()

    def _note_tokens(self) -> None:
        """Record the delays of own tokens. A token that waited for a message was not due before it."""
        sent_ns, counters = self._clock.wall_ns(), self.counters
        for token in self._own_tokens:
            due_ns = max(token.timestamp_ns, self._due_ns)
            counters.tokens += 1
            counters.max_token_delay_ns = max(counters.max_token_delay_ns, sent_ns - due_ns)
            if sent_ns - due_ns > self._punctual_ns:
                counters.tokens_delayed += 1
                self.keeper.log_token(token, due_ns, sent_ns)
        self._own_tokens.clear()

    def _prepare(self) -> None:
        """Stamp the records of the next release in advance."""
        frame = self.machine.upcoming
        if frame is not None and (self._prepared is None or self._prepared[0] is not frame):
            self._prepared = (frame, self.keeper.content(frame))

    def _release(self, release: Release) -> None:
        """Release a frame, with the time at which it was ready, and whether it is late by protocol."""
        if self._prepared is not None and self._prepared[0] is release.frame:
            content = self._prepared[1]
        else:
            content = self.keeper.content(release.frame)
        self._prepared = None
        now, counters = self._clock.wall_ns(), self.counters
        ready_ns = self._ready_times.take(release.frame.slot)
        instant_ns = release.frame.timestamp_ns + self.machine.hold_ns(release.frame.timestamp_ns)
        moved = release.scheduled_ns > instant_ns
        late = moved or ready_ns > instant_ns
        release = release._replace(late=late, ready_ns=ready_ns, moved=moved)
        release = release._replace(delayed=release.delay_ns(now) > self._punctual_ns)
        for service in self.services:
            service.released(release, content, now)
        if self.feedback is not None:
            self.feedback.released(release, now)
        if self._spin_ns:
            os.sched_yield()
        self.keeper.release(release, content, self.machine.generation, now)
        counters.frames += 1
        counters.records += release.frame.records
        counters.late += late
        counters.delayed += release.delayed
        counters.max_behind_ns = max(counters.max_behind_ns, now - release.scheduled_ns)
