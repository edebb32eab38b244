"""The parts of the benchmark `paper`, each on a small case whose answer is known."""

from __future__ import annotations

import pytest

from benchmarks.layers import passes_to_detect
from benchmarks.paper_layers import FIRST_SECONDARY, Deathwatch, by_schedule, in_simulator, two_layers
from benchmarks.paper_nacks import BRANCH_LOSS, Case, below, cases, expected_share, in_bulk, predicted
from benchmarks.paper_nacks import in_simulator as nacks_in_simulator
from benchmarks.paper_tokens import LOADS, LOSSES, VARIANTS, all_work
from levelcast.ring.secondary import Secondary
from levelcast.sim.scenarios.steady import MS
from levelcast.timing.nack_sets import even_sets, tree_sets
from levelcast.wire.messages import GroupToken


@pytest.mark.parametrize(("receivers", "layers"), [(30, 1), (100, 2), (64, 3)])
def test_turns_alone_give_the_papers_passes(receivers: int, layers: int) -> None:
    found = by_schedule(receivers, layers, 50)
    assert found.worst == passes_to_detect(receivers, layers) == found.ring
    assert 1 <= found.mean <= found.worst
    assert (layers - 1) * found.ring < found.know <= layers * found.ring


def test_a_death_in_the_simulator_is_missed_after_one_round() -> None:
    ring, primary, *secondaries = in_simulator(quick=True)
    for one in (ring, primary):
        assert one.ring <= one.asked < one.ring + 1
        assert one.reported > one.asked
    for one in secondaries:
        assert one.reported > 2 * one.ring, "a group waits for k_r rounds"


def test_a_tree_of_two_layers_follows_and_finds_its_dead() -> None:
    tree = two_layers(3, 2, 0.0, 1)
    tree.form()
    assert all(isinstance(node.machine, Secondary) and node.machine.primary for node in tree.secondaries)
    watch = Deathwatch(tree.world.nodes[FIRST_SECONDARY], GroupToken, 2)
    tree.world.watchers.append(watch)
    tree.world.run(tree.world.now + 1_000 * MS)
    assert watch.died_ns is not None
    assert watch.reported_ns is not None
    assert tree.world.nodes[FIRST_SECONDARY].machine is None


def test_sets_by_the_tree_ask_once_for_a_branch_and_all_at_once_asks_for_everybody() -> None:
    members, branches = 24, 4
    places = below(members, branches)
    assert sorted(places) == list(range(1, members + 1))
    assert {list(places.values()).count(branch) for branch in range(1, branches + 1)} == {members // branches}
    plain = in_bulk(Case("all at once", None), members, branches, 200)
    tree = tree_sets({member: str(place) for member, place in places.items()})
    by_tree = in_bulk(Case("tree", tree), members, branches, 200)
    assert plain.requests >= plain.missed
    assert by_tree.requests < 0.4 * plain.requests
    assert by_tree.rounds > plain.rounds, "and it takes longer"
    assert expected_share(members, branches) == pytest.approx(plain.missed / members, rel=0.1)
    assert 0 < BRANCH_LOSS < 1


def test_arrays_agree_with_the_simulator() -> None:
    members, branches = 12, 3
    tree = Case("tree", tree_sets({member: str(place) for member, place in below(members, branches).items()}))
    real = nacks_in_simulator((tree, members, branches, 1, 10_000 * MS))
    bulk = in_bulk(tree, members, branches, 500)
    assert real.losses > 10
    assert real.late == 0
    assert real.per_loss == pytest.approx(bulk.requests, abs=0.4)


def test_what_the_paper_expects_of_sets() -> None:
    assert predicted(Case("", None), 6.0) == 6.0
    assert predicted(Case("", even_sets(2)), 6.0) == 3.0
    assert predicted(Case("", even_sets(8)), 6.0) == 1.0
    assert predicted(Case("", None), 0.0) is None
    assert {case.count for case in cases(24, 4)} == {1, 2, 4, 8}


def test_every_token_is_measured_at_every_load_and_loss() -> None:
    work = all_work(quick=False)
    assert len(work) == len(LOADS) * len(LOSSES) * len(VARIANTS)
    assert all(8_000 * MS <= lasting_ns <= 600_000 * MS for *_, lasting_ns in work)
