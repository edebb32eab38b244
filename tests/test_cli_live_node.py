"""What `levelcast node` says about the hold time."""

from __future__ import annotations

import pytest

from levelcast.cli.live.node import _bound_in_use
from levelcast.network import FiveCities, five_cities, parse_network
from levelcast.network.placement import place_of

NACK_SETS = five_cities(FiveCities(hold=None)).replace('mode = "pipelined"', "nack_sets = 2")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (five_cities(), None),
        (NACK_SETS, None),
        (
            five_cities(FiveCities(hold=None)),
            "the network file has no hold time, so a bound of {bound} is used; levelcast timing --write stores one",
        ),
    ],
    ids=["stored", "rule 6", "bound"],
)
def test_a_node_says_that_its_hold_time_is_a_bound(text: str, says: str | None) -> None:
    network = parse_network(text)
    said = _bound_in_use(network, place_of(network, "tokyo-1"))
    ms = network.timing().hold_ns // 1_000_000
    assert said == (says and says.format(bound=f"{ms} ms"))
