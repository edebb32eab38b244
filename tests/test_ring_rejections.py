"""Well-formed messages that contradict the order are rejected with a reason; the node and the ring continue."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from levelcast.protocol.effects import Effect
from levelcast.protocol.events import (
    Diverged,
    FaultReported,
    RefuseReason,
    Rejected,
    RejectReason,
    RingRefused,
    UnlistedSource,
)
from levelcast.protocol.machine import Machine
from levelcast.ring.member import Member
from levelcast.sim.engine.world import START_NS, SimNode
from levelcast.sim.scenarios.ring import RingHistory
from levelcast.wire.codec import seal_message
from levelcast.wire.messages import CONTROL_SOURCE, CatchUp, CatchUpSlot, Fault, FaultReason, Run, Token
from tests.ring_parts import (
    MS,
    PIPELINED,
    START,
    Seat,
    kept,
    make_config,
    make_data,
    make_ring,
    make_token,
    seat_in_ring,
    sent,
)

RING = make_ring(5)


def at_slot(slot: int) -> int:
    return START + (slot - 1) * PIPELINED.slot_ns


def with_bad_token() -> tuple[Seat, Token, list[Effect]]:
    """Member 1 holds packets 1 and 2; the token of slot 2 names only the second."""
    seat = seat_in_ring(ring=RING)
    seat.step(at=at_slot(1))
    seat.step(make_data(201, 1), make_data(201, 2), at=at_slot(1) + MS)
    bad = make_token(RING, 2, runs=[Run(201, 1, 2, 2)])
    return seat, bad, seat.step(bad, at=at_slot(2))


def events(effects: list[Effect], kind: type) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def test_a_token_that_contradicts_the_order_is_rejected_and_another_one_takes_its_place() -> None:
    seat, bad, effects = with_bad_token()
    assert events(effects, Rejected) == [Rejected(2, RejectReason.ORDER, bad.owner)]
    assert seat.receiver.have == 1
    assert events(seat.step(bad, at=at_slot(2) + MS), Rejected) == []  # the same one again is not looked at
    assert seat.receiver.have == 1
    seat.step(make_token(RING, 2, runs=[Run(201, 1, 1, 2)]), at=at_slot(2) + 2 * MS)
    assert seat.receiver.have == 2


def test_without_another_token_the_fault_names_slot_owner_and_reason() -> None:
    seat, bad, _ = with_bad_token()
    reported: list[FaultReported] = []
    faults: list[Fault] = []
    while not reported:
        assert seat.receiver.wake_ns is not None
        assert seat.receiver.wake_ns < at_slot(2) + 2 * PIPELINED.recovery_ns
        effects = seat.step(bad, at=seat.receiver.wake_ns)
        reported = [each for each in effects if isinstance(each, FaultReported) and each.slot == 2]
        faults = sent(effects, Fault)
    assert reported == [FaultReported(2, FaultReason.CONTRADICTION, bad.owner)]
    assert [(fault.reason, fault.slot, fault.suspect) for fault in faults] == [(FaultReason.CONTRADICTION, 2, 2)]


def test_a_start_on_a_journal_that_has_such_a_token_succeeds() -> None:
    seat, bad, _ = with_bad_token()
    assert bad in seat.disk.journal.tokens.values()
    seat.restart(at_slot(2) + MS)
    assert seat.receiver.have == 1
    seat.step(make_token(RING, 2, runs=[Run(201, 1, 1, 2)]), at=at_slot(2) + 2 * MS)
    assert seat.receiver.have == 2
    seat.restart(at_slot(2) + 3 * MS)
    assert seat.receiver.have == 2


def test_frames_that_contradict_the_order_are_refused_and_change_nothing() -> None:
    seat = seat_in_ring(ring=RING, member=2)
    seat.step(make_data(201, 1), make_data(201, 2), at=at_slot(1))
    before = seat.receiver.history.tip.copy()
    slots = (CatchUpSlot(1, at_slot(1), (Run(201, 1, 2, 2),)),)
    lie = CatchUp(1, 0, 1, before.chain, bytes(32), slots)
    effects = seat.step(lie, at=at_slot(1) + MS)
    assert events(effects, Diverged) == [Diverged(1, 1)]
    assert seat.receiver.history.tip == before


def test_a_ring_that_would_void_what_is_witnessed_is_refused_and_reported() -> None:
    seat = seat_in_ring(ring=RING)
    for slot in range(1, 8):
        own = RING.members[(slot - 1) % 3].member == seat.member
        seat.step(*[] if own else [make_token(RING, slot, slot)], at=at_slot(slot))
    assert seat.receiver.witnessed >= 5
    other = make_ring(9, start_slot=3, start_ns=at_slot(12), before=RING.lineage)
    effects = seat.enter(other, at_slot(8))
    refused = [each for each in effects if isinstance(each, RingRefused)]
    assert [(each.slot, each.reason) for each in refused] == [(3, RefuseReason.VOIDS)]
    assert [fault.reason for fault in sent(effects, Fault)] == [FaultReason.REFUSED]
    assert not kept(effects, type(other))
    assert seat.receiver.generation == RING.generation


class ForgedTokens(RingHistory):
    """Now and then a receiver gets a token for its next slot, from nobody, that contradicts the order."""

    forged = 0

    def begin(self) -> int:
        end_ns = super().begin()
        rng = Random(self.seed)
        for _ in range(12):
            self.world.at(START_NS + rng.randint(50 * MS, max(self.fault_ns, 60 * MS)), lambda: self._forge(rng))
        self.checker.forged = True
        return end_ns

    def _forge(self, rng: Random) -> None:
        node = rng.choice(self.receivers)
        machine = node.machine
        if not isinstance(machine, Member) or machine.schedule is None:
            return
        slot, schedule, places = machine.have + 1, machine.schedule, machine.history.tip.places
        if slot < schedule.start_slot or slot in machine._held.tokens or machine.state != "ACTIVE":
            return
        for (source, incarnation), held in machine._held.packets.items():
            place = places.get(source)
            due = place.next if place is not None and place.incarnation == incarnation else 1
            if (place is None or incarnation >= place.incarnation) and held.contiguous_from(due + 1) > due:
                run = Run(source, incarnation, due + 1, due + 1)
                owner, at_ns = schedule.owner_of(slot), schedule.time_of(slot)
                token = Token(schedule.generation, slot, at_ns, owner, 0, self.config.credit, (run,), ())
                self.forged += 1
                self.world.bring(self.world.now, node, seal_message(token, self.config.stripe))
                return


def test_histories_with_forged_tokens_keep_every_promise() -> None:
    forged = rejected = 0
    for seed in range(9_300_000, 9_300_030):
        history = ForgedTokens(seed)
        outcome = history.run()
        assert outcome.broken is None, (seed, outcome.broken)
        forged += history.forged
        rejected += history.world.report_counts[Rejected.KIND]
    assert forged > 10
    assert rejected > 10


def test_a_source_that_the_network_file_lacks_is_ordered_and_reported_once() -> None:
    seat = seat_in_ring(replace(make_config(), sources=frozenset({201})), ring=RING)
    own = sent(seat.step(make_data(299, 1), at=at_slot(1)), Token)
    assert [token.runs for token in own] == [()]
    seat.step(make_data(299, 2), at=at_slot(1) + MS)
    effects = seat.step(make_token(RING, 2, runs=[Run(299, 1, 1, 1)]), at=at_slot(2))
    effects += seat.step(make_token(RING, 3, runs=[Run(299, 1, 2, 2)]), at=at_slot(3))
    assert seat.receiver.have == 3
    assert events(effects, UnlistedSource) == [UnlistedSource(2, 299, 2)]
    assert seat.receiver.listener_status(at_slot(3)).unlisted == (299,)


class PartlyListed(RingHistory):
    """Two of five receivers have network files without the first source."""

    SIZES = (5,), (0,), (3,)

    def _start_receiver(self, node: SimNode) -> Machine:
        sources = frozenset({*self._source_ids, CONTROL_SOURCE})
        lacking = sources - {self._source_ids[0]}
        config = replace(self.config, sources=lacking if node.id in self._member_ids[-2:] else sources)
        return Member(config, node.id, node.disk.journal, node.disk.tape.tip, node.local_ns)


def test_files_that_differ_never_make_tapes_differ() -> None:
    reported = 0
    for seed in range(12):
        history = PartlyListed(seed)
        outcome = history.run()
        assert outcome.broken is None, outcome.broken
        reported += history.world.report_counts[UnlistedSource.KIND]
    assert reported
