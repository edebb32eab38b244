"""A reformation server: forms the first ring, and every ring after a fault (MS §4.3; DESIGN rules 12, 16).

| phase      | action                                 | next phase |
|------------|----------------------------------------|----------------|
| IDLE       | listens for faults, invitations, rings | a fault: WAITING |
| WAITING    | backs off by rank, to avoid contention | timeout: INVITING; another server's INVITE or RING: IDLE |
| INVITING   | repeats INVITE(g), collects JOINs      | enough: ANNOUNCING; a higher promise: WAITING; |
|            |                                        | no majority, or a higher INVITE or RING of another: IDLE |
| ANNOUNCING | repeats RING(g)                        | k_r times sent: IDLE |

- A generation number belongs to one server and one life of its disk, is journaled before the first INVITE and is
  never used again (rule 12): (count, server, life) packed into 64 bits. Generation 1 is not special (rule 16).
- JOINs must be received from a majority of the configured primaries as the best joiner knows them, and of the previous
  set as well while the last change is in doubt (`quorum`).
- The start slot is one past the best (caught-up generation, have). The member that reported it is the helper and the
  first slot owner: MS §4.3 requires a token site with t_r >= t.
- The start time is computed from the joiners' clocks (their median), not from the server's own, and is later than the
  last slot of the previous ring: a skewed server cannot run timestamps backward.
- A member that announces a planned stop (LEAVING) is a reason for a reformation while its ring is still complete, if
  the others are a majority. The server does not wait for its JOIN, and forms the ring without it. In the majority it
  counts like a failed member. Its announcement ends with the ring that it named, or when it asks to join again.
- A RING contains the receivers of all lines (`line_server`), so that no message follows it.

Deviation from MS §4.3: redundant servers may compete here at any time; promises make that safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import ClassVar, Literal

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, Effect, Persist, Send, ServerCounter
from levelcast.protocol.events import FaultReceived, InvitationEnded, LeaveReceived, RingFormed, RingInvited
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.machine import Machine
from levelcast.protocol.retransmit import passed_on
from levelcast.protocol.seals import CrcSeals, NodeSeals
from levelcast.ring.line_server import assigned
from levelcast.ring.quorum import has_majority, in_doubt, may_form
from levelcast.ring.schedule import Lineage
from levelcast.ring.status import ServerStatus
from levelcast.timing.rules import REFUSED_ASKS
from levelcast.wire.messages import Era, Fault, FaultReason, Invite, Join, MemberLife, Message, Promised, Ring

REMINDERS = 4
"""Number of invitations in τ_r for a member of a ring that works: a lost one would extend its pause by τ_r."""

Phase = Literal["IDLE", "WAITING", "INVITING", "ANNOUNCING"]

NEXT: dict[Phase, frozenset[Phase]] = {
    "IDLE": frozenset({"WAITING"}),
    "WAITING": frozenset({"INVITING", "IDLE"}),
    "INVITING": frozenset({"ANNOUNCING", "WAITING", "IDLE"}),
    "ANNOUNCING": frozenset({"IDLE"}),
}
"""The phases that may follow each."""


class ReformationServer(Machine):
    """One reformation server of one stripe, sans I/O."""

    LISTENS: ClassVar[frozenset[type]] = frozenset({Fault, Join, Promised, Invite, Ring})

    def __init__(
        self, config: StripeConfig, server: int, journal: JournalImage, now: int, seals: NodeSeals | None = None
    ) -> None:
        self.config = config
        self._seals = seals or CrcSeals(config.domain)
        self.timing = config.timing
        self.server = server
        self.life = journal.life
        self.rank = config.servers.index(server)
        self.counter = journal.counter
        self.ring: Ring | None = None
        self.rings_formed = 0
        self.wake_ns: int | None = None
        self.phase: Phase = "IDLE"
        self._generation = 0
        self._highest = journal.counter
        self._joins: dict[MemberLife, tuple[Join, int]] = {}
        self._leaving: set[MemberLife] = set()
        self._joiner: Fault | None = None
        """The last join request that was received while a ring was announced."""
        self._configured: frozenset[MemberLife] = frozenset(config.membership.members)
        self._deadline_ns = 0
        self._repeat_ns = 0
        self._remind_ns = 0
        self._repeats = 0
        self._quiet_until_ns = now
        self._asked_by = 0
        self._interrupts = False
        """The reformation was requested without a fault, and interrupts a ring that works."""
        self._patience: dict[int, tuple[int, int]] = {}
        self._effects: list[Effect] = []

    def step(self, batch: Iterable[Message], now: int, *, clock_trusted: bool = True) -> list[Effect]:
        """Handle `batch` at `now`; return the effects in order, and set `wake_ns`."""
        self._effects = []
        for message in batch:
            handler = _HANDLERS.get(type(message))
            if handler is not None:
                getattr(self, handler)(message, now)
        if (on_time := _ON_TIME.get(self.phase)) is not None:
            getattr(self, on_time)(now)
        self.wake_ns = self._next_wake(now)
        return self._effects

    def status(self, now: int) -> ServerStatus:
        """Return its phase and the number of rings that it has formed since the start."""
        return ServerStatus(self.life, self.phase, self.rings_formed)

    def _become(self, phase: Phase) -> None:
        assert phase == self.phase or phase in NEXT[self.phase], f"{self.phase} -> {phase}"
        self.phase = phase

    # -- IDLE: requests for a reformation -----------------------------------------------------------------

    def _on_fault(self, fault: Fault, now: int) -> None:
        self._highest = max(self._highest, fault.promised, fault.generation)
        if fault.reason == FaultReason.LEAVING:
            self._on_leave(fault, now)
            return
        if fault.reason == FaultReason.OUTSIDE:
            self._leaving.discard(MemberLife(fault.reporter, fault.life))
        ring = self.ring
        if ring is not None and fault.generation < ring.generation:
            if fault.promised <= ring.generation and MemberLife(fault.reporter, fault.life) in ring.members:
                self._effects.append(Send(fault.reporter, passed_on(ring, self.server)))  # it missed the announcement
                return
            if fault.promised <= ring.generation and not self._readmits(fault):
                return
        elif fault.reason in (FaultReason.OUTSIDE, FaultReason.MEMBERSHIP) and not self._readmits(fault):
            return
        if self.phase == "IDLE" and now >= self._quiet_until_ns:
            self._asked_by = _on_behalf_of(fault)
            self._interrupts = fault.reason in (FaultReason.OUTSIDE, FaultReason.MEMBERSHIP)
            self._wait(now, self.rank * self.timing.backoff_ns)
            self._effects.append(FaultReceived(0, fault.reason, fault.reporter, fault.suspect))

    def _on_leave(self, fault: Fault, now: int) -> None:
        """Start a reformation without a member that stops as planned, if the others of its ring are a majority."""
        ring = self.ring
        if ring is not None and fault.generation < ring.generation:
            self._effects.append(Send(fault.reporter, passed_on(ring, self.server)))  # it has left, or says so again
            return
        life = MemberLife(fault.reporter, fault.life)
        self._leaving.add(life)
        self._joins.pop(life, None)
        if self.phase == "INVITING" and self._joins and self._everybody_joined():
            self._try_to_form(now)
        if ring is not None and not has_majority(ring.membership, set(ring.members) - self._leaving):
            return
        if self.phase == "IDLE" and now >= self._quiet_until_ns:
            self._asked_by = 0
            self._interrupts = True
            self._wait(now, self.rank * self.timing.backoff_ns)
            self._effects.append(LeaveReceived(0, fault.reporter))

    def _readmits(self, fault: Fault) -> bool:
        """Return whether a member outside may cause a reformation: rarely, if it repeats its request and does not join.

        A life that this server does not know to be configured is refused; otherwise every spare would keep the ring in
        reformation. If it is configured all the same, a member of the ring vouches for it (MEMBERSHIP).
        """
        if fault.reason != FaultReason.MEMBERSHIP and MemberLife(fault.reporter, fault.life) not in self._configured:
            return False
        if self.phase != "IDLE":
            self._joiner = fault
            return False
        left, level = self._patience.get(_on_behalf_of(fault), (0, 0))
        if left > 0:
            self._patience[_on_behalf_of(fault)] = (left - 1, level)
            return False
        return True

    def _wait(self, now: int, wait_ns: int) -> None:
        self._become("WAITING")
        self._deadline_ns = now + wait_ns

    def _wait_is_over(self, now: int) -> None:
        if now >= self._deadline_ns:
            self._invite(now)

    # -- INVITING -----------------------------------------------------------------------------------------

    def _invite(self, now: int) -> None:
        """Begin a generation that no server has used (rule 12)."""
        count = (max(self._highest, self.counter) >> 32) + 1
        self._generation = count << 32 | self.server << 16 | self.life & 0xFFFF
        self.counter = self._highest = self._generation
        self._journal_counter()
        self._become("INVITING")
        self._joins = {}
        self._repeats = 0
        self._repeat_ns = now
        self._remind_ns = now + self._remind_after_ns
        self._deadline_ns = now + self.timing.join_ns
        self._effects.append(RingInvited(0, self._generation))

    def _journal_counter(self) -> None:
        """Journal the counter before the first INVITE (rule 12)."""
        self._effects.append(Persist(ServerCounter(self.counter)))

    def _keep_inviting(self, now: int) -> None:
        if now >= self._deadline_ns and self._try_to_form(now):
            return
        if self._repeat_ns > now >= self._remind_ns:
            self._remind(now)
        if now >= self._repeat_ns:
            if self._repeats >= 2 * self.timing.attempts:
                self._become("IDLE")
                self._effects.append(InvitationEnded(0, len(self._joins)))
                return
            self._repeats += 1
            self._repeat_ns = now + self.timing.request_ns
            self._remind_ns = now + self._remind_after_ns
            self._effects.append(Send(GROUP, Invite(self._generation, self.server)))

    @property
    def _remind_after_ns(self) -> int:
        return self.timing.request_ns // REMINDERS

    def _remind(self, now: int) -> None:
        """Invite once more who has not joined: members of a ring that stands still meanwhile, and who asked for it."""
        self._remind_ns = now + self._remind_after_ns
        if self.ring is None or not self._interrupts:
            return
        awaited = {life.member for life in self.ring.members if life not in self._leaving} | {self._asked_by}
        for member in sorted(awaited - {life.member for life in self._joins} - {0}):
            self._effects.append(Send(member, Invite(self._generation, self.server)))

    def _on_join(self, join: Join, now: int) -> None:
        if self.phase != "INVITING" or join.generation != self._generation:
            return
        self._joins[MemberLife(join.member, join.life)] = (join, now)
        if self._everybody_joined():
            self._try_to_form(now)

    def _everybody_joined(self) -> bool:
        """Return whether all expected members have joined, by the set that the best joiner knows.

        Nobody expects a member that leaves.
        """
        joins = [join for join, _ in self._joins.values()]
        best = best_of(joins)
        awaited = set(best.current.members)
        if best.before is not None and in_doubt(best, joins):
            awaited |= set(best.before.members)
        return awaited <= self._joins.keys() | self._leaving

    def _on_promised(self, promised: Promised, now: int) -> None:
        self._highest = max(self._highest, promised.generation)
        if self.phase == "INVITING" and promised.generation > self._generation:
            self._wait(now, (1 + self.rank) * self.timing.backoff_ns)

    def _on_invite(self, invite: Invite, now: int) -> None:
        """Leave the reformation to another server that has started one."""
        if invite.server == self.server:
            return
        self._highest = max(self._highest, invite.generation)
        if self.phase == "WAITING" or (self.phase == "INVITING" and invite.generation > self._generation):
            self._become("IDLE")
        self._quiet_until_ns = max(self._quiet_until_ns, now + self.timing.join_ns + self.timing.lead_ns)

    # -- forming the ring (rule 12) -----------------------------------------------------------------------

    def _try_to_form(self, now: int) -> bool:
        joins = [join for join, _ in self._joins.values()]
        if not joins:
            return False
        best = best_of(joins)
        if not self._may_form(best, joins):
            return False
        members = self._eligible(best, joins)
        first = next((i for i, life in enumerate(members) if life.member == best.member), 0)
        ring = Ring(
            self._generation,
            self.server,
            best.member,
            best.current,
            self._set_stands(best, joins),
            tuple(members[first:] + members[:first]),
            self._lineage(best, members, now),
            assigned(self.config, self._operable(members)),
            self.config.pace(life.member for life in members),
        )
        self._announce(self._seals.author(ring, now), now)
        return True

    def _operable(self, members: list[MemberLife]) -> set[int]:
        """Return the receivers that may have lines in a ring of these members (MS §4.3)."""
        return {life.member for life in members}

    def _may_form(self, best: Join, joins: list[Join]) -> bool:
        """Return whether the JOINs are of a majority; members that leave count in the set like all others."""
        return may_form(best, joins)

    def _set_stands(self, best: Join, joins: list[Join]) -> bool:
        """Return whether the ring may treat its set as witnessed: a joiner knew it, and may be the only one (rule 12).

        A ring of the new set alone could never find a majority of the old one to witness the record.
        """
        return not in_doubt(best, joins)

    def _eligible(self, best: Join, joins: list[Join]) -> list[MemberLife]:
        """Return the joiners that form the ring, in the set's order; in doubt, those of the previous set as well."""
        eligible: dict[int, MemberLife] = {}
        if in_doubt(best, joins) and best.before is not None:
            eligible = {life.member: life for life in best.before.members if life in self._joins}
        eligible |= {life.member: life for life in best.current.members if life in self._joins}
        place = {
            life: i for i, life in enumerate((*best.current.members, *(best.before.members if best.before else ())))
        }
        return sorted(eligible.values(), key=lambda life: place[life])

    def _lineage(self, best: Join, members: list[MemberLife], now: int) -> tuple[Era, ...]:
        """Return the best joiner's lineage up to the start slot, followed by the new generation."""
        start_slot = best.have + 1
        before = Lineage([era for era in best.lineage if era.start_slot < start_slot], self.timing.slot_ns)
        clocks = [join.clock_ns + now - heard_ns for join, heard_ns in self._joins.values()]
        start_ns = median_low(clocks) + self.timing.lead_ns
        if before.eras:
            start_ns = max(start_ns, before.time_of(best.have) + self.timing.slot_ns)
        settled = min(self._joins[life][0].settled for life in members)
        return before.extended(Era(self._generation, start_slot, start_ns), settled)

    # -- ANNOUNCING ---------------------------------------------------------------------------------------

    def _announce(self, ring: Ring, now: int) -> None:
        self.ring = ring
        self.rings_formed += 1
        self._become("ANNOUNCING")
        self._repeats = 0
        self._repeat_ns = now
        self._configured = frozenset(ring.membership.members)
        self._leaving.clear()
        self._joiner = None
        for life in ring.members:
            self._patience.pop(life.member, None)
        if self._asked_by and self._asked_by not in {life.member for life in ring.members}:
            level = min(2 * self._patience.get(self._asked_by, (0, 0))[1] + 1, REFUSED_ASKS)
            self._patience[self._asked_by] = (level, level)
        members = tuple(life.member for life in ring.members)
        self._effects.append(RingFormed(0, ring.generation, ring.lineage[-1].start_slot, members))
        self._keep_announcing(now)

    def _keep_announcing(self, now: int) -> None:
        if now < self._repeat_ns:
            return
        assert self.ring is not None
        self._repeats += 1
        self._repeat_ns = now + self.timing.request_ns
        self._effects.append(Send(GROUP, self.ring))
        if self._repeats >= self.timing.attempts:
            self._become("IDLE")
            if (joiner := self._joiner) is not None:
                self._joiner = None
                self._on_fault(joiner, now)

    def _on_ring(self, ring: Ring, now: int) -> None:
        """Store another server's ring: a fault of an older generation is answered with it."""
        self._highest = max(self._highest, ring.generation)
        if self.ring is None or ring.generation > self.ring.generation:
            self.ring = ring
            self._configured = frozenset(ring.membership.members)
            self._leaving.clear()
            if ring.generation > self._generation:
                self._become("IDLE")

    # -- time ---------------------------------------------------------------------------------------------

    def _next_wake(self, now: int) -> int | None:
        if self.phase == "IDLE":
            return None
        if self.phase == "WAITING":
            return self._deadline_ns
        if self.phase == "ANNOUNCING":
            return self._repeat_ns
        next_ns = min(self._repeat_ns, self._remind_ns)
        return min(next_ns, self._deadline_ns) if self._deadline_ns > now else next_ns


def best_of(joins: Sequence[Join]) -> Join:
    """Return the joiner with the longest valid history: the highest (caught-up generation, have) (rule 12)."""
    return max(joins, key=lambda join: (join.caught_up, join.have, -join.member))


def _on_behalf_of(fault: Fault) -> int:
    """Return the member that requests to join: the reporter, or the one that it vouches for."""
    return fault.suspect if fault.reason == FaultReason.MEMBERSHIP and fault.suspect else fault.reporter


_HANDLERS: dict[type, str] = {
    Fault: "_on_fault",
    Join: "_on_join",
    Promised: "_on_promised",
    Invite: "_on_invite",
    Ring: "_on_ring",
}

_ON_TIME: dict[Phase, str] = {
    "WAITING": "_wait_is_over",
    "INVITING": "_keep_inviting",
    "ANNOUNCING": "_keep_announcing",
}
