"""The histories that broke weaker rules: each plays to a good end with the rules as they are, and breaks a
promise when the clause that mends it is taken out.

They are the histories of the design notes; `levelcast.sim.mutations` says which clause each is about. A
docstring tells what would happen without the clause. `breaks` is the promise that is then broken: in the
words of `levelcast.sim.check.ring`, or those of an assertion in the ring itself ("is next": a source's packets
would be ordered with a gap, so out of their order).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import pytest

from levelcast.ring import listener
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.mutations import MUTATIONS, Mutation
from levelcast.wire.messages import Data, Group, GroupToken, Invite, Join, Repair, Ring, Token
from tests import (
    test_ring_copies,
    test_ring_lines,
    test_ring_secondary,
    test_sim_beats,
    test_sim_clocks,
    test_sim_group,
    test_sim_overlay,
    test_sim_planned_stops,
    test_sim_receivers,
)
from tests.ring_stage import RING_TRAFFIC, A, B, C, D, E, S, Stage, X, Y, Z, sends

Play = Callable[[Stage], None]


class History(NamedTuple):
    """A script, the promise that breaks without its clause, and the stage it needs."""

    name: str
    play: Play
    breaks: str
    stage: dict[str, int]

    @property
    def mutation(self) -> Mutation:
        """The rules without the clause that this history is about."""
        (found,) = (mutation for mutation in MUTATIONS.values() if mutation.history == self.name)
        return found


HISTORIES: dict[str, History] = {}


def history(name: str, *, breaks: str, **stage: int) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        HISTORIES[name] = History(name, play, breaks, stage)
        return play

    return register


@history("F1", breaks="agreement")
def history_f1(stage: Stage) -> None:
    """B and C witness a slot that A lacks; only B hears both claims, and releases it. RING(2), from A and B,
    starts behind that slot and reaches only A; B dies. If A's JOIN now named generation 2, it would beat
    C's, which names 1, and the slot would be voided."""
    stage.begin()
    stage.until_before_slot_of(C)
    deaf = stage.lose(*RING_TRAFFIC, to=A)
    stage.lose(Token, Repair, sender=B, to=C)
    seen = stage.send(X, only_to=C)
    slot = stage.until_witnessed(B, seen)
    stage.until(lambda: stage.released(B, seen))

    ring = stage.reform(S, {A, B}, announce_to={A})
    stage.expect(stage.have(A) < slot < ring.lineage[-1].start_slot)
    stage.kill(B)

    deaf.lift()
    stage.reform(S, {A, C})
    stage.send(Y, only_to={A, C})
    stage.run_past_release()
    stage.end()


@history("F1b", breaks="agreement")
def history_f1b(stage: Stage) -> None:
    """B alone holds three packets that it acknowledged in generation 1. RING(2), from A and C, voids them but
    reaches only C. RING(3), from A and B, starts behind them, and A catches up to the second. If its
    `have` counted already, A and B would have witnessed the first two, and B would release them; then B
    dies, and A (1, have) and C (2, have) form RING(4), which voids them."""
    stage.begin()
    stage.lose(Repair, to={A, C})
    first = stage.send(X, only_to=B)
    slot = stage.until_ordered(B, first)
    second = stage.send(X, only_to=B)
    stage.until_ordered(B, second)
    third = stage.send(X, only_to=B)
    last = stage.until_ordered(B, third)
    stage.reform(S, {A, C}, announce_to={C})

    stage.lose(Token, sender=B, to=A)
    stage.reform(Z, {A, B})
    for packet in (first, second):
        stage.deliver(Data, A, packet=packet)
    stage.expect(slot < stage.have(A) < last <= stage.have(B))
    stage.run_past_release()
    stage.kill(B)

    stage.reform(Z, {A, C})
    stage.send(Y, only_to={A, C})
    stage.run_past_release()
    stage.end()


