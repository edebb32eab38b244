"""The loop that runs one protocol class over sockets, on a disk and by the clock.

A turn: sleep until something comes or is due, drain (bounded), decode, one step of the machine, and its effects in
order. What the machine persists and sends is collected: all that was persisted is written, then what was sent leaves,
neighbours together. Malformed datagrams are counted by reason and go no further.

- What the next release will send is made before its instant, when that frame is certain. From a moment before it, in
  which a turn might not end in time, nothing is taken in, nor by the turn that releases it: who waits for the frame
  does not wait for packets to be checked or a token's slot to be hashed. What comes meanwhile is a little late for the
  ring, which has time.
- That instant is met by a sleep that ends `spin_ns` early and a spin over the rest: the kernel wakes a process some 50
  to 100 µs late. There is no spin for what is overdue, nor for what nobody outside waits for: tokens, requests, slots
  without a frame.
- A released frame goes to the services (the edge) first and to the tape after them, because everybody waits for that
  instant. It is witnessed, so a process that dies between the two releases the same bytes again after its restart.
  Between the two a node with real-time priority lets others of its kind go first: on one machine they wait for the
  same instant.
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
from levelcast.overlay.probe import Prober
from levelcast.protocol.clock import ClockGuard
from levelcast.protocol.effects import GROUP, Effect, Forget, Persist, Release, Send, ServeTape
from levelcast.protocol.events import Event
from levelcast.protocol.history import Frame
from levelcast.protocol.machine import Machine
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.sockets import RECEIVERS, Address, Arrival
from levelcast.storage.node_store import NodeStore
from levelcast.timing.rules import Timing
from levelcast.wire.codec import decode, encode
from levelcast.wire.header import Malformed, Reason, sender_of
from levelcast.wire.messages import CatchUpPackets, Data, Echo, GroupInvite, Message, Packet, Probe, Repair, Request
from levelcast.wire.packets import open_packets

LONGEST_SLEEP_NS = 50_000_000
GATHER_NS = 2_000_000
"""While packets keep coming, they may gather for so long: only what is due, or said to this node, wakes it earlier.

A packet waits for a token to name it, and a turn for a token begins with taking in what has come.
"""
QUIET_NS = 2_000_000
"""Nothing is taken in for so long before a release at most; less where turns are short, or slots are."""
CLOCK_TOLERANCE_NS = 5_000_000
"""A wall clock that moves this much against the monotonic one has been stepped."""
READ_TOGETHER_NS = 200_000
"""Two clocks that were read further apart than this say nothing about each other."""

BAD_RECORDS = "bad records"
"""The reason for which a sound datagram is not delivered: its records could not go to a tape."""


class Work(Protocol):
    """What a node does of its own accord, as a floor that trades."""

    wake_ns: int | None

    def step(self, now: int) -> list[Effect]: ...


class Service(Protocol):
    """What a node does beside the ring, in the same loop and thread: the edge, the status page.

    Nothing here may block: the ring's instants wait for it.
    """

    @property
    def filenos(self) -> Sequence[int]:
        """Descriptors to wake up for when they can be read. They may be others after each call."""
        ...

    @property
    def wake_ns(self) -> int | None:
        """When to step it at the latest, by the wall clock."""
        ...

    def step(self, ready: Collection[int], now: int) -> None:
        """Once a turn, with those of `filenos` that can be read; mostly there is nothing to do."""
        ...

    def released(self, release: Release, content: bytes | bytearray, now: int) -> None:
        """A frame is released now; `content` are its stamped records, as they will stand on the tape."""
        ...

    def close(self) -> None: ...


class Sockets(Protocol):
    """What the loop needs of `levelcast.runtime.sockets.CoreSockets`."""

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]: ...

    def drain(self, stripe: int | None = None) -> list[Arrival]: ...

    def learn(self, node: int, address: Address) -> None: ...

    def send(self, to: int, datagrams: Sequence[bytes]) -> None: ...

    def send_buffer(self, to: int, buffer: bytes, ends: bytes) -> None: ...

    def close(self) -> None: ...


class Clock(Protocol):
    def wall_ns(self) -> int: ...

    def sleep_ns(self, duration: int) -> None:
        """Sleep for so long, whatever comes."""
        ...

    def both_ns(self) -> tuple[int, int]:
        """The wall clock and the monotonic one at the same instant."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def sleep_ns(self, duration: int) -> None:
        time.sleep(duration / 1e9)

    def both_ns(self) -> tuple[int, int]:
        wall = before = after = 0
        for _ in range(4):  # a process that is preempted between two clocks must not distrust them
            before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
            if after - before <= READ_TOGETHER_NS:
                break
        return wall, (before + after) // 2


@dataclass(slots=True)
class Counters:
    """What a node has done since it was started."""

    received: int = 0
    malformed: Counter[str] = field(default_factory=Counter)
    """Datagrams that were not delivered, by reason."""
    namesakes: int = 0
    """Datagrams of another process that takes itself for this node."""
    requests: int = 0
    frames: int = 0
    records: int = 0
    late: int = 0
    max_behind_ns: int = 0
    """The longest that a release came after its instant."""
    reports: Counter[str] = field(default_factory=Counter)


