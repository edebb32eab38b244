"""Each clause of E1 to E9 is necessary: without it a random history of the scenario `entry`, or a named one, fails.

| found by | clauses |
|---|---|
| random histories (`RANDOM`) | the invariant that fails first, and a seed |
| named histories (`NAMED`) | a test of `test_market_fair_*` that fails without the clause |
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from levelcast.sim.entry_mutations import ENTRY_MUTATIONS
from levelcast.sim.run import run_seed
from tests import test_market_fair_attacks as attacks
from tests import test_market_fair_fair_order as order
from tests import test_market_fair_stamps as gateway
from tests import test_market_fair_stripes as stripes

RANDOM = {
    "first-clock-closes": (0, "late only after Θ"),
    "late-in-its-bucket": (5, "closed in time"),
    "lateness-uncapped": (5, "honest accepted"),
    "waits-for-ever": (5, "closed in time"),
}
"""Seed of the first random history that fails, and the invariant."""
NAMED: dict[str, Callable[[], None]] = {
    "stamped-as-read": gateway.test_orders_are_stamped_by_receive_time_and_those_of_one_segment_keep_their_order,
    "lateness-ignored": gateway.test_a_stamp_is_the_clock_less_the_lateness_of_the_newest_release,
    "lateness-uncapped": gateway.test_the_correction_is_at_most_the_cap,
    "stamps-go-back": gateway.test_stamps_never_go_back_whatever_is_released,
    "later-receiver-counts": gateway.test_of_two_receivers_at_a_site_the_earlier_one_counts,
    "beat-states-now": gateway.test_a_beat_shows_the_clock_up_to_which_the_sockets_were_read,
    "first-clock-closes": order.test_a_bucket_closes_when_all_gateways_have_passed_it,
    "dead-one-stays": order.test_a_dead_gateway_delays_closing_once_by_theta,
    "readmitted-at-once": order.test_a_gateway_that_fails_repeatedly_is_readmitted_after_increasing_pauses,
    "no-turns": attacks.test_copies_in_a_bucket_come_after_the_first_orders_of_all_others,
    "ticket-per-order": attacks.test_copies_gain_nothing,
    "no-tickets": attacks.test_inside_a_bucket_the_stamp_does_not_matter,
    "seed-is-known": attacks.test_tickets_are_unknown_until_the_bucket_is_closed,
    "phase-is-known": attacks.test_the_borders_of_buckets_are_unknown_until_the_epoch_is_over,
    "late-in-its-bucket": order.test_an_order_of_a_closed_bucket_goes_into_the_first_open_one_and_is_marked,
    "may-go-back": attacks.test_a_gateway_that_dates_back_gains_at_most_the_time_for_which_it_held_back_its_beats,
    "future-accepted": order.test_stamps_that_go_back_or_are_in_the_future_are_refused_with_an_alarm,
    "any-correction": order.test_undefined_stamps_unknown_gateways_wrong_corrections_and_others_ids_are_refused,
    "any-source": order.test_undefined_stamps_unknown_gateways_wrong_corrections_and_others_ids_are_refused,
    "rules-at-once": order.test_rules_that_do_not_follow_are_ignored,
    "any-version": order.test_rules_that_do_not_follow_are_ignored,
    "stripes-as-they-come": stripes.test_the_merged_sequence_does_not_depend_on_the_arrival,
}


def test_every_clause_has_a_history() -> None:
    assert RANDOM.keys() | NAMED.keys() == ENTRY_MUTATIONS.keys()


@pytest.mark.parametrize("name", RANDOM)
def test_a_random_history_finds_the_missing_clause(name: str) -> None:
    seed, invariant = RANDOM[name]
    assert (run_seed("entry", seed, name).broken or "").split(":")[0] == invariant
    assert run_seed("entry", seed).broken is None


@pytest.mark.parametrize("name", NAMED)
def test_a_named_history_finds_the_missing_clause(name: str) -> None:
    NAMED[name]()
    with ENTRY_MUTATIONS[name].applied(), pytest.raises((AssertionError, ValueError)):
        NAMED[name]()
