"""What the virtual network does to a datagram is what the weather says, no more and no less."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.sim.engine.network import Copy, VirtualNetwork, Weather
from tests.ring_parts import MS

NODES = range(1, 7)
BRANCHES = {1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2}
DATAGRAM = bytes(range(200))


def network(weather: Weather, seed: int = 1) -> VirtualNetwork:
    delays = {(a, b): (10 * a + b) * MS for a in NODES for b in NODES if a != b}
    return VirtualNetwork(Random(seed), delays, dict(BRANCHES), weather)


def multicast(net: VirtualNetwork, sender: int = 1) -> list[Copy]:
    return net.copies(sender, [node for node in NODES if node != sender], DATAGRAM)


def test_in_calm_weather_everything_arrives_once_after_its_delay() -> None:
    net = network(Weather())
    assert multicast(net, 2) == [Copy(to, (20 + to) * MS, None) for to in (1, 3, 4, 5, 6)]
    assert (net.sent, net.lost) == (5, 0)


def test_independent_loss_hits_about_its_share_of_copies_and_is_counted() -> None:
    net = network(Weather(loss=0.3))
    arrived = sum(len(multicast(net)) for _ in range(400))
    assert net.sent == 2000
    assert net.lost == net.sent - arrived
    assert 0.25 < net.lost / net.sent < 0.35


def test_a_multicast_lost_at_a_branch_is_lost_for_everybody_below_it() -> None:
    net = network(Weather(branch_loss=0.5))
    seen = set()
    for _ in range(200):
        arrived = {copy.to for copy in multicast(net)}
        assert 2 in arrived  # the sender's own branch is not crossed
        assert (3 in arrived) == (4 in arrived)
        assert (5 in arrived) == (6 in arrived)
        seen.add(frozenset(arrived - {2}))
    assert seen == {frozenset(), frozenset({3, 4}), frozenset({5, 6}), frozenset({3, 4, 5, 6})}


def test_branches_lose_multicasts_not_single_datagrams() -> None:
    net = network(Weather(branch_loss=1.0))
    assert [copy.to for copy in net.copies(1, [3], DATAGRAM)] == [3]


def test_a_partition_separates_its_sides_in_both_directions_and_heals() -> None:
    net = network(Weather())
    net.side_of = {1: 1, 2: 1}
    assert [copy.to for copy in multicast(net, 1)] == [2]
    assert [copy.to for copy in multicast(net, 3)] == [4, 5, 6]
    assert net.lost == 4 + 2
    net.side_of.clear()
    assert len(multicast(net, 1)) == 5


def test_a_cut_link_is_cut_in_one_direction() -> None:
    net = network(Weather())
    net.cut = {(1, 2)}
    assert 2 not in {copy.to for copy in multicast(net, 1)}
    assert 1 in {copy.to for copy in multicast(net, 2)}


@given(st.integers())
def test_corruption_flips_exactly_one_bit(seed: int) -> None:
    for copy in multicast(network(Weather(corrupt=1.0), seed)):
        assert copy.damaged is not None
        assert len(copy.damaged) == len(DATAGRAM)
        flipped = int.from_bytes(copy.damaged) ^ int.from_bytes(DATAGRAM)
        assert flipped.bit_count() == 1


@given(st.integers())
def test_truncation_leaves_a_shorter_beginning(seed: int) -> None:
    for copy in multicast(network(Weather(truncate=1.0), seed)):
        assert copy.damaged is not None
        assert len(copy.damaged) < len(DATAGRAM)
        assert DATAGRAM.startswith(copy.damaged)


def test_duplicates_are_whole_and_have_delays_of_their_own() -> None:
    copies = multicast(network(Weather(duplicate=1.0, corrupt=1.0, jitter_ns=5 * MS)))
    assert [copy.to for copy in copies] == [to for to in (2, 3, 4, 5, 6) for _ in range(2)]
    for first, second in zip(copies[::2], copies[1::2], strict=True):
        assert first.damaged is not None
        assert second.damaged is None
        assert first.delay_ns != second.delay_ns


@given(st.integers())
def test_jitter_and_outliers_only_add_to_the_delay_and_stay_within_their_bounds(seed: int) -> None:
    weather = Weather(jitter_ns=5 * MS, outlier=0.5, outlier_ns=100 * MS)
    for copy in multicast(network(weather, seed)):
        assert 0 <= copy.delay_ns - (10 + copy.to) * MS < 105 * MS


@pytest.mark.parametrize("weather", [Weather(loss=0.5), Weather(branch_loss=0.5), Weather(jitter_ns=MS, duplicate=0.5)])
def test_the_same_seed_gives_the_same_weather(weather: Weather) -> None:
    one, two = network(weather, 7), network(weather, 7)
    assert [multicast(one) for _ in range(20)] == [multicast(two) for _ in range(20)]