@history("F2", breaks="agreement")
def history_f2(stage: Stage) -> None:
    """Nobody hears A's last tokens of generation 1, and generation 2 begins at the same slots without A. When
    RING(3) lets A in again, behind them, A would keep its stale tokens beside the others' valid ones."""
    stage.begin()
    silent = stage.lose(sender=A)
    stage.until_ordered(A, stage.send(X, only_to=A))
    stale = stage.have(A)

    deaf = stage.lose(to=A)
    ring = stage.reform(S, {B, C})
    stage.expect(ring.lineage[-1].start_slot <= stale)
    stage.send(Y, only_to={B, C})
    stage.until(lambda: min(stage.have(B), stage.have(C)) > stale)

    silent.lift()
    deaf.lift()
    stage.reform(S, {A, B, C})
    stage.run_past_release()
    stage.end()


@history("F3", breaks="agreement")
def history_f3(stage: Stage) -> None:
    """A joins generation 2, is killed and started again. If it had forgotten its promise, it would go on in
    generation 1 and witness a slot with B, which releases it, while RING(2) forms from A's JOIN and C's and
    begins at that very slot."""
    stage.begin()
    stage.until_before_slot_of(C)
    stage.send(X, only_to={A, B})  # too late for B's slot, and C does not have it: A's slot is the next
    slot = stage.until_before_slot_of(A)
    stage.lose(Token, Repair, sender=B, to={A, C})
    stage.strike(A, after=sends(Join))
    ring = stage.reform(S, {A, C}, announce_to={C})
    stage.expect(ring.lineage[-1].start_slot == slot)
    stage.run_past_release()

    stage.reform(S, {A, C})
    stage.send(Y, only_to={A, C})
    stage.run_past_release()
    stage.end()


@history("F3b", breaks="agreement")
def history_f3b(stage: Stage) -> None:
    """A and B witness a slot that C lacks; only B hears both claims, and releases it. A is started again: if it
    had forgotten its ring, and the tokens that mean something only there, its JOIN would say nothing, and its
    ring with C would void the slot."""
    stage.begin()
    stage.until_before_slot_of(A)
    deaf = stage.lose(*RING_TRAFFIC, to=C)
    stage.lose(Token, Repair, sender=B, to=A)
    slot = stage.until_witnessed(B, stage.send(X, only_to=A))
    stage.expect(stage.have(C) < slot <= stage.have(A))
    stage.restart(A)
    stage.reform(S, {A, C}, reporter=C)

    deaf.lift()
    stage.send(Y, only_to={A, C})
    stage.run_past_release()
    stage.end()


@history("F4", breaks="one token")
def history_f4(stage: Stage) -> None:
    """A sends a token and is killed. Started again, it holds another packet: if its journal did not have the
    token, it would send the slot a second time, and acknowledge that packet too."""
    stage.begin()
    stage.strike(A, after=sends(Token))
    stage.send(X)
    stage.run_past_release()
    stage.end()


@history("F5", breaks="one token")
def history_f5(stage: Stage) -> None:
    """RING(2) reaches only A. The server is started again and hears of a fault from C, which knows nothing of
    generation 2: if its numbers were not durable, the server would invite into 2 again, and two rings of B
    and C and of A would send tokens of one name."""
    stage.begin()
    stage.reform(S, {A, B}, announce_to={A})
    stage.restart(S)
    stage.reform(S, {B, C}, reporter=C)
    stage.send(X)
    stage.run_past_release()
    stage.end()


@history("F6", breaks="witness kept")
def history_f6(stage: Stage) -> None:
    """C joins the higher of two generations and loses its disk, and its promise with it. If its new life
    counted, it would form the lower one with B and witness a packet there, while the higher one is formed
    of its old JOIN and A's. A's history is then the best, and voids that."""
    stage.begin()
    stage.until_before_slot_of(A)
    stage.strike(C, after=sends(Join), wipe=True)
    higher = stage.reform(S, {A, C}, announce_to={A})
    lower = stage.try_to_reform(Z, {B, C})
    stage.expect(lower is None or lower.generation < higher.generation)
    stage.send(X, only_to={B, C})
    stage.run(60)

    stage.try_to_reform(S, {A, C})
    stage.send(Y, only_to={A, C})
    stage.run_past_release()
    stage.change_membership(A, B, C)  # the record that lets the new life count
    stage.end()


