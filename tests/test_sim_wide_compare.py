"""Comparison of the protocols for a matrix: all messages are received; the recommendation follows the figures."""

from __future__ import annotations

import pytest

from levelcast.overlay.wide.choices import WIDE_PROTOCOLS
from levelcast.overlay.wide.measure import GroupFigures
from levelcast.sim.wide.compare import Workload, compare_protocols, measure_protocol, recommend
from tests.wide_parts import MS, equal_matrix, group, tt_matrix


@pytest.fixture(scope="module")
def found() -> dict[str, GroupFigures]:
    """TT's five sites."""
    config = group("M", tt_matrix(), near_ns=45 * MS)
    return dict(compare_protocols(config, Workload(150, 1_000 * MS, 6 * MS)))


def test_all_protocols_are_measured_with_the_same_messages(found: dict[str, GroupFigures]) -> None:
    assert list(found) == list(WIDE_PROTOCOLS)
    assert {each.messages for each in found.values()} == {150}


def test_repair_by_the_nearest_and_copies_are_sooner_at_the_last(found: dict[str, GroupFigures]) -> None:
    assert found["M"].last_p99_ms < found["B"].last_p99_ms
    for name in ("B", "M", "N", "D"):
        assert found[name + "R"].last_mean_ms < found[name].last_mean_ms
        assert found[name + "R"].data > found[name].data


def test_decentralised_confirmation_needs_the_fewest_datagrams_and_direct_repair_the_least_memory(
    found: dict[str, GroupFigures],
) -> None:
    assert min(found, key=lambda name: found[name].statements) in ("D", "DR")
    assert max(found["B"].kept_s, found["D"].kept_s) < min(found["M"].kept_s, found["N"].kept_s)


def test_a_full_window_delays_messages_instead_of_losing_them() -> None:
    config = group("M", equal_matrix(3, 50), window=1)
    figures = measure_protocol(config, Workload(30, 5 * MS))
    assert figures.messages == 30


def figures(last_p99_ms: float, datagrams: float) -> GroupFigures:
    return GroupFigures(1, 1, 1, last_p99_ms, 1, 1, 1, 1, datagrams - 1, 1, 1)


@pytest.mark.parametrize(
    ("times", "chosen", "why"),
    [
        ({"B": (100, 9), "D": (120, 4), "N": (130, 2)}, "D", "within 25% of the shortest time (B, 100 ms)"),
        ({"B": (100, 9), "D": (126, 4)}, "B", "and no other is near"),
        ({"B": (100, 3), "D": (100, 4)}, "B", "fewer than the others within 25% of that"),
    ],
)
def test_the_fewest_datagrams_among_the_soonest(times: dict[str, tuple[float, float]], chosen: str, why: str) -> None:
    found = recommend({name: figures(*each) for name, each in times.items()})
    assert found.protocol == chosen
    assert why in found.reason
