"""Secondary receivers in the network file: who they are, where they belong, and what they add to the timing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli import main
from levelcast.network import Network, SecondaryNode, five_cities, parse_network
from levelcast.network.hold_input import bound_input, hold_input
from levelcast.network.sections.nodes import FIRST_SECONDARY
from levelcast.network.stripe_config import ring_config
from levelcast.network.warnings import warnings
from levelcast.timing.secondary import secondary_bound_ns
from levelcast.wire.group_codec import MAX_GROUP
from tests.test_network import SMALL, problems_of

FAR = """\
[[site]]
name = "nagoya"
region = "chubu"
[[secondary]]
name = "nagoya-s"
site = "nagoya"
home = "osaka-2"
[[secondary]]
name = "osaka-s"
site = "osaka"
[[secondary]]
name = "tokyo-s"
id = 77
site = "tokyo"
"""


def network_with(text: str) -> Network:
    return parse_network(SMALL + text)


def one(name: str = "s", **keys: object) -> str:
    more = "".join(f"{key} = {value!r}\n".replace("'", '"') for key, value in keys.items())
    return f'[[secondary]]\nname = "{name}"\nsite = "osaka"\n{more}'


def test_a_secondary_has_a_home_and_an_id_of_its_own() -> None:
    network = network_with(FAR)
    assert network.secondaries == (
        SecondaryNode("nagoya-s", FIRST_SECONDARY, "nagoya", "osaka-2"),
        SecondaryNode("osaka-s", FIRST_SECONDARY + 1, "osaka", "osaka-1"),
        SecondaryNode("tokyo-s", 77, "tokyo", "tokyo-1"),
    )
    assert [each.name for each in network.secondaries_of("osaka-1")] == ["osaka-s"]
    assert ring_config(network).homes == {FIRST_SECONDARY: 3, FIRST_SECONDARY + 1: 2, 77: 1}


def test_an_id_that_is_given_to_another_node_is_not_taken() -> None:
    network = parse_network(SMALL.replace("id = 11", f"id = {FIRST_SECONDARY}") + one())
    assert network.secondaries[0].id == FIRST_SECONDARY + 1


def test_without_a_home_the_nearest_primary_is_it() -> None:
    links = '[links]\ndelay = "10ms"\nloss = 0.01'
    near = '[links]\ndelay = "10ms"\nloss = 0.01\npairs = [{ between = ["kobe", "tokyo"], delay = "1ms" }]'
    text = SMALL.replace(links, near) + '[[site]]\nname = "kobe"\n[[secondary]]\nname = "s"\nsite = "kobe"\n'
    assert parse_network(text).secondaries[0].home == "tokyo-1"
    text = SMALL.replace(links, "") + one()
    text = text.replace('slot = "5ms"', 'slot = "5ms"\nlate = "2ms"\nattempts = 2')
    assert parse_network(text).secondaries[0].home == "osaka-1"  # nothing is known of delays: the same site


def test_a_secondary_is_a_node_like_others() -> None:
    network = network_with(FAR + "[status]\nport = 32000\n")
    assert network.node_names[-3:] == ("nagoya-s", "osaka-s", "tokyo-s")
    assert network.status_address("nagoya-s") == ("127.0.0.1", 32005)
    assert network.region_of("nagoya-s") == "chubu"
    group = '[[edge.group]]\nname = "e"\naddress = "239.1.1.1"\nport = 31001\nregion = "chubu"\n'
    assert [each.name for each in network_with(FAR + group).edge_groups_of("nagoya-s")] == ["e"]


def test_a_layer_of_secondaries_adds_its_term_to_rule_6_and_to_the_liveness_bound() -> None:
    plain, tree = parse_network(SMALL), network_with(FAR)
    timing = tree.timing()
    assert plain.timing().late_ns == timing.late_ns
    rule_6_ns = tree.derived().rule_6_ns
    assert rule_6_ns == timing.recovery_ns + 2 * (2 * timing.slot_ns + timing.hear_ns)  # w = 2
    assert plain.timing().hold_ns < timing.hold_ns < rule_6_ns
    added = {term.term: term.ns for term in tree.liveness()}.items() - {
        term.term: term.ns for term in plain.liveness()
    }.items()
    assert ("secondaries have a primary and catch up", secondary_bound_ns(timing, 1)) in added


def test_the_hold_time_covers_the_paths_to_secondaries() -> None:
    tree = parse_network(five_cities() + '[[secondary]]\nname = "tokyo-2"\nsite = "tokyo"\n')
    group = hold_input(tree)
    assert (group.members, group.receivers, group.homes) == (5, 6, (3,))
    assert group.names[3:] == ("tokyo-1", "sydney-1", "tokyo-2")
    assert group.delay_ms[0, 5] == group.delay_ms[0, 3]
    assert set(group.ask_table.targets[:, 5].ravel().tolist()) == {3, -1}, "it asks its primary alone"
    assert (group.ask_table.targets[:, :5] < 5).all(), "nobody asks a secondary"
    assert bound_input(tree).homes == (3,)


def test_a_secondary_far_away_lengthens_what_counts_as_late() -> None:
    links = '[links]\ndelay = "10ms"'
    far = '[links]\npairs = [{ between = ["osaka", "perth"], delay = "90ms" }]\ndelay = "10ms"'
    text = SMALL.replace(links, far) + '[[site]]\nname = "perth"\n[[secondary]]\nname = "s"\nsite = "perth"\n'
    assert parse_network(text).timing().late_ns == 92_000_000


@pytest.mark.parametrize(
    ("text", "line_has", "says"),
    [
        (one(home="osaka-3"), 'home = "osaka-3"', 'which is not defined in a [[receiver]]; did you mean "osaka-2"?'),
        (one(home=3), "home = 3", "has `home` 3"),
        (one(home="s"), 'home = "s"', "which is not defined in a [[receiver]]"),
        (one("tokyo-1"), 'name = "tokyo-1"\nsite = "osaka"', "has the same name as the receiver on line 13"),
        (one("a") + one("a"), 'name = "a"', "has the same name as the secondary on line 33"),
        (one(id=2), "id = 2", 'has id 2, which receiver "osaka-1" already has'),
        (one(id=0), "id = 0", "an integer from 1 to 65535"),
        (one(houme="osaka-1"), "houme", 'unknown key "houme" in secondary "s"; did you mean "home"?'),
        ('[[secondary]]\nname = "s"\nsite = "kyoto"\n', 'site = "kyoto"', "which is not defined in a [[site]]"),
    ],
)
def test_each_mistake_is_told_with_its_line(text: str, line_has: str, says: str) -> None:
    found = [problem for problem in problems_of(SMALL + text) if says in problem]
    assert len(found) == 1, problems_of(SMALL + text)
    line = (SMALL + text)[: (SMALL + text).rindex(line_has)].count("\n") + 1
    assert found[0].startswith(f"network.toml:{line}: ")


def test_a_primary_takes_only_so_many() -> None:
    text = "".join(one(f"s{i}", home="tokyo-1") for i in range(MAX_GROUP + 1))
    found = [problem for problem in problems_of(SMALL + text) if "maximum" in problem]
    assert len(found) == 1
    assert f'secondary "s{MAX_GROUP}" exceeds the maximum of {MAX_GROUP} secondaries of "tokyo-1"' in found[0]


def test_what_is_unwise_is_a_warning() -> None:
    assert len(warnings(network_with(FAR))) == len(warnings(parse_network(SMALL)))
    many = network_with("".join(one(f"s{i}", home="osaka-1") for i in range(60)))
    (told,) = [warning for warning in warnings(many) if "60 secondaries" in warning]
    assert told.startswith('"osaka-1" has 60 secondaries: each sends once per')
    alone = SMALL.split("[[receiver]]")
    alone_text = "[[receiver]]".join(alone[:2]) + "[[reformation]]" + SMALL.split("[[reformation]]")[1] + one()
    assert any("is the only primary" in warning for warning in warnings(parse_network(alone_text)))


def test_the_example_shows_how_one_is_written() -> None:
    commented = five_cities()
    begin = commented.index("# [[secondary]]")
    lines = commented[begin : commented.index("\n\n", begin)].splitlines()
    written = commented + "".join(f"{line.removeprefix('# ')}\n" for line in lines)
    (secondary,) = parse_network(written).secondaries
    assert (secondary.name, secondary.home) == ("tokyo-2", "tokyo-1")


def test_timing_tells_who_belongs_where(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(SMALL + FAR, encoding="utf-8")
    output = CliRunner().invoke(main.app, ["timing", "--network", str(file)]).output
    assert "3 receivers, 3 secondaries, 1 reformation server, 1 floor, pipelined" in " ".join(output.split())
    assert "osaka-2 is the assigned primary of nagoya-s" in output
    told = json.loads(CliRunner().invoke(main.app, ["timing", "--network", str(file), "--json"]).output)
    assert told["stripes"][0]["homes"] == {"nagoya-s": "osaka-2", "osaka-s": "osaka-1", "tokyo-s": "tokyo-1"}


STRIPES = "[stripes.main]\n[stripes.fx]\n"


def test_each_stripe_has_status_ports_of_its_own() -> None:
    text = STRIPES + SMALL + '[[floor]]\nname = "XFOR"\npublisher = 22\nsite = "osaka"\nstripe = "fx"\n' + FAR
    network = parse_network(text + "[status]\nport = 32000\n")
    nodes = len(network.node_names)
    ports = {
        (name, stripe.name): network.status_address(name, stripe.name)
        for name in network.node_names
        for stripe in network.stripes
    }
    assert len(set(ports.values())) == 2 * nodes
    assert network.status_address("tokyo-1") == ports["tokyo-1", "main"] == ("127.0.0.1", 32000)
    assert network.status_address("tokyo-1", "fx") == ("127.0.0.1", 32000 + nodes)
    assert network.status_address("XFOR") == ports["XFOR", "fx"]


def test_the_last_status_port_must_exist() -> None:
    nodes = len(network_with(FAR).node_names)
    text = STRIPES + SMALL + FAR + "[status]\nport = {}\n"
    parse_network(text.format(65536 - 2 * nodes))
    (problem,) = problems_of(text.format(65537 - 2 * nodes))
    assert f"from 1 to {65536 - 2 * nodes}" in problem