@history("F6b", breaks="one token")
def history_f6b(stage: Stage) -> None:
    """C sends its first token in generation 2 and loses its disk. Late copies of the INVITE and the RING
    reach its new life: if a RING did not name lives, C would enter and send the slot again."""
    stage.begin()
    stage.reform(S, {A, B, C})
    sent = stage.until_before_slot_of(C)
    stage.until(lambda: stage.have(A) >= sent)
    stage.lose_disk(C)
    stage.start(C)
    stage.deliver(Invite, C)
    stage.deliver(Ring, C)
    stage.run_past_release()
    stage.change_membership(A, B, C)
    stage.end()


@history("F7", breaks="claims kept")
def history_f7(stage: Stage) -> None:
    """A and B witness a slot that C lacks; only B hears both claims. A new secondary, which has nothing, joins
    A's group. If A's JOIN carried the group's `have`, C's would be better, and their ring would void the
    slot that B releases."""
    stage.begin()
    stage.until_before_slot_of(A)
    deaf = stage.lose(*RING_TRAFFIC, to=C)
    stage.lose(Token, Repair, sender=B, to=A)
    slot = stage.until_witnessed(B, stage.send(X, only_to=A))
    secondary = 301
    stage.receiver(A).claims.hear(GroupToken(secondary, stage.receiver(A).generation, 1, 1, 0))
    stage.expect(stage.have(C) < slot <= stage.have(A))
    stage.reform(S, {A, C})

    stage.receiver(A).claims.take(Group(2, S, A, ()))
    deaf.lift()
    stage.send(Y, only_to={A, C})
    stage.run_past_release()
    stage.end()


@history("F8", breaks="one order", slot_ms=2, clock_error_ms=10, delay_ms=1)
def history_f8(stage: Stage) -> None:
    """C's clock is fast: it sends its token, which names the first packet, before A sends one of two slots
    below. If A took the first packet for acknowledged, it would name only the second, which would come
    first."""
    stage.world.nodes[C].set_clock(9_000_000)
    stage.begin()
    stage.until_before_slot_of(A, ms=6.5)
    stage.send(X, only_to={A, C})
    stage.until_before_slot_of(A, ms=3)
    stage.send(X, only_to={A})
    stage.run_past_release()
    stage.end()


@history("F9", breaks="no loss")
def history_f9(stage: Stage) -> None:
    """A alone holds a packet, acknowledges it and loses its disk, and the slot is voided. B and C send tokens
    of generation 2 with a `have` beyond that slot: if the source took that for a witness, it would drop
    the packet."""
    stage.begin()
    stage.lose(Repair, sender=A)
    slot = stage.until_ordered(A, stage.send(X, only_to=A))
    stage.run(3)
    stage.lose_disk(A)
    ring = stage.reform(S, {B, C})
    stage.expect(ring.lineage[-1].start_slot <= slot)
    stage.until(lambda: min(stage.have(B), stage.have(C)) > slot + 4)
    stage.end()


@history("F10", breaks="agreement")
def history_f10(stage: Stage) -> None:
    """A acknowledges packet 1 of the source's first incarnation. The source loses its disk, and packet 1 of
    its second reaches C before A's token does: if the run did not name the incarnation, C would take it
    for the other packet."""
    stage.begin()
    far = stage.lose(Token, Repair, to=C)
    old = stage.send(X, only_to={A, B})
    stage.until_ordered(B, old)
    stage.lose_disk(X)
    stage.start(X)
    stage.send(X, only_to={C})
    stage.run(5)
    far.lift()
    stage.run_past_release()
    stage.end()


@history("F11", breaks="source order")
def history_f11(stage: Stage) -> None:
    """Packet 1 of the source's first incarnation reaches A and C, packet 1 of its second only B, whose slot
    is next. C, in the slot after, cannot order B's yet and acknowledges the old packet: it would come
    behind the new one."""
    stage.begin()
    missing = stage.lose(Repair, to={A, C})
    stage.until_before_slot_of(B)
    stage.send(X, only_to={A, C})
    stage.lose_disk(X)
    stage.start(X)
    stage.send(X, only_to=B)
    stage.until_before_slot_of(A)
    missing.lift()
    stage.run_past_release()
    stage.end()


