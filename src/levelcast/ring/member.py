"""A primary receiver: a member of the timed-token ring (MS §2, §4.3, §5; DESIGN rules 1, 2, 4, 10, 12).

A `Member` is a `Listener` that also sends tokens, makes promises and reports faults. The tables of `ring.member_state`
define its states and duties. `acknowledge` computes the runs of a token, and `fault_reports` schedules messages to the
reformation servers.

Deviations from MS:
- Reformation keeps a lineage and promises (rule 12): MS §4.3 starts at t_r,max + 1 and trusts the server alone.
- In pipelined mode a slot owner sends on time whatever it is missing (rule 4): MS §5.1 needs τ >= Δ_A.
- A token's `have` includes its own slot when everything below is held. The token and its packets are in the journal
  before it is sent, so the claim is true, and lockstep needs one slot less to witness.
- A member may announce a planned stop. It answers no invitation from then on, sends its tokens until it receives a RING
  or token of the ring without it, and is then done. A restart finds it outside that ring, without a promise.
- A slot owner that is more than R late with a token sends none until the next ring: the others have reported it by
  then, and a burst of stale slots would only delay the reformation. It reports itself, but after a start it first
  listens for τ_r: if the ring has continued without it, it asks to join instead.
"""

from __future__ import annotations

from typing import ClassVar

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, SERVERS, Persist, Promise, Send
from levelcast.protocol.events import Diverged, FaultReported, LeaveAnnounced, PromiseMade, RingRefused
from levelcast.protocol.history import Tip
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.loss import Want
from levelcast.protocol.seals import NodeSeals
from levelcast.ring.acknowledge import runs_for
from levelcast.ring.beat_witness import OwnBeats
from levelcast.ring.copies import TokenCopies
from levelcast.ring.fault_reports import FaultReports
from levelcast.ring.listener import MAX_EARLY_TOKENS, Listener
from levelcast.ring.member_state import DUTIES, State, state_of
from levelcast.ring.schedule import Schedule, refusal
from levelcast.ring.status import MemberStatus
from levelcast.wire.messages import (
    Beat,
    Data,
    Fault,
    FaultReason,
    Invite,
    Join,
    Mark,
    MemberLife,
    Promised,
    Ring,
    Token,
)
from levelcast.wire.token_codec import MAX_MARKS

JOIN_REQUESTS = (FaultReason.OUTSIDE, FaultReason.STUCK)


