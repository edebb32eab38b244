"""A primary receiver: a member of the timed-token ring (MS §2, §4.3, §5; DESIGN rules 1, 2, 4, 10, 12).

A `Member` is a `Listener` that also sends tokens, makes promises and reports faults. Its states and what it does in
each are the tables of `ring.member_state`; `acknowledge` says what a token names, `fault_reports` when it goes
to the reformation servers.

Deviations from MS:
- Reformation keeps a lineage and promises (rule 12): MS §4.3 starts at t_r,max + 1 and trusts the server alone.
- In pipelined mode a site sends on time whatever it is missing (rule 4): MS §5.1 needs τ >= Δ_A.
- A token's `have` includes its own slot when everything below is held: the token and its packets are in the
  journal before it is sent, so the claim is true, and lockstep needs one slot less to witness.
- A site that is more than R late with a token sends none until there is a new ring: the others have reported it by
  then, and a burst of stale slots would only delay the reformation.
"""

from __future__ import annotations

from typing import ClassVar

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, SERVERS, Persist, Promise, Send
from levelcast.protocol.events import Diverged, FaultReported, PromiseMade, RingRefused
from levelcast.protocol.history import Tip
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.loss import Want, holders
from levelcast.ring.acknowledge import runs_for
from levelcast.ring.fault_reports import FaultReports
from levelcast.ring.listener import MAX_EARLY_TOKENS, Listener
from levelcast.ring.member_state import DUTIES, State, state_of
from levelcast.ring.schedule import Schedule, refusal
from levelcast.ring.status import MemberStatus
from levelcast.wire.codec import seal_message
from levelcast.wire.messages import Data, Fault, FaultReason, Invite, Join, Mark, MemberLife, Promised, Ring, Token
from levelcast.wire.token_codec import MAX_MARKS


