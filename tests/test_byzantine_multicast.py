"""Rules of chain multicast one by one, without a network."""

from __future__ import annotations

import pytest

from levelcast.byzantine.config import ChainConfig
from levelcast.sim.chain.mutations import CHAIN_MUTATIONS
from tests.chain_parts import L, ScriptedGroup

P, Q, R, B = 1, 2, 3, 4


def two_versions() -> tuple[bool, bool, int]:
    """Q receives X, acknowledges it, receives Y, which R cites: does it acknowledge X, and Y?"""
    group = ScriptedGroup()
    x, y = group.lie(B, 1, b"X"), group.lie(B, 1, b"Y")
    group.give(Q, x)
    first = group.mcast(Q)
    group.give(R, y)
    group.give(Q, group.mcast(R))
    group.give(Q, y)
    later = [group.mcast(Q) for _ in range(3)]
    reached = {ref for each in later for node in [group.members[Q].graph.nodes[group.cite(each)]]
               for ref in (n.ref for n in group.members[Q].graph.below(node))}  # fmt: skip
    return group.cite(x) in group.acks(first), group.cite(y) in reached, len(group.evidence)


def test_c31_a_conflicting_version_is_kept_as_evidence_and_not_acknowledged() -> None:
    assert two_versions() == (True, False, 1)


def test_c31_without_it_two_versions_are_acknowledged() -> None:
    with CHAIN_MUTATIONS["every-version-direct"].applied():
        assert two_versions() == (True, True, 1)


def test_c31_a_version_without_acknowledgements_does_not_conflict() -> None:
    group = ScriptedGroup()
    x = group.lie(B, 1, b"X", acks=[group.lie(B, 2, b"other")])
    group.give(P, x, group.lie(B, 1, b"X"))
    assert not group.evidence
    group.give(P, group.lie(B, 1, b"X", acks=[group.lie(B, 3, b"third")]))
    assert len(group.evidence) == 1


def test_c34_a_message_with_an_unknown_past_is_not_acknowledged() -> None:
    group = ScriptedGroup()
    unknown = group.lie(B, 1, b"unknown")
    group.give(P, group.lie(B, 2, b"after", acks=[unknown]))
    assert group.acks(group.mcast(P)) == set()
    group.give(P, unknown)
    assert len(group.acks(group.mcast(P))) == 2  # what came after it, and the own message before


def test_c6_is_sent_once_without_acknowledgements() -> None:
    group = ScriptedGroup()
    group.give(P, group.lie(B, 1, b"X"))
    message = group.mcast(P, b"payload")
    assert group.resend(P) == []
    group.now += L
    (again,) = group.resend(P)
    assert again.header.acks == ()
    assert (again.header.seq, again.content) == (message.header.seq, message.content)
    group.now += L
    assert group.resend(P) == []


def test_c8_a_convicted_member_costs_no_time_out() -> None:
    group = ScriptedGroup()
    group.give(P, group.lie(B, 1, b"X"))
    group.mcast(P, b"payload")
    group.give(P, group.lie(B, 1, b"Y"))
    assert len(group.resend(P)) == 1  # at once
    group.give(P, group.lie(B, 2, b"more"))
    assert all(ack.sender != B for ack in group.acks(group.mcast(P)))


def test_c10_content_leaves_memory_when_q_members_state_it() -> None:
    """The fourth member never states anything: with MR's rule nothing would ever be discarded."""
    group = ScriptedGroup()
    for _ in range(40):
        group.now += L // 2
        for member in (P, Q, R):
            group.give_all(group.mcast(member, bytes(1_000)))
            group.members[member].collect()
    for member in (P, Q, R):
        chain = group.members[member]
        assert min(chain.ledger.vector[:3]) > 30
        assert chain.graph.content_bytes < 30_000
        assert chain.ledger.digest_bytes == 64 * sum(chain.ledger.vector)


def test_a_member_continues_after_a_restart() -> None:
    group = ScriptedGroup(liars=())
    for _ in range(3):
        for member in (P, Q, R, B):
            group.give_all(group.mcast(member, b"from %d" % member))
    before = group.members[P].ledger.vector
    seq = group.members[P].seq
    group.restart(P)
    assert group.members[P].ledger.vector == before
    assert group.mcast(P).header.seq == seq + 1


@pytest.mark.parametrize(("members", "window"), [((), 16), ((1, 1), 16), ((1, 2, 3, 4), 15)])
def test_a_group_that_cannot_work_is_refused(members: tuple[int, ...], window: int) -> None:
    with pytest.raises(ValueError, match=r"members|window"):
        ChainConfig(members, window=window)
