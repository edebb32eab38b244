"""Memory of a member is bounded in bytes, whatever f members do (C-10), and digests end with their epoch."""

from __future__ import annotations

import pytest

from levelcast.byzantine.digests import Author
from levelcast.byzantine.graph import NODE_BYTES
from levelcast.byzantine.member import ChainMember
from levelcast.byzantine.signatures import KeyedHash
from levelcast.sim.chain.mutations import CHAIN_MUTATIONS
from levelcast.sim.chain.rate import GroupTiming, RateRun
from levelcast.sim.engine.world import START_NS
from levelcast.wire.chain_codec import MAX_ACKS, MAX_CONTENT
from levelcast.wire.chain_messages import Citation
from tests.chain_parts import ScriptedGroup

MS = 1_000_000
MESSAGE_BYTES = MAX_CONTENT + 42 * MAX_ACKS + 200


def bound(run: RateRun) -> int:
    return run.config.memory_bound(MESSAGE_BYTES, MAX_ACKS, NODE_BYTES)


def hoarded(n: int, lasting_ns: int, slot_ns: int) -> tuple[RateRun, list[int]]:
    """Run a group whose liars hoard; return what an honest member holds, in bytes, at ten times of the run."""
    run = RateRun(n, GroupTiming(0, 0, MS, slot_ns), "hoarder")
    held = []
    for tenth in range(1, 11):
        run.world.run(START_NS + lasting_ns * tenth // 10)
        held.append(max(member.chain.graph.held_bytes for member in run.honest_members))
    return run, held


def check(run: RateRun, held: list[int]) -> None:
    assert max(held) < bound(run)
    assert max(held[5:]) < 1.2 * max(held[2:5])  # it does not grow once windows are full
    for member in run.honest_members:
        ledger = member.chain.ledger
        assert ledger.digest_bytes <= 64 * sum(ledger.vector) + 32 * 8
        assert min(count for sender, count in ledger.counts.items() if sender not in run.liars) > 100


@pytest.mark.parametrize("n", [4, 7])
def test_memory_is_bounded_beside_members_that_state_nothing(n: int) -> None:
    check(*hoarded(n, 150 * n * 10 * MS, 10 * MS))


@pytest.mark.campaign
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("n", [4, 7])
def test_memory_is_bounded_for_an_hour(n: int) -> None:
    check(*hoarded(n, 3_600_000 * MS, 250 * MS))


def cited_versions(limit: int) -> int:
    """B sends a message that cites many versions of one number, and then those versions; return how many are kept."""
    group = ScriptedGroup()
    versions = [group.lie(4, 1, b"%d" % number) for number in range(limit)]
    author = Author(4, group.config.domain, group.config.epoch, KeyedHash(4))
    content = group.lie(4, 3).content
    group.give(1, author.message(3, 0, content, [group.cite(each) for each in versions]))
    for each in versions:
        group.give(1, each)
    return sum(node.message is not None for node in group.members[1].graph.versions((4, 1)))


def test_g1_an_author_keeps_two_versions_of_a_place_alive() -> None:
    assert cited_versions(50) <= 3  # two that it cites, and the direct one
    with CHAIN_MUTATIONS["citations-unlimited"].applied():
        assert cited_versions(50) == 50


def test_a_version_that_a_second_author_cites_is_wanted_after_all() -> None:
    group = ScriptedGroup()
    graph = group.members[1].graph
    refs = [Citation(4, 1, bytes([number]) * 32) for number in range(4)]
    for ref in refs:
        graph.cited(ref, 0, by=4)
    assert [ref in graph.unknown for ref in refs] == [True, True, False, False]
    graph.cited(refs[3], 0, by=2)
    assert refs[3] in graph.unknown


def test_members_of_a_run_are_members() -> None:
    run = RateRun(4, GroupTiming(0, 0, MS, 10 * MS))
    run.run(2)
    assert len(run.honest_members) == 4
    assert all(isinstance(member, ChainMember) for member in run.honest_members)
