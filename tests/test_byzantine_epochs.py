"""Epochs (rules E-1 to E-6 of `levelcast.byzantine.epochs`) and senders outside the group (MR §3).

Members 1 to 4 of the first epoch; f = 1, Q = 3. Random histories are in `tests/test_sim_chain.py`.
"""

from __future__ import annotations

import pytest

from levelcast.byzantine import member as member_module
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.refusal import ChainRefusal
from levelcast.protocol.effects import Effect, EpochSigned, Record, Send
from levelcast.sim.chain.mutations import CHAIN_MUTATIONS
from levelcast.wire.chain_codec import unpack_content
from levelcast.wire.chain_messages import (
    ChainMessage,
    ChainStatement,
    ChainSuccession,
    Citation,
    EpochRecord,
    PriorPlace,
)
from levelcast.wire.messages import Repair
from tests.chain_parts import ScriptedGroup
from tests.epoch_parts import EpochStage, record, succession, vote

MEMBERS = (1, 2, 3, 4)
FIRST = record(1, MEMBERS)
SECOND = record(2, (3, 4, 5, 6))
OTHER = record(2, (6, 5, 4, 3))


def propose(stage: EpochStage, about: EpochRecord, *members: int) -> None:
    for member in members:
        stage.nodes[member].propose(about)


def epochs(stage: EpochStage) -> list[int]:
    return [machine.epoch for machine in stage.nodes.values()]


# -- E-1, E-2: successions ---------------------------------------------------------------------------------


def test_a_record_needs_q_votes() -> None:
    stage = EpochStage(FIRST, MEMBERS)
    propose(stage, SECOND, 1, 2)
    stage.run(60)
    assert set(epochs(stage)) == {1}
    propose(stage, SECOND, 3)
    stage.run(60)
    assert set(epochs(stage)) == {2}


def two_successors() -> set[EpochRecord]:
    """The liar 4 votes for both records. 1 and 2 sign one of them; after that, 1 and 3 are told the other one.

    Return the records for which votes of Q members exist.
    """
    stage = EpochStage(FIRST, MEMBERS, absent=[4])
    stage.passes = lambda sender, to, message: False
    propose(stage, SECOND, 1, 2)
    stage.run(50)
    propose(stage, OTHER, 1, 2, 3)
    stage.run(50)
    votes = [(message.record, vote.member) for _, message in stage.sent if isinstance(message, ChainSuccession)
             for vote in message.votes]  # fmt: skip
    return {each for each, _ in votes if len({member for about, member in votes if about == each} | {4}) >= 3}


def test_e1_no_epoch_has_two_successors() -> None:
    assert two_successors() == {SECOND}


def test_e1_a_member_that_signs_twice_splits_the_group() -> None:
    with CHAIN_MUTATIONS["second-successor"].applied():
        assert two_successors() == {SECOND, OTHER}


def test_e1_the_signature_is_journaled_before_it_is_sent_and_survives_a_restart() -> None:
    stage = EpochStage(FIRST, MEMBERS)
    assert stage.nodes[1].propose(SECOND)
    effects = stage.nodes[1].step((), 0)
    assert [type(each) for each in effects if _is_about_epochs(each)] == [Record, Send]
    stage.done(1, effects)
    stage.nodes[1] = stage.make(1)
    assert not stage.nodes[1].propose(OTHER)
    assert stage.nodes[1].propose(SECOND)


def _is_about_epochs(effect: Effect) -> bool:
    if isinstance(effect, Record):
        return isinstance(effect.entry, EpochSigned)
    return isinstance(effect, Send) and isinstance(effect.message, ChainSuccession)


BAD_SUCCESSIONS: dict[str, tuple[ChainSuccession, ChainRefusal]] = {
    "of an epoch that is not known": (succession(record(4, MEMBERS), 1, 2, 3), ChainRefusal.EPOCH),
    "voted by a stranger": (succession(SECOND, 1, 2, 9), ChainRefusal.STRANGER),
    "with the signature of another": (
        succession(SECOND, 1, 2)._replace(votes=(vote(1, SECOND), vote(2, SECOND), vote(1, SECOND)._replace(member=3))),
        ChainRefusal.SIGNATURE,
    ),
    "with votes for another record": (
        succession(SECOND, 1, 2)._replace(votes=tuple(vote(each, OTHER) for each in (1, 2, 3))),
        ChainRefusal.SIGNATURE,
    ),
}