class Member(Listener):
    """One primary receiver, sans I/O."""

    HANDLERS: ClassVar[dict[type, str]] = {**Listener.HANDLERS, Fault: "_on_fault", Invite: "_on_invite"}
    LISTENS: ClassVar[frozenset[type]] = frozenset(HANDLERS)
    """The messages it has a use for; a driver need not bring it others."""

    def __init__(self, config: StripeConfig, member: int, journal: JournalImage, tape: Tip, now: int) -> None:
        super().__init__(config, member, journal, tape, now)
        self.promised = journal.promised
        places = self.history.base.places
        self._marks = {source: Mark(source, place.incarnation, place.next - 1) for source, place in places.items()}
        self._changed_marks: set[int] = set()
        self._next_own = 0
        self._reports = FaultReports(self.timing, now)
        self._restore(journal)
        own = (key for key, token in journal.tokens.items() if token.owner == member)
        self._skip_own(max((slot for generation, slot in own if generation == self.generation), default=0))

    @property
    def state(self) -> State:
        return state_of(self.promised, self.generation, self._reports.outside, self._trusted)

    @property
    def active(self) -> bool:
        """Takes part in the ring it last promised to, with a clock it can trust (rules 12, 13)."""
        return DUTIES[self.state].sends

    @property
    def _learns(self) -> bool:
        return DUTIES[self.state].learns

    def status(self, now: int) -> MemberStatus:
        """Return what it does at `now`, and which secondaries it covers."""
        group = self.claims.group
        return MemberStatus(
            listener=self.listener_status(now),
            state=self.state,
            group_number=group.number if group is not None else 0,
            secondaries=self.claims.status(self._schedule, now),
        )

    # -- own tokens (rules 1, 2, 4) -------------------------------------------------------------------------

    def _own_turn(self, now: int) -> None:
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
            token = self._make_token(slot, schedule, now)
            self._held.tokens[slot] = token
            self._journal_own_token(token)
            self._effects.append(Send(GROUP, token))
            self._next_own += len(schedule.members)
            self._advance()

    def _make_token(self, slot: int, schedule: Schedule, now: int) -> Token:
        runs = runs_for(slot, self.history.have, self.history.tip.places, self._held)
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
        return seal_message(token, self.config.stripe)

    def _journal_own_token(self, token: Token) -> None:
        """Journaled before it is sent, so that a restart never makes a second one (rule 2)."""
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
        self._next_own = schedule.first_own_slot(self.member)
        self._skip_own(self.history.have)

    def _on_foreign_token(self, token: Token, now: int) -> None:
        """A token that the lineage does not know: void, early, or of a ring without this member."""
        if token.generation == self.promised > self.generation:
            if len(self._early) < MAX_EARLY_TOKENS:
                self._early.append(token)
        elif token.generation > self.promised:
            self._reports.hear_of_other_ring(now)

    # -- marks for the sources (rule 10) --------------------------------------------------------------------

    def _on_witnessed(self, slot: int) -> None:
        """Remember for the sources what is witnessed (rule 10)."""
        frame = self.history.at(slot).frame
        if frame is not None:
            for run in frame.runs:
                self._marks[run.source] = Mark(run.source, run.incarnation, run.last)
                self._changed_marks.add(run.source)

    def _on_resent(self, data: Data) -> None:
        """A source that resends what is witnessed has missed the token that said so (MS §2.1): say it again."""
        mark = self._marks.get(data.source)
        if mark is not None and (data.incarnation, data.first) <= (mark.incarnation, mark.number):
            self._changed_marks.add(data.source)

    # -- requests (rule 5) ----------------------------------------------------------------------------------

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

    def _asks_as(self) -> int | None:
        return self.member

    def _repair_destinations(self) -> tuple[int, ...]:
        return (GROUP,)

    def _on_unanswered(self, faults: list[tuple[int, int]], schedule: Schedule, now: int) -> None:
        """k_r requests brought nothing: the ring is broken (rule 5)."""
        for slot, reason in faults if self.active else ():
            if self._misplaced is not None and slot == self._misplaced.slot:
                if slot < schedule.start_slot:  # the ring has this slot in its order: the order here is another one
                    self._diverged = True
                    self._report(Diverged(slot, schedule.helper))
                    return
                reason = FaultReason.CONTRADICTION
            suspect = schedule.owner_of(slot) if slot >= schedule.start_slot else schedule.helper
            self._report_fault(reason, slot, suspect, now)

    # -- promises and rings (rules 12, 13) ------------------------------------------------------------------

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
            self._reports.promised(now)
            self._report(PromiseMade(self.history.have, invite.generation))
        if self.generation < invite.generation:
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
        if ring.generation < self.promised or ring.generation <= self.generation:
            return
        if ring.generation > self.promised or not self._is_member_of(ring):
            self._reports.hear_of_other_ring(now)
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
        """A RING names members with their lives: a member that lost its disk is not in its old ring (rule 12)."""
        return MemberLife(self.member, self.life) in ring.members

    # -- reports to the reformation servers (MS §4.3) -------------------------------------------------------

    def _report_fault(self, reason: int, slot: int, suspect: int, now: int) -> None:
        if not self._reports.may_report(now):
            return
        fault = Fault(self.member, self.life, self.generation, self.promised, reason, slot, suspect)
        # Who asks to be let in is heard by the members too: one of them may have to vouch for it.
        asks = reason in (FaultReason.OUTSIDE, FaultReason.STUCK)
        self._effects.append(Send(GROUP if asks else SERVERS, fault))
        self._report(FaultReported(slot, reason, suspect))

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

    def _servers_turn(self, now: int) -> None:
        """Report what no missing token shows: a promise without its ring, no ring at all, a changed set."""
        reports, reason = self._reports, DUTIES[self.state].pleads
        if reason is None:
            reports.stay_silent(now)
        elif reason == FaultReason.STUCK:
            if reports.is_stuck(now):
                self._report_fault(reason, self.history.have, 0, now)
        elif reports.asks(now) and (reason == FaultReason.OUTSIDE or self._membership_changed()):
            self._report_fault(reason, self.history.have, 0, now)

    def _membership_changed(self) -> bool:
        """Whether this ring was formed under an older set, or still has members that the new set left out."""
        record = self.history.tip.records[-1]
        if self._ring is None or record.membership.version > self._ring.membership.version:
            return True
        if record.slot > self.witnessed:
            return False
        return any(life not in record.membership.members for life in self._ring.members)

    def _own_wake_ns(self, now: int) -> int:
        """When its next token is due, or when it goes to the servers next."""
        wake = self._reports.stuck_ns if self.state == "PROMISED" else self._reports.ask_ns
        if self._schedule is not None and self.active:
            own_ns = self._schedule.time_of(self._next_own)
            if own_ns > now:
                wake = min(wake, own_ns)
        return wake
