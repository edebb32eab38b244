"""The receiving part of a receiver: tokens and packets, order, witness, repair, release (DESIGN rules 3, 5, 7-9, 13).

`Listener` is the common base of a member of the ring (`ring.member`) and a secondary receiver (`ring.secondary`). It
sends requests and repairs, but no tokens and no promises. Each task has its own module: `ring.schedule` (times and
owners of slots), `ring.witness` and `ring.beat_witness` (claims), `protocol.history` (the order), `protocol.loss`,
`protocol.repair_plan` and `protocol.retransmit` (requests and replies), `protocol.catchup` (frames from a tape).

One `step` handles a batch of messages at a given time and returns effects in order; `wake_ns` is the latest time of the
next step. Control is handled before data (rule 17). A subclass implements the `ReceiverHooks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Protocol

from levelcast.protocol.catchup import PendingCatchUp, take_over
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, SERVERS, Checkpoint, Effect, Forget, Persist, Release, Send, ServeTape
from levelcast.protocol.events import (
    CaughtUp,
    Conflict,
    Diverged,
    Event,
    PaceChanges,
    PaceDiffers,
    RefuseReason,
    Rejected,
    RejectReason,
    RingEntered,
    RingRefused,
    UnlistedSource,
    Voided,
    Witnessed,
)
from levelcast.protocol.gaps import SourceGaps
from levelcast.protocol.history import SETTLED, Frame, History, Misplaced, Ordered, Tip
from levelcast.protocol.holdings import Holdings
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.loss import MAX_OPEN_SLOTS, MAX_RUNS_PER_REQUEST, LossDetector, Stage, Want, by_holder
from levelcast.protocol.machine import Releases
from levelcast.protocol.pace import change_at, hold_at
from levelcast.protocol.parities import Parities
from levelcast.protocol.repair_plan import RepairPlan
from levelcast.protocol.retransmit import RetransmitScope, look_up, pack_repairs, passed_on
from levelcast.protocol.seals import CrcSeals, NodeSeals
from levelcast.ring.beat_witness import BeatWitness
from levelcast.ring.group_watch import GroupWatch
from levelcast.ring.line_duty import LineDuty
from levelcast.ring.member_state import State
from levelcast.ring.schedule import Lineage, Schedule
from levelcast.ring.secondary_claims import SecondaryClaims
from levelcast.ring.status import ListenerStatus, RingTimes
from levelcast.ring.witness import Count, Due, TokenWitness, Witness, guarantees
from levelcast.timing.nack_sets import Askers
from levelcast.wire.messages import (
    Beat,
    CatchUp,
    CatchUpPackets,
    Data,
    Group,
    GroupToken,
    LineHolders,
    LineRequest,
    Message,
    Pace,
    PaceChange,
    Parity,
    Repair,
    Request,
    Ring,
    Run,
    Token,
)
from levelcast.wire.packets import cut, join

SETTLE_EVERY_SLOTS = 16
"""Stable slots leave memory and journal in groups of this many."""
MAX_EARLY_TOKENS = 256


class ReceiverHooks(Releases, Protocol):
    """Methods in which members and secondaries differ."""

    @property
    def state(self) -> State:
        """Its state, as `ring.member_state` defines it for a primary."""

    @property
    def _learns(self) -> bool:
        """Return whether it requests missing items, counts claims and releases in its present state."""

    def _holders_of(self, want: Want) -> list[int]:
        """Return the nodes to request `want` from, at once."""

    def _helpers(self, attempt: int) -> list[int]:
        """Return the nodes to request packets from that no token has named."""

    def _asks_as(self) -> int | None:
        """Return the member that determines its NACK set (MS §5.2)."""

    def _on_unanswered(self, faults: list[tuple[int, int]], schedule: Schedule, now: int) -> None:
        """Handle slots for which k_r requests were not answered (rule 5)."""

    def _on_foreign_token(self, token: Token, now: int) -> None:
        """Handle a token that the lineage does not contain."""

    def _servers_turn(self, now: int) -> None:
        """Send reports and requests to the servers, as the last part of a step."""

    def _own_wake_ns(self, now: int) -> int:
        """Return the latest time of the next step that the hooks need."""


class Listener(ReceiverHooks):
    """Common behaviour of all receivers, sans I/O."""

    HANDLERS: ClassVar[dict[type, str]] = {
        Token: "_on_token",
        Beat: "_on_beat",
        Data: "_on_data",
        Parity: "_on_parity",
        Request: "_on_request",
        Repair: "_on_repair",
        CatchUp: "_on_catch_up",
        CatchUpPackets: "_on_catch_up",
        Ring: "_on_ring",
        GroupToken: "_on_group_token",
        Group: "_on_group",
        LineHolders: "_on_line_holders",
        LineRequest: "_on_line_request",
    }
    """The method for each kind of message."""

    def __init__(
        self,
        config: StripeConfig,
        member: int,
        journal: JournalImage,
        tape: Tip,
        now: int,
        seals: NodeSeals | None = None,
    ) -> None:
        self.config = config
        self._seals = seals = seals or CrcSeals(config.domain)
        self.timing = config.timing
        self._ring_hold_ns = self._hold_before_ns = config.timing.hold_ns
        self.member = member
        self.life = journal.life
        self.generation = 0
        base = tape.copy()
        if journal.checkpoint is not None and journal.checkpoint.slot > base.slot:
            assert journal.checkpoint.chain == base.chain, "the journal's checkpoint is ahead of the tape"
            base.slot = journal.checkpoint.slot
        self.history = History(base, seals.assemble)
        self.claims = SecondaryClaims(config.patience_ns(member, None))
        """The claims of this receiver's secondaries (rule 11)."""
        self._duty = LineDuty(member, self.timing, secondaries=bool(config.homes)) if config.lines else None
        self._watch = GroupWatch(self.timing) if config.lines else None
        self._has_lines = False
        """It sends to a line: a planned stop waits until another receiver does."""
        self.released = base.slot
        self.late_releases = 0
        self.wake_ns: int | None = now
        self.release_is_next = False
        """A release, and nothing else, is due at `wake_ns`."""
        self._held = Holdings()
        self._ring: Ring | None = None
        self._schedule: Schedule | None = None
        self._witness: Witness | None = None
        self._losses = LossDetector(self.timing)
        self._gaps = SourceGaps()
        self._parities = Parities(seals)
        self._plan = RepairPlan(config, member)
        self._askers: Askers | None = None
        self._scope = RetransmitScope(self.timing)
        self._catch_up = PendingCatchUp(config.domain, config.accept_ahead)
        self._early: list[Token] = []
        self._expect = 0
        self._misplaced: Token | None = None
        """The last token that was dropped because it contradicts the order here."""
        self.unlisted: dict[int, int] = {}
        """Sources that are ordered but not in the network file, with the first slot since the start."""
        self._has_beats = False
        self._followed = self.history.tip.paces
        """The timing records that it follows."""
        self._clock_trusted = True
        self._diverged = False
        self._effects: list[Effect] = []

    # -- status ---------------------------------------------------------------------------------------------

    @property
    def have(self) -> int:
        return self.history.have

    def pace(self, now: int) -> Pace | None:
        """Return the times that all members of its ring use for a slot at `now`."""
        pace = self._ring.pace if self._ring is not None else None
        change = change_at(self._changes, now)
        return change.pace if change is not None else pace

    def hold_ns(self, timestamp_ns: int) -> int:
        """Return Δ_A of a slot of its ring."""
        return hold_at(self._changes, timestamp_ns, self._ring_hold_ns)

    def ring_hold_ns(self, slot: int | None = None) -> int:
        """Return Δ_A of a slot, or of the current ring, before all timing records."""
        in_ring = slot is None or (self._schedule is not None and slot >= self._schedule.start_slot)
        return self._ring_hold_ns if in_ring else self._hold_before_ns

    @property
    def _changes(self) -> Sequence[PaceChange]:
        """The changes of the hold time on the tape (rule W9); in lockstep it never changes."""
        return self.history.tip.paces if self._has_beats else ()

    def _beat_ns(self, now: int) -> int:
        """Return β."""
        pace = self.pace(now)
        return pace.beat_ns if pace is not None else 0

    def _cutoffs_at(self, timestamp_ns: int, of_ring: Mapping[int, int]) -> Mapping[int, int]:
        """Return H_j of each member for a slot: of the last change that applies, and else of its ring (rule 7)."""
        change = change_at(self._changes, timestamp_ns)
        return {**of_ring, **dict(change.pace.cutoffs)} if change is not None else of_ring

    @property
    def witnessed(self) -> int:
        return self._witness.witnessed if self._witness is not None else self.released

    @property
    def upcoming(self) -> Frame | None:
        """The frame that will be released next, once that is certain; a driver may prepare it."""
        slot = self.released + 1
        if self._witness is None or slot > min(self.history.have, self._witness.witnessed):
            return None
        ordered = self.history.get(slot)
        return ordered.frame if ordered is not None else None

    @property
    def ready_slot(self) -> int:
        return min(self.history.have, self.witnessed) if self._learns else self.released

    @property
    def open_instants(self) -> tuple[int, int] | None:
        if self._schedule is None:
            return None
        next_ns = self._schedule.time_of(self.ready_slot + 1)
        return next_ns + self.hold_ns(next_ns), self.timing.slot_ns

    @property
    def schedule(self) -> Schedule | None:
        """Times and owners of slots in the current ring; None before the first ring."""
        return self._schedule

    @property
    def ring_members(self) -> tuple[int, ...]:
        return self._schedule.members if self._schedule is not None else ()

    def lines(self, now: int) -> tuple[str, ...]:
        """Return the lines to which this receiver sends at `now` (MS §4.3); none before its first ring."""
        return self._duty.held(now) if self._duty is not None and self.state != "NEW" else ()

    @property
    def open_repairs(self) -> int:
        return len(self._losses)

    def complete_upto_ns(self) -> int:
        """Return the watermark: everything with a timestamp up to this one is released (rule 15)."""
        return self._schedule.time_of(self.released) if self._schedule is not None and self.released else 0

    def listener_status(self, now: int) -> ListenerStatus:
        """Return the part of the status that every receiver has."""
        schedule, tip = self._schedule, self.history.tip
        ring = None
        if schedule is not None:
            start = schedule.start_slot
            ring = RingTimes(start, schedule.time_of(start), self.timing.slot_ns, schedule.members)
        return ListenerStatus(
            life=self.life,
            generation=self.generation,
            ring=ring,
            slot=schedule.slot_at(now) if schedule is not None else 0,
            have=self.have,
            witnessed=self.witnessed,
            released=self.released,
            complete_upto_ns=self.complete_upto_ns(),
            open_repairs=self.open_repairs,
            membership=tip.records[-1].membership,
            membership_stands=tip.records[-1].slot <= self.witnessed,
            sources=dict(tip.places),
            hold_ns=self.hold_ns(now),
            beat_ns=self._beat_ns(now),
            timing_record=self._changes[-1] if self._changes else None,
            unlisted=tuple(sorted(self.unlisted)),
        )

    @property
    def _trusted(self) -> bool:
        """Return whether clock and tape allow it to act (rule 13)."""
        return self._clock_trusted and not self._diverged

    def learn_delays(self, delays_ns: Mapping[int, int]) -> None:
        self._plan.measured_ns = delays_ns

    # -- one step -------------------------------------------------------------------------------------------

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        """Handle `batch` at local time `now`; return the effects in order, and set `wake_ns`."""
        self._effects = []
        self._clock_trusted = clock_trusted
        handlers = self.HANDLERS
        for message in sorted(batch, key=_control_first):
            handler = handlers.get(type(message))
            if handler is not None:
                getattr(self, handler)(message, now)
        if self._parities:
            self._rebuild(now)
        self._advance()
        self._own_turn(now)
        self._read_claims()
        self._release(now)
        self._look_for_missing(now)
        self._servers_turn(now)
        self._lines_turn(now)
        self._has_lines = bool(self.lines(now))
        self.wake_ns = self._next_wake(now)
        return self._effects

    def _report(self, event: Event) -> None:
        self._effects.append(event)

    # -- restart --------------------------------------------------------------------------------------------

    def _restore(self, journal: JournalImage) -> None:
        """Resume from the journal: same promise, same ring, same tokens, nothing sent twice (rules 2, 8, 12)."""
        places = self.history.tip.places
        for packet in journal.packets.values():
            place = places.get(packet.source)
            if place is None or (packet.incarnation, packet.first) >= place:
                self._held.add(packet)
        if journal.ring is None:
            return
        lineage = Lineage(journal.ring.lineage, self.timing.slot_ns)
        for token in journal.tokens.values():
            if token.slot > self.history.have and token_is_valid(token, lineage):
                self._held.tokens[token.slot] = token
        self._install(journal.ring)
        if self._duty is not None:
            self._duty.resume(journal.ring)
        for slot in self._held.tokens:
            self._losses.open(slot, "PACKETS", 0)
        self._advance()  # before the first INVITE: a JOIN states everything that the journal holds (rule 8)

    def wants(self, item: object) -> bool:
        """Return False for a token of this lineage that is ordered or held: it costs no check of a signature."""
        schedule = self._schedule
        if type(item) is not Token or schedule is None or not token_is_valid(item, schedule.lineage):
            return True
        return item.slot > self.have and self._held.tokens.get(item.slot) != item

    # -- tokens and packets in, order -----------------------------------------------------------------------

    def _on_token(self, token: Token, now: int) -> None:
        schedule = self._schedule
        if schedule is None or not token_is_valid(token, schedule.lineage):
            self._on_foreign_token(token, now)
            return
        if token.slot <= self.history.have:
            return
        known = self._held.tokens.get(token.slot)
        if known is not None:
            if known != token:
                self._report(Conflict(token.slot, token.owner))
            return
        if token.generation == schedule.generation and (
            token.owner != schedule.owner_of(token.slot) or token.timestamp_ns != schedule.time_of(token.slot)
        ):
            self._report(Rejected(token.slot, RejectReason.SCHEDULE, token.owner))
            return
        if token == self._misplaced:
            return  # another node holds it too; a repair may contain the correct one
        self._held.tokens[token.slot] = token
        self._effects.append(Persist(token))
        self._look_for(token.slot, "PACKETS", now, schedule)

    def _on_beat(self, beat: Beat, now: int) -> None:
        """Count the claims of a beat of this ring; one that is not due yet is a mistake of its sender (rule 8)."""
        schedule, witness = self._schedule, self._witness
        if schedule is None or witness is None or not beat_is_valid(beat, schedule):
            return
        if self._has_beats and beat.claims[-1].tick <= schedule.tick_at(now + self.timing.late_ns):
            witness.hear(beat)

    def _on_data(self, data: Data, now: int) -> None:
        source, incarnation, first, last, _ = data
        place = self.history.tip.places.get(source)
        lowest = 1
        if place is not None:
            if (incarnation, first) < place:
                self._on_resent(data)
                if (incarnation, last) < place:
                    return
            if incarnation == place.incarnation:
                lowest = place.next
        highest = lowest + self.config.accept_ahead - 1
        if last > highest:
            self._report(Rejected(0, RejectReason.CREDIT, source=source, number=last))
            if first > highest:
                return
        first = max(first, lowest)
        before = max(self._held.last_of(source, incarnation), lowest - 1)
        if first > before + 1 and self._plan.wide and self._learns:
            self._gaps.open(Run(source, incarnation, before + 1, first - 1), now + self._plan.reorder_ns)
        for new in self._held.add(cut(data, first, min(last, highest))):
            self._effects.append(Persist(new))

    def _on_parity(self, parity: Parity, now: int) -> None:
        """Keep a parity of packets that are not ordered; it is used after all packets of this step."""
        lowest = self._lowest_of(parity)
        if lowest is None or parity.numbers[-1] < lowest:
            return
        if parity.numbers[-1] >= lowest + self.config.accept_ahead:
            last = parity.numbers[-1]
            self._report(Rejected(0, RejectReason.CREDIT, source=parity.source, number=last))
            return
        self._parities.add(parity)

    def _lowest_of(self, parity: Parity) -> int | None:
        """Return the first number of its source that is not ordered; None if its incarnation is over (rule 3)."""
        place = self.history.tip.places.get(parity.source)
        if place is None or parity.incarnation > place.incarnation:
            return 1
        return place.next if parity.incarnation == place.incarnation else None

    def _rebuild(self, now: int) -> None:
        """Rebuild packets from parities (rule W11), and note the gaps that only parities show (W3)."""
        for parity, found in self._parities.rebuild(self._held, self._lowest_of, self.refuses):
            if found.data is not None:
                self._on_data(found.data, now)
            else:
                self._report(Rejected(0, RejectReason.PARITY, source=parity.source, number=found.number))
        if self._plan.wide and self._learns:
            for run in self._parities.trailing(self._held, self._lowest_of):
                self._gaps.open(run, now + self._plan.reorder_ns)

    def _advance(self) -> None:
        """Order every slot of which token and packets are held."""
        if self._catch_up:
            self._absorb_catch_up()
        tokens, history, held = self._held.tokens, self.history, self._held
        while (token := tokens.get(history.have + 1)) is not None and held.is_complete(token.runs, history):
            runs = history.sorted_runs(token.runs)
            try:
                history.extend(token.slot, token.generation, token.timestamp_ns, runs, held.packets)
            except Misplaced:
                self._reject_token(token)
            else:
                self._note_unlisted(token)
        self._note_changes()

    def _note_changes(self) -> None:
        """Report a timing record that was ordered."""
        paces = self.history.tip.paces
        if paces is not self._followed:
            if paces[-1:] != self._followed[-1:] and paces:
                last = paces[-1]
                self._report(PaceChanges(self.have, last.version, last.pace.hold_ns, last.before_ns, last.from_ns))
            self._follow_changes()

    def _note_unlisted(self, token: Token) -> None:
        """Report sources that this node's network file does not have. They are ordered all the same: tokens decide."""
        listed = self.config.sources
        if listed is None:
            return
        for run in token.runs:
            if run.source not in listed and run.source not in self.unlisted:
                self.unlisted[run.source] = token.slot
                self._report(UnlistedSource(token.slot, run.source, token.owner))

    def _reject_token(self, token: Token) -> None:
        """Drop a token that contradicts the order here, and request the slot again: a repair may contain another one.

        If it does not, a member reports the fault, and a reformation voids the slot.
        """
        del self._held.tokens[token.slot]
        self._misplaced = token
        self._losses.open(token.slot, "TOKEN", 0)
        self._report(Rejected(token.slot, RejectReason.ORDER, token.owner))

    # -- witness and release (rules 7, 8, 9) ----------------------------------------------------------------

    def _read_claims(self) -> None:
        witness = self._witness
        if witness is None or not self._learns:
            return
        before = witness.witnessed
        witness.read(self._held.tokens)
        after = witness.advance(self.history.have, self.history.tip.records)
        for slot in range(before + 1, after + 1):
            self._on_witnessed(slot)
        if after > before:
            self._report(Witnessed(after))

    def _due(self, slot: int) -> Due:
        """Return the release time: timestamp + Δ_A, or later if the slot is witnessed later (rule 7).

        If claims were lost here it may have been earlier, and this receiver waits for the latest possible time.
        """
        assert self._witness is not None
        instant_ns = self._instant_ns(self.history.at(slot))
        due = self._witness.due(slot)
        return Due(max(instant_ns, due.earliest_ns), max(instant_ns, due.latest_ns))

    def _instant_ns(self, ordered: Ordered) -> int:
        """Return timestamp + Δ_A of a slot: that of its ring, or of the ring before, unless the tape has changed it."""
        hold_ns = hold_at(self._changes, ordered.timestamp_ns, self.ring_hold_ns(ordered.slot))
        return ordered.timestamp_ns + hold_ns

    def _release(self, now: int) -> None:
        """Release, in order, all slots that are held, witnessed and due; none with a wrong clock (rules 7, 13)."""
        if self._witness is None or not self._learns:
            return
        last = min(self.history.have, self._witness.witnessed)
        while self.released < last:
            slot = self.released + 1
            due = self._due(slot)
            if now < due.latest_ns:
                break
            ordered = self.history.at(slot)
            if ordered.frame is not None:
                late = now > self._instant_ns(ordered) + self.config.punctual_ns
                self.late_releases += late
                witness_ns = self._witness.due(slot).latest_ns
                release = Release(ordered.frame, due.latest_ns, late, certain=due.certain, witness_ns=witness_ns)
                self._effects.append(release)
            self.released = slot
            self._witness.forget(slot)
        settled = self.history.base.slot
        if self.released - settled >= SETTLE_EVERY_SLOTS:
            stable = min(self._witness.stable(), self.released)
            if stable - settled >= SETTLE_EVERY_SLOTS:
                self._settle(stable)

    def _settle(self, slot: int) -> None:
        """Remove from the journal all slots that every member has and this one has released (rule 9)."""
        self.history.settle(slot)
        self._held.forget(slot, self.history.base.places)
        self._effects.append(Persist(Checkpoint(slot, self.history.base.chain)))
        self._effects.append(Forget(slot, dict(self.history.base.places)))

    # -- repair (rule 5) ------------------------------------------------------------------------------------

    def _look_for_missing(self, now: int) -> None:
        if self._schedule is None or not self._learns:
            return
        schedule, repairs = self._schedule, self._losses
        self._expect = max(self._expect, self.history.have + 1)
        limit = self.history.have + MAX_OPEN_SLOTS
        while self._expect <= limit and schedule.time_of(self._expect) <= now:
            slot = self._expect
            if slot not in self._held.tokens and not self._owns(slot, schedule):
                self._look_for(slot, "TOKEN", now, schedule)
            self._expect += 1
        self._ask_for_gaps(now)
        repairs.close_up_to(self.history.have)
        if repairs.next_ns is None or repairs.next_ns > now:
            return
        wants, faults = repairs.due(now, self.history.have, self._missing_of, self._again_ns, schedule.start_slot)
        for holder, slots, runs in by_holder(wants, self._holders_of):
            self._effects.append(Send(holder, Request(self.member, self.generation, self.history.have, slots, runs)))
        self._on_unanswered(faults, schedule, now)

    def _ask_for_gaps(self, now: int) -> None:
        """Request packets of a source that no token has named yet, if later ones have arrived."""

        def missing(run: Run) -> tuple[Run, ...]:
            return self._held.missing((run,), self.history)

        def again_ns(attempt: int) -> int:
            return self._plan.again_ns(self._helpers(attempt), attempt)

        for runs, attempt in self._gaps.due(now, missing, again_ns):
            request = Request(self.member, self.generation, self.history.have, (), runs[:MAX_RUNS_PER_REQUEST])
            self._effects.extend(Send(helper, request) for helper in self._helpers(attempt))

    def _nearest(self, schedule: Schedule) -> list[int]:
        """Return the members of the ring, nearest first."""
        near = self.config.nearness.get(self.member, schedule.members)
        return [member for member in near if member in schedule.lives]

    def _look_for(self, slot: int, stage: Stage, now: int, schedule: Schedule) -> None:
        """Note that `slot` is incomplete, and when it counts as missing."""
        missing_ns = schedule.time_of(slot) + self.timing.late_ns
        self._losses.open(slot, stage, max(now, self._ask_ns(slot, schedule)), missing_ns)

    def _ask_ns(self, slot: int, schedule: Schedule) -> int:
        """Return when it first requests missing parts of `slot` (rule 5, MS §5.2)."""
        at_ns = schedule.time_of(slot)
        if slot < schedule.start_slot:
            return at_ns + self.timing.late_ns
        owner = schedule.owner_of(slot)
        at_ns += self._plan.missing_after_ns(owner)
        if self._askers is not None:
            at_ns += self._askers.set_of(self._asks_as(), owner) * self.timing.request_ns
        return at_ns

    def _again_ns(self, want: Want) -> int:
        return self._plan.again_ns(self._holders_of(want), want.attempt)

    def _missing_of(self, slot: int) -> tuple[Run, ...] | None:
        token = self._held.tokens.get(slot)
        return None if token is None else self._held.missing(token.runs, self.history)

    def _on_request(self, request: Request, now: int) -> None:
        """Send tokens and packets; those that have left the journal are sent from the tape (rules 5, 9)."""
        oldest_slot = self._schedule.lineage.eras[0].start_slot if self._schedule is not None else 0
        found = look_up(request, self._held, self.history.base, self.released, oldest_slot)
        if request.generation < self.generation and self._ring is not None:
            self._effects.append(Send(request.sender, passed_on(self._ring, self.member)))
        if found.from_tape and self._may_have_frames(request) and request.have < self.released:
            self._effects.append(ServeTape(request.sender, request.have, self.released))
        for_one, for_all = self._split(found.items, request, now)
        self._effects.extend(Send(request.sender, repair) for repair in pack_repairs(self.member, for_one))
        self._effects.extend(Send(GROUP, repair) for repair in pack_repairs(self.member, for_all))

    def _split(
        self, items: list[Token | Data], request: Request, now: int
    ) -> tuple[list[Token | Data], list[Token | Data]]:
        """Return the items for the requester alone, and those that go to the core group (rule 5).

        Only members of the ring share answers. A secondary gets its own: the rest of the core does not need what a
        group has missed (MS §4.1). Without multicast each gets its own, unless NACK sets make others wait (W5).
        """
        schedule = self._schedule
        if schedule is None or request.sender not in schedule.lives or not (self.config.multicast or self._askers):
            return items, []
        others_wait = self._others_wait(request, schedule, now)
        return self._scope.split(items, request.sender, now, others_wait=others_wait)

    def _others_wait(self, request: Request, schedule: Schedule, now: int) -> bool:
        """Return whether others may wait for the items of a request (MS §5.2): not if they are long overdue."""
        if self._askers is None:
            return False
        return now <= schedule.time_of(request.have + 1) + self.timing.recovery_ns

    def _may_have_frames(self, request: Request) -> bool:
        """Return whether frames may be sent: only to members of the same generation (rule 9).

        Frames are slots that this lineage released. A node that still holds tokens of an older generation would order
        these after the frames. It is sent the RING instead.
        """
        return request.generation == self.generation

    def _on_repair(self, repair: Repair, now: int) -> None:
        """Handle passed-on messages as if they were received from their authors."""
        for item in repair.items:
            if type(item) is not Data and (handler := self.HANDLERS.get(type(item))) is not None:
                getattr(self, handler)(item, now)
        for data in join(item for item in repair.items if isinstance(item, Data)):
            self._on_data(data, now)

    # -- catching up by frames (rule 9) ---------------------------------------------------------------------

    def _on_catch_up(self, message: CatchUp | CatchUpPackets, now: int) -> None:
        if self._learns and self._schedule is not None:
            self._catch_up.take(message, self.history, self._schedule.slot_at(now))

    def _absorb_catch_up(self) -> None:
        """Append released slots from another member's tape, verified with the hash chain."""
        if not self._learns:
            self._catch_up.clear()
        complete = self._catch_up.complete(self.history, self._held)
        if complete is None:
            return
        settled, packets = complete
        if not take_over(settled, self.history, packets):
            self._report(Diverged(settled.upto_slot, settled.sender))
            return
        self._release_caught_up(settled)

    def _release_caught_up(self, settled: CatchUp) -> None:
        """Release the settled slots that are not released yet: they are witnessed. Continue after them."""
        assert self._schedule is not None
        assert self._witness is not None
        self._witness.skip_to(settled.upto_slot)
        for slot in range(self.released + 1, settled.upto_slot + 1):
            ordered = self.history.get(slot)
            if ordered is not None and ordered.frame is not None:
                self._on_witnessed(slot)
                self.late_releases += 1
                self._effects.append(Release(ordered.frame, self._instant_ns(ordered), True, from_tape=True))
        self.released = settled.upto_slot
        self._skip_own(settled.upto_slot)
        self._report(CaughtUp(settled.upto_slot, settled.sender, settled.after_slot + 1))
        self._settle(settled.upto_slot)

    # -- the secondaries of this receiver (rule 11) ---------------------------------------------------------

    def _on_group_token(self, token: GroupToken, now: int) -> None:
        """Store the claim of a secondary of this receiver; send it the ring or the group that it has missed."""
        if token.generation < self.generation and self._ring is not None:
            self._effects.append(Send(token.sender, passed_on(self._ring, self.member)))
        if self._watch is not None:
            self._watch.hear(token.sender, now)
        outdated = self.claims.hear(token)
        if outdated is not None:
            self._effects.append(Send(token.sender, passed_on(outdated, self.member)))

    def _on_group(self, group: Group, now: int) -> None:
        if group.primary == self.member:
            self.claims.take(group)
            if self._watch is not None:
                self._watch.take(group, now)

    # -- lines of regions (MS §4.3) -------------------------------------------------------------------------

    def _on_line_holders(self, message: LineHolders, now: int) -> None:
        if self._duty is not None and message.generation >= self.generation:
            self._duty.hear(message, now)

    def _on_line_request(self, request: LineRequest, now: int) -> None:
        """Send a server what it may not know: a newer ring, the group of this receiver, a newer assignment."""
        if self._duty is None or request.sender not in self.config.servers:
            return
        ring = self._ring if request.generation < self.generation else None
        newest = self._duty.newest
        if newest is not None and (newest.generation, newest.number) <= (request.generation, request.number):
            newest = None
        for known in (ring, self.claims.group, newest):
            if known is not None:
                self._effects.append(Send(request.sender, Repair(self.member, (known,))))

    def _lines_turn(self, now: int) -> None:
        """Request an assignment that it may have missed, and report secondaries that have stopped."""
        if self._duty is None or self._watch is None:
            return
        if not self._trusted:
            self._watch.forgive(now)
            return
        if (request := self._duty.due(now)) is not None:
            self._effects.append(Send(SERVERS, request))
        self._effects.extend(Send(SERVERS, report) for report in self._watch.due(now))

    def _lines_wake_ns(self, now: int) -> int | None:
        if self._duty is None or self._watch is None or not self._trusted:
            return None
        return min(
            (at_ns for at_ns in (self._duty.wake_ns(now), self._watch.wake_ns) if at_ns is not None), default=None
        )

    # -- rings (rules 12, 13) -------------------------------------------------------------------------------

    def _enter(self, ring: Ring, now: int) -> None:
        """Continue in `ring`, unless it voids slots that are witnessed or released here."""
        self._read_claims()
        start_slot = ring.lineage[-1].start_slot
        if not guarantees(self.config.witnesses, len(ring.membership.members)):
            if start_slot <= self.released:
                self._diverged = True
                self._report(Diverged(start_slot))
                return
        elif start_slot <= self.witnessed:
            start_ns = ring.lineage[-1].start_ns
            self._refuse(RingRefused(start_slot, ring.server, RefuseReason.VOIDS, start_ns, start_ns), now)
            return
        self._settle_below(ring.lineage[0].start_slot)
        self._journal_ring(ring)
        before = self._witness
        self._install(ring)
        if before is not None and self._witness is not None:
            self._witness.inherit(before)
        if self._duty is not None:
            self._duty.enter(ring, now)
        members = tuple(life.member for life in ring.members)
        self._report(RingEntered(start_slot, ring.generation, members))
        early, self._early = self._early, []
        for token in early:
            self._on_token(token, now)

    def _settle_below(self, slot: int) -> None:
        """Write a checkpoint for released slots that are older than the lineage about to be journaled (rules 9, 12).

        A lineage is truncated at the slot that the members of its rings have settled. Other nodes may have settled
        less. After a restart such a node would treat its own older tokens as void, and join with less than it claimed.
        """
        last = min(slot - 1, self.released)
        if last > self.history.base.slot:
            self._settle(last)

    def _journal_ring(self, ring: Ring) -> None:
        """Journal the ring before anything is sent in it (rule 12)."""
        self._effects.append(Persist(ring))

    def _install(self, ring: Ring) -> None:
        """Activate `ring`: void all slots that its lineage does not contain, reset the counts (rules 8, 12)."""
        schedule = Schedule(ring, self.timing.slot_ns)
        self._schedule = schedule
        self._ring = ring
        self.generation = ring.generation
        tokens = self._held.tokens
        for slot in [slot for slot, token in tokens.items() if not token_is_valid(token, schedule.lineage)]:
            if slot > self.released:
                del tokens[slot]
        valid = self.released  # released slots are witnessed, and a lineage need not reach back that far
        while valid < self.history.have and self._slot_is_valid(valid + 1, schedule.lineage):
            valid += 1
        if valid < self.history.have:
            self._report(Voided(valid + 1, self.history.have - valid))
            self.history.rollback(valid)
        self._catch_up.clear()
        self._misplaced = None
        standing = ring.membership.version if ring.membership_stands else ring.membership.version - 1
        self._witness = self._witness_of(ring, schedule, Count(schedule, self.config.witnesses, standing))
        self._losses.clear()
        self._gaps.clear()
        self._parities.clear()
        self._askers = Askers(self.config.nack, schedule.members) if self.config.nack is not None else None
        self._expect = self.history.have + 1
        self._on_installed(schedule)
        for slot in tokens:
            self._look_for(slot, "PACKETS", 0, schedule)

    def _witness_of(self, ring: Ring, schedule: Schedule, count: Count) -> Witness:
        """Adopt the times of the ring (rules 6 to 8); return where its claims are counted."""
        pace = ring.pace
        self._has_beats = pace is not None and pace.beat_ns > 0
        if pace is not None:
            self._hold_before_ns, self._ring_hold_ns = self._ring_hold_ns, pace.hold_ns
        hold_ns = self.hold_ns(schedule.time_of(schedule.start_slot))
        if hold_ns != self.config.timing.hold_ns:
            self._report(PaceDiffers(schedule.start_slot, hold_ns, self.config.timing.hold_ns))
        self._follow_changes()
        if pace is not None and self._has_beats:
            of_ring = dict(pace.cutoffs)

            def cutoffs(timestamp_ns: int) -> Mapping[int, int]:
                return self._cutoffs_at(timestamp_ns, of_ring)

            return BeatWitness(schedule, count, cutoffs, self.history.base.slot, self.released)
        return TokenWitness(schedule, count, self.history.base.slot, self.released, self.timing.hear_ns)

    def _follow_changes(self) -> None:
        """Adopt what follows from the times of the ring and from the changes of them (rules 11, W9)."""
        self._followed = self.history.tip.paces
        paces = [change.pace for change in self._changes]
        if self._ring is not None and self._ring.pace is not None:
            paces.append(self._ring.pace)
        self.claims.patience_ns = min(
            (self.config.patience_ns(self.member, pace) for pace in paces),
            default=self.config.patience_ns(self.member, None),
        )

    def _slot_is_valid(self, slot: int, lineage: Lineage) -> bool:
        ordered = self.history.get(slot)
        return ordered is None or ordered.generation in (SETTLED, lineage.generation_of(slot))

    # -- when to step next ----------------------------------------------------------------------------------

    def _next_wake(self, now: int) -> int:
        wake = self._own_wake_ns(now)
        if (lines_ns := self._lines_wake_ns(now)) is not None:
            wake = min(wake, lines_ns)
        self.release_is_next = False
        schedule, witness = self._schedule, self._witness
        if schedule is None or witness is None:
            return max(wake, now + 1)
        if self._learns:
            if self._expect <= self.history.have + MAX_OPEN_SLOTS:
                wake = min(wake, schedule.time_of(self._expect))
            for repair_ns in (self._losses.next_ns, self._gaps.next_ns):
                if repair_ns is not None:
                    wake = min(wake, repair_ns)
            if self.released < min(self.history.have, witness.witnessed):
                release_ns = self._due(self.released + 1).latest_ns
                self.release_is_next = release_ns < wake
                wake = min(wake, release_ns)
        return max(wake, now + 1)

    # -- optional hooks -----------------------------------------------------------------------------------

    def _own_turn(self, now: int) -> None:
        """Send messages that are due by the clock: a member's tokens."""

    def _owns(self, slot: int, schedule: Schedule) -> bool:
        """Return whether it will send the token of `slot` itself, so that it does not request it."""
        return False

    def _skip_own(self, slot: int) -> None:
        """Continue with the first own slot above `slot`."""

    def _refuse(self, refused: RingRefused, now: int) -> None:
        """Report a RING that it must not enter."""
        self._report(refused)

    def _on_witnessed(self, slot: int) -> None:
        """Handle a slot that is witnessed, and ordered here."""

    def _on_resent(self, data: Data) -> None:
        """Handle packets that a source has sent again although they are ordered here."""

    def _on_installed(self, schedule: Schedule) -> None:
        """Handle that the ring of `schedule` is now the current one."""


def token_is_valid(token: Token, lineage: Lineage) -> bool:
    """Return whether the token's generation is the lineage's for its slot (rule 12)."""
    return token.generation == lineage.generation_of(token.slot)


def beat_is_valid(beat: Beat, schedule: Schedule) -> bool:
    """Return whether a beat is of this generation and of one of its members (rule 8)."""
    return beat.generation == schedule.generation and beat.sender in schedule.lives


def _control_first(message: Message) -> bool:
    """Sort key: control before data, with the order within each kept (rule 17)."""
    return type(message) in (Data, Parity)
