"""Check the invariants of every history (DESIGN §3).

| invariant     | checked |
|---------------|---------|
| Agreement     | at every release: no two receivers, failed or isolated, release different frames for a slot |
| No invention  | at every release: every packet on a tape was submitted by its source, byte for byte |
| No duplicate  | at every release: a packet is on a tape once |
| Source order  | at every release: (incarnation, number) of a source only rises |
| Known before  | at every release: an on-time timing record is released before it applies |
| Due in order  | at every release: it is due later than the slot before it, whatever changes |
| Never early   | at every release: not before timestamp + Δ_A in true time, within the clock's error |
| Claims kept   | at every JOIN: (caught-up generation, have) is not below the claims in the entered ring |
| One token     | at every token: a member never sends two different tokens for one (generation, slot) |
| Author's bytes | at every send: only authors send their tokens, rings, groups and packets themselves; |
|               | each item of a Repair is byte for byte the item its author sealed first |
| Simultaneity  | at the end: on-time releases of a slot are within the clocks' error of each other; |
|               | in one ring all receivers use the same scheduled release time, even if it is late; |
|               | without faults and loss every receiver releases at that time |
| No loss       | at the end: packets witnessed to their source are on the tape of every operable receiver |
| Liveness      | at the end: packets of sources that kept their journal are on every operable tape within the bound |
| Byte identity | at the end: every tape is a prefix of the longest one, by its hash chain |
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable

from levelcast.protocol.effects import Effect, Persist, Release, Send
from levelcast.protocol.events import Event, RefuseReason, Rejected, RejectReason, RingEntered, RingRefused
from levelcast.protocol.history import GENESIS, Frame
from levelcast.protocol.pace import hold_at, with_change
from levelcast.ring.listener import Listener
from levelcast.sim.engine.world import SimNode, World
from levelcast.wire.chain_messages import ChainMessage
from levelcast.wire.messages import (
    CONTROL_SOURCE,
    Beat,
    Data,
    Group,
    Join,
    LineHolders,
    PaceChange,
    Packet,
    Repair,
    Ring,
    Token,
)
from levelcast.wire.pace_change import decode_pace_change
from levelcast.wire.packets import open_packets, singles

PacketId = tuple[int, int, int]


class InvariantBroken(AssertionError):
    """Violation of an invariant in a history."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