@history("F12", breaks="agreement")
def history_f12(stage: Stage) -> None:
    """C alone holds the record that changes {A, B, C} to {C, D, E}. If C, D and E could form a ring by
    themselves, they would go on from it, while A and B, a majority of the old set, form another and know
    nothing of the change."""
    stage.begin()
    stage.start(D, E)
    stage.lose(Token, Repair, sender=C, to={A, B})
    stage.until_ordered(C, stage.change_membership(C, D, E, only_to=C))
    stage.try_to_reform(S, {C, D, E}, reporter=C)
    stage.send(X, only_to={C, D, E})
    stage.run(100)

    stage.reform(Z, {A, B})
    stage.send(Y, only_to={A, B})
    stage.run_past_release()
    stage.end()


@history("F12b", breaks="agreement")
def history_f12b(stage: Stage) -> None:
    """C alone holds the record that changes {A, B, C} to {C, D, E}, and has released all before it. RING(2),
    from C, D, E and A, is right to form; but A does not catch up, so of the old set C alone holds the
    record. If C, D and E witnessed it by themselves, they would go on, while A and B form another ring of
    the old set."""
    stage.begin()
    stage.start(D, E)
    stage.lose(Token, Repair, sender=C, to={A, B})
    slot = stage.until_ordered(C, stage.change_membership(C, D, E, only_to=C))
    stage.until(lambda: stage.receiver(C).released == slot - 1)
    stage.lose(*RING_TRAFFIC, sender={C, D, E}, to=A)
    stage.reform(S, {A, C, D, E}, reporter=C)
    stage.send(X, only_to={C, D, E})
    stage.run(100)

    stage.reform(Z, {A, B})
    stage.send(Y, only_to={A, B})
    stage.run_past_release()
    stage.end()


@history("F13", breaks="no loss")
def history_f13(stage: Stage) -> None:
    """The set changes from {A, B, C} to {C, D, E}; majorities of both witness the record, which only C learns, and A
    and B are taken away before anybody has released it. If RING(3), of C, D and E, did not say that the set stands,
    they would wait for ever for a majority of the old set to witness the record again, and never release
    what its source believes safe."""
    stage.begin()
    stage.start(D, E)
    record = stage.change_membership(C, D, E)
    slot = stage.until_ordered(C, record)
    stage.reform(S, {A, B, C, D, E})
    stage.until(lambda: min(stage.have(D), stage.have(E)) >= slot)
    deaf = stage.lose(Token, Repair, to={D, E})
    stage.until_witnessed(C, record)
    stage.take_away(A, B)
    stage.reform(S, {C, D, E})
    deaf.lift()
    stage.expect(not stage.released(C, record))
    stage.send(X)
    stage.end()


@history("F15", breaks="claims kept")
def history_f15(stage: Stage) -> None:
    """Two rings order nothing for a while: their slots are released and leave no frame, so a restart begins before
    them. If RING(3) left generation 1 out of its lineage because everybody had released its slots, a restarted A
    would take its own tokens of them for void, and JOIN with less than it claimed in generation 3."""
    with patch.object(listener, "SETTLE_EVERY_SLOTS", 10_000):
        stage.begin()
        for _ in range(2):
            start_slot = stage.reform(S, {A, B, C}).lineage[-1].start_slot
            stage.until(partial(stage.all_released_upto, start_slot))
        claimed = stage.have(A)
        stage.expect(claimed > start_slot)
        stage.kill(A)
        stage.restart(A)
        stage.reform(S, {A, B})
        stage.expect(stage.have(A) >= claimed - 1)
    stage.end()


