"""MR as printed: its examples, its figures, its latencies. Sections are those of the paper."""

from __future__ import annotations

import math

import pytest

from levelcast.byzantine import turns
from levelcast.byzantine.config import ChainConfig
from levelcast.byzantine.latency import chained_ns, flow_controlled_ns
from levelcast.byzantine.turns import ByTurn
from levelcast.sim.chain.mutations import CHAIN_MUTATIONS
from levelcast.sim.chain.paper import PaperRun
from levelcast.sim.engine.world import START_NS
from levelcast.wire.chain_messages import ChainMessage
from tests.chain_parts import ScriptedGroup

P, Q, R, S = 1, 2, 3, 4


def test_example_of_acknowledgement_chaining() -> None:
    """MR §4.1: M1 to M5; M1 and M2 are deliverable with one signed acknowledgement of each message."""
    group = ScriptedGroup(liars=())
    messages: list[ChainMessage] = []
    for number, member in enumerate((P, Q, R, P, S), 1):
        message = group.mcast(member, b"m%d" % number)
        group.give_all(message)
        messages.append(message)
    m1, m2, m3, m4, _ = messages
    cited = [group.acks(message) for message in messages]
    assert cited == [set(), {group.cite(m1)}, {group.cite(m2)}, {group.cite(m3)}, {group.cite(m4)}]
    for member in (P, Q, R, S):
        assert [packets for _, _, packets in group.delivered[member]] == [(b"m1",), (b"m2",)]


def test_example_of_turns_comes_out_as_printed() -> None:
    """MR §5: n = 5, S/T = 2; M0 to M7, and M0 is delivered 7T + 4U after it is sent."""
    transmit_ns, verify_ns = 1_000_000, 100_000
    run = PaperRun(n=5, hops=2, transmit_ns=transmit_ns, verify_ns=verify_ns)
    run.until_turn(9)
    expected = [(), (), (), (0,), (0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 4)]
    assert [run.acknowledged(turn) for turn in range(8)] == expected
    assert [run.sender(turn) for turn in range(8)] == [0, 1, 2, 3, 4, 0, 1, 2]
    # p1 signs the last chain itself, in M6; everybody else has to receive and verify it.
    others = {run.delivery_ns(0, member) for member in (0, 2, 3, 4)}
    assert others == {7 * transmit_ns + 4 * verify_ns}
    assert run.delivery_ns(0, 1) == 6 * transmit_ns + 3 * verify_ns
    # Each digest appears in S/T + 1 signed sets.
    assert sum(1 in run.acknowledged(turn) for turn in range(9)) == 3


@pytest.mark.parametrize(("hops", "signs"), [(4, True), (5, False), (7, False)])
def test_rule_3_as_printed_never_signs_if_signing_takes_a_rotation(hops: int, signs: bool) -> None:
    """MR §5 states n ≥ S/T; it must be n > S/T."""
    run = PaperRun(n=5, hops=hops, transmit_ns=1_000_000, verify_ns=0)
    run.until_turn(30)
    assert any(run.acknowledged(turn) for turn in range(30))  # here, whatever S/T is
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "is_time_to_sign", lambda distance, hops, n: distance == hops)
        printed = PaperRun(n=5, hops=hops, transmit_ns=1_000_000, verify_ns=0)
        printed.world.run(START_NS + 20_000_000_000)
    assert bool(printed.messages) == signs


def test_latency_of_nine_workstations() -> None:
    """MR §5: S = 12, U = 1, T = 1.5 ms; the paper has about 105 ms, and 30 to 40 ms with flow control."""
    assert chained_ns(9, 12_000_000, 1_000_000, 1_500_000) == 103_000_000
    assert flow_controlled_ns(9, 12_000_000, 1_000_000, 1_500_000) == 31_000_000


def test_quorum_is_the_papers() -> None:
    for n in range(1, 40):
        config = ChainConfig(tuple(range(n)), window=4 * n)
        assert config.quorum == math.ceil((2 * n + 1) / 3)
        assert 3 * config.f < n


# -- figures -----------------------------------------------------------------------------------------------