def quiet_before_release(timing: Timing) -> int:
    """For how long before a release nothing may be taken in: no large part of a slot, nor of a token's time."""
    return min(QUIET_NS, 2 * timing.slot_ns // 5, timing.late_ns // 2)


class Driver:
    """One node at work."""

    def __init__(
        self,
        node: int,
        stripe: int,
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
        quiet_ns: int = QUIET_NS,
        spin_ns: int = 0,
        on_event: Callable[[Event], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.node = node
        self.stripe = stripe
        self.machine = machine
        self.sockets = sockets
        self.keeper = keeper
        self.counters = Counters()
        self.impairment = impairment
        self.work = work
        self.services = tuple(services)
        self.prober = prober
        self._quiet_ns = quiet_ns
        self._busy_ns = 0
        """How long the turns of late took that took something in, the longest counting most."""
        self._spin_ns = spin_ns
        self._most_served = most_served
        self._punctual_ns = punctual_ns
        self._packet_fault = packet_fault
        self._on_event = on_event
        self._clock: Clock = clock or SystemClock()
        self._guard = ClockGuard(*self._clock.both_ns(), CLOCK_TOLERANCE_NS)
        self._listens = machine.LISTENS
        self._known: dict[int, Address] = {}
        self._probes: list[Probe | Echo] = []
        self._streaming = False
        """Packets came in the last turn: the next ones may gather for a moment."""
        self._deaf = False
        """This turn is for a release and takes nothing in; the next one does."""
        self._prepared: tuple[Frame, bytearray] | None = None
        """The next frame to be released, and its stamped records."""
        self._uncommitted = False
        self._outbox: list[bytes] = []
        self._outbox_to = 0

    @property
    def clock_trusted(self) -> bool:
        return self._guard.trusted

    def run(self, stop: Callable[[], bool], on_turn: Callable[[int], None] | None = None) -> None:
        """Turn until `stop` says so; `on_turn` gets the wall clock after each turn."""
        while not stop():
            now = self.turn()
            if on_turn is not None:
                on_turn(now)

    def close(self) -> None:
        """Write what is left, and let go of services, disk and sockets."""
        with ExitStack() as closing:
            closing.callback(self.sockets.close)
            closing.callback(self.keeper.close)
            for service in self.services:
                closing.callback(service.close)

    def turn(self) -> int:
        """Sleep, receive, step, act. Returns the wall clock of the step."""
        came, ready = self._wait()
        began = self._clock.wall_ns()
        takes_in = (came or self._streaming) and not self._deaf
        arrivals: Sequence[Arrival] = self._drain() if takes_in else ()
        now, monotonic = self._clock.both_ns()
        if self.impairment is not None:
            self.impairment.hold(arrivals, now)
            arrivals = self.impairment.due(now)
        batch = self._decode(arrivals)
        self._perform(self.machine.step(batch, now, clock_trusted=self._guard.check(now, monotonic)))
        if self.work is not None:
            self._perform(self.work.step(now))
        if self.prober is not None:
            self._perform(self.prober.step(self._probes, now))
            self._probes.clear()
        for service in self.services:
            service.step(ready, now)
        self._prepare()
        if arrivals:
            self._busy_ns = max(self._clock.wall_ns() - began, self._busy_ns * 7 // 8)
        return now

    def _wait(self) -> tuple[bool, list[int]]:
        """Sleep until something has come or is due: whether it came to the sockets, and which of the others'."""
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
        """From when on nothing is taken in: None unless a prepared frame comes next, and after a turn for one."""
        due = self.machine.wake_ns
        if due is None or self._prepared is None or self._deaf or not self.machine.release_is_next:
            return None
        return due - max(self._spin_ns, min(self._quiet_ns, 2 * self._busy_ns))

    def _listen(self, now: int, quiet_from: int | None) -> tuple[bool, list[int]]:
        """Sleep until something has come or is due, or it is to be quiet."""
        due = self.machine.wake_ns if quiet_from is None else quiet_from
        until = self._next_of_others(now)
        if due is not None:
            until = min(until, due)
        if self._streaming:
            until = min(until, now + GATHER_NS)
        others = [fileno for service in self.services for fileno in service.filenos]
        return self.sockets.wait(max(0, until - now) / 1e9, others, packets=not self._streaming)

    def _meet_release(self) -> None:
        """Meet the instant of a release to a few microseconds. A clock that is set back ends the spin."""
        due, clock = self.machine.wake_ns, self._clock
        assert due is not None
        clock.sleep_ns(max(0, due - self._spin_ns - clock.wall_ns()))
        while 0 < due - clock.wall_ns() <= self._spin_ns:
            pass

    def _next_of_others(self, now: int) -> int:
        """When anything but the machine is due."""
        until = now + LONGEST_SLEEP_NS
        if self.work is not None and self.work.wake_ns is not None:
            until = min(until, self.work.wake_ns)
        if self.impairment is not None and self.impairment.next_ns is not None:
            until = min(until, self.impairment.next_ns)
        if self.prober is not None and self.prober.wake_ns is not None:
            until = min(until, self.prober.wake_ns)
        for service in self.services:
            wake_ns = service.wake_ns
            if wake_ns is not None:
                until = min(until, wake_ns)
        return until

    # -- in -----------------------------------------------------------------------------------------------

    def _drain(self) -> list[Arrival]:
        """What has come; packets are opened and checked by the kernel, unless each datagram is to be delayed."""
        arrivals = self.sockets.drain(self.stripe if self.impairment is None else None)
        self._streaming = False
        received = len(arrivals)
        for content, _ in arrivals:
            if type(content) is Data:
                self._streaming = True
                received += content.last - content.first
        self.counters.received += received
        return arrivals

    def _decode(self, arrivals: Iterable[Arrival]) -> list[Message]:
        """The messages for this machine. Only the header of a datagram that decodes tells an address: its sender's.

        The items of a Repair tell none: their authors did not send this datagram.
        """
        batch: list[Message] = []
        for datagram, source in arrivals:
            if isinstance(datagram, Data):
                if datagram.source == self.node:
                    self.counters.namesakes += 1
                else:
                    self._learn(datagram.source, source)
                    batch.append(datagram)
                continue
            try:
                stripe, message = decode(datagram)
            except Malformed as malformed:
                self.counters.malformed[malformed.reason.value] += 1
                continue
            sender = sender_of(datagram)
            if stripe != self.stripe:
                self.counters.malformed[Reason.WRONG_STRIPE.value] += 1
            elif sender == self.node:
                self.counters.namesakes += 1
            else:
                if sender is not None:
                    self._learn(sender, source)
                if isinstance(message, Probe | Echo):
                    if self.prober is not None:
                        self._probes.append(message)
                elif type(message) in self._listens:
                    self._take(message, batch)
        return batch

    def _learn(self, sender: int, address: Address) -> None:
        if self._known.get(sender) != address:
            self._known[sender] = address
            self.sockets.learn(sender, address)

    def _take(self, message: Message, batch: list[Message]) -> None:
        """Put a message into the batch, unless it carries what could never go to a tape.

        Once such a packet were acknowledged, every receiver would have to release it and none could.
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
        if self._packet_fault is None or native.open_data(data.sealed, self.stripe, Data) is not None:
            return False
        return any(map(self._is_bad_packet, open_packets(data)))

    def _is_bad_packet(self, packet: Packet) -> bool:
        if self._packet_fault is None or self._packet_fault(packet) is None:
            return False
        self.counters.malformed[BAD_RECORDS] += 1
        return True

    # -- out ----------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Effect]) -> None:
        """Carry out effects in order."""
        for effect in effects:
            kind = type(effect)
            if kind is Persist:
                assert isinstance(effect, Persist)
                self._persist(effect)
            elif kind is Send:
                assert isinstance(effect, Send)
                self._send(effect.to, effect.message)
            elif isinstance(effect, Event):
                self.counters.reports[effect.KIND] += 1
                if self._on_event is not None:
                    self._on_event(effect)
            else:
                self._flush()
                self._do(effect)
        self._flush()

    def _do(self, effect: Effect) -> None:
        """What is neither collected nor merely told."""
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
        if isinstance(message, Data) and to == GROUP:
            to = RECEIVERS
        elif type(message) is GroupInvite and to not in self._known:
            to = GROUP  # it has not spoken since this server was started: everybody is asked, and it answers
        if self._outbox and self._outbox_to != to:
            self._flush()
        if isinstance(message, Data) and message.first < message.last:
            self._flush()
            self.sockets.send_buffer(to, message.sealed, native.ends(message.sealed))
            return
        self._outbox_to = to
        self._outbox.append(encode(message, self.stripe))
        self.counters.requests += type(message) is Request

    def _flush(self) -> None:
        """Write what was persisted, then send what was to be sent: nothing leaves that relies on an unwritten entry."""
        if self._uncommitted:
            self.keeper.commit()
            self._uncommitted = False
        if self._outbox:
            self.sockets.send(self._outbox_to, self._outbox)
            self._outbox = []

    def _prepare(self) -> None:
        """Stamp the records of the next release while nobody waits for them."""
        frame = self.machine.upcoming
        if frame is not None and (self._prepared is None or self._prepared[0] is not frame):
            self._prepared = (frame, self.keeper.content(frame))

    def _release(self, release: Release) -> None:
        """The machine said whether the release was late by the clock of its step; here it is made, maybe later."""
        if self._prepared is not None and self._prepared[0] is release.frame:
            content = self._prepared[1]
        else:
            content = self.keeper.content(release.frame)
        self._prepared = None
        now, counters = self._clock.wall_ns(), self.counters
        if now - release.scheduled_ns > self._punctual_ns:
            release = release._replace(late=True)
        for service in self.services:
            service.released(release, content, now)
        if self._spin_ns:
            os.sched_yield()
        self.keeper.release(release, content, self.machine.generation, now)
        counters.frames += 1
        counters.records += release.frame.records
        counters.late += release.late
        counters.max_behind_ns = max(counters.max_behind_ns, now - release.scheduled_ns)
