"""The scenario `receivers`: every promise holds, at customers too, and without a clause some promise breaks."""

from __future__ import annotations

import pytest

from levelcast.edge.subscriber.delivery import Grade
from levelcast.records import each_record
from levelcast.sim.check.edge import trade
from levelcast.sim.engine.world import START_NS, SideWorld
from levelcast.sim.mutations import MUTATIONS
from levelcast.sim.run import Summary, first_failing_seed, replay_command, run_seeds
from levelcast.sim.scenarios.receivers import ReceiversHistory
from tests.ring_parts import MS, make_data
from tests.test_sim_engine_world import Puppet, make_world

SEEDS = range(5_300_000, 5_300_030)
SEARCHED = range(60)
SEARCHED_ELSEWHERE = {
    "merge-by-sequence": range(80, 90),
    "orphan-keeps-primary": range(195, 196),
    "failed-primary-keeps-line": range(6, 9),
    "former-holder-continues": range(5, 9),
    "group-of-one-unwatched": range(61, 62),
    "lines-with-rings-only": range(61, 62),
    "leaver-keeps-no-line": range(5, 6),
    "secondary-makes-late": range(313, 314),
}
"""Seeds for clauses that few histories need."""

BREAKS = {
    "other-network-accepted": "mute",
    "claims-own-have": "cover",
    "secondary-asks-the-site": "own primary",
    "orphan-keeps-primary": "liveness",
    "have-of-any-ring": "cover",
    "group-says-own-have": "cover",
    "secondary-makes-late": "undisturbed",
    "group-of-one-unwatched": "two sources",
    "lines-with-rings-only": "two sources",
    "failed-primary-keeps-line": "two sources",
    "failed-secondary-keeps-line": "liveness",
    "former-holder-continues": "one address",
    "former-holder-stops-at-once": "no gap",
    "leaver-keeps-no-line": "no gap",
    "watermark-too-early": "assertion",
    "watermark-left-out": "no hole",
    "merge-by-sequence": "merged order",
    "merge-waits-for-nobody": "merged order",
    "guaranteed-gives-up": "in order",
    "best-effort-goes-back": "in order",
    "loss-untold": "in order",
    "delivered-twice": "in order",
    "older-price-delivered": "never older",
    "latest-price-not-asked": "no hole",
    "bound-left-out": "together",
    "hold-time-untold": "together",
    "edge-counts-anew": "one numbering",
    "answers-other-records": "true records",
    "plan-without-swap": "no hole",
    "plan-from-anywhere": "in order",
}
"""What breaks first in the random search, clause by clause."""


def test_every_promise_holds_and_the_histories_are_not_empty() -> None:
    summary = Summary()
    for outcome in run_seeds("receivers", SEEDS):
        assert outcome.broken is None, f"{outcome.broken}\n{replay_command('receivers', outcome.seed)}"
        summary.add(outcome)
    assert summary.layers > len(SEEDS)
    assert summary.stripes > len(SEEDS)
    assert summary.customers > len(SEEDS)
    assert summary.delivered > 50 * len(SEEDS)
    assert summary.merged > 10 * len(SEEDS)
    assert min(summary.requests, summary.lost, summary.crashes, summary.groups) > len(SEEDS)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(9720589, id="a line of 30 kB/s retransmits what its subscriber lacks"),
        pytest.param(9724586, id="a plan adds sessions at two lines of 30 kB/s"),
        pytest.param(9730790, id="a line moves three times within the overlap of the first move"),
        pytest.param(9744907, id="a planned stop ends after the faults"),
        pytest.param(9742832, id="a planned stop of a secondary ends after the faults"),
        pytest.param(9866747, id="latest only, together: a shorter hold time is learned while records wait"),
        pytest.param(9863551, id="timing records use the credit of a membership change"),
        pytest.param(9863560, id="a plan begins before the first watermark"),
        pytest.param(9723966, id="a server that has missed a group assigns a line to a failed receiver"),
    ],
)
def test_a_history_that_once_failed_holds(seed: int) -> None:
    (outcome,) = run_seeds("receivers", [seed])
    assert outcome.broken is None, f"{outcome.broken}\n{replay_command('receivers', seed)}"


@pytest.mark.parametrize("name", BREAKS)
def test_random_search_finds_a_clause_that_is_taken_out(name: str) -> None:
    found = first_failing_seed("receivers", name, SEARCHED_ELSEWHERE.get(name, SEARCHED))
    assert found is not None
    assert (found.broken or "").split(":")[0] == BREAKS[name]


def test_every_clause_of_rule_15_and_of_the_grades_is_searched_for() -> None:
    assert {mutation.name for mutation in MUTATIONS.values() if mutation.rule in ("15", "grades")} <= BREAKS.keys()


def test_customers_of_every_grade_come_early_and_late() -> None:
    customers = []
    for seed in SEEDS[:12]:
        history = ReceiversHistory(seed)
        history.begin()
        customers += history.crowd.customers
    assert {customer.grade for customer in customers} == set(Grade)
    assert {bool(customer.sessions) for customer in customers} == {False, True}
    assert all(len(customer.lines) >= 2 for customer in customers)


# -- the world --------------------------------------------------------------------------------------------


def test_what_comes_within_a_grain_is_one_batch() -> None:
    puppets = {1: Puppet(), 2: Puppet(), 3: Puppet()}
    world = make_world(puppets)
    world.grain_ns = 4 * MS
    for sender, number in ((1, 1), (3, 2)):
        world.send(world.nodes[sender], 2, make_data(200 + sender, number))
    world.run(START_NS + 20 * MS)
    assert [(at - START_NS, len(batch)) for at, batch in puppets[2].batches if batch] == [(8 * MS, 2)]


def test_a_world_beside_another_one_has_its_time_and_its_events() -> None:
    main = make_world({1: Puppet()})
    puppets = {1: Puppet(), 2: Puppet()}
    other = make_world(puppets)
    beside = SideWorld(main, other.config, other.network, other.rng)
    beside.nodes = other.nodes
    beside.send(beside.nodes[1], 2, make_data(201, 1))
    main.run(START_NS + 6 * MS)
    assert beside.now == main.now == START_NS + 6 * MS
    assert len(puppets[2].messages) == 1


def test_a_trade_is_told_from_every_other_one() -> None:
    made = [trade(201, 7, number, START_NS) for number in (1, 2)]
    assert list(each_record(b"".join(made))) == made
    assert made[0] != made[1]
