"""NACK reduction (MS §5.2): who asks at once, who waits and is served by another's answer, and what it costs."""

from __future__ import annotations

import doctest
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.network import NetworkError, five_cities, parse_network
from levelcast.network.stripe_config import ring_config
from levelcast.network.warnings import warnings
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, Effect, Send
from levelcast.protocol.retransmit import RetransmitScope
from levelcast.sim.run import replay_command, run_seed
from levelcast.sim.scenarios.nack import draw_sets
from levelcast.timing import nack_sets
from levelcast.timing.derive import Given, Path, Shape, contradictions, derive
from levelcast.timing.nack_sets import MOST_SETS, NackSets, even_sets, sets_of, tree_sets, tuned_sets, tuned_sizes
from levelcast.timing.rules import required_hold_ns
from levelcast.wire.messages import Repair, Request, Run
from tests.ring_parts import (
    MS,
    PIPELINED,
    START,
    Seat,
    make_config,
    make_data,
    make_ring,
    make_token,
    seat_in_ring,
    sent,
)

RING = make_ring(5)
LATE = PIPELINED.late_ns
TAU_R = PIPELINED.request_ns

rings = st.integers(1, 40).map(lambda members: tuple(range(1, members + 1)))


@st.composite
def any_sets(draw: st.DrawFn) -> NackSets:
    kind = draw(st.sampled_from(["even", "tuned", "tree"]))
    if kind == "even":
        return even_sets(draw(st.integers(1, MOST_SETS)))
    if kind == "tuned":
        return tuned_sets(draw(st.lists(st.integers(1, 9), min_size=1, max_size=MOST_SETS)))
    branches = draw(st.dictionaries(st.integers(1, 40), st.sampled_from("abc")))
    return tree_sets(branches, draw(st.integers(1, MOST_SETS)))


# -- the sets ---------------------------------------------------------------------------------------------