@history("F16", breaks="claims kept")
def history_f16(stage: Stage) -> None:
    """Nothing but empty slots, which leave no frame. A and B hear of C that it has what they have, and make their
    checkpoint in generation 2; C does not hear that of B, and makes none. RING(3), of A and B, leaves generation 1
    out of its lineage, and C comes back in RING(4). If it journaled that RING as it is, a restart would take its own
    tokens of generation 1 for void, and JOIN with less than it has claimed."""
    with patch.object(listener, "SETTLE_EVERY_SLOTS", 10_000):
        stage.begin()
        start_slot = stage.reform(S, {A, B, C}).lineage[-1].start_slot
        stage.until(partial(stage.all_released_upto, start_slot))
        slot = stage.until_before_slot_of(A)
        silence = [stage.lose(Token, sender=B, to=C), stage.lose(Repair, to=C)]
        stage.until(lambda: stage.have(C) == slot)
        silence.append(stage.lose(Token, sender=A, to=C))
    with patch.object(listener, "SETTLE_EVERY_SLOTS", slot):
        stage.until(lambda: all(stage.receiver(node).history.base.slot == slot for node in (A, B)))
    with patch.object(listener, "SETTLE_EVERY_SLOTS", 10_000):
        cut = stage.reform(S, {A, B})
        stage.expect(cut.lineage[0].start_slot == start_slot)
        ring = stage.reform(S, {A, B, C})
        for loss in silence:
            loss.lift()
        stage.until(lambda: any(_claims(message, C, ring) for _, message in stage.world.sent))
        stage.restart(C)
        stage.reform(S, {B, C})
    stage.end()


def _claims(message: object, site: int, ring: Ring) -> bool:
    """Whether a token says that its site has all from before the ring."""
    return (
        isinstance(message, Token)
        and (message.owner, message.generation) == (site, ring.generation)
        and message.have >= ring.lineage[-1].start_slot - 1
    )


@history("F14", breaks="one order")
def history_f14(stage: Stage) -> None:
    """A misses a token and goes on alone in generation 1, where it acknowledges packets that only it holds. B
    and C have gone on in generation 2. If B answered A's request from its tape, A would put its own next
    token behind those frames, and order the packets of that token without those of its tokens before,
    which the frames have voided."""
    stage.begin()
    missed = stage.until_before_slot_of(B)
    stage.lose(Token, sender=A)
    deaf = stage.lose(*RING_TRAFFIC, sender={B, C}, to=A)
    stage.until_before_slot_of(A)
    stage.reform(S, {B, C})
    stage.send(Y, only_to={B, C})
    while stage.receiver(B).history.base.slot <= missed:
        stage.send(X, only_to=A)
        stage.run(5)
        stage.until_before_slot_of(A)
    stage.until(lambda: stage.owner_of(A, stage.receiver(B).released + 1) == A)
    stage.expect(stage.have(A) == missed - 1)
    deaf.lift()
    stage.run_past_release()
    stage.end()


@pytest.mark.parametrize("name", HISTORIES)
def test_history_keeps_every_promise(name: str) -> None:
    told = HISTORIES[name]
    told.play(Stage(**told.stage))


@pytest.mark.parametrize("name", HISTORIES)
def test_history_breaks_without_its_clause(name: str) -> None:
    told = HISTORIES[name]
    stage = Stage(**told.stage)
    with told.mutation.applied(), pytest.raises(AssertionError) as broken:
        told.play(stage)
    error = broken.value
    if isinstance(error, InvariantBroken):
        assert error.promise == told.breaks, stage.story()
    else:
        packages = ("/levelcast/ring/", "/levelcast/protocol/")
        path = str(broken.traceback[-1].path)
        assert any(package in path for package in packages), "an assertion, but not the protocol's"
        assert told.breaks in str(error), stage.story()


def test_every_clause_has_its_history_or_is_searched_for() -> None:
    told = set(HISTORIES) | set(test_ring_secondary.HISTORIES)
    scripted = (
        test_ring_copies.CLAUSES,
        test_ring_lines.CLAUSES,
        test_ring_secondary.CLAUSES,
        test_sim_group.SCRIPTED,
    )
    random = (
        test_sim_receivers,
        test_sim_planned_stops,
        test_sim_beats,
        test_sim_clocks,
        test_sim_group,
        test_sim_overlay,
    )
    tables = (*(module.BREAKS for module in random), *scripted)
    searched = {MUTATIONS[name].history for table in tables for name in table}
    assert told | searched == {mutation.history for mutation in MUTATIONS.values()}
