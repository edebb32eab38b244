"""A primary receiver: a member of the timed-token ring (MS §2, §4.3, §5; DESIGN rules 1-10, 12-14).

Its states and what it does in each are the tables of `levelcast.ring.member_state`. Its duties lie in modules of their
own: `schedule` (when and whose), `acknowledge` (what a token names), `order` (the one order), `witness` (who has what),
`repair` and `answer` (asking and being asked), `catchup` (frames), `plea` (going to the reformation servers).

One `step` takes a batch of messages and the time, and returns effects in order; `wake_ns` says when to step again
at the latest. Control is handled before data (rule 17).

Deviations from MS:
- Reformation keeps a lineage and promises (rule 12): MS §4.3 starts at t_r,max + 1 and trusts the server alone.
- In pipelined mode a site sends on time whatever it is missing (rule 4): MS §5.1 needs τ >= Δ_A.
- A token's `have` includes its own slot when everything below is held: the token and its packets are in the
  journal before it is sent, so the claim is true, and lockstep needs one slot less to witness.
- A site that is more than R late with a token sends none until there is a new ring: the others have reported it by
  then, and a burst of stale slots would only delay the reformation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from levelcast.protocol.catchup import take_over
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import (
    GROUP,
    SERVERS,
    Checkpoint,
    Effect,
    Forget,
    Persist,
    Promise,
    Release,
    Report,
    Send,
    ServeTape,
)
from levelcast.protocol.history import SETTLED, Frame, History, MembershipChange, Tip
from levelcast.protocol.holdings import Holdings
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.loss import (
    MAX_OPEN_SLOTS,
    LossDetector,
    Want,
    by_holder,
    holders,
)
from levelcast.protocol.retransmit import RetransmitScope, look_up, pack_repairs
from levelcast.ring.acknowledge import runs_for
from levelcast.ring.fault_reports import FaultReports
from levelcast.ring.member_state import DUTIES, State, state_of
from levelcast.ring.schedule import Lineage, Schedule, generation_name, refusal
from levelcast.ring.secondary_claims import SecondaryClaims
from levelcast.ring.witness import Witness, guarantees
from levelcast.timing.nack_sets import Askers
from levelcast.wire.codec import MAX_MARKS
from levelcast.wire.messages import (
    CatchUp,
    Data,
    Fault,
    FaultReason,
    Group,
    GroupToken,
    Invite,
    Join,
    Mark,
    MemberLife,
    Message,
    Promised,
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


def first_tip(config: StripeConfig) -> Tip:
    """The order before the first slot: nothing but the configured set."""
    return Tip(records=[MembershipChange(0, config.membership)])


class Member:
    """One primary receiver, sans I/O."""

    HANDLERS: ClassVar[dict[type, str]] = {
        Token: "_on_token",
        Data: "_on_data",
        Request: "_on_request",
        Repair: "_on_repair",
        CatchUp: "_on_settled",
        Fault: "_on_fault",
        Invite: "_on_invite",
        Ring: "_on_ring",
        GroupToken: "_on_group_token",
        Group: "_on_group",
    }
    LISTENS: ClassVar[frozenset[type]] = frozenset(HANDLERS)
    """The messages it has a use for; a driver need not bring it others."""

    def __init__(self, config: StripeConfig, member: int, journal: JournalImage, tape: Tip, now: int) -> None:
        self.config = config
        self.timing = config.timing
        self.member = member
        self.life = journal.life
        self.promised = journal.promised
        self.entered = 0
        base = tape.copy()
        if journal.checkpoint is not None and journal.checkpoint.slot > base.slot:
            assert journal.checkpoint.chain == base.chain, "the journal's checkpoint is ahead of the tape"
            base.slot = journal.checkpoint.slot
        self.history = History(base)
        self.released = base.slot
        self.late_releases = 0
        self.requests_sent = 0
        self.wake_ns: int | None = now
        self.releases_next = False
        """Whether a release, and nothing else, is due at `wake_ns`."""
        self._held = Holdings()
        self._marks = {source: Mark(source, place.incarnation, place.next - 1) for source, place in base.places.items()}
        self._changed_marks: set[int] = set()
        self._secondaries: dict[int, int] = {}
        self._cover = SecondaryClaims(self.timing, max(1, config.layers - config.layer_of(member)))
        self._ring: Ring | None = None
        self._schedule: Schedule | None = None
        self._witness: Witness | None = None
        self._repairs = LossDetector(self.timing)
        self._askers: Askers | None = None
        self._audience = RetransmitScope(self.timing)
        self._settled: CatchUp | None = None
        self._early: list[Token] = []
        self._expect = 0
        self._next_own = 0
        self._pleas = FaultReports(self.timing, now)
        self._clock_trusted = True
        self._diverged = False
        self._effects: list[Effect] = []
        self._restore(journal)

    # -- what people and drivers look at ------------------------------------------------------------------

    @property
    def have(self) -> int:
        return self.history.have

    @property
    def state(self) -> State:
        return state_of(self.promised, self.entered, self._pleas.outside, self._clock_trusted and not self._diverged)

    @property
    def active(self) -> bool:
        """Takes part in the ring it last promised to, with a clock it can trust (rules 12, 13)."""
        return DUTIES[self.state].sends

    @property
    def _learns(self) -> bool:
        return DUTIES[self.state].learns

    @property
    def witnessed(self) -> int:
        return self._witness.witnessed if self._witness is not None else self.released

    @property
    def upcoming(self) -> Frame | None:
        """The frame that will be released next, once that is certain; a driver may prepare for it."""
        slot = self.released + 1
        if self._witness is None or slot > min(self.history.have, self._witness.witnessed):
            return None
        ordered = self.history.get(slot)
        return ordered.frame if ordered is not None else None

    @property
    def schedule(self) -> Schedule | None:
        """Whose slot is when, in the ring that it is in; None before the first one."""
        return self._schedule

    @property
    def ring_members(self) -> tuple[int, ...]:
        return self._schedule.members if self._schedule is not None else ()

    @property
    def open_repairs(self) -> int:
        return len(self._repairs)

    def complete_upto_ns(self) -> int:
        """The watermark: everything with a timestamp up to this one is released (rule 15)."""
        return self._schedule.time_of(self.released) if self._schedule is not None and self.released else 0

    def note_secondary(self, secondary: int, have: int | None) -> None:
        """A secondary of this primary has `have` (None: it left): tokens claim the group's lowest (rule 11)."""
        if have is None:
            self._secondaries.pop(secondary, None)
        else:
            self._secondaries[secondary] = have

    @property
    def cover(self) -> SecondaryClaims:
        """What the secondaries of this primary have said (rule 11)."""
        return self._cover

    # -- one step -----------------------------------------------------------------------------------------

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        """Take in `batch` at local time `now`; return what to do, in order, and set `wake_ns`."""
        self._effects = []
        self._clock_trusted = clock_trusted
        handlers = self.HANDLERS
        for message in sorted(batch, key=_control_first):
            handler = handlers.get(type(message))
            if handler is not None:
                getattr(self, handler)(message, now)
        self._advance()
        self._send_own_tokens(now)
        self._read_claims()
        self._release(now)
        self._look_for_missing(now)
        self._ask_servers(now)
        self.wake_ns = self._next_wake(now)
        return self._effects

    def _report(self, kind: str, slot: int, detail: str) -> None:
        self._effects.append(Report(kind, slot, detail))

    # -- restart ------------------------------------------------------------------------------------------

    def _restore(self, journal: JournalImage) -> None:
        """Go on from the journal: same promise, same ring, same tokens, nothing said twice (rules 2, 8, 12)."""
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
        own = [slot for generation, slot in journal.tokens if generation == self.entered]
        own = [slot for slot in own if journal.tokens[self.entered, slot].owner == self.member]
        self._skip_own_slots(max(own, default=0))
        for slot in self._held.tokens:
            self._repairs.open(slot, "PACKETS", 0)
        self._advance()  # before an INVITE can ask: a JOIN says all that the journal holds (rule 8)

    # -- the ring: tokens in, order, tokens out -----------------------------------------------------------

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
                self._report("conflict", token.slot, f"two tokens of site {token.owner} for one slot")
            return
        if token.generation == schedule.generation and (
            token.owner != schedule.owner_of(token.slot) or token.timestamp_ns != schedule.time_of(token.slot)
        ):
            self._report("rejected", token.slot, "token does not fit the schedule")
            return
        self._held.tokens[token.slot] = token
        self._effects.append(Persist(token))
        self._repairs.open(token.slot, "PACKETS", max(now, self._ask_ns(token.slot, schedule)))

    def _on_foreign_token(self, token: Token, now: int) -> None:
        """A token that the lineage does not know: void, early, or of a ring without this member."""
        if token.generation == self.promised > self.entered:
            if len(self._early) < MAX_EARLY_TOKENS:
                self._early.append(token)
        elif token.generation > self.promised:
            self._pleas.hear_of_other_ring(now)

    def _on_data(self, data: Data, now: int) -> None:
        source, incarnation, first, last, _ = data
        place = self.history.tip.places.get(source)
        lowest = 1
        if place is not None:
            if (incarnation, first) < place:
                self._note_resent(data)
                if (incarnation, last) < place:
                    return
            if incarnation == place.incarnation:
                lowest = place.next
        highest = lowest + self.config.accept_ahead - 1
        if last > highest:
            self._report("rejected", 0, f"packet {last} of source {source} is beyond its credit")
            if first > highest:
                return
        for new in self._held.add(cut(data, max(first, lowest), min(last, highest))):
            self._effects.append(Persist(new))

    def _note_resent(self, data: Data) -> None:
        """A source that resends what is witnessed has missed the token that said so (MS §2.1): say it again."""
        mark = self._marks.get(data.source)
        if mark is not None and (data.incarnation, data.first) <= (mark.incarnation, mark.number):
            self._changed_marks.add(data.source)

    def _advance(self) -> None:
        """Order every slot whose token and packets are held."""
        if self._settled is not None:
            self._absorb_settled()
        tokens, history, held = self._held.tokens, self.history, self._held
        while (token := tokens.get(history.have + 1)) is not None and held.is_complete(token.runs, history):
            runs = history.sorted_runs(token.runs)
            history.extend(token.slot, token.generation, token.timestamp_ns, runs, held.packets)

    def _send_own_tokens(self, now: int) -> None:
        """Send the tokens of own slots that are due (rules 1, 2, 4)."""
        if not self.active or self._schedule is None:
            return
        schedule = self._schedule
        while schedule.time_of(self._next_own) <= now:
            slot = self._next_own
            if now - schedule.time_of(slot) > self.timing.recovery_ns:
                self._report_fault(FaultReason.TOKEN_MISSING, slot, self.member, now)
                return
            if self.timing.mode == "lockstep" and self.history.have != slot - 1:
                return
            for secondary, have in self._cover.claims(schedule, now):
                self.note_secondary(secondary, have)
            token = self._make_token(slot, schedule)
            self._held.tokens[slot] = token
            self._journal_own_token(token)
            self._effects.append(Send(GROUP, token))
            self._next_own += len(schedule.members)
            self._advance()

    def _make_token(self, slot: int, schedule: Schedule) -> Token:
        runs = runs_for(slot, self.history.have, self.history.tip.places, self._held)
        have = slot if self.history.have == slot - 1 else self.history.have
        marked = sorted(self._changed_marks)[:MAX_MARKS]
        self._changed_marks.difference_update(marked)
        return Token(
            schedule.generation,
            slot,
            schedule.time_of(slot),
            self.member,
            self._groups_have(have),
            self.config.credit,
            runs,
            tuple(self._marks[source] for source in marked),
        )

    def _groups_have(self, have: int) -> int:
        """A token claims the lowest `have` of the primary's group, so that rule 8 covers the tree (rule 11)."""
        return min(have, min(self._secondaries.values(), default=have))

    def _journal_own_token(self, token: Token) -> None:
        """Journaled before it is sent, so that a restart never makes a second one (rule 2)."""
        self._effects.append(Persist(token))

    def _skip_own_slots(self, slot: int) -> None:
        """Go on with the first own slot above `slot`."""
        assert self._schedule is not None
        m = len(self._schedule.members)
        if self._next_own <= slot:
            self._next_own += ((slot - self._next_own) // m + 1) * m

    # -- witness and release (rules 7, 8, 9) --------------------------------------------------------------

    def _read_claims(self) -> None:
        witness = self._witness
        if witness is None or not self._learns:
            return
        before = witness.witnessed
        tokens = self._held.tokens
        while (token := tokens.get(witness.read_upto + 1)) is not None:
            witness.read(token)
        after = witness.advance(self.history.have, self.history.tip.records)
        for slot in range(before + 1, after + 1):
            self._mark_witnessed(slot)
        if after > before:
            self._report("witnessed", after, "")

    def _mark_witnessed(self, slot: int) -> None:
        """Remember for the sources what is witnessed (rule 10)."""
        frame = self.history.at(slot).frame
        if frame is not None:
            for run in frame.runs:
                self._marks[run.source] = Mark(run.source, run.incarnation, run.last)
                self._changed_marks.add(run.source)

    def _release_ns(self, slot: int) -> int:
        """The instant of release: timestamp + Δ_A, or later if the witness is (rule 7)."""
        assert self._witness is not None
        instant = self.history.at(slot).timestamp_ns + self.timing.hold_ns
        return max(instant, self._witness.completing_ns(slot) + self.timing.hear_ns)

    def _release(self, now: int) -> None:
        """Release, in order, what is held, witnessed and due; nothing with a wrong clock (rules 7, 13)."""
        if self._witness is None or not self._learns:
            return
        last = min(self.history.have, self._witness.witnessed)
        while self.released < last:
            slot = self.released + 1
            scheduled_ns = self._release_ns(slot)
            if now < scheduled_ns:
                break
            ordered = self.history.at(slot)
            if ordered.frame is not None:
                late = now > ordered.timestamp_ns + self.timing.hold_ns + self.config.punctual_ns
                self.late_releases += late
                self._effects.append(Release(ordered.frame, scheduled_ns, late))
            self.released = slot
            self._witness.forget(slot)
        settled = self.history.base.slot
        if self.released - settled >= SETTLE_EVERY_SLOTS:
            stable = min(self._witness.stable(), self.released)
            if stable - settled >= SETTLE_EVERY_SLOTS:
                self._settle(stable)

    def _settle(self, slot: int) -> None:
        """What every member has and this one has released may leave the journal (rule 9)."""
        self.history.settle(slot)
        self._held.forget(slot, self.history.base.places)
        self._effects.append(Persist(Checkpoint(slot, self.history.base.chain)))
        self._effects.append(Forget(slot, dict(self.history.base.places)))

    # -- repair (rule 5) ----------------------------------------------------------------------------------

    def _look_for_missing(self, now: int) -> None:
        if self._schedule is None or not self._learns:
            return
        schedule, repairs = self._schedule, self._repairs
        self._expect = max(self._expect, self.history.have + 1)
        limit = self.history.have + MAX_OPEN_SLOTS
        while self._expect <= limit and schedule.time_of(self._expect) + self.timing.late_ns <= now:
            slot = self._expect
            own = slot >= schedule.start_slot and schedule.owner_of(slot) == self.member and slot >= self._next_own
            if slot not in self._held.tokens and not own:
                repairs.open(slot, "TOKEN", max(now, self._ask_ns(slot, schedule)))
            self._expect += 1
        repairs.close_up_to(self.history.have)
        if repairs.next_ns is None or repairs.next_ns > now:
            return
        wants, faults = repairs.due(now, self.history.have, self._missing_of, schedule.start_slot)
        self._send_requests(wants)
        self._report_unanswered(faults, schedule, now)

    def _ask_ns(self, slot: int, schedule: Schedule) -> int:
        """From when on it asks for what it misses of `slot`: δ_N, and its set's turn (rule 5, MS §5.2)."""
        at_ns = schedule.time_of(slot) + self.timing.late_ns
        if self._askers is not None and slot >= schedule.start_slot:
            at_ns += self._askers.set_of(self._asks_as, schedule.owner_of(slot)) * self.timing.request_ns
        return at_ns

    @property
    def _asks_as(self) -> int | None:
        """The member whose set it asks with."""
        return self.member

    def _report_unanswered(self, faults: list[tuple[int, int]], schedule: Schedule, now: int) -> None:
        """k_r requests brought nothing: the ring is broken (rule 5)."""
        for slot, reason in faults if self.active else ():
            suspect = schedule.owner_of(slot) if slot >= schedule.start_slot else schedule.helper
            self._report_fault(reason, slot, suspect, now)

    def _missing_of(self, slot: int) -> tuple[Run, ...] | None:
        token = self._held.tokens.get(slot)
        return None if token is None else self._held.missing(token.runs, self.history)

    def _send_requests(self, wants: list[Want]) -> None:
        for holder, slots, runs in by_holder(wants, self._holder_of):
            self.requests_sent += 1
            self._effects.append(Send(holder, Request(self.member, self.entered, self.history.have, slots, runs)))

    def _holder_of(self, want: Want) -> int | None:
        """The best holder first, another one with each attempt."""
        schedule, witness = self._schedule, self._witness
        assert schedule is not None
        assert witness is not None
        near = self.config.nearness.get(self.member, schedule.members)
        claims = [(member, witness.claim_of(member) >= want.slot) for member in near if member in schedule.lives]
        site = schedule.owner_of(want.slot) if want.slot >= schedule.start_slot else schedule.helper
        candidates = holders(site, claims, self.member)
        return candidates[want.attempt % len(candidates)] if candidates else None

    def _on_request(self, request: Request, now: int) -> None:
        """Serve tokens and packets; what has left the journal is served from the tape (rules 5, 9)."""
        oldest_slot = self._schedule.lineage.eras[0].start_slot if self._schedule is not None else 0
        found = look_up(request, self._held, self.history.base, self.released, oldest_slot)
        if request.generation < self.entered and self._ring is not None:
            self._effects.append(Send(request.sender, self._ring))
        if found.from_tape and self._may_have_frames(request) and request.have < self.released:
            self._effects.append(ServeTape(request.sender, request.have, self.released))
        others_wait = self._others_wait(request, now)
        for_one, for_all = self._audience.split(found.items, request.sender, now, others_wait=others_wait)
        self._effects.extend(Send(request.sender, repair) for repair in pack_repairs(self.member, for_one))
        repairs = list(pack_repairs(self.member, for_all))
        self._effects.extend(Send(to, repair) for to in self._everybody_served() for repair in repairs)

    def _everybody_served(self) -> tuple[int, ...]:
        """Where a repair goes that several have asked for."""
        return (GROUP,)

    def _others_wait(self, request: Request, now: int) -> bool:
        """Whether others may wait for what a member asks for (MS §5.2): not if that is long past."""
        schedule = self._schedule
        if self._askers is None or schedule is None or request.sender not in schedule.lives:
            return False
        return now <= schedule.time_of(request.have + 1) + self.timing.recovery_ns

    def _may_have_frames(self, request: Request) -> bool:
        """Frames go only to members of the same generation (rule 9).

        They are what this lineage released; one that still holds tokens of an older generation would put those
        behind them. It is told of the ring instead.
        """
        return request.generation == self.entered

    def _on_repair(self, repair: Repair, now: int) -> None:
        for item in repair.items:
            if isinstance(item, Token):
                self._on_token(item, now)
        for data in join(item for item in repair.items if isinstance(item, Data)):
            self._on_data(data, now)

    # -- catching up by frames (rule 9) -------------------------------------------------------------------

    def _on_settled(self, settled: CatchUp, now: int) -> None:
        if self._learns and settled.after_slot == self.history.have and settled.upto_slot > settled.after_slot:
            self._settled = settled

    def _absorb_settled(self) -> None:
        """Take over released slots from another member's tape, checked by the hash chain."""
        settled = self._settled
        assert settled is not None
        history = self.history
        if settled.after_slot != history.have or not self._learns:
            self._settled = None
            return
        for line in settled.slots:
            if self._held.missing(line.runs, history):
                return
        self._settled = None
        if not take_over(settled, history, self._held):
            self._report("diverged", settled.upto_slot, f"frames of {settled.sender} do not fit the tape here")
            return
        self._release_settled(settled)

    def _release_settled(self, settled: CatchUp) -> None:
        """Settled slots are witnessed: release what was not released yet, and never look back."""
        assert self._schedule is not None
        assert self._witness is not None
        self._witness.skip_to(settled.upto_slot)
        for slot in range(self.released + 1, settled.upto_slot + 1):
            ordered = self.history.get(slot)
            if ordered is not None and ordered.frame is not None:
                self._mark_witnessed(slot)
                self.late_releases += 1
                scheduled_ns = ordered.timestamp_ns + self.timing.hold_ns
                self._effects.append(Release(ordered.frame, scheduled_ns, True))
        self.released = settled.upto_slot
        self._skip_own_slots(settled.upto_slot)
        self._report("caught-up", settled.upto_slot, f"by frames from {settled.sender}")
        self._settle(settled.upto_slot)

    # -- the secondaries of this primary (rule 11) --------------------------------------------------------

    def _on_group_token(self, token: GroupToken, now: int) -> None:
        """A secondary of this primary says what it has, and hears of the ring or the group that it has missed."""
        if token.generation < self.entered and self._ring is not None:
            self._effects.append(Send(token.sender, self._ring))
        outdated = self._cover.hear(token)
        if outdated is not None:
            self._effects.append(Send(token.sender, outdated))

    def _on_group(self, group: Group, now: int) -> None:
        for gone in self._cover.take(group) if group.primary == self.member else ():
            self.note_secondary(gone, None)

    # -- promises and rings (rules 12, 13) ----------------------------------------------------------------

    def _on_invite(self, invite: Invite, now: int) -> None:
        if not DUTIES[self.state].answers:
            return  # a ring with a member that cannot send on time would fail again at once
        if invite.generation < self.promised:
            self._effects.append(Send(invite.server, Promised(self.member, self.promised)))
            return
        if invite.generation > self.promised:
            self.promised = invite.generation
            self._journal_promise()
            self._early.clear()
            self._pleas.promised(now)
            self._report("promised", self.history.have, f"generation {generation_name(invite.generation)}")
        if self.entered < invite.generation:
            self._effects.append(Send(invite.server, self._join(now)))

    def _journal_promise(self) -> None:
        """Journaled before the JOIN that makes it (rule 12)."""
        self._effects.append(Persist(Promise(self.promised)))

    def _join(self, now: int) -> Join:
        """What this member holds, in the words of its lineage (rule 12)."""
        records = self.history.tip.records
        return Join(
            self.promised,
            self.member,
            self.life,
            self._caught_up_generation(),
            self._own_have(),
            self._settled_slot(),
            now,
            self._schedule.lineage.eras if self._schedule is not None else (),
            records[-2].membership if len(records) > 1 else None,
            records[-1].membership,
            records[-1].slot <= self.witnessed,
        )

    def _settled_slot(self) -> int:
        """What tape and checkpoint alone vouch for; a lineage must tell valid tokens from void ones above (rule 12).

        Not the released slot: empty slots leave no frame, and a restart begins at the last frame or checkpoint.
        """
        return self.history.base.slot

    def _caught_up_generation(self) -> int:
        """A JOIN names a generation only once the member has caught up to its start (rule 12)."""
        return self._schedule.lineage.caught_up(self.history.have) if self._schedule is not None else 0

    def _own_have(self) -> int:
        """A JOIN carries the primary's own have, not its group's (rule 11)."""
        return self.history.have

    def _on_ring(self, ring: Ring, now: int) -> None:
        if ring.generation < self.promised or ring.generation <= self.entered:
            return
        if ring.generation > self.promised or not self._is_member_of(ring):
            self._pleas.hear_of_other_ring(now)
            return
        why_not = refusal(ring, now, self.timing)
        if why_not is not None:
            self._report("refused", ring.lineage[-1].start_slot, why_not)
            self._report_fault(FaultReason.REFUSED, ring.lineage[-1].start_slot, ring.server, now)
            return
        self._enter(ring, now)

    def _enter(self, ring: Ring, now: int) -> None:
        """Go on in `ring`, which nothing speaks against."""
        self._read_claims()
        start_slot = ring.lineage[-1].start_slot
        if not guarantees(self.config.witnesses, len(ring.membership.members)):
            if start_slot <= self.released:
                self._diverged = True
                self._report("diverged", start_slot, "the ring has voided what this receiver released")
                return
        else:
            assert start_slot > self.witnessed, "a witnessed slot would be voided"
        self._settle_below(ring.lineage[0].start_slot)
        self._journal_ring(ring)
        before = self._witness
        self._install(ring)
        if before is not None and self._witness is not None:
            self._witness.inherit(before)
        self._report(
            "entered",
            self._start_slot,
            f"generation {generation_name(ring.generation)}, members {', '.join(str(m.member) for m in ring.members)}",
        )
        early, self._early = self._early, []
        for token in early:
            self._on_token(token, now)

    def _settle_below(self, slot: int) -> None:
        """A checkpoint of what is released and older than the lineage that is going to be journaled (rules 9, 12).

        A lineage is cut at what the members of its rings have settled, and one who was not among them may have less.
        After a restart it would take its own tokens from before the cut for void, and join with less than it claimed.
        """
        last = min(slot - 1, self.released)
        if last > self.history.base.slot:
            self._settle(last)

    def _journal_ring(self, ring: Ring) -> None:
        """Journaled before anything is said in it (rule 12)."""
        self._effects.append(Persist(ring))

    @property
    def _start_slot(self) -> int:
        return self._schedule.start_slot if self._schedule is not None else 0

    def _is_member_of(self, ring: Ring) -> bool:
        """A RING names members with their lives: a member that lost its disk is not in its old ring (rule 12)."""
        return MemberLife(self.member, self.life) in ring.members

    def _install(self, ring: Ring) -> None:
        """Make `ring` the current one: void what its lineage does not know, count from nothing (rules 8, 12)."""
        schedule = Schedule(ring, self.timing.slot_ns)
        self._schedule = schedule
        self._ring = ring
        self._pleas.outside = False
        self.entered = ring.generation
        tokens = self._held.tokens
        for slot in [slot for slot, token in tokens.items() if not token_is_valid(token, schedule.lineage)]:
            if slot > self.released:
                del tokens[slot]
        valid = self.released  # what is released is witnessed, and a lineage need not go back that far
        while valid < self.history.have and self._slot_is_valid(valid + 1, schedule.lineage):
            valid += 1
        if valid < self.history.have:
            self._report("voided", valid + 1, f"{self.history.have - valid} slots from {valid + 1}")
            self.history.rollback(valid)
        self._settled = None
        standing = ring.membership.version if ring.membership_stands else ring.membership.version - 1
        self._witness = Witness(schedule, self.config.witnesses, self.history.base.slot, self.released, standing)
        self._repairs.clear()
        self._askers = Askers(self.config.nack, schedule.members) if self.config.nack is not None else None
        self._expect = self.history.have + 1
        self._next_own = self._first_own_slot(schedule)
        self._skip_own_slots(self.history.have)
        for slot in tokens:
            self._repairs.open(slot, "PACKETS", self._ask_ns(slot, schedule))

    def _first_own_slot(self, schedule: Schedule) -> int:
        return schedule.first_own_slot(self.member)

    def _slot_is_valid(self, slot: int, lineage: Lineage) -> bool:
        ordered = self.history.get(slot)
        return ordered is None or ordered.generation in (SETTLED, lineage.generation_of(slot))

    # -- talking to the reformation servers (MS §4.3) -----------------------------------------------------

    def _report_fault(self, reason: int, slot: int, suspect: int, now: int) -> None:
        if not self._pleas.may_report(now):
            return
        fault = Fault(self.member, self.life, self.entered, self.promised, reason, slot, suspect)
        # Who asks to be let in is heard by the members too: one of them may have to vouch for it.
        asks = reason in (FaultReason.OUTSIDE, FaultReason.STUCK)
        self._effects.append(Send(GROUP if asks else SERVERS, fault))
        self._report("fault", slot, f"{FaultReason.NAMES[reason]}, suspect {suspect}")

    def _on_fault(self, fault: Fault, now: int) -> None:
        """Vouch for a life that is configured and not in the ring: a server that was away may not know it."""
        life = MemberLife(fault.reporter, fault.life)
        if (
            self.active
            and self._ring is not None
            and life in self.history.tip.records[-1].membership.members
            and life not in self._ring.members
        ):
            self._report_fault(FaultReason.MEMBERSHIP, self.history.have, fault.reporter, now)

    def _ask_servers(self, now: int) -> None:
        """Report what no missing token shows: a promise without its ring, no ring at all, a changed set."""
        pleas, reason = self._pleas, DUTIES[self.state].pleads
        if reason is None:
            pleas.stay_silent(now)
        elif reason == FaultReason.STUCK:
            if pleas.is_stuck(now):
                self._report_fault(reason, self.history.have, 0, now)
        elif pleas.asks(now) and (reason == FaultReason.OUTSIDE or self._membership_changed()):
            self._report_fault(reason, self.history.have, 0, now)

    def _membership_changed(self) -> bool:
        """Whether this ring was formed under an older set, or still has members that the new set left out."""
        record = self.history.tip.records[-1]
        if self._ring is None or record.membership.version > self._ring.membership.version:
            return True
        if record.slot > self.witnessed:
            return False
        return any(life not in record.membership.members for life in self._ring.members)

    # -- when to step next --------------------------------------------------------------------------------

    def _next_wake(self, now: int) -> int:
        wake = self._plea_ns()
        self.releases_next = False
        schedule, witness = self._schedule, self._witness
        if schedule is None or witness is None:
            return max(wake, now + 1)
        if self.active and (own_ns := schedule.time_of(self._next_own)) > now:
            wake = min(wake, own_ns)
        if self._learns:
            if self._expect <= self.history.have + MAX_OPEN_SLOTS:
                wake = min(wake, schedule.time_of(self._expect) + self.timing.late_ns)
            if self._repairs.next_ns is not None:
                wake = min(wake, self._repairs.next_ns)
            if self.released < min(self.history.have, witness.witnessed):
                release_ns = self._release_ns(self.released + 1)
                self.releases_next = release_ns < wake
                wake = min(wake, release_ns)
        return max(wake, now + 1)

    def _plea_ns(self) -> int:
        """When it goes to the servers next."""
        return self._pleas.stuck_ns if self.state == "PROMISED" else self._pleas.ask_ns


def token_is_valid(token: Token, lineage: Lineage) -> bool:
    """A token is valid only if its generation is the lineage's for its slot (rule 12)."""
    return token.generation == lineage.generation_of(token.slot)


def _control_first(message: Message) -> bool:
    """Sorts control before data and keeps the order within each (rule 17)."""
    return type(message) is Data
