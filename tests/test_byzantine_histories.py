"""Histories that break chain multicast without one of its clauses. P, Q, R are honest; B lies; n = 4.

B5 and B6 are figures 1 and 2 of MR: `tests/test_byzantine_paper.py`. Clauses that random histories find are in
`tests/test_sim_chain.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from levelcast.byzantine.catchup import StatedDeliveries
from levelcast.byzantine.config import Reading
from levelcast.byzantine.digests import Author
from levelcast.byzantine.fetch import Fetcher
from levelcast.byzantine.signatures import KeyedHash
from levelcast.protocol.effects import Effect, Send
from levelcast.sim.chain.liars import Liar, Withholding
from levelcast.sim.chain.mutations import CHAIN_MUTATIONS
from levelcast.sim.check.ring import InvariantBroken
from levelcast.sim.engine.world import START_NS
from levelcast.sim.scenarios.chain import ChainHistory
from levelcast.wire.chain_messages import ChainMessage, DeliveredRow
from tests.chain_parts import CalmHistory, L, ScriptedGroup
from tests.epoch_parts import EpochStage, record

P, Q, R, B = 1, 2, 3, 4


def b1(reading: Reading) -> ScriptedGroup:
    """B sends X to P, Y to Q and R. P sends M = {X}, N = {M}, and M again without acknowledgements."""
    group = ScriptedGroup(reading=reading)
    x, y = group.lie(B, 1, b"X"), group.lie(B, 1, b"Y")
    group.give(P, x)
    group.give(Q, y)
    group.give(R, y)
    m = group.mcast(P, b"M")
    group.now += L // 2
    n = group.mcast(P, b"N")
    for member in (Q, R):
        group.give(member, m, n)
    group.now += L // 2
    again = group.resend(P)
    group.give_all(*again)
    for _ in range(5):  # Q and R acknowledge M′, and after L by C-7 whatever is a candidate
        group.now += L
        for member in (Q, R, P):
            group.give_all(group.mcast(member))
    group.give_all(group.lie(B, 2, b"Z", acks=[y]))
    return group


def test_b1_read_by_payload_breaks_agreement() -> None:
    group = b1(Reading.BY_PAYLOAD)
    assert group.payloads(P, B) == [(b"X",)]
    assert group.payloads(Q, B) == [(b"Y",)]


def test_b1_settled_keeps_agreement() -> None:
    group = b1(Reading.SETTLED)
    assert group.payloads(P, P)[0] == (b"M",)
    delivered = {payloads[0] for member in (P, Q, R) if (payloads := group.payloads(member, B))}
    assert len(delivered) <= 1


def test_b2_read_as_this_very_message_stops_a_member() -> None:
    """Nobody lies in the note's history; a random one with a member that lies is as good."""
    with CHAIN_MUTATIONS["message-settles"].applied():
        assert "validity" in str(ChainHistory(13).run().broken)
    assert ChainHistory(13).run().broken is None


class EquivocatesOnce(Withholding):
    """Sends another version of its first message to one member, and then nothing more."""

    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        if message.header.seq > 1 or not message.header.slot:
            return ()
        minority = self.signed(message, packets=(b"minority",))
        first, *rest = self.others
        return [Send(first, minority), *(Send(to, message) for to in rest)]


def test_b3_one_equivocation_costs_few_time_outs() -> None:
    with_clauses = CalmHistory(EquivocatesOnce).resent()
    stale, convicted = CHAIN_MUTATIONS["stale-acknowledged"], CHAIN_MUTATIONS["nobody-convicted"]
    with stale.applied(), convicted.applied():
        without = CalmHistory(EquivocatesOnce).resent()
    assert with_clauses <= 10
    assert without > 5 * max(1, with_clauses)


@pytest.mark.parametrize("clause", ["stale-acknowledged", "nobody-convicted"])
def test_b3_each_of_the_two_clauses_helps(clause: str) -> None:
    both = CHAIN_MUTATIONS["stale-acknowledged"], CHAIN_MUTATIONS["nobody-convicted"]
    with both[0].applied(), both[1].applied():
        without = CalmHistory(EquivocatesOnce).resent()
    with CHAIN_MUTATIONS[clause].applied():
        one = CalmHistory(EquivocatesOnce).resent()
    assert one < without


class SendsToOne(Withholding):
    """Sends each own message to the same member only."""

    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        return (Send(self.others[0], message),)


def test_b4_what_one_member_got_is_fetched_from_it() -> None:
    assert CalmHistory(SendsToOne).resent() == 0
    # Members that lack it could also pull what the one member has delivered (C-4.2), later than L in a real network.
    with CHAIN_MUTATIONS["never-requested"].applied(), CHAIN_MUTATIONS["nothing-pulled"].applied():
        assert CalmHistory(SendsToOne).resent() > 20


class LeavesOneOut(Withholding):
    """Never sends its first message."""

    def own(self, message: ChainMessage, now: int) -> Iterable[Effect]:
        return (Send(to, message) for to in self.others if message.header.seq > 1)


def test_b14_nothing_after_a_gap_is_acknowledged() -> None:
    assert CalmHistory(LeavesOneOut).resent() == 0
    with CHAIN_MUTATIONS["gaps-acknowledged"].applied():
        assert CalmHistory(LeavesOneOut).resent() > 20