@pytest.mark.parametrize("name", BAD_SUCCESSIONS)
def test_a_bad_succession_is_refused_with_one_reason(name: str) -> None:
    message, reason = BAD_SUCCESSIONS[name]
    stage = EpochStage(FIRST, MEMBERS)
    stage.give(1, message)
    assert stage.nodes[1].refused == {reason: 1}
    assert stage.nodes[1].epoch == 1


def test_without_checks_of_votes_a_forged_record_is_in_force() -> None:
    with CHAIN_MUTATIONS["votes-unchecked"].applied():
        stage = EpochStage(FIRST, MEMBERS)
        stage.give(1, BAD_SUCCESSIONS["with votes for another record"][0])
    assert stage.nodes[1].epoch == 2


def test_a_repeated_succession_is_known() -> None:
    stage = EpochStage(FIRST, MEMBERS)
    for _ in range(2):
        stage.give(1, succession(SECOND, 1, 2, 3))
    assert stage.nodes[1].epoch == 2
    assert stage.nodes[1].refused == {ChainRefusal.KNOWN: 1}


# -- E-3 to E-5: messages of two epochs ---------------------------------------------------------------------


def change_with_packets() -> EpochStage:
    """Members 1 and 2 leave, 5 and 6 join, with packets in flight in the old epoch."""
    stage = EpochStage(FIRST, (1, 2, 3, 4, 5, 6))
    stage.run(10)
    for number in range(20):
        stage.nodes[3].submit([b"%d" % number])
        stage.run(1)
    propose(stage, SECOND, *MEMBERS)
    for number in range(20, 40):
        stage.nodes[3].submit([b"%d" % number])
        stage.run(1)
    stage.run(200)
    return stage


def test_e2_messages_of_both_epochs_are_delivered_in_order() -> None:
    stage = change_with_packets()
    assert set(epochs(stage)) == {2}
    for node in (3, 4):
        assert [packet for _, sender, packet in stage.packets[node] if sender == 3] == [b"%d" % n for n in range(40)]
    old, new = ([packet for epoch, _, packet in stage.packets[4] if epoch == each] for each in (1, 2))
    assert old
    assert new
    assert [packet for _, _, packet in stage.packets[1]] == old
    assert [packet for _, _, packet in stage.packets[5]] == new


def test_a_first_message_names_the_last_one_with_packets_with_a_proof() -> None:
    stage = change_with_packets()
    firsts = {
        message.header.sender: unpack_content(message.content)
        for _, message in stage.sent
        if isinstance(message, ChainMessage) and (message.epoch, message.header.seq) == (2, 1)
    }
    assert {sender: len(content.proofs) for sender, content in firsts.items()} == {3: 2, 4: 2, 5: 0, 6: 0}
    assert firsts[5].prior == PriorPlace()
    assert firsts[3].prior.epoch == 1


def named(prior: PriorPlace, proofs: tuple[bytes, ...]) -> bool:
    """Return whether a first message of member 4 in the second epoch is accepted with this prior message."""
    return change_with_packets().nodes[3].is_proved(4, prior, proofs)


def test_e3_a_prior_message_needs_proofs_of_f_plus_1_members() -> None:
    stage = change_with_packets()
    (content,) = {
        unpack_content(message.content)
        for _, message in stage.sent
        if isinstance(message, ChainMessage) and (message.epoch, message.header.seq, message.header.sender) == (2, 1, 4)
    }
    prior, proofs = content.prior, content.proofs
    rules = stage.nodes[5]
    assert rules.is_proved(4, prior, proofs)
    beyond = prior._replace(seq=prior.seq + 1_000)
    bad = {
        "none": (prior, ()),
        "one": (prior, proofs[:1]),
        "one twice": (prior, (proofs[0], proofs[0])),
        "of less": (beyond, proofs),
        "of another epoch": (prior._replace(epoch=2), proofs),
        "of an unknown epoch": (prior._replace(epoch=9), proofs),
        "damaged": (prior, (proofs[0], proofs[1][:-1])),
        "no datagram": (prior, (proofs[0], b"x")),
        "without a message": (PriorPlace(), proofs),
    }
    assert [what for what, (place, given) in bad.items() if rules.is_proved(4, place, given)] == []
    assert not rules.is_proved(9, prior, proofs)
    with CHAIN_MUTATIONS["prior-unproved"].applied():
        assert rules.is_proved(4, beyond, proofs)