def figure_1() -> tuple[ScriptedGroup, ChainMessage]:
    """p lies: M1′ to q, M1″ to r and s. q sends M2, which acknowledges M1′."""
    group = ScriptedGroup(liars=(P,))
    one, other = group.lie(P, 1, b"m1'"), group.lie(P, 1, b"m1''")
    group.give(Q, one)
    group.give(R, other)
    group.give(S, other)
    m2 = group.mcast(Q, b"m2")
    assert group.acks(m2) == {group.cite(one)}
    group.give(R, m2)
    group.give(S, m2)
    return group, m2


def test_figure_1_is_stuck_without_c6() -> None:
    with CHAIN_MUTATIONS["no-resend"].applied():
        group, _ = figure_1()
        group.rounds(12)
    assert all((b"m2",) not in group.payloads(member, Q) for member in (Q, R, S))


def test_figure_1_is_resolved() -> None:
    group, _ = figure_1()
    assert group.rounds(12) > 0
    assert all((b"m2",) in group.payloads(member, Q) for member in (Q, R, S))


def versions_of_an_acknowledgement(versions: dict[int, bytes]) -> tuple[ScriptedGroup, ChainMessage]:
    """p sends M1. The liar q acknowledges it in M2, of which each honest member gets a version."""
    group = ScriptedGroup(liars=(Q,))
    m1 = group.mcast(P, b"m1")
    group.give(R, m1)
    group.give(S, m1)
    for member, packet in versions.items():
        group.give(member, group.lie(Q, 1, packet, acks=[m1]))
    return group, m1


def send_once(group: ScriptedGroup, *members: int) -> None:
    for member in members:
        group.give_all(group.mcast(member))


def test_figure_2_is_not_stuck_as_drawn() -> None:
    """n = 4: the liar's signature, p's own acknowledgement and r's make three chains, without C-7."""
    with CHAIN_MUTATIONS["no-late-acknowledgement"].applied():
        group, _ = versions_of_an_acknowledgement({R: b"M2'", S: b"M2''"})
        send_once(group, R, S, P)
        # p itself lacks the versions of M2: it requests them, or what the others have delivered (C-4.2).
        assert all((b"m1",) in group.payloads(member, P) for member in (R, S))


def three_versions() -> list[bool]:
    """Return who delivers M1 if each honest member, p too, gets its own version of M2 (history B6)."""
    group, _ = versions_of_an_acknowledgement({P: b"one", R: b"two", S: b"three"})
    for _ in range(4):
        group.now += 600
        send_once(group, R, S, P)
    return [(b"m1",) in group.payloads(member, P) for member in (P, R, S)]


def test_three_versions_stop_a_message_without_c7() -> None:
    with CHAIN_MUTATIONS["no-late-acknowledgement"].applied():
        assert not any(three_versions())


def test_three_versions_are_resolved_by_c7() -> None:
    """Some honest member delivers M1 (MR Lemma 5); the others follow by C-4.2."""
    assert any(three_versions())


# -- C-3.4 -------------------------------------------------------------------------------------------------


def test_acknowledgements_name_only_what_is_not_covered() -> None:
    """C-3.4 (iii) is about M̂: as printed, with M, the sets of §5 would grow (M6 = {M0, M1, M2, M3})."""
    run = PaperRun(n=5, hops=2, transmit_ns=1_000_000, verify_ns=0)
    run.until_turn(40)
    assert max(len(run.acknowledged(turn)) for turn in range(40)) == 3


def test_overtaken_messages_cost_no_turn() -> None:
    """A message that arrives before the one of the turn before it counts when its turn comes."""
    config = ChainConfig((0, 1, 2, 3))
    by_turn = ByTurn(config, 2, 0, hops=0, timeout_ns=1_000)
    by_turn.heard(1, 2, 5)
    assert not by_turn.sends(5)
    by_turn.heard(0, 1, 6)
    assert by_turn.sends(6)


def test_overtaken_messages_cost_a_turn_as_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "counts_when_its_turn_comes", lambda slot, turn, config: False)
    by_turn = ByTurn(ChainConfig((0, 1, 2, 3)), 2, 0, hops=0, timeout_ns=1_000)
    by_turn.heard(1, 2, 5)
    by_turn.heard(0, 1, 6)
    assert not by_turn.sends(6)
    by_turn.tick(1_006)
    assert by_turn.sends(1_006)