class Member(Listener):
    """One primary receiver, sans I/O."""

    HANDLERS: ClassVar[dict[type, str]] = {**Listener.HANDLERS, Fault: "_on_fault", Invite: "_on_invite"}
    LISTENS: ClassVar[frozenset[type]] = frozenset(HANDLERS)
    """The kinds of messages that it handles; a driver need not deliver others."""

    def __init__(
        self,
        config: StripeConfig,
        member: int,
        journal: JournalImage,
        tape: Tip,
        now: int,
        seals: NodeSeals | None = None,
    ) -> None:
        super().__init__(config, member, journal, tape, now, seals)
        self.promised = journal.promised
        places = self.history.base.places
        self._marks = {source: Mark(source, place.incarnation, place.next - 1) for source, place in places.items()}
        self._changed_marks: set[int] = set()
        self._next_own = 0
        self._beats = OwnBeats()
        self._beats_sent = 0
        self._own_clock: tuple[int | None, int | None] = (None, None)
        self._copies = TokenCopies(config, member)
        self._reports = FaultReports(self.timing, now)
        self._leaving = False
        self._listen_until_ns = now + self.timing.request_ns
        self._restore(journal)
        if self._schedule is not None and self._has_beats:
            # It does not know its claims of before the restart, and may have sent the beat that is due.
            self._beats = OwnBeats(last=max(0, self._schedule.tick_at(now)))
        own = (key for key, token in journal.tokens.items() if token.owner == member)
        self._skip_own(max((slot for generation, slot in own if generation == self.generation), default=0))

    @property
    def state(self) -> State:
        return state_of(self.promised, self.generation, self._reports.outside, self._trusted)

    @property
    def active(self) -> bool:
        """Sends in the ring that it last promised to, with a trusted clock (rules 12, 13)."""
        return DUTIES[self.state].sends

    @property
    def _learns(self) -> bool:
        return DUTIES[self.state].learns

    def learn_clock(self, error_us: int | None, offset_us: int | None) -> None:
        self._own_clock = error_us, offset_us

    def leave(self) -> None:
        """Announce a planned stop to the servers from the next step on."""
        self._leaving = True

    @property
    def has_left(self) -> bool:
        """Return whether it is in no ring and has no line, or cannot help: its clock is not trusted."""
        return self._leaving and ((self._reports.outside and not self._has_lines) or self.state == "SILENT")

    def status(self, now: int) -> MemberStatus:
        """Return its state at `now`, and the secondaries that it covers."""
        group = self.claims.group
        return MemberStatus(
            listener=self.listener_status(now),
            state=self.state,
            group_number=group.number if group is not None else 0,
            secondaries=self.claims.status(self._schedule, now),
        )

    # -- own tokens (rules 1, 2, 4) -------------------------------------------------------------------------

    def _own_turn(self, now: int) -> None:
        self._send_tokens(now)
        self._claim(now)

    def _send_tokens(self, now: int) -> None:
        """Send the tokens of own slots that are due (rules 1, 2, 4)."""
        if not self.active or self._schedule is None:
            return
        schedule = self._schedule
        while schedule.time_of(self._next_own) <= now:
            slot = self._next_own
            if now - schedule.time_of(slot) > self.timing.recovery_ns:
                if now >= self._listen_until_ns and self.state == "ACTIVE":
                    self._report_fault(FaultReason.TOKEN_MISSING, slot, self.member, now)
                return
            if self.timing.mode == "lockstep" and self.history.have != slot - 1:
                return
            token = self._make_token(slot, schedule, now)
            self._held.tokens[slot] = token
            self._journal_own_token(token)
            self._effects.append(Send(GROUP, token))
            if self._has_beats:
                self._copies.sent(token)
                next_beat = schedule.next_beat(self.member, token.timestamp_ns, self._beat_ns(now))
                self._beats.claim_in_token(next_beat, token.have)
            self._next_own += len(schedule.members)
            self._advance()

    # -- beats (rule 8) -------------------------------------------------------------------------------------

    def _claim(self, now: int) -> None:
        """State `have` in the last beat that is due; a beat that was missed is not made up for.

        The first beat after an own token is followed by a second copy of that token (TT §4.3), and the next ones by
        further copies for those that get them (W11).
        """
        schedule, witness = self._schedule, self._witness
        if not self._has_beats or not self._may_claim() or schedule is None or witness is None:
            return
        tick = schedule.last_beat(self.member, now, self._beat_ns(now))
        if tick > self._beats.last:
            have = self.claims.lowest(self._own_have(), schedule, now)
            self._beats_sent += 1
            claims = self._beats.say(tick, have)
            beat = Beat(self.member, schedule.generation, claims, self._beats_sent, now, *self._own_clock)
            self._effects.append(Send(GROUP, beat))
            witness.hear(beat)
            self._effects.extend(self._copies.after_beat(beat, schedule.tick_time(tick)))

    def _may_claim(self) -> bool:
        """Return whether it may claim: never after a promise, because its JOIN states what it has (rule 12)."""
        return self.active

    def _make_token(self, slot: int, schedule: Schedule, now: int) -> Token:
        runs = runs_for(slot, self.history.have, self.history.tip.places, self._held, self.config.sources)
        have = slot if self.history.have == slot - 1 else self.history.have
        marked = sorted(self._changed_marks)[:MAX_MARKS]
        self._changed_marks.difference_update(marked)
        token = Token(
            schedule.generation,
            slot,
            schedule.time_of(slot),
            self.member,
            self.claims.lowest(have, schedule, now),
            self.config.credit,
            runs,
            tuple(self._marks[source] for source in marked),
        )
        return self._seals.author(token, now)

    def _journal_own_token(self, token: Token) -> None:
        """Journal the token before it is sent, so that a restart never creates a second one (rule 2)."""
        self._effects.append(Persist(token))

    def _owns(self, slot: int, schedule: Schedule) -> bool:
        own = slot >= schedule.start_slot and schedule.owner_of(slot) == self.member
        return own and slot >= self._next_own

    def _skip_own(self, slot: int) -> None:
        if self._schedule is not None and self._next_own <= slot:
            m = len(self._schedule.members)
            self._next_own += ((slot - self._next_own) // m + 1) * m

    def _on_installed(self, schedule: Schedule) -> None:
        self._reports.outside = False
        self._beats = OwnBeats(max(0, schedule.start_slot - 2))
        self._copies.clear()
        self._next_own = schedule.first_own_slot(self.member)
        self._skip_own(self.history.have)

    def _on_foreign_token(self, token: Token, now: int) -> None:
        """Handle a token that the lineage does not contain: void, early, or of a ring without this member."""
        if token.generation == self.promised > self.generation:
            if len(self._early) < MAX_EARLY_TOKENS:
                self._early.append(token)
        elif token.generation > self.promised:
            self._reports.hear_of_other_ring(now)
            if self._duty is not None:
                self._duty.lose(token.generation, (), now)
                self._duty.hear_token(token.generation, token.owner)

    # -- marks for the sources (rule 10) --------------------------------------------------------------------

    def _on_witnessed(self, slot: int) -> None:
        """Update the marks of the sources with witnessed packets (rule 10)."""
        frame = self.history.at(slot).frame
        if frame is not None:
            for run in frame.runs:
                self._marks[run.source] = Mark(run.source, run.incarnation, run.last)
                self._changed_marks.add(run.source)

    def _on_resent(self, data: Data) -> None:
        """Mark witnessed packets again if their source resends them: it has missed that token (MS §2.1)."""
        mark = self._marks.get(data.source)
        if mark is not None and (data.incarnation, data.first) <= (mark.incarnation, mark.number):
            self._changed_marks.add(data.source)

    # -- requests (rule 5) ----------------------------------------------------------------------------------

    def _holders_of(self, want: Want) -> list[int]:
        schedule, witness = self._schedule, self._witness
        assert schedule is not None
        assert witness is not None
        claims = ((member, witness.claim_of(member) >= want.slot) for member in self._nearest(schedule))
        site = schedule.owner_of(want.slot) if want.slot >= schedule.start_slot else schedule.helper
        return self._plan.ask(site, claims, want.attempt)

    def _helpers(self, attempt: int) -> list[int]:
        assert self._schedule is not None
        return self._plan.ask(None, ((member, False) for member in self._nearest(self._schedule)), attempt)

    def _asks_as(self) -> int | None:
        return self.member

    def _on_unanswered(self, faults: list[tuple[int, int]], schedule: Schedule, now: int) -> None:
        """Report a broken ring after k_r requests without a reply (rule 5)."""
        for slot, reason in faults if self.state == "ACTIVE" else ():
            if self._misplaced is not None and slot == self._misplaced.slot:
                if slot < schedule.start_slot:  # the ring has ordered this slot: the order here differs
                    self._diverged = True
                    self._report(Diverged(slot, schedule.helper))
                    return
                reason = FaultReason.CONTRADICTION
            suspect = schedule.owner_of(slot) if slot >= schedule.start_slot else schedule.helper
            self._report_fault(reason, slot, suspect, now)

    # -- promises and rings (rules 12, 13) ------------------------------------------------------------------

    def _on_invite(self, invite: Invite, now: int) -> None:
        if not DUTIES[self.state].answers or self._leaving:
            return  # a ring with a member that cannot send on time, or stops, would fail again immediately
        if invite.generation < self.promised:
            self._effects.append(Send(invite.server, Promised(self.member, self.promised)))
            return
        if invite.generation > self.promised:
            self.promised = invite.generation
            self._journal_promise()
            self._early.clear()
            self._reports.promised(now)
            self._report(PromiseMade(self.history.have, invite.generation))
        if self.generation < invite.generation:
            self._effects.append(Send(invite.server, self._join(now)))

    def _journal_promise(self) -> None:
        """Journal the promise before the JOIN that makes it (rule 12)."""
        self._effects.append(Persist(Promise(self.promised)))

    def _join(self, now: int) -> Join:
        """Return the JOIN that states what this member holds, with its lineage (rule 12)."""
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
        """Return the slot to which tape and checkpoint suffice; above it the lineage identifies void tokens (rule 12).

        This is not the released slot: empty slots leave no frame, and a restart begins at the last frame or checkpoint.
        """
        return self.history.base.slot

    def _caught_up_generation(self) -> int:
        """Return the generation for a JOIN: the last one to the start of which it has caught up (rule 12)."""
        return self._schedule.lineage.caught_up(self.history.have) if self._schedule is not None else 0

    def _own_have(self) -> int:
        """Return the `have` for a JOIN: the primary's own, not that of its group (rule 11)."""
        return self.history.have

    def _on_ring(self, ring: Ring, now: int) -> None:
        if ring.generation < self.promised or ring.generation <= self.generation:
            return
        if ring.generation > self.promised or not self._is_member_of(ring):
            self._reports.hear_of_other_ring(now)
            if self._duty is not None:
                self._duty.lose(ring.generation, ring.edges, now)
            return
        refused = refusal(ring, now, self.timing)
        if refused is not None:
            self._refuse(refused, now)
            return
        self._enter(ring, now)

    def _refuse(self, refused: RingRefused, now: int) -> None:
        super()._refuse(refused, now)
        self._report_fault(FaultReason.REFUSED, refused.slot, refused.server, now)

    def _is_member_of(self, ring: Ring) -> bool:
        """Return whether the RING contains this member with its life: after a disk loss it does not (rule 12)."""
        return MemberLife(self.member, self.life) in ring.members

    # -- reports to the reformation servers (MS §4.3) -------------------------------------------------------

    def _report_fault(self, reason: int, slot: int, suspect: int, now: int) -> None:
        if not self._reports.may_report(now):
            return
        fault = Fault(self.member, self.life, self.generation, self.promised, reason, slot, suspect)
        # Join requests go to the members too: one of them may have to vouch for the sender.
        self._effects.append(Send(GROUP if reason in JOIN_REQUESTS else SERVERS, fault))
        self._report(FaultReported(slot, reason, suspect))

    def _on_fault(self, fault: Fault, now: int) -> None:
        """Vouch for a life that asks to join, is configured and not in the ring: a server may not know it."""
        life = MemberLife(fault.reporter, fault.life)
        if (
            fault.reason in JOIN_REQUESTS
            and self.active
            and self._ring is not None
            and life in self.history.tip.records[-1].membership.members
            and life not in self._ring.members
        ):
            self._report_fault(FaultReason.MEMBERSHIP, self.history.have, fault.reporter, now)

    def _servers_turn(self, now: int) -> None:
        """Report faults that no missing token shows: a promise without its RING, no ring, a changed set."""
        reports, reason = self._reports, DUTIES[self.state].pleads
        if self._leaving:
            self._announce_leave(now)
        elif reason is None:
            reports.stay_silent(now)
        elif reason == FaultReason.STUCK:
            if reports.is_stuck(now):
                self._report_fault(reason, self.history.have, 0, now)
        elif reports.asks(now) and (reason == FaultReason.OUTSIDE or self._membership_changed()):
            self._report_fault(reason, self.history.have, 0, now)

    def _announce_leave(self, now: int) -> None:
        """Ask for a ring without this member, until there is one."""
        if self.has_left or not self._reports.may_report(now):
            return
        have = self.history.have
        fault = Fault(self.member, self.life, self.generation, self.promised, FaultReason.LEAVING, have, self.member)
        self._effects.append(Send(SERVERS, fault))
        self._report(LeaveAnnounced(have))

    def _membership_changed(self) -> bool:
        """Return whether this ring was formed under an older set, or has members that the new set omits."""
        record = self.history.tip.records[-1]
        if self._ring is None or record.membership.version > self._ring.membership.version:
            return True
        if record.slot > self.witnessed:
            return False
        return any(life not in record.membership.members for life in self._ring.members)

    def _own_wake_ns(self, now: int) -> int:
        """Return the time of its next token or of its next message to the servers."""
        wake = self._reports.stuck_ns if self.state == "PROMISED" else self._reports.ask_ns
        if self._leaving:
            wake = now + self.timing.request_ns if self.has_left else self._reports.report_ns
        schedule = self._schedule
        if schedule is not None and self.active:
            own_ns = schedule.time_of(self._next_own)
            if own_ns <= now:
                own_ns = self._listen_until_ns
            if own_ns > now:
                wake = min(wake, own_ns)
            if self._has_beats:
                next_beat = schedule.next_beat(self.member, now, self._beat_ns(now))
                wake = min(wake, schedule.tick_time(next_beat))
        return wake