def delivered_early() -> bool:
    """Member 4 lacks messages of the old epoch; does it deliver packets of the new one before them?"""
    stage = EpochStage(FIRST, (1, 2, 3, 4, 5, 6))
    stage.run(20)
    stage.nodes[3].submit([b"old"])
    stage.passes = lambda sender, to, message: (
        to != 4
        or not isinstance(message, Repair | ChainMessage | ChainStatement)
        or all(getattr(item, "epoch", 0) != 1 for item in getattr(message, "items", (message,)))
    )
    stage.run(6)
    propose(stage, SECOND, 1, 2, 3)
    stage.run(15)
    stage.nodes[3].submit([b"new"])
    stage.run(150)
    stage.passes = lambda sender, to, message: True
    stage.run(400)
    from_3 = [packet for _, sender, packet in stage.packets[4] if sender == 3]
    assert sorted(from_3) == [b"new", b"old"]
    return from_3 == [b"new", b"old"]


def test_e4_a_first_message_waits_for_the_one_that_it_names() -> None:
    assert not delivered_early()
    with CHAIN_MUTATIONS["epochs-unordered"].applied():
        assert delivered_early()


def test_a_member_that_restarts_continues_in_both_epochs() -> None:
    stage = change_with_packets()
    before = stage.nodes[3].machines[2].member.vector
    stage.nodes[3] = stage.make(3)
    assert sorted(stage.nodes[3].machines) == [1, 2]
    assert stage.nodes[3].machines[2].member.vector == before
    stage.nodes[3].submit([b"after"])
    stage.run(40)
    assert (2, 3, b"after") in stage.packets[5]


def test_a_member_of_both_epochs_that_was_away_takes_part_in_both() -> None:
    stage = EpochStage(FIRST, (1, 2, 3, 4, 5, 6), absent=[4])
    stage.run(10)
    stage.nodes[3].submit([b"old"])
    stage.run(20)
    propose(stage, SECOND, 1, 2, 3)
    stage.run(100)
    stage.nodes[4] = stage.make(4)
    stage.run(400)
    assert stage.nodes[4].epoch == 2
    assert [packet for _, _, packet in stage.packets[4]] == [b"old"]


# -- E-6: the end of an epoch -------------------------------------------------------------------------------


def test_e5_an_old_epoch_rests_and_then_ends_with_its_digests() -> None:
    stage = EpochStage(FIRST, (1, 2, 3, 4, 5, 6), linger_ns=2 * 10**9)
    stage.run(40)
    propose(stage, SECOND, *MEMBERS)
    stage.run(200)
    sent = len([1 for _, message in stage.sent if isinstance(message, ChainMessage) and message.epoch == 1])
    stage.run(200)
    rest = [1 for _, message in stage.sent if isinstance(message, ChainMessage) and message.epoch == 1][sent:]
    assert len(rest) <= 4 * 6  # one per member and L
    stage.run(400)
    assert [sorted(machine.machines) for machine in stage.nodes.values()] == [[], [], [2], [2], [2], [2]]
    restarted = stage.make(3)
    assert sorted(restarted.machines) == [2]


# -- senders outside the group ------------------------------------------------------------------------------


