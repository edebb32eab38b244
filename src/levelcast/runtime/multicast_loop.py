"""Run one member of a multicast group (`levelcast.byzantine`) with sockets, a store and threads that verify.

A turn: sleep until a datagram arrives, a verification is done, the application has submitted something, or work is due;
drain; decode; hand over what needs a verification; run one step with the rest; perform its effects. Entries are written
before anything of the same step is sent.

- S and U are measured at the start on this machine, T (half a round trip) with Probe and Echo on this network.
- A message under the own key that this process has not sent shows a second process with the key. This one then stops:
  two of them would sign two versions of one message, which is proof of a lie (C-8).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from levelcast.byzantine.digests import cite
from levelcast.byzantine.epochs import EpochMember
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.signatures import RecentVerifier, Signer, Verifier
from levelcast.errors import NetError
from levelcast.protocol.effects import GROUP, ChainDeliver, Effect, Record, Send, ServeDelivered
from levelcast.runtime.driver import Sockets
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.sockets import Address, Via
from levelcast.runtime.verify_pool import ToVerify, VerifyPool
from levelcast.storage.chain_store import ChainStore, Confirmed
from levelcast.wire.chain_codec import signed_bytes, unpack_content
from levelcast.wire.chain_messages import ChainMessage, EpochRecord
from levelcast.wire.codec import decode, encode
from levelcast.wire.header import Malformed
from levelcast.wire.messages import Echo, Message, Probe, Repair

LONGEST_SLEEP_NS = 50_000_000
PROBE_EVERY_NS = 50_000_000
ANSWER_BYTES = 60_000
MAX_BATCH = 64
"""Maximum number of signatures in one task of a verifying thread."""
MEASURED = 40
"""Number of signatures with which S and U are measured."""


class GroupDelivery(NamedTuple):
    """A delivery for the application."""

    number: int
    """From 1 over all epochs and restarts: what the application confirms."""
    epoch: int
    sender: int
    packets: tuple[bytes, ...]


class Measured(NamedTuple):
    """S, U and T of MR §5, in nanoseconds; T is None until a reply has arrived."""

    sign_ns: int
    verify_ns: int
    transmit_ns: int | None = None

    @property
    def hops(self) -> int:
        """S/T, rounded up; 0 if signing takes less than half of T."""
        if not self.transmit_ns or 2 * self.sign_ns < self.transmit_ns:
            return 0
        return -(-self.sign_ns // self.transmit_ns)


def measure_signatures(signer: Signer, verifier: Verifier, me: int) -> Measured:
    """Return S and U of this machine, the least of several runs: what the work takes when nothing interrupts it."""
    content = bytes(200)
    signs, verifies = [], []
    for _ in range(MEASURED):
        began = time.perf_counter_ns()
        signature = signer.sign(content)
        signed = time.perf_counter_ns()
        verifier.holds(me, content, signature)
        signs.append(signed - began)
        verifies.append(time.perf_counter_ns() - signed)
    return Measured(min(signs), min(verifies))


class MulticastLoop:
    """The event loop of one member. `submit`, `room` and `confirm` may be called from any thread."""

    def __init__(
        self,
        machine: EpochMember,
        sockets: Sockets,
        store: ChainStore,
        domain: int,
        pool: VerifyPool,
        on_delivery: Callable[[GroupDelivery], None],
        *,
        impairment: Impairment | None = None,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self.machine, self.store = machine, store
        self.malformed: Counter[str] = Counter()
        self.datagrams_in = self.datagrams_out = 0
        self.round_trips_ns: deque[int] = deque(maxlen=256)
        self._sockets, self._domain, self._pool = sockets, domain, pool
        self._on_delivery, self._on_turn = on_delivery, on_turn
        self._impairment = impairment
        self._submitted: deque[bytes] = deque()
        self._proposed: deque[EpochRecord] = deque()
        self._confirmed = store.confirmed
        self._stopping = False
        self._probe_ns = 0
        self._seen: set[int] = set()
        self._probes = 0

    # -- from any thread -----------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Number of packets that the queue accepts."""
        return max(0, self.machine.room - len(self._submitted))

    def submit(self, packets: Sequence[bytes]) -> None:
        """Queue packets. The caller checks `room` first."""
        self._submitted.extend(packets)
        self._pool.wake()

    def confirm(self, position: Confirmed) -> None:
        """Note that the application needs nothing up to this position any more."""
        self._confirmed = max(self._confirmed, position)

    def propose(self, record: EpochRecord) -> None:
        """Sign a record as the successor of the last epoch, unless another one is signed (rule E-2)."""
        self._proposed.append(record)
        self._pool.wake()

    def stop(self) -> None:
        """End the loop after this turn."""
        self._stopping = True
        self._pool.wake()

    @property
    def transmit_ns(self) -> int | None:
        """T: half of the median round trip; None if no reply has arrived."""
        return int(median(self.round_trips_ns)) // 2 if self.round_trips_ns else None

    # -- the loop ------------------------------------------------------------------------------------------

    def measure(self, lasting_ns: int) -> None:
        """Measure T for some time, and listen whether another process uses the key; nothing is sent but probes."""
        until_ns = time.time_ns() + lasting_ns
        while (now := time.time_ns()) < until_ns and not self._stopping:
            self._probe(now)
            came, _ = self._sockets.wait(PROBE_EVERY_NS / 1e9)
            if came:
                self._receive(time.time_ns())

    def run(self) -> None:
        """Run turns until `stop`."""
        for delivery in self.store.after(self.store.confirmed.number):
            self._give(delivery.number, delivery.message)
        while not self._stopping:
            self.turn()

    def turn(self) -> None:
        """Sleep, receive, verify, step, perform effects."""
        came, ready = self._sockets.wait(self._sleep_s(time.time_ns()), (self._pool.fileno,))
        now = time.time_ns()
        batch = self._receive(now) if came or self._impairment is not None else []
        if ready:
            for verified in self._pool.take():
                batch += verified.messages
                for each, holds in verified.results:
                    if holds and each.source is not None:
                        self._sockets.learn(each.member, each.source)
        submitted = False
        while self._submitted and self.machine.room:
            self.machine.submit([self._submitted.popleft()])
            submitted = True
        while self._proposed:
            submitted |= self.machine.propose(self._proposed.popleft())
        due_ns = self.machine.wake_ns
        if batch or submitted or due_ns is None or due_ns <= now:
            self._perform(self.machine.step(batch, now))
        if self._confirmed > self.store.confirmed:
            self.store.confirm(self._confirmed)
            self.store.commit()
        self._on_turn()

    def _sleep_s(self, now: int) -> float:
        wakes = [now + LONGEST_SLEEP_NS]
        if self.machine.wake_ns is not None:
            wakes.append(self.machine.wake_ns)
        if self._impairment is not None and self._impairment.next_ns is not None:
            wakes.append(self._impairment.next_ns)
        return 0.0 if self._submitted and self.machine.room else max(0, min(wakes) - now) / 1e9

    # -- receiving -----------------------------------------------------------------------------------------

    def _receive(self, now: int) -> list[Message]:
        """Return messages that need no verification, and hand over the others."""
        arrivals = self._sockets.drain()
        if self._impairment is not None:
            self._impairment.hold(arrivals)
            arrivals = self._impairment.due(now)
        ready: list[Message] = []
        waiting: list[Message] = []
        wanted: list[ToVerify] = []
        for datagram, source, received_ns in arrivals:
            self.datagrams_in += 1
            message = self._decode(bytes(datagram)) if isinstance(datagram, bytes) else None
            if message is None:
                continue
            self._note_address(message, source)
            if isinstance(message, Probe | Echo):
                self._on_probe(message, source, received_ns, now)
                continue
            found = self._to_verify(message)
            if isinstance(message, ChainMessage):
                self._require_alone(message)
                if not isinstance(source, Via):
                    found = [each._replace(source=source) for each in found]
            if not found:
                ready.append(message)
                continue
            waiting.append(message)
            wanted += found
            if len(wanted) >= MAX_BATCH:
                self._pool.put(waiting, wanted)
                waiting, wanted = [], []
        if waiting:
            self._pool.put(waiting, wanted)
        return ready

    def _note_address(self, message: Message, source: Address) -> None:
        """Learn the first address that is seen of a node, before anything is verified: a verified message replaces it.

        A member that was away needs it, because what it receives is beyond its window and is not verified.
        """
        sender = message.header.sender if isinstance(message, ChainMessage) else getattr(message, "sender", None)
        if sender is not None and sender not in self._seen and not isinstance(source, Via):
            self._seen.add(sender)
            self._sockets.learn(sender, source)

    def _decode(self, datagram: bytes) -> Message | None:
        try:
            domain, message = decode(datagram)
        except Malformed as error:
            self.malformed[error.reason.value] += 1
            return None
        if domain != self._domain:
            self.malformed["wrong network"] += 1
            return None
        return message

    def _to_verify(self, message: Message) -> list[ToVerify]:
        """Return the signatures that the protocol will ask for: those of messages that pass the cheap checks."""
        items = message.items if isinstance(message, Repair) else (message,)
        found = []
        for item in items:
            if not isinstance(item, ChainMessage):
                continue
            machine = self.machine.machines.get(item.epoch)
            verifier = self.machine.verifiers.get(item.epoch)
            if machine is None or not isinstance(verifier, RecentVerifier) or not isinstance(machine, ChainMember):
                continue
            if machine.screen(item) is None:
                content, _ = machine.signed(item.header)
                found.append(ToVerify(verifier, item.header.sender, content, item.header.signature))
        return found

    def _require_alone(self, message: ChainMessage) -> None:
        """Raise NetError for a message under the own key that this process has not sent."""
        header, me = message.header, self.machine.me
        machine = self.machine.machines.get(message.epoch)
        if header.sender != me or not isinstance(machine, ChainMember) or header.seq <= machine.chain.seq:
            return
        ref = cite(header, self._domain, message.epoch)
        content = signed_bytes(header, self._domain, message.epoch)
        if ref not in machine.chain.graph.nodes and self.machine.verifiers[message.epoch].holds(
            me, content, header.signature
        ):
            raise NetError(f"member {me}: another process signs with the same key; stop it, and then start this one")

    def _on_probe(self, message: Probe | Echo, source: Address, received_ns: int, now: int) -> None:
        me = self.machine.me
        if isinstance(message, Probe):
            if message.sender != me:
                self._send(message.sender, Echo(me, message.sender, message.number, message.sent_ns, received_ns, now))
        elif message.to == me and message.sent_ns <= received_ns:
            self.round_trips_ns.append(max(0, received_ns - message.sent_ns - (message.left_ns - message.heard_ns)))

    def _probe(self, now: int) -> None:
        if now >= self._probe_ns:
            self._probe_ns = now + PROBE_EVERY_NS
            self._probes += 1
            self._send(GROUP, Probe(self.machine.me, self._probes, now))

    # -- effects -------------------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[Effect]) -> None:
        deliveries: list[tuple[int, ChainMessage]] = []
        for effect in effects:
            if isinstance(effect, Record):
                self.store.record(effect.entry)
            elif isinstance(effect, ChainDeliver):
                deliveries.append((self.store.deliver(effect), effect.message))
            elif isinstance(effect, Send):
                self.store.commit()
                self._send(effect.to, effect.message)
            elif isinstance(effect, ServeDelivered):
                self._serve(effect)
        self.store.commit()
        for number, message in deliveries:
            self._give(number, message)

    def _give(self, number: int, message: ChainMessage) -> None:
        packets = unpack_content(message.content).packets
        if packets:
            self._on_delivery(GroupDelivery(number, message.epoch, message.header.sender, packets))

    def _serve(self, effect: ServeDelivered) -> None:
        items: list[ChainMessage] = []
        size = 0
        for message in self.store.messages(effect.epoch, effect.versions):
            size += len(message.sealed)
            if size > ANSWER_BYTES:
                break
            items.append(message)
        if items:
            self._send(effect.to, Repair(self.machine.me, tuple(items)))

    def _send(self, to: int, message: Message) -> None:
        self.datagrams_out += 1
        self._sockets.send(to, [encode(message, self._domain)])

    def close(self) -> None:
        """Close threads, sockets and store."""
        self._pool.close()
        self._sockets.close()
        self.store.close()
