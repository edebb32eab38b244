"""The group of a network file: protocol, matrix and addresses, and one sentence for each mistake."""

from __future__ import annotations

from dataclasses import replace

import pytest

from levelcast.errors import NetError
from levelcast.network import Link, Links, Network, parse_network
from levelcast.overlay.wide.choices import WIDE_PROTOCOLS, CopiesBy
from levelcast.runtime.group_setup import (
    MARGIN_NS,
    group_addresses,
    group_config,
    group_members,
    group_network,
    protocol_choices,
)
from tests.network_parts import three_rooms


@pytest.fixture
def network() -> Network:
    return parse_network(three_rooms(""))


@pytest.mark.parametrize(
    ("protocol", "copies", "why"),
    [
        ("QX", None, 'protocol "QX" not found; use one of B, M, N, D, BR, MR, NR, DR, HD'),
        ("mr", None, 'protocol "mr" not found; did you mean MR?'),
        ("M", "twice", 'copies "twice" not found; use one of none, sender, forwarded'),
    ],
)
def test_an_unknown_protocol(protocol: str, copies: str | None, why: str) -> None:
    with pytest.raises(NetError) as error:
        protocol_choices(protocol, copies)
    assert str(error.value) == why


def test_copies_take_the_place_of_those_of_the_protocol() -> None:
    assert protocol_choices("MR") == WIDE_PROTOCOLS["MR"]
    assert protocol_choices("MR", "forwarded").copies is CopiesBy.FORWARDED


def test_delay_and_loss_are_those_of_the_links(network: Network) -> None:
    config = group_config(network, WIDE_PROTOCOLS["M"])
    assert config.members == (101, 102, 103)
    assert config.matrix.delay_ns(101, 103) == 500_000
    assert config.matrix.loss(103, 101) == 0.01
    assert config.margin_ns == MARGIN_NS + 2 * 500_000


def test_a_missing_link(network: Network) -> None:
    apart = replace(network, links=Links({("a", "b"): Link(5)}))
    with pytest.raises(NetError, match="has no link between a and c; add the pair, or a default delay"):
        group_config(apart, WIDE_PROTOCOLS["M"])


def test_too_few_receivers(network: Network) -> None:
    with pytest.raises(NetError, match="a group has 2 to 256 receivers, not 1; change the network file"):
        group_members(replace(network, receivers=network.receivers[:1]))


def test_ports_from_one_on(network: Network) -> None:
    moved = group_network(network, 20_000)
    own, peers = group_addresses(moved, moved.receivers[1])
    assert own == ("127.0.0.1", 20_001)
    assert peers == {101: ("127.0.0.1", 20_000), 103: ("127.0.0.1", 20_002)}
    with pytest.raises(NetError, match="port 65534 does not leave 3 ports up to 65535; use a lower one"):
        group_network(network, 65_534)


def test_hosts_of_the_file_are_kept() -> None:
    text = three_rooms("").replace("[core]\n", '[core]\ntransport = "unicast"\n')
    for number, name in enumerate(("a-1", "b-1", "c-1", "reform-a", "reform-b"), 1):
        text = text.replace(f'name = "{name}"\n', f'name = "{name}"\nhost = "127.0.1.{number}"\n')
    network = group_network(parse_network(text), 20_000)
    _, peers = group_addresses(network, network.receivers[0])
    assert peers == {102: ("127.0.1.2", 20_001), 103: ("127.0.1.3", 20_002)}
