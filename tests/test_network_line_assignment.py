"""Which receiver has which line: each line one, each region two, and nobody moves who need not."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.network import MulticastGroup, Network, NetworkError, SecondaryNode, five_cities, parse_network
from levelcast.network.line_assignment import LineAssignment, holders, preference, scope_ttl
from levelcast.network.stripe_config import ring_config
from levelcast.network.warnings import warnings

CITIES = five_cities()
_BEGIN = CITIES.index('[[edge.group]]\nname = "americas"')
_END = CITIES.index("# ----", _BEGIN)


def group(name: str, number: int, region: str | None, line: str | None, more: str = "") -> str:
    text = f'[[edge.group]]\nname = "{name}"\naddress = "239.192.75.{number}"\nport = {31000 + number}\n{more}\n'
    text += f'region = "{region}"\n' if region is not None else ""
    return text + (f'line = "{line}"\n' if line is not None else "")


def cities(*groups: str) -> Network:
    return parse_network(CITIES[:_BEGIN] + "".join(groups) + CITIES[_END:])


REGIONS = ("americas", "europe", "asia-pacific")
BOTH = cities(
    *(
        group(f"{region}-{line}", 2 * number + (line == "b") + 1, region, line)
        for number, region in enumerate(REGIONS)
        for line in "ab"
    )
)
EVERYBODY = [receiver.name for receiver in BOTH.receivers]


def test_receivers_of_the_region_come_first_then_the_nearest() -> None:
    assert preference(BOTH, "europe") == ["london-1", "frankfurt-1", "new-york-1", "tokyo-1", "sydney-1"]
    assert preference(BOTH, "americas") == ["new-york-1", "london-1", "frankfurt-1", "tokyo-1", "sydney-1"]
    assert preference(BOTH, "asia-pacific")[:3] == ["tokyo-1", "sydney-1", "new-york-1"]


def test_each_line_of_a_region_has_another_receiver() -> None:
    assert holders(BOTH, EVERYBODY) == {
        "americas-a": "new-york-1",
        "americas-b": "london-1",
        "europe-a": "london-1",
        "europe-b": "frankfurt-1",
        "asia-pacific-a": "tokyo-1",
        "asia-pacific-b": "sydney-1",
    }


def test_a_second_receiver_of_one_site_comes_after_another_site() -> None:
    text = CITIES[:_BEGIN] + group("a", 1, "europe", "a") + group("b", 2, "europe", "b") + CITIES[_END:]
    text = text.replace(
        '[[receiver]]\nname = "frankfurt-1"', '[[receiver]]\nname = "london-2"\nid = 106\nsite = "london"\n\n'
        '[[receiver]]\nname = "frankfurt-1"', 1,
    )  # fmt: skip
    network = parse_network(text)
    assert preference(network, "europe")[:3] == ["london-1", "frankfurt-1", "london-2"]
    assert set(holders(network, [each.name for each in network.receivers]).values()) == {"london-1", "frankfurt-1"}


@given(st.sets(st.sampled_from(EVERYBODY)), st.sampled_from(EVERYBODY))
def test_whoever_fails_a_line_that_is_at_its_home_stays_there(operable: set[str], lost: str) -> None:
    left = operable - {lost}
    before, after, homes = holders(BOTH, operable | {lost}), holders(BOTH, left), holders(BOTH, EVERYBODY)
    assert set(after.values()) <= left
    assert len(after) == (6 if left else 0)
    for name, holder in after.items():
        if homes[name] in left:
            assert holder == before[name] == homes[name]


@pytest.mark.parametrize("down", [*combinations(EVERYBODY, 1), *combinations(EVERYBODY, 2)])
def test_with_one_or_two_of_five_down_every_region_has_two_senders(down: tuple[str, ...]) -> None:
    found = holders(BOTH, [name for name in EVERYBODY if name not in down])
    homes = holders(BOTH, EVERYBODY)
    for region in REGIONS:
        assert len({found[f"{region}-a"], found[f"{region}-b"]}) == 2
    for name, holder in found.items():
        assert holder == homes[name] or homes[name] in down, "it moved, and its home is there"


def test_one_receiver_that_is_left_has_both_lines() -> None:
    assert set(holders(BOTH, ["tokyo-1"]).values()) == {"tokyo-1"}


def test_a_receiver_sends_to_its_lines_and_to_groups_without_a_line_always() -> None:
    network = cities(group("all", 9, "europe", None), group("a", 1, "europe", "a"), group("b", 2, "europe", "b"))

    def names(receiver: str, *lines: str) -> list[str]:
        return [each.name for each in LineAssignment(network, receiver).groups(lines)]

    assert names("london-1") == ["all"]
    assert names("london-1", "b", "unknown") == ["all", "b"]
    assert names("new-york-1", "b", "a") == ["a", "b"]
    assert bool(LineAssignment(network, "tokyo-1"))
    assert not LineAssignment(cities(group("all", 9, "europe", None)), "tokyo-1")


def test_the_configuration_of_a_stripe_has_lines_and_receivers_of_both_layers_by_id() -> None:
    below = SecondaryNode("new-york-2", 1001, "new-york", "london-1")
    network = replace(BOTH, secondaries=(below,))
    assert preference(network, "americas")[:2] == ["new-york-1", "new-york-2"]
    ids = {each.name: each.id for each in network.releasing}
    (americas, *_) = ring_config(network).lines
    assert americas.lines == ("americas-a", "americas-b")
    assert americas.order == tuple(ids[name] for name in preference(network, "americas"))
    assert holders(network, ["london-1", "new-york-1"])["americas-b"] == "london-1"
    assert holders(network, ["london-1", "new-york-1", "new-york-2"])["americas-b"] == "new-york-2"


def test_more_lines_than_a_ring_announces_are_refused() -> None:
    text = "".join(
        group(f"g{n}", 1, "europe", f"l{n}").replace("port = 31001", f"port = {32000 + n}") for n in range(257)
    )
    with pytest.raises(NetworkError, match="is line 257 of the file; the maximum is 256"):
        cities(text)


def test_a_region_with_one_receiver_is_worth_a_warning() -> None:
    (warning,) = warnings(cities(group("west", 1, "americas", None)))
    assert warning.startswith('Region "americas" is covered by one receiver, new-york-1')
    (warning,) = warnings(cities(group("a", 1, "americas", "a")))
    assert warning.startswith('Region "americas" is covered by one receiver, new-york-1')
    assert warnings(BOTH) == []
    assert warnings(cities(group("all", 1, None, None))) == []


def test_a_group_may_have_a_line_and_a_scope() -> None:
    network = cities(group("a", 1, "europe", "a", "ttl = 16"), group("b", 2, "europe", "b"))
    assert network.edge.groups[0] == MulticastGroup("a", "239.192.75.1", 31001, "europe", "a", 16)
    assert network.edge.groups[1].ttl is None


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ((group("a", 1, "europe", "a"), group("b", 2, "europe", "a")), 'is line "a" of its region, and so is edge'),
        ((group("a", 1, "europe", ""),), "has line = "),
        ((group("a", 1, "europe", "a", "ttl = 0"),), "ttl"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_told(groups: tuple[str, ...], says: str) -> None:
    with pytest.raises(NetworkError, match=says):
        cities(*groups)


def test_a_receiver_of_another_region_adds_the_routers_to_the_nearest_site_of_the_region() -> None:
    line = replace(BOTH.edge.groups[2], ttl=4)
    assert line.region == "europe"
    assert BOTH.links is not None
    assert scope_ttl(BOTH, "london-1", line) == scope_ttl(BOTH, "new-york-1", line) == 4, "no routers were measured"
    hops = {("london", "new-york"): 7, ("frankfurt", "new-york"): 9, ("frankfurt", "tokyo"): 252}
    pairs = {ends: replace(link, hops=hops.get(ends)) for ends, link in BOTH.links.pairs.items()}
    network = replace(BOTH, links=replace(BOTH.links, pairs=pairs))
    assert [scope_ttl(network, f"{name}-1", line) for name in ("london", "new-york", "tokyo")] == [4, 11, 255]
    assert scope_ttl(network, "new-york-1", replace(line, region=None)) == 4
    assert scope_ttl(network, "new-york-1", replace(line, ttl=None)) == network.edge.ttl + 7


def test_a_line_of_a_region_without_receivers_is_one_sentence() -> None:
    with pytest.raises(NetworkError) as caught:
        cities(group("nowhere-a", 1, "moon", "a"))
    (problem,) = caught.value.problems
    assert problem.message == 'edge group "nowhere-a" is for region "moon", which has no receiver'
