"""Uplinks of the network file: trees of packets, the hold time over them, and one sentence for each mistake."""

from __future__ import annotations

import pytest

from levelcast.network import Network, NetworkError, five_cities, parse_network
from levelcast.network.hold_input import bound_input, hold_input
from levelcast.network.packet_routes import copies_within, packet_routes

MS = 1_000_000
RATE = 'rate = "1MB"\n'
NODES = ("new-york-1", "london-1", "frankfurt-1", "tokyo-1", "sydney-1")


def text(uplinks: dict[str, str], core: str = f'transport = "unicast"\n{RATE}') -> str:
    found = five_cities().replace("[core]\n", f"[core]\n{core}")
    for name, uplink in uplinks.items():
        assert found.count(f'name = "{name}"\n') == 1
        found = found.replace(f'name = "{name}"\n', f'name = "{name}"\nuplink = "{uplink}"\n')
    return found


def network(uplinks: dict[str, str]) -> Network:
    return parse_network(text(uplinks))


def test_without_uplinks_there_are_no_trees() -> None:
    assert packet_routes(network({})) == {}


def test_copies_follow_from_uplink_and_rate() -> None:
    found = network({"XNYS": "20Mbit"})
    assert copies_within(found, 2_500_000) == 2
    tree = packet_routes(found)[next(each.id for each in found.floors if each.name == "XNYS")]
    assert len(tree.children()[tree.root]) == 2
    assert set(tree.parents) == {each.id for each in found.receivers}
    others = [packet_routes(found)[each.id] for each in found.floors if each.name != "XNYS"]
    assert all(set(other.parents.values()) == {other.root} for other in others)


def test_the_hold_time_counts_the_delay_and_loss_of_the_way() -> None:
    direct, over = network({}), network({"XNYS": "8Mbit"})
    place = next(index for index, each in enumerate(over.floors) if each.name == "XNYS")
    tree = packet_routes(over)[over.floors[place].id]
    before, after = hold_input(direct), hold_input(over)
    for column, receiver in enumerate(over.releasing):
        hops = len(tree.path(receiver.id))
        if hops == 1:
            assert after.source_delay_ms[place, column] == before.source_delay_ms[place, column]
        else:
            assert after.source_delay_ms[place, column] >= 0.5
            assert after.source_loss[place, column] >= before.source_loss[place, column] - 1e-12
    assert max(len(tree.path(each.id)) for each in over.releasing) > 1
    assert bound_input(over).source_delay_ns[place] == tuple(
        round(value * MS) for value in after.source_delay_ms[place]
    )
    assert (after.delay_ms == before.delay_ms).all()


@pytest.mark.parametrize(
    ("uplinks", "core", "why"),
    [
        (
            dict.fromkeys((*NODES, "XNYS"), "8Mbit") | {"tokyo-1": "1Mbit", "sydney-1": "1Mbit", "london-1": "1Mbit"},
            f'transport = "unicast"\n{RATE}',
            "has packets for which the uplinks fit no tree: they need 5 copies of 8 Mbit/s, and there is room for 3; "
            "raise an uplink, or lower `rate` in [core]",
        ),
        ({"tokyo-1": "8Mbit"}, RATE, 'needs transport = "unicast" in [core], not "multicast"'),
        ({"tokyo-1": "8Mbit"}, 'transport = "unicast"\n', "needs `rate` in [core]: the maximum rate of one floor"),
        ({"tokyo-1": "fast"}, f'transport = "unicast"\n{RATE}', "a rate in bit/s with a unit"),
    ],
)
def test_uplinks_that_cannot_be(uplinks: dict[str, str], core: str, why: str) -> None:
    with pytest.raises(NetworkError) as error:
        parse_network(text(uplinks, core))
    assert why in str(error.value)
    assert str(error.value).count("\n") == 0
