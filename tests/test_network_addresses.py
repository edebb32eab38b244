"""Addresses of nodes without multicast: defaults, the file's, and one clear sentence for bad ones."""

from __future__ import annotations

import pytest

from levelcast.network import NetworkError, five_cities, parse_network
from levelcast.network.addresses import (
    PORTS_PER_NODE,
    core_addresses,
    on_loopback,
    operator_address,
    ports_on_loopback,
    site_group,
)
from levelcast.network.placement import places
from levelcast.network.warnings import warnings

TEXT = five_cities()


def text(transport: str = "unicast", more: str = "", **addresses: str) -> str:
    found = TEXT.replace("[core]", f'[core]\ntransport = "{transport}"\n{more}')
    for name, keys in addresses.items():
        found = found.replace(f'name = "{name.replace("_", "-")}"\n', f'name = "{name.replace("_", "-")}"\n{keys}\n')
    return found


def problems(source: str) -> list[str]:
    with pytest.raises(NetworkError) as error:
        parse_network(source)
    return [problem.message for problem in error.value.problems]


def test_a_file_without_a_transport_uses_multicast() -> None:
    network = parse_network(TEXT)
    assert (network.transport, network.core.ttl, network.carriage.packet_bytes) == ("multicast", 32, 1_400)


def test_without_addresses_every_node_has_ports_of_its_own_on_loopback() -> None:
    network = parse_network(text())
    addresses = core_addresses(network)
    first = [address.port for address in addresses.values()]
    assert first == [network.core.port + PORTS_PER_NODE * place for place in range(12)]
    assert {address.host for address in addresses.values()} == {"127.0.0.1"}
    operator = operator_address(network)
    assert operator is not None
    assert operator.port + PORTS_PER_NODE == network.core.port + ports_on_loopback(network)


def test_packets_between_sites_fit_a_vpn_unless_the_file_says_otherwise() -> None:
    assert parse_network(text()).carriage.packet_bytes == 1_200
    assert parse_network(text(more="packet = 1300")).carriage.packet_bytes == 1_300


def hosted(**keys: str) -> str:
    names = [place.name for place in places(parse_network(TEXT))]
    hosts = {name.replace("-", "_"): f'host = "203.0.113.{place}"' for place, name in enumerate(names, 1)}
    return text(**(hosts | keys))


def test_other_sites_use_the_host_and_the_own_site_the_bind_address() -> None:
    network = parse_network(hosted(tokyo_1='host = "203.0.113.9"\nbind = "10.0.0.4"\nport = 5000'))
    address = core_addresses(network)[104]
    assert (address.seen_from(same_site=False), address.seen_from(same_site=True), address.port) == (
        "203.0.113.9",
        "10.0.0.4",
        5000,
    )
    assert network.status_address("tokyo-1") == ("203.0.113.9", 32003)
    assert network.status_listen_address("tokyo-1") == ("10.0.0.4", 32003)
    assert operator_address(network) is None
    moved = on_loopback(network, 20_000)
    assert core_addresses(moved)[104].host == "127.0.0.1"


def test_two_nodes_with_one_address_are_an_error() -> None:
    same = problems(hosted(XNYS='host = "203.0.113.1"\nport = 30002'))
    assert same == [
        'floor "XNYS" uses 203.0.113.1 port 30002, which receiver "new-york-1" uses too; give each node a host or '
        "ports of its own"
    ]


def test_a_private_address_may_be_used_at_two_sites_but_not_twice_at_one() -> None:
    bind = 'bind = "10.0.0.4"\nport = 5000'
    two = hosted(tokyo_1=f'host = "203.0.113.4"\n{bind}', sydney_1=f'host = "203.0.113.5"\n{bind}')
    assert core_addresses(parse_network(two))[105].bind == "10.0.0.4"
    (problem,) = problems(hosted(tokyo_1=f'host = "203.0.113.4"\n{bind}', XTKS=f'host = "203.0.113.11"\n{bind}'))
    assert problem.startswith('floor "XTKS" uses 10.0.0.4 port 5000, which receiver "tokyo-1" uses too')


def test_a_node_without_a_host_among_others_is_an_error() -> None:
    assert problems(hosted(XNYS=""))[0] == (
        'floor "XNYS" has no host, but "new-york-1" has one; set the host at which other nodes reach it'
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            text("tcp"),
            '[core] has transport = "tcp": it must be "multicast" or "unicast" or "sites"',
        ),
        (
            text(tokyo_1='host = "239.1.2.3"'),
            'receiver "tokyo-1" has host = "239.1.2.3": it must be an IPv4 address or a host name, such as '
            '"203.0.113.5"',
        ),
        (TEXT.replace("ttl = 32", "ttl = 0"), "[core] has ttl = 0: it must be an integer from 1 to 255"),
        (
            TEXT.replace("[core]", '[core]\ntransport = "unicast"').replace("port = 30001", "port = 65530"),
            "[core] port must leave 52 ports for all nodes, up to 65535",
        ),
    ],
)
def test_a_bad_value_is_one_sentence(change: str, message: str) -> None:
    assert message in problems(change)


def test_only_sites_of_three_receivers_use_multicast() -> None:
    more = "".join(
        f'[[receiver]]\nname = "{site}-{place}"\nid = {number}{place}\nsite = "{site}"\n'
        for number, site in ((7, "tokyo"), (8, "london"))
        for place in (2, 3)
    )
    network = parse_network(text("sites") + more)
    tokyo, london = site_group(network, 0, "tokyo"), site_group(network, 0, "london")
    assert tokyo is not None
    assert london is not None
    assert abs(tokyo.port - london.port) == 2
    assert site_group(network, 0, "sydney") is None
    assert site_group(parse_network(text("unicast") + more), 0, "tokyo") is None


def test_multicast_between_sites_with_ttl_1_is_a_warning() -> None:
    near = TEXT.replace("ttl = 32", "ttl = 1")
    (warning,) = [each for each in warnings(parse_network(near)) if "ttl" in each]
    assert warning.startswith("Nodes are at 5 sites, and `ttl` of [core] is 1: multicast does not leave a link.")
    for fixed in (TEXT, near.replace("[core]", '[core]\ntransport = "unicast"')):
        assert not [each for each in warnings(parse_network(fixed)) if "ttl" in each]