def test_a_sender_outside_the_group_is_delivered_by_all_members() -> None:
    stage = EpochStage(record(1, MEMBERS, [9]), (*MEMBERS, 9))
    stage.passes = lambda sender, to, message: sender != 9 or to == 2  # one member receives it and serves the others
    stage.nodes[9].submit([b"one", b"two"])
    stage.run(60)
    assert all([packet for _, _, packet in stage.packets[member]] == [b"one", b"two"] for member in MEMBERS)
    outside = stage.nodes[9].machines[1].member
    assert outside.seq == 1


def test_a_sender_outside_the_group_repeats_until_f_plus_1_members_state_the_delivery() -> None:
    stage = EpochStage(record(1, MEMBERS, [9]), (*MEMBERS, 9))
    stage.passes = lambda sender, to, message: sender != 9
    stage.nodes[9].submit([b"lost"])
    stage.run(100)
    stage.passes = lambda sender, to, message: True
    stage.run(100)
    again = len([1 for node, _ in stage.sent if node == 9])
    assert all((1, 9, b"lost") in stage.packets[member] for member in MEMBERS)
    stage.run(200)
    assert len([1 for node, _ in stage.sent if node == 9]) == again


def test_a_sender_outside_the_group_continues_in_the_next_epoch() -> None:
    stage = EpochStage(record(1, MEMBERS, [9]), (1, 2, 3, 4, 5, 6, 9))
    stage.nodes[9].submit([b"one"])
    stage.run(30)
    propose(stage, record(2, (3, 4, 5, 6), [9]), *MEMBERS)
    stage.run(30)
    stage.nodes[9].submit([b"two"])
    stage.run(200)
    assert [packet for _, _, packet in stage.packets[4]] == [b"one", b"two"]
    assert [packet for _, _, packet in stage.packets[5]] == [b"two"]


def chains_of_an_outsider() -> list[tuple[bytes, ...]]:
    """Members 1 and 2 acknowledge X of the liar 4, and so does a sender outside the group. Return what 1 delivers."""
    group = ScriptedGroup(outside=(9,))
    x = group.lie(4, 1, b"X")
    for member in (1, 2):
        group.give(member, x)
        group.give(1, group.mcast(member))
    message = group.lie_outside(9, 1, b"mine", acks=[group.cite(x)])
    if member_module.is_from_outside(message.header):
        group.give(1, message)
    return group.payloads(1, 4)


def test_x1_what_a_sender_outside_the_group_acknowledges_is_no_chain() -> None:
    assert chains_of_an_outsider() == []
    with CHAIN_MUTATIONS["outsider-counts"].applied():
        assert chains_of_an_outsider() == [(b"X",)]


def test_two_versions_of_a_sender_outside_the_group_convict_it() -> None:
    group = ScriptedGroup(outside=(9,))
    one, other = group.lie_outside(9, 1, b"X"), group.lie_outside(9, 1, b"Y")
    group.give(1, one)
    assert group.cite(one) in group.acks(group.mcast(1))
    group.give(1, other)
    assert group.members[1].convictions.members == (9,)
    group.give(1, group.lie_outside(9, 2, b"Z"))
    assert all(ack.sender != 9 for ack in group.acks(group.mcast(1)))


BAD_OUTSIDE = {
    "with a slot": ({"slot": 3}, ChainRefusal.OUTSIDE),
    "with acknowledgements": ({"acks": (Citation(2, 1, bytes(32)),)}, ChainRefusal.OUTSIDE),
}


@pytest.mark.parametrize("name", BAD_OUTSIDE)
def test_a_sender_outside_the_group_neither_acknowledges_nor_has_slots(name: str) -> None:
    changes, reason = BAD_OUTSIDE[name]
    stage = EpochStage(record(1, MEMBERS, [9]), (*MEMBERS, 9))
    message = ScriptedGroup(outside=(9,)).lie_outside(9, 1, b"X", **changes)  # type: ignore[arg-type]
    stage.give(1, message)
    member = stage.nodes[1].machines[1].member
    assert isinstance(member, ChainMember)
    assert dict(member.refused) == {reason: 1}
    assert not member.chain.graph.nodes
    with CHAIN_MUTATIONS["outsider-acknowledges"].applied():
        stage.give(1, message)
    assert member.refused == {reason: 1}
    assert len(member.chain.graph.nodes) > 0