def place_of(error: BaseException) -> str:
    """Return function and line where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].name}:{frames[-1].lineno}" if frames else "?"


def what_broke(error: AssertionError) -> str:
    """Return the violated invariant, or the failed assertion with its location."""
    return str(error) if isinstance(error, InvariantBroken) else f"assertion: {error!r} in {place_of(error)}"


class Checker:
    """Watcher that checks every effect of every node."""

    def __init__(self, world: World, clock_error_ns: int) -> None:
        self._world = world
        self._clock_error_ns = clock_error_ns
        self.submitted: dict[PacketId, bytes] = {}
        self.submitted_at: dict[PacketId, int] = {}
        self._frame_of_slot: dict[int, Frame] = {}
        self._chain_after: dict[bytes, tuple[int, bytes]] = {}
        self._on_tape: dict[tuple[int, int], set[PacketId]] = {}
        self._last: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._tokens: dict[tuple[int, int], Token] = {}
        self._sealed: dict[tuple[object, ...], set[bytes]] = {}
        self._claimed: dict[tuple[int, int], tuple[int, int]] = {}
        self._on_time: dict[int, tuple[int, int]] = {}
        self._instants: dict[tuple[int, int], set[int]] = {}
        """Scheduled release times by slot and the generation that witnessed it."""
        self._late_alone: list[tuple[str, int, int]] = []
        self._behind: set[tuple[str, int]] = set()
        """Receivers that had to catch up to the start of a ring."""
        self._changes: list[PaceChange] = []
        self._noted_slot = 0
        """The timing records of the tape are known up to this slot."""
        self._due: dict[tuple[int, int], tuple[int, int]] = {}
        """The last slot that each life of a receiver released, and when it was due."""
        self.releases = 0
        self.late_releases = 0
        self.open_packets: Callable[[Data], list[Packet]] = open_packets
        """Reads the clear text of packets."""
        self.renews = False
        """True if sources seal packets again, after the epoch of their keys has ended."""
        self.forged = False
        """True if a test sends tokens that contradict the order on purpose."""

    # -- during the history -------------------------------------------------------------------------------

    def on_effect(self, node: SimNode, effect: Effect) -> None:
        if isinstance(effect, Send):
            message = effect.message
            if isinstance(message, Token):
                self._check_one_token(message)
                self._note_claim(node, message.generation, message.have)
            elif isinstance(message, Beat):
                self._note_claim(node, message.generation, message.claims[-1].have)
            elif isinstance(message, Join):
                self._check_claims_kept(node, message)
            elif isinstance(message, Data):
                self._note_submitted(message)
            if isinstance(message, Token | Data | Ring | Group | LineHolders):
                self._note_sealed(node, message, sends=True)
            elif isinstance(message, Repair):
                for item in message.items:
                    if not isinstance(item, ChainMessage):
                        self._check_passed_on(node, item)
        elif isinstance(effect, Release):
            self._check_release(node, effect)
        elif isinstance(effect, Event):
            self._check_event(node, effect)
        elif isinstance(effect, Persist):
            if isinstance(effect.entry, Ring):
                # Its lineage may void earlier claims, and no member counts them any more.
                self._claimed.pop((node.id, node.disk.journal.life), None)
            elif isinstance(effect.entry, Token | Data):
                self._note_sealed(node, effect.entry, sends=False)

    def _note_sealed(self, node: SimNode, message: Token | Data | Ring | Group | LineHolders, *, sends: bool) -> None:
        """Record what an author has journaled or sent: others may forward it from then on."""
        if self.forged:  # a seal without a key does not prove its author
            return
        operates = sends and isinstance(message, Data) and message.source == CONTROL_SOURCE
        if _name_of(message)[0] != node.id and not operates:  # any node may operate the ring (rule W10)
            if sends:
                raise InvariantBroken("author's bytes", f"{node.name} sends {_name_of(message)} as its own")
            return
        for single in singles(message) if isinstance(message, Data) else (message,):
            known = self._sealed.setdefault(_name_of(single), {single.sealed})
            if self.renews and isinstance(single, Data):
                known.add(single.sealed)
            if single.sealed not in known and sends:
                raise InvariantBroken("author's bytes", f"{node.name} seals {_name_of(single)} twice")

    def _check_passed_on(self, node: SimNode, item: Token | Data | Ring | Group | LineHolders) -> None:
        if not self.forged and item.sealed not in self._sealed.get(_name_of(item), ()):
            raise InvariantBroken("author's bytes", f"{node.name} forwards {_name_of(item)}, not sealed by its author")

    def _check_event(self, node: SimNode, event: Event) -> None:
        """Check that no token contradicts the order and no RING voids witnessed slots (rules 2, 12)."""
        machine = node.machine
        if isinstance(event, RingEntered) and isinstance(machine, Listener) and machine.have < event.slot - 1:
            self._behind.add((node.name, machine.generation))
        if isinstance(event, Rejected) and event.reason is RejectReason.ORDER and not self.forged:
            raise InvariantBroken("one order", f"{node.name} cannot order the token of slot {event.slot}")
        if isinstance(event, RingRefused) and event.reason is RefuseReason.VOIDS:
            raise InvariantBroken("witness kept", f"{node.name} received a RING that voids witnessed slot {event.slot}")

    def _note_submitted(self, data: Data) -> None:
        for packet in self.open_packets(data):
            key = packet[:3]
            known = self.submitted.setdefault(key, packet.payload)
            self.submitted_at.setdefault(key, self._world.now)
            if known != packet.payload:
                raise InvariantBroken("no invention", f"source {packet.source} numbered two packets {packet.number}")

    def _check_one_token(self, token: Token) -> None:
        known = self._tokens.setdefault((token.generation, token.slot), token)
        if known != token:
            raise InvariantBroken("one token", f"member {token.owner} sent two tokens for slot {token.slot}")

    def _note_claim(self, node: SimNode, generation: int, have: int) -> None:
        """Record the `have` of a token or beat as a claim if its sender has caught up in its generation (rule 8)."""
        ring = node.disk.journal.ring
        if ring is not None and ring.generation == generation and have >= ring.lineage[-1].start_slot - 1:
            life = (node.id, node.disk.journal.life)
            self._claimed[life] = max(self._claimed.get(life, (0, 0)), (generation, have))

    def _check_claims_kept(self, node: SimNode, join: Join) -> None:
        """Check that a JOIN covers every claim that other members may have counted (rules 8, 12)."""
        life = (node.id, join.life)
        now = (join.caught_up, join.have)
        if now < self._claimed.get(life, (0, 0)):
            raise InvariantBroken("claims kept", f"{node.name} joins with {now} after claiming {self._claimed[life]}")
        self._claimed[life] = now

    def _check_release(self, node: SimNode, release: Release) -> None:
        self.releases += 1
        self._check_agreement(node, release.frame)
        self._check_packets(node, release.frame)
        self._check_timing_records(node, release)
        self._check_time(node, release)

    def _check_agreement(self, node: SimNode, frame: Frame) -> None:
        known = self._frame_of_slot.setdefault(frame.slot, frame)
        if known.chain != frame.chain:
            raise InvariantBroken("agreement", f"{node.name} and others release different frames for slot {frame.slot}")
        # A frame that follows another one at one receiver follows it at all of them.
        after = self._chain_after.setdefault(frame.chain_before, (frame.slot, frame.chain))
        if after != (frame.slot, frame.chain):
            what = f"{node.name} releases slot {frame.slot} where others released slot {after[0]}"
            raise InvariantBroken("agreement", what)

    def _check_packets(self, node: SimNode, frame: Frame) -> None:
        tape = (node.id, node.disk.journal.life)
        seen = self._on_tape.setdefault(tape, set())
        for packet in frame.packets:
            key = packet[:3]
            if self.submitted.get(key) != packet.payload:
                raise InvariantBroken("no invention", f"{node.name} released {key}, which no source sent")
            if key in seen:
                raise InvariantBroken("no duplicate", f"{node.name} released {key} twice")
            seen.add(key)
            place = (packet.incarnation, packet.number)
            source = (*tape, packet.source)
            if place <= self._last.get(source, (0, 0)):
                raise InvariantBroken("source order", f"{node.name} released {key} after {self._last[source]}")
            self._last[source] = place

    def _check_timing_records(self, node: SimNode, release: Release) -> None:
        """Check that a change of the hold time is released before it applies, and that slots are due in order (W9)."""
        frame, machine = release.frame, node.machine
        if frame.slot > self._noted_slot:
            self._noted_slot = frame.slot
            for change in changes_in(frame):
                self._changes = with_change(self._changes, change, frame.timestamp_ns)
        if not isinstance(machine, Listener):
            return
        counted = {change for change in changes_in(frame) if change in machine.history.tip.paces}
        late_ns = self._clock_error_ns + self._world.config.punctual_ns
        if not release.late and any(self._world.now > change.from_ns + late_ns for change in counted):
            raise InvariantBroken("known before", f"{node.name} releases a timing record after it applies")
        due_ns = frame.timestamp_ns + machine.hold_ns(frame.timestamp_ns)
        life = (node.id, node.disk.journal.life)
        slot, before_ns = self._due.get(life, (0, 0))
        if machine.schedule is not None and slot >= machine.schedule.start_slot and due_ns <= before_ns:
            raise InvariantBroken("due in order", f"{node.name}: slot {frame.slot} is due before slot {slot}")
        self._due[life] = (frame.slot, due_ns)

    def _check_time(self, node: SimNode, release: Release) -> None:
        now, frame = self._world.now, release.frame
        instant = frame.timestamp_ns + hold_at(self._changes, frame.timestamp_ns, self._world.config.timing.hold_ns)
        if now < instant - self._clock_error_ns:
            raise InvariantBroken("never early", f"{node.name} released slot {frame.slot} {instant - now} ns early")
        if now < release.scheduled_ns - self._clock_error_ns:
            raise InvariantBroken("never early", f"{node.name} released slot {frame.slot} before its scheduled time")
        self.late_releases += release.late
        if not release.late:
            low, high = self._on_time.get(frame.slot, (now, now))
            self._on_time[frame.slot] = (min(low, now), max(high, now))
        machine = node.machine
        if not isinstance(machine, Listener) or machine.schedule is None or frame.slot < machine.schedule.start_slot:
            return  # some receivers have counted its witnesses in the previous ring, and others only in this one
        if now <= release.scheduled_ns + self._clock_error_ns + self._world.config.punctual_ns:
            # Released as scheduled, even if late: the receiver held the slot and was running.
            if release.certain:
                key = frame.slot, machine.generation
                self._instants.setdefault(key, set()).add(max(release.scheduled_ns, instant))
        elif (node.name, machine.generation) not in self._behind:
            self._late_alone.append((node.name, frame.slot, now - release.scheduled_ns))

    def frames(self) -> list[Frame]:
        """Return the common tape: every frame that any receiver has released, in order."""
        return [self._frame_of_slot[slot] for slot in sorted(self._frame_of_slot)]

    # -- at the end ---------------------------------------------------------------------------------------

    def check_end(self, receivers: Iterable[SimNode], slack_ns: int) -> None:
        """Check simultaneity and byte identity."""
        for slot, (low, high) in self._on_time.items():
            if high - low > 2 * self._clock_error_ns + slack_ns:
                raise InvariantBroken("simultaneity", f"slot {slot} was released over {high - low} ns")
        self._check_instants()
        for node in receivers:
            self._check_identity(node)

    def _check_instants(self) -> None:
        """Check that in one ring all receivers schedule a slot for the same time, even if it is late (rule 7)."""
        for (slot, _), instants in self._instants.items():
            if len(instants) > 1:
                raise InvariantBroken("simultaneity", f"slot {slot} had the release times {sorted(instants)}")

    def check_nobody_late_alone(self) -> None:
        """Check that every receiver released at the scheduled times: there were no faults and no loss.

        One that joins a ring later than the others has to catch up, and is late for a while.
        """
        for name, slot, late_ns in self._late_alone:
            raise InvariantBroken("simultaneity", f"{name} released slot {slot} {late_ns} ns after its scheduled time")

    def _check_identity(self, node: SimNode) -> None:
        """Check that the tape has exactly the frames of all slots up to the receiver's position, in slot order."""
        machine = node.machine
        upto = machine.released if isinstance(machine, Listener) else node.disk.tape.tip.slot
        chain = GENESIS
        mine = iter(node.disk.tape.frames)
        for slot in sorted(self._frame_of_slot):
            if slot > upto:
                break
            frame = next(mine, None)
            if frame is None or frame.slot != slot or frame.chain != self._frame_of_slot[slot].chain:
                raise InvariantBroken("byte identity", f"{node.name} lacks slot {slot} but is at {upto}")
            if frame.chain_before != chain:
                raise InvariantBroken("byte identity", f"{node.name}'s chain breaks at slot {slot}")
            chain = frame.chain

    def missing_from(self, node: SimNode, packets: Iterable[PacketId]) -> list[PacketId]:
        """Return the packets that are not on the node's tape."""
        seen = self._on_tape.get((node.id, node.disk.journal.life), set())
        return [packet for packet in packets if packet not in seen]

    def check_no_loss(self, receivers: Iterable[SimNode], witnessed: Iterable[PacketId]) -> None:
        """Check that packets witnessed to their source are on the tape of every operable receiver."""
        wanted = list(witnessed)
        for node in receivers:
            if missing := self.missing_from(node, wanted):
                raise InvariantBroken("no loss", f"{node.name} never released {missing[:3]}, witnessed to its source")


def _name_of(message: Token | Data | Ring | Group | LineHolders) -> tuple[object, ...]:
    """Return the author of a message and the values that identify it."""
    if isinstance(message, Data):
        return message.source, "packet", message.incarnation, message.first
    if isinstance(message, Token):
        return message.owner, "token", message.generation, message.slot
    # Rings and groups are identified by their full content: a restarted server may reuse the number of a group, because
    # nothing in a group is counted; two rings of one generation violate another invariant.
    return message.server, message


def changes_in(frame: Frame) -> list[PaceChange]:
    """Return the timing records of a frame."""
    if all(run.source != CONTROL_SOURCE for run in frame.runs):
        return []
    found = (decode_pace_change(packet.payload) for packet in frame.packets if packet.source == CONTROL_SOURCE)
    return [change for change in found if change is not None]