def test_b7_c6_with_what_was_signed_ahead_looks_like_a_lie() -> None:
    with CHAIN_MUTATIONS["resent-with-acknowledgements"].applied(), pytest.raises(InvariantBroken, match="honest"):
        CalmHistory(EquivocatesOnce).run_checked()


def delivered_by_statements(statements: Iterable[int]) -> list[tuple[bytes, ...]]:
    """B sends X to P only; these members state that they have delivered it."""
    group = ScriptedGroup()
    x = group.lie(B, 1, b"X")
    group.give(P, x)
    catch_up = StatedDeliveries(group.members[P])
    row = DeliveredRow(*group.cite(x), x.header.content_digest)
    for member in statements:
        author = Author(member, group.config.domain, group.config.epoch, KeyedHash(member))
        group.done(P, catch_up.note(author.statement([row]), group.now))
    return group.payloads(P, B)


def test_b11_one_member_is_not_believed() -> None:
    assert delivered_by_statements([B]) == []
    assert delivered_by_statements([B, B]) == []
    assert delivered_by_statements([B, Q]) == [(b"X",)]
    with CHAIN_MUTATIONS["one-statement-enough"].applied():
        assert delivered_by_statements([B]) == [(b"X",)]


def away() -> str | None:
    """A member is away until the others are far beyond its window; return the guarantee that is violated."""
    history = CalmHistory(Liar, lasting_ns=900_000_000)
    absent = history.nodes[max(history.checker.honest)]
    history.world.at(START_NS + 60_000_000, absent.crash)
    history.world.at(START_NS + 800_000_000, absent.start)
    return history.run().broken


def test_b12_a_member_that_was_away_catches_up() -> None:
    assert away() is None
    with CHAIN_MUTATIONS["nothing-pulled"].applied():
        assert str(away()).startswith("validity")


def test_b13_what_enough_members_state_is_delivered_without_chains() -> None:
    with CHAIN_MUTATIONS["nothing-stated"].applied():
        assert delivered_by_statements([B, Q]) == []
    assert delivered_by_statements([B, Q]) == [(b"X",)]


def b8() -> bool:
    """Q and R have discarded d, P has not; B cites d; is P's message, which acknowledges B's, acknowledged?"""
    group = ScriptedGroup()
    d = group.mcast(P, b"d")
    group.give_all(d)
    group.rounds(12)
    for member in (Q, R):
        group.members[member].collect()
        assert group.cite(d) not in group.members[member].graph.nodes
    x = group.lie(B, 1, b"X", acks=[d])
    group.give_all(x)
    m = group.mcast(P, b"M")
    assert group.cite(x) in group.acks(m)
    group.give(Q, m)
    return group.cite(m) in group.acks(group.mcast(Q))


def test_b8_an_old_citation_means_the_same_everywhere() -> None:
    assert b8()
    with CHAIN_MUTATIONS["digests-discarded"].applied():
        assert not b8()


def b9() -> list[int]:
    """Q and R acknowledge X, which P has not received. Return whom P asks for it, one after the other."""
    group = ScriptedGroup()
    x = group.lie(B, 1, b"X")
    for member in (Q, R):
        group.give(member, x)
        group.give_all(group.mcast(member))
    fetcher, asked = Fetcher(group.members[P]), list[int]()
    for _ in range(60):
        group.now += 10
        asked += [each.to for each in fetcher.requests(group.now) if isinstance(each, Send)]
    return asked


def test_b9_a_cited_message_is_requested_until_it_comes() -> None:
    asked = b9()
    assert set(asked) == {Q, R}
    assert len(asked) > 4
    with CHAIN_MUTATIONS["requested-once"].applied():
        assert len(b9()) == 1


def b10() -> int:
    """Q receives nothing for longer than L, so that it repeats by C-6 what the others have delivered and discarded.

    Return how many of its messages P lacks at the end.
    """
    stage = EpochStage(record(1, (P, Q, R, B)), (P, Q, R, B))
    stage.run(30)
    stage.passes = lambda sender, to, message: to != Q
    stage.run(120)
    stage.passes = lambda sender, to, message: True
    stage.run(250)
    return stage.nodes[Q].machines[1].member.seq - stage.nodes[P].machines[1].member.count(Q)


def test_b10_an_old_message_that_is_repeated_is_looked_at() -> None:
    assert b10() < 5
    with CHAIN_MUTATIONS["old-versions-refused"].applied():
        assert b10() > 20


def j1() -> tuple[bool, bool]:
    """Q acknowledges X, restarts, and is sent Y. Return whether it acknowledges X, and Y after that."""
    group = ScriptedGroup()
    x, y = group.lie(B, 1, b"X"), group.lie(B, 1, b"Y")
    group.give(Q, x)
    first = group.mcast(Q)
    group.restart(Q)
    group.give(Q, y)
    later = [group.mcast(Q) for _ in range(3)]
    return group.cite(x) in group.acks(first), any(group.cite(y) in group.acks(each) for each in later)


def test_j1_a_restarted_member_acknowledges_no_other_version() -> None:
    assert j1() == (True, False)
    with CHAIN_MUTATIONS["acknowledged-not-journaled"].applied():
        assert j1() == (True, True)