@given(rings, st.integers(1, MOST_SETS), st.data())
def test_even_sets_are_the_papers(members: tuple[int, ...], count: int, data: st.DataObject) -> None:
    """S_i,t = {(r + i + 1 + j·k_p) mod m for 0 <= j <= (m − i − 1) / k_p}, with receivers numbered from 0."""
    m = len(members)
    r = data.draw(st.integers(0, m - 1))
    found = sets_of(even_sets(count), members, members[r])
    for i in range(min(count, m)):
        papers = {members[(r + i + 1 + j * count) % m] for j in range((m - i - 1) // count + 1)}
        assert {member for member in members if found[member] == i} == papers


@given(any_sets(), rings, st.data())
def test_everybody_is_in_one_set_and_asks_before_its_own_turn(
    sets: NackSets, members: tuple[int, ...], data: st.DataObject
) -> None:
    site = data.draw(st.sampled_from(members))
    found = sets_of(sets, members, site)
    assert set(found) == set(members)
    first = members.index(site)
    for d in range(1, len(members) + 1):
        member = members[(first + d) % len(members)]
        assert 0 <= found[member] <= min(d - 1, sets.count - 1)


@given(any_sets(), rings)
def test_the_sets_turn_with_the_token(sets: NackSets, members: tuple[int, ...]) -> None:
    firsts = [sets_of(sets, members, site) for site in members]
    assert all(any(found[member] == 0 for found in firsts) for member in members)


def test_tuned_sets_have_their_sizes_and_the_last_takes_the_rest() -> None:
    members = tuple(range(1, 11))
    found = Counter(sets_of(tuned_sets([1, 2, 4]), members, 3).values())
    assert found == {0: 1, 1: 2, 2: 7}
    small = Counter(sets_of(tuned_sets([1, 2, 4]), (1, 2, 3), 3).values())
    assert small == {0: 1, 1: 2}


def test_a_tree_puts_one_of_each_branch_into_each_set_before_a_second_one() -> None:
    branches = {member: "abc"[member % 3] for member in range(1, 10)}
    found = sets_of(tree_sets(branches), tuple(branches), 4)
    for index in range(3):
        assert sorted(branches[member] for member in branches if found[member] == index) == ["a", "b", "c"]
    two = sets_of(tree_sets(branches, 2), tuple(branches), 4)
    assert Counter(two.values()) == {0: 3, 1: 6}
    alone = sets_of(tree_sets({}), (1, 2, 3), 1)
    assert set(alone.values()) == {0}, "who is not named hangs below nothing that it shares"


def test_even_sets_save_nothing_where_branches_repeat_around_the_ring_as_the_sets_do() -> None:
    members = tuple(range(1, 13))
    found = sets_of(even_sets(4), members, 5)
    by_branch = [{found[member] for member in members if member % 4 == branch} for branch in range(4)]
    assert all(len(sets) == 1 for sets in by_branch)


@given(st.integers(1, 500), st.data(), st.floats(0.001, 0.9))
def test_tuned_sizes_make_every_set_equally_likely_to_ask(receivers: int, data: st.DataObject, share: float) -> None:
    count = data.draw(st.integers(1, min(receivers, MOST_SETS)))
    sizes = tuned_sizes(receivers, count, share)
    assert len(sizes) == count
    assert sum(sizes) == receivers
    assert min(sizes) >= 1
    asks = []
    before = 0
    for size in sizes:
        asks.append((1 - share) ** before - (1 - share) ** (before + size))
        before += size
    if min(sizes) > 20:
        assert max(asks) < 1.5 * min(asks)


def test_sets_that_cannot_be_are_refused() -> None:
    for make in (lambda: even_sets(0), lambda: even_sets(MOST_SETS + 1), lambda: tuned_sets([])):
        with pytest.raises(ValueError, match="there must be 1 to 16"):
            make()
    with pytest.raises(ValueError, match="at least one"):
        tuned_sets([1, 0])
    with pytest.raises(ValueError, match="at least one receiver"):
        tuned_sizes(3, 4, 0.1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        tuned_sizes(3, 2, 0.0)


# -- what it costs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["pipelined", "lockstep"])
@pytest.mark.parametrize("witnesses", [1, 3])
def test_each_set_after_the_first_makes_recovery_a_request_interval_longer(mode: str, witnesses: int) -> None:
    path = Path(70 * MS, 0.01, process_ns=5 * MS)
    one = Shape("lockstep" if mode == "lockstep" else "pipelined", None if mode == "lockstep" else 50 * MS,
                witnesses, 5, 2)  # fmt: skip
    three = replace(one, nack_sets=3)
    without, with_sets = derive(path, one).timing, derive(path, three).timing
    assert with_sets.stagger_ns == 2 * without.request_ns
    assert with_sets.recovery_ns - without.recovery_ns == 2 * without.request_ns
    assert with_sets.slot_ns == without.slot_ns, "in lockstep the next site asks first"
    hears = 0 if witnesses == 1 else 1
    assert with_sets.hold_ns - without.hold_ns == (1 + hears) * 2 * without.request_ns
    assert contradictions(derive(path, three), three) == []
    short = contradictions(derive(path, three, Given(hold_ns=without.hold_ns)), three)
    assert [found.field for found in short] == ["hold"]
    assert "(k_p − 1)·τ_r" in short[0].message


def test_the_sets_are_explained_only_where_there_are_some() -> None:
    path = Path(70 * MS, 0.01)
    shape = Shape("pipelined", 50 * MS, 3, 5, 2)
    assert all(number.symbol != "k_p" for number in derive(path, shape).explained)
    sets = next(number for number in derive(path, replace(shape, nack_sets=3)).explained if number.symbol == "k_p")
    assert sets.value == 3
    assert "by 560 ms" in sets.because
    assert required_hold_ns(1, 10, 20, 3, 1, nack_sets=4) == required_hold_ns(1, 10, 20, 3, 1) + 60


# -- a receiver -------------------------------------------------------------------------------------------


def config_with(sets: NackSets) -> StripeConfig:
    config = make_config()
    return replace(config, nack=sets, timing=replace(config.timing, stagger_ns=(sets.count - 1) * TAU_R))


def seat(member: int, sets: NackSets | None = None) -> Seat:
    return seat_in_ring(config_with(sets if sets is not None else even_sets(2)), member, RING)


def asked_slots(effects: list[Effect]) -> list[int]:
    return [slot for request in sent(effects, Request) for slot in request.slots]


def test_the_first_set_asks_at_once_and_the_second_a_request_interval_later() -> None:
    """Slot 1 is member 1's: member 2 is in S_0, member 3 in S_1."""
    first, second = seat(2), seat(3)
    late = START + LATE
    assert asked_slots(first.step(at=late)) == [1]
    assert 1 not in asked_slots(second.step(at=late))
    assert 1 not in asked_slots(second.step(at=late + TAU_R - 1))
    assert second.receiver.wake_ns is not None
    assert second.receiver.wake_ns <= late + TAU_R
    assert 1 in asked_slots(second.step(at=late + TAU_R))


def test_packets_wait_for_their_set_too() -> None:
    waiting = seat(3)
    waiting.step(make_token(RING, 1, runs=[Run(201, 1, 1, 1)]), at=START + 2 * MS)
    asked = sent(waiting.step(at=START + LATE), Request)
    assert not any(request.packets for request in asked)
    asked = sent(waiting.step(at=START + LATE + TAU_R), Request)
    assert [run for request in asked for run in request.packets] == [Run(201, 1, 1, 1)]


def test_who_was_served_meanwhile_does_not_ask() -> None:
    waiting = seat(3)
    waiting.step(at=START + LATE)
    waiting.step(Repair(1, (make_token(RING, 1),)), at=START + LATE + TAU_R // 2)
    assert 1 not in asked_slots(waiting.step(at=START + LATE + TAU_R))


def test_an_answer_goes_to_all_once_for_those_who_ask_together() -> None:
    holder = seat(1)
    holder.step(at=START)
    asked = Request(2, 5, 0, (1,), ())
    now = START + LATE + 2 * MS
    answers = [effect for effect in holder.step(asked, at=now) if isinstance(effect, Send)]
    assert [(answer.to, type(answer.message)) for answer in answers] == [(GROUP, Repair)]
    assert not sent(holder.step(asked._replace(sender=3), at=now + 1), Repair)
    again = [effect for effect in holder.step(asked, at=now + TAU_R) if isinstance(effect, Send)]
    assert [answer.to for answer in again if isinstance(answer.message, Repair)] == [GROUP]


def test_what_is_long_past_nobody_else_waits_for() -> None:
    holder = seat(1)
    holder.step(at=START)
    now = START + holder.receiver.timing.recovery_ns + 1
    answers = [effect for effect in holder.step(Request(2, 5, 0, (1,), ()), at=now) if isinstance(effect, Send)]
    assert [answer.to for answer in answers if isinstance(answer.message, Repair)] == [2]


def test_an_item_is_multicast_again_after_it_may_have_been_lost() -> None:
    packet = make_data(201, 1)
    audience = RetransmitScope(PIPELINED)
    assert audience.once([packet], START) == [packet]
    assert audience.once([packet], START + LATE) == []
    assert audience.once([packet], START + LATE + 1) == [packet]


# -- the network file -------------------------------------------------------------------------------------


def cities(extra: str) -> str:
    return re.sub("\nhold = .*", "", five_cities()).replace("[timing]\n", f"[timing]\n{extra}\n", 1)


def test_a_network_file_may_ask_for_sets_and_its_timing_says_what_they_cost() -> None:
    plain = parse_network(five_cities())
    assert plain.nack() is None
    assert ring_config(plain).nack is None
    network = parse_network(cities("nack_sets = 3"))
    assert network.nack() == even_sets(3)
    assert ring_config(network).nack == even_sets(3)
    assert network.timing().stagger_ns == 2 * network.timing().request_ns
    assert network.timing().hold_ns == plain.derived().rule_6_ns + 2 * network.timing().stagger_ns
    assert any(number.symbol == "k_p" for number in network.explain())
    assert any("3 sets" in warning for warning in warnings(network))
    assert parse_network(cities("nack_sets = [1, 4]")).nack() == tuned_sets([1, 4])


def test_the_tree_of_a_network_file_is_its_regions() -> None:
    sets = parse_network(cities('nack_sets = "tree"')).nack()
    assert sets is not None
    assert sets.count == 2
    assert sorted(Counter(sets.branch_of.values()).values()) == [1, 2, 2]
    apart = cities('nack_sets = "tree"').replace('region = "europe"\n', "").replace('region = "asia-pacific"\n', "")
    apart = apart[: apart.index("[edge]")] if "[edge]" in apart else apart
    alone = parse_network(apart)
    assert alone.nack() is None
    assert any("all send requests immediately" in warning for warning in warnings(alone))


def test_a_stripe_may_have_sets_of_its_own() -> None:
    network = parse_network(five_cities() + "\n[stripes.main]\n[stripes.calm]\nnack_sets = 2\n")
    assert (network.nack("main"), network.nack("calm")) == (None, even_sets(2))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0", "has nack_sets = 0: it must be a number of sets from 1 to 16"),
        ("17", "has nack_sets = 17"),
        ("true", "has nack_sets = true"),
        ('"tre"', 'did you mean "tree"?'),
        ("[1, 0]", "has nack_sets = [1, 0]"),
        ("[]", "such as [1, 2, 4]"),
        ("6", "nack_sets has 6 sets, but the network has 5 receivers; each set needs one"),
        ("[3, 3]", "nack_sets has sets of 6 receivers, but the network has 5"),
    ],
)
def test_sets_that_make_no_sense_are_refused_with_their_line(value: str, message: str) -> None:
    text = cities(f"nack_sets = {value}")
    line = text[: text.index("nack_sets")].count("\n") + 1
    with pytest.raises(NetworkError) as caught:
        parse_network(text)
    assert [problem.line for problem in caught.value.problems] == [line]
    assert message in str(caught.value)


# -- histories --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_random_history_keeps_every_promise(seed: int) -> None:
    outcome = run_seed("nack", seed)
    assert outcome.broken is None, replay_command("nack", seed)
    assert outcome.releases


def test_the_scenario_draws_sets_of_every_kind() -> None:
    drawn = [draw_sets(seed, [1, 2, 3, 4]) for seed in range(60)]
    assert {sets.kind for sets in drawn} == {"even", "tuned", "tree"}
    assert draw_sets(7, [1, 2, 3]) == draw_sets(7, [1, 2, 3])


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(nack_sets)
    assert result.attempted > 0
    assert result.failed == 0
