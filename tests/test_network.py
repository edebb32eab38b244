"""A network file becomes a network, or a list of everything that is wrong with it, each with its line."""

from __future__ import annotations

import doctest
import math
import random
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from levelcast.errors import UserError
from levelcast.network import (
    Carriage,
    FiveCities,
    Network,
    NetworkError,
    Problem,
    ReceiverNode,
    ReformationNode,
    five_cities,
    load_network,
    model,
    parse_network,
    toml_lines,
)
from levelcast.network.hold_input import follows_from_pairs
from levelcast.network.regions.file import MOST_RECEIVERS
from levelcast.network.stripe_config import ring_config
from levelcast.network.toml_lines import KeyPath, LineNumbers
from levelcast.network.warnings import warnings
from levelcast.wire.header import domain_of
from levelcast.wire.membership import MAX_MEMBERS

MS = 1_000_000

SMALL = """\
[network]
name = "small"
[timing]
slot = "5ms"
[links]
delay = "10ms"
loss = 0.01
[[site]]
name = "tokyo"
[[site]]
name = "osaka"
[[receiver]]
name = "tokyo-1"
id = 1
site = "tokyo"
[[receiver]]
name = "osaka-1"
id = 2
site = "osaka"
[[receiver]]
name = "osaka-2"
id = 3
site = "osaka"
[[reformation]]
name = "reform"
id = 11
site = "tokyo"
[[floor]]
name = "XTKS"
publisher = 21
site = "tokyo"
"""


def edited(old: str, new: str, text: str = SMALL) -> str:
    assert text.count(old) >= 1, old
    return text.replace(old, new, 1)


def line_of(needle: str, text: str) -> int:
    return text[: text.index(needle)].count("\n") + 1


def problems_of(text: str) -> list[str]:
    with pytest.raises(NetworkError) as caught:
        parse_network(text)
    return str(caught.value).split("\n")


def only_problem(text: str) -> str:
    problems = problems_of(text)
    assert len(problems) == 1, problems
    return problems[0]


# What a good file becomes


def test_five_cities_is_a_network_without_a_warning() -> None:
    network = parse_network(five_cities())
    assert [site.city for site in network.sites] == ["New York", "London", "Frankfurt", "Tokyo", "Sydney"]
    assert [floor.name for floor in network.floors] == ["XNYS", "XLON", "XETR", "XTKS", "XASX"]
    assert len(network.receivers) == 5
    assert [server.rank for server in network.reformation] == [0, 1]
    assert network.witnesses() == 3
    assert network.link("sydney", "frankfurt").delay_ns == network.link("frankfurt", "sydney").delay_ns == 151_600_000
    assert network.link("tokyo", "london").loss_ratio == 0.01
    assert warnings(network) == []


def test_five_cities_timing_is_derived_from_its_worst_link() -> None:
    timing = parse_network(five_cities()).timing()
    assert timing.mode == "pipelined"
    assert timing.late_ns == 151_600_000 + 6 * MS + 2 * MS
    assert timing.request_ns == 2 * timing.late_ns + 6 * MS
    assert timing.attempts == 6
    assert timing.beat_ns == (151_600_000 + 6 * MS) // 6
    assert timing.hold_ns == 417 * MS
    without = parse_network(re.sub("\nhold = .*", "", five_cities())).timing()
    assert timing.hold_ns < without.hold_ns < timing.recovery_ns, "a bound that needs no simulation"


def test_the_numbers_that_five_cities_suggests_to_give_are_accepted() -> None:
    given_numbers = 'late = "160ms"\nrequest = "330ms"\nattempts = 6\n'
    for line in given_numbers.splitlines():
        key, value = line.split(" = ")
        suggested = next(row for row in five_cities().splitlines() if row.startswith(f"#   {key} "))
        assert suggested.endswith(f"= {value}")
    network = parse_network(edited('mode = "pipelined"', given_numbers, five_cities()))
    assert network.timing().request_ns == 330 * MS
    assert warnings(network) == []


def test_nodes_keep_the_order_of_the_file() -> None:
    network = parse_network(SMALL)
    assert network.receivers == (
        ReceiverNode("tokyo-1", 1, "tokyo"),
        ReceiverNode("osaka-1", 2, "osaka"),
        ReceiverNode("osaka-2", 3, "osaka"),
    )
    assert network.reformation == (ReformationNode("reform", 11, "tokyo", 0),)
    assert network.floors[0].id == network.floors[0].publisher == 21


def test_a_pair_takes_what_it_does_not_say_from_the_defaults() -> None:
    text = edited("loss = 0.01", 'loss = 0.01\npairs = [{ between = ["osaka", "tokyo"], delay = "3ms" }]')
    network = parse_network(text)
    assert network.link("tokyo", "osaka").delay_ns == 3 * MS
    assert network.link("tokyo", "osaka").loss_ratio == 0.01
    assert network.link("tokyo", "tokyo").delay_ns == 100_000
    assert network.link("tokyo", "tokyo").loss_ratio == 0.0


def test_a_floor_far_outside_the_core_lengthens_only_its_own_resending() -> None:
    text = SMALL + '[[site]]\nname = "lima"\n[[floor]]\nname = "XLIM"\npublisher = 22\nsite = "lima"\n'
    text = edited("loss = 0.01", 'loss = 0.01\npairs = [{ between = ["osaka", "tokyo"], delay = "10ms" }]', text)
    near = parse_network(text).timing()
    with_far = parse_network(edited('delay = "10ms"\n', 'delay = "200ms"\n', text)).timing()
    assert with_far.late_ns == near.late_ns
    assert with_far.hold_ns == near.hold_ns
    assert with_far.resend_ns > near.resend_ns + 300 * MS


def test_stripes_differ_from_the_timing_in_the_keys_they_give() -> None:
    network = parse_network(SMALL + '[stripes.fast]\n[stripes.sure]\nslot = "20ms"\nwitness = "all"\n')
    assert network.timing("fast").slot_ns == network.timing(0).slot_ns == 5 * MS
    assert network.timing("sure").slot_ns == network.timing(1).slot_ns == 20 * MS
    assert (network.witnesses("fast"), network.witnesses("sure")) == (2, 3)
    assert network.core_group("sure").port == network.core_group("fast").port + 2
    assert network.floors[0].stripe == "fast"
    with pytest.raises(KeyError):
        network.timing("slow")


def test_without_links_the_given_numbers_are_enough_and_nothing_is_added_to_packets() -> None:
    text = edited('[links]\ndelay = "10ms"\nloss = 0.01\n', "")
    network = parse_network(edited('slot = "5ms"', 'slot = "5ms"\nlate = "10ms"\nattempts = 3', text))
    assert network.timing().late_ns == 10 * MS
    assert network.link("tokyo", "osaka").delay_ns == 0
    assert network.link("tokyo", "osaka").loss_ratio == 0.0


def test_a_lockstep_slot_that_is_not_given_is_one_recovery_time() -> None:
    timing = parse_network(edited('slot = "5ms"', 'mode = "lockstep"\nwitness = 1')).timing()
    assert timing.slot_ns == timing.recovery_ns == timing.hold_ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [("5ms", 5 * MS), ("300us", 300_000), ("0.5 s", 500 * MS), ("1min", 60_000 * MS), ("7ns", 7)],
)
def test_durations_have_units(text: str, ns: int) -> None:
    assert parse_network(edited('slot = "5ms"', f'slot = "{text}"')).timing().slot_ns == ns


def test_warnings_say_what_is_allowed_and_unwise() -> None:
    text = edited('slot = "5ms"', 'slot = "5ms"\nwitness = 1\nattempts = 2\nlate = "1ms"')
    told = " ".join(warnings(parse_network(text)))
    assert "less than a majority of 3" in told
    assert "a loss of 0.01 needs 6" in told
    assert "Late (δ_N) is set to 1 ms, less than the 12 ms" in told
    assert 'stops if site "osaka" fails' in told
    assert "one reformation server" in told


def test_a_ring_that_is_too_large_for_a_membership_record_is_refused() -> None:
    def ring(receivers: int) -> Network:
        more = "".join(
            f'[[receiver]]\nname = "more-{i}"\nid = {1000 + i}\nsite = "tokyo"\n' for i in range(receivers - 5)
        )
        return parse_network(five_cities() + more)

    assert len(ring(MAX_MEMBERS).receivers) == MAX_MEMBERS == MOST_RECEIVERS
    with pytest.raises(NetworkError) as refused:
        ring(MAX_MEMBERS + 3)
    (problem,) = refused.value.problems
    assert problem.message == (
        f'receiver "more-{MAX_MEMBERS - 5}" exceeds the maximum of {MAX_MEMBERS} receivers; '
        "make it and those after it secondaries"
    )


# What is wrong, and on which line


def test_an_unknown_site_is_named_with_its_line_and_the_nearest_name() -> None:
    text = edited('id = 1\nsite = "tokyo"', 'id = 1\nsite = "tokio"')
    assert only_problem(text) == (
        'network.toml:15: receiver "tokyo-1" is at site "tokio", which is not defined in a [[site]]; '
        'did you mean "tokyo"?'
    )


def test_an_automatic_hold_time_starts_as_a_derived_one_and_has_two_windows() -> None:
    text = edited('slot = "5ms"', 'slot = "5ms"\nhold = "auto"\nlengthen_after = "5s"\nshorten_after = "30s"')
    network = parse_network(text)
    rules = network.stripe().rules
    assert (rules.hold_auto, rules.hold_ns) == (True, None)
    assert (rules.lengthen_after_ns, rules.shorten_after_ns) == (5_000 * MS, 30_000 * MS)
    assert network.timing() == parse_network(edited("slot", "slot")).timing()
    started = network.with_holds({network.stripe().name: 9 * MS})
    assert started.stripe().rules.hold_auto
    assert started.timing().hold_ns == 9 * MS


def test_an_automatic_hold_time_is_refused_where_rule_6_gives_it_and_windows_have_a_minimum() -> None:
    assert 'such as "50ms", or "auto"' in only_problem(edited('slot = "5ms"', 'slot = "5ms"\nhold = "often"'))
    assert 'hold = "auto" is not supported with NACK sets' in only_problem(
        edited('slot = "5ms"', 'slot = "5ms"\nhold = "auto"\nnack_sets = 2')
    )
    assert only_problem(edited('slot = "5ms"', 'slot = "5ms"\nlengthen_after = "1s"')).endswith("the minimum is 2 s")


def test_a_stripe_may_have_a_hold_time_of_its_own_beside_an_automatic_one() -> None:
    text = edited('slot = "5ms"', 'slot = "5ms"\nhold = "auto"') + '[stripes.fast]\n[stripes.sure]\nhold = "9ms"\n'
    network = parse_network(text)
    assert [stripe.rules.hold_auto for stripe in network.stripes] == [True, False]
    assert network.stripe("sure").rules.hold_ns == 9 * MS


def test_a_hold_time_that_is_too_short_says_by_how_much() -> None:
    lockstep = edited('slot = "5ms"', 'mode = "lockstep"')
    required = parse_network(lockstep).timing().hold_ns
    problem = only_problem(edited('mode = "lockstep"', f'mode = "lockstep"\nhold = "{required - 2 * MS}ns"', lockstep))
    assert problem.startswith("network.toml:5: hold (Δ_A) is ")
    assert "2 ms too short" in problem
    assert problem.endswith("(rule 6); remove hold, and it is derived")
    parse_network(edited('mode = "lockstep"', f'mode = "lockstep"\nhold = "{required}ns"', lockstep))
    assert parse_network(edited('slot = "5ms"', 'slot = "5ms"\nhold = "9ms"')).timing().hold_ns == 9 * MS


def test_lockstep_needs_a_slot_of_a_recovery_time() -> None:
    problems = problems_of(edited('slot = "5ms"', 'mode = "lockstep"\nslot = "5ms"'))
    assert any(p.startswith("network.toml:5: slot (τ) is 5 ms") and "rule 4" in p for p in problems)


def test_a_stripe_that_contradicts_is_named_at_its_own_line() -> None:
    text = SMALL + '[stripes.fast]\n[stripes.sure]\nnack_sets = 2\nhold = "1ms"\n'
    assert only_problem(text).startswith(f'network.toml:{line_of("hold =", text)}: stripe "sure": hold (Δ_A) is 1 ms')


@pytest.mark.parametrize(
    ("old", "new", "line_has", "says"),
    [
        ("id = 2", "id = 1", "id = 1\nsite = \"osaka\"", 'which receiver "tokyo-1" already has'),
        ('"osaka-2"', '"osaka-1"', 'osaka-1"\nid = 3', "has the same name as the receiver on line 17"),
        ("publisher = 21", "publisher = 3", "publisher = 3", "because it has no id of its own"),
        ('name = "osaka"', 'name = "tokyo"', 'tokyo"\n[[receiver', "defined twice; the first is on line 9"),
        ("loss = 0.01", "loss = 1.5", "loss = 1.5", "from 0 to 1; for 1.5 percent write 0.015"),
        ("loss = 0.01", "loss = nan", "loss = nan", "must be a ratio from 0 to 1"),
        ("loss = 0.01", "loss = 0.9", "loss = 0.9", "set attempts in [timing]"),
        ('"10ms"', '"-10ms"', '"-10ms"', "cannot be negative"),
        ('"10ms"', "10", "delay = 10", 'a number needs its unit: "10ms"?'),
        ('"5ms"', '"0ms"', '"0ms"', "more than 0"),
        ('"5ms"', '"999min"', '"999min"', "the maximum is"),
        ('slot = "5ms"', "slto = 1", "slto", 'unknown key "slto" in [timing]; did you mean "slot"?'),
        ('slot = "5ms"', 'slot = "5ms"\nwitness = 4', "witness", "requires 4 members and there are 3 receivers"),
        ('slot = "5ms"', 'slot = "5ms"\nwitness = "al"', "witness", 'did you mean "all"?'),
        ('slot = "5ms"', 'slot = "5ms"\nmode = "piped"', "mode", '"pipelined" or "lockstep"'),
        ('slot = "5ms"', 'slot = "5ms"\nrequest = "1ms"', "request", "request (τ_r) is 1 ms"),
        ("[[floor]]", "[[flor]]", "[[flor]]", 'unknown key "flor"; did you mean "floor"?'),
        ('"XTKS"', '"Tokyo"', '"Tokyo"', "a market code of four capitals"),
        ("id = 3\n", "", '[[receiver]]\nname = "osaka-2"', "has no id"),
        ("id = 3", "id = 65536", "65536", "an integer from 1 to 65535"),
        ('name = "osaka"', 'name = ["osaka"]', '["osaka"]', "has name = an array"),
        ("id = 3", "id = true", "id = true", "an integer from 1 to 65535"),
        ('"osaka-2"', '"../etc"', '"../etc"', "must be up to 64 letters"),
        ("publisher = 21", 'publisher = 21\nstripe = "b"', 'stripe = "b"', "which is not defined in [stripes]"),
        ("publisher = 21", 'publisher = 21\nsymbols = ["A", "A"]', "symbols", 'has "A" twice in symbols'),
        ("[network]", "[core]\nport = 0\n[network]", "port", "an integer from 1 to 65534"),
        ("[network]", '[core]\naddress = "10.0.0.1"\n[network]', "address", "IPv4 multicast address"),
    ],
)  # fmt: skip
def test_each_mistake_is_told_with_its_line(old: str, new: str, line_has: str, says: str) -> None:
    text = edited(old, new)
    found = [p for p in problems_of(text) if says in p]
    assert len(found) == 1, problems_of(text)
    assert found[0].startswith(f"network.toml:{line_of(line_has, text)}: ")


def test_missing_parts_are_named() -> None:
    problems = "\n".join(problems_of(""))
    for part in ("[[site]] is missing", "[[receiver]] is missing", "[[reformation]] is missing"):
        assert part in problems
    without_servers = SMALL[: SMALL.index("[[reformation]]")]
    assert "without a server no ring can be formed" in only_problem(without_servers)
    assert "needs one, such as slot" in only_problem(edited('slot = "5ms"\n', ""))
    assert "the timing cannot be derived" in only_problem(edited('[links]\ndelay = "10ms"\nloss = 0.01\n', ""))


def test_a_missing_link_between_two_sites_that_speak_is_a_problem() -> None:
    text = edited('delay = "10ms"\n', "")
    assert only_problem(text).startswith('network.toml:5: the link between "osaka" and "tokyo" is missing')


def test_a_pair_inside_an_array_is_told_by_its_own_line() -> None:
    text = five_cities().replace('["london", "tokyo"]', '["london", "tokio"]')
    wrong = line_of('"tokio"', text)
    problems = problems_of(text)
    assert any(p.startswith(f"network.toml:{wrong}: ") and 'did you mean "tokyo"?' in p for p in problems)
    twice = five_cities().replace('["london", "tokyo"]', '["frankfurt", "london"]')
    assert any("as another pair does" in p for p in problems_of(twice))


def test_edge_groups_do_not_share_an_address_with_each_other_or_the_core() -> None:
    text = five_cities().replace('"239.192.75.3"\nport = 31003', '"239.192.75.1"\nport = 31001')
    assert 'edge group "asia-pacific" has the address and port of edge group "americas"' in only_problem(text)
    core = five_cities().replace('"239.192.75.3"\nport = 31003', '"239.192.74.1"\nport = 30001')
    assert "has the address and port of the core" in only_problem(core)


def test_a_receiver_sends_to_the_groups_of_its_region_and_to_those_of_none() -> None:
    network = parse_network(five_cities().replace('port = 31003\nregion = "asia-pacific"', "port = 31003"))
    names = {each.name: [group.name for group in network.edge_groups_of(each.name)] for each in network.receivers}
    assert names == {
        "new-york-1": ["americas", "americas-b", "asia-pacific"],
        "london-1": ["europe", "asia-pacific"],
        "frankfurt-1": ["europe", "asia-pacific"],
        "tokyo-1": ["asia-pacific"],
        "sydney-1": ["asia-pacific"],
    }
    assert [group.name for group in network.groups_of_region("europe")] == ["europe", "asia-pacific"]
    with pytest.raises(KeyError):
        network.edge_groups_of("osaka-1")


def test_a_group_for_a_region_without_receivers_is_told_by_its_line() -> None:
    text = five_cities().replace('port = 31002\nregion = "europe"', 'port = 31002\nregion = "Europe"')
    line = line_of('region = "Europe"', text)
    says = f'network.toml:{line}: edge group "europe" is for region "Europe", which has no receiver; did you mean'
    assert only_problem(text).startswith(says)
    # A receiver whose site is wrong may stand anywhere: its region is not counted against a group.
    lost = edited('id = 101\nsite = "new-york"', 'id = 101\nsite = "new-yorc"', five_cities())
    assert "edge group" not in only_problem(lost)


def test_nodes_tell_their_status_at_ports_in_the_order_of_the_file() -> None:
    network = parse_network(SMALL + '[status]\nport = 32000\naddress = "127.0.0.2"\n')
    addresses = [network.status_address(name) for name in ("tokyo-1", "osaka-1", "osaka-2", "reform", "XTKS")]
    assert addresses == [("127.0.0.2", 32000 + each) for each in range(5)]
    assert parse_network(SMALL).status_address("tokyo-1") is None
    assert parse_network(five_cities()).status_address("XASX") == ("127.0.0.1", 32011)
    with pytest.raises(ValueError):
        network.status_address("nobody")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("[status]", "[status] has no port; set the port of the first node, such as 32000"),
        ("[status]\nport = 65532", "[status] has port = 65532: it must be an integer from 1 to 65531"),
        ('[status]\nport = 1\naddress = "239.1.1.1"', "it must be an IPv4 address of this machine"),
        ('[status]\nport = 1\naddress = "localhost"', "it must be an IPv4 address of this machine"),
        ("[tape]\nkeep_bytes = 10", "it must be a size with a unit (kB, MB, GB, TB, MiB ...)"),
        ('[tape]\nkeep_bytes = "10"', "it must be a size with a unit"),
        ('[log]\nbytes = "1kB"', "[log] has a size of 1,000 bytes; the minimum is 10 kB"),
        ("[log]\nbytes = 10", "it must be a size with a unit"),
        ("[log]\nkeep = 0", "it must be an integer from 1 to 1000"),
        ('[log]\njson = "yes"', "it must be true or false"),
        ('[tape]\nkeep_bytes = "0GB"', "it must be a size with a unit"),
        ('[tape]\nkeep_age = "10ms"', "it must be an age with a unit (s, min, h, d)"),
        ('[tape]\ndurable = "yes"', 'it must be "process" or "power"'),
        ('[tape]\nkeep_ages = "7d"', 'unknown key "keep_ages" in [tape]; did you mean "keep_age"?'),
    ],
)
def test_a_wrong_status_or_tape_is_told_by_its_line(table: str, says: str) -> None:
    problem = only_problem(f"{SMALL}{table}\n")
    assert says in problem
    assert int(problem.split(":")[1]) > SMALL.count("\n")


@pytest.mark.parametrize(
    ("size", "age", "keep_bytes", "keep_ns"),
    [
        ("10GB", "7d", 10 * 10**9, 7 * 86_400 * 10**9),
        ("1.5 MiB", "1.5h", 3 << 19, 5_400 * 10**9),
        ("500kB", "30min", 500_000, 1_800 * 10**9),
    ],
)
def test_the_tape_is_kept_up_to_a_size_and_an_age(size: str, age: str, keep_bytes: int, keep_ns: int) -> None:
    table = f'[tape]\nkeep_bytes = "{size}"\nkeep_age = "{age}"\ndurable = "power"\n'
    assert parse_network(SMALL + table).tape == model.Keeping(keep_bytes, keep_ns, "power")
    assert parse_network(SMALL).tape == model.Keeping(None, None, "process")


def test_the_size_of_logs_is_limited() -> None:
    assert parse_network(SMALL).log == model.LogFiles(10_000_000, 5, True)
    table = '[log]\nbytes = "1MB"\nkeep = 2\njson = false\n'
    assert parse_network(SMALL + table).log == model.LogFiles(1_000_000, 2, False)


def test_all_problems_are_listed_in_the_order_of_their_lines() -> None:
    text = edited('slot = "5ms"', 'slot = "5ms"\nhold = "1"\nwitnes = 1')
    text = edited('id = 1\nsite = "tokyo"', 'id = 70000\nsite = "tokio"', text)
    with pytest.raises(NetworkError) as caught:
        parse_network(text, "mine.toml")
    lines = [problem.line for problem in caught.value.problems]
    assert len(lines) == 4
    assert lines == sorted(lines)
    assert all(row.startswith("mine.toml:") for row in str(caught.value).split("\n"))


@pytest.mark.parametrize(
    ("text", "line"),
    [("[network\n", 1), ("a = 1\nb = = 2\n", 2), ('a = 1\nb = """', 2), ("a = 1\n\na = 2\n", 3)],
)
def test_a_syntax_error_has_its_line(text: str, line: int) -> None:
    assert only_problem(text).startswith(f"network.toml:{line}: not valid TOML: ")


def test_a_message_holds_nothing_that_a_terminal_would_obey() -> None:
    problem = only_problem(edited('"osaka-2"', r'"\u001b[31mred\u202e"'))
    assert problem.isprintable()


# Whatever the text, there is a network or a NetworkError


def settle(text: str) -> None:
    """Read a text: it is a network whose every method works, or it was refused in the promised way."""
    problems: list[Problem] = []
    network = None
    try:
        network = parse_network(text)
    except NetworkError as error:
        problems = error.problems
    if network is None:
        assert problems
        assert all(1 <= problem.line <= text.count("\n") + 1 for problem in problems)
        return
    for stripe in network.stripes:
        timing = network.timing(stripe.name)
        assert timing.request_ns > 0
        assert timing.hold_ns > 0
        assert timing.hold_ns >= timing.recovery_ns or follows_from_pairs(network, stripe.name)
        warnings(network, stripe.name)
        network.liveness(stripe.name)


@given(st.text())
@example("x = " + "9" * 5000)
@example("x = " + "[" * 5000)
@example("x = " + "{a=" * 5000)
@example("x." * 3000 + "y = 1")
@example("\ufeff[network]")
@example("receiver = 1\nsite = {}\nfloor = [1]\nreformation = []\nlinks = []\ntiming = 3")
@example("[stripes]\nmain = 1\n[stripes.'']\n[stripes.\"a b\"]")
def test_random_text_is_refused_or_read(text: str) -> None:
    settle(text)


_WORDS = [
    *sorted(set(SMALL.replace("=", " ").split())),
    *("=", "[", "]", "{", "}", "{}", "[]", ",", "\n", '"', "'''", '"""', "#"),
    *("nan", "inf", "-1", "0", "1.0", "1e400", "true", "1979-05-27", '"all"', '"0ns"'),
    *("[stripes.a]", "[[stripes]]", "[edge]", "[[edge.group]]", "[core]", "pairs", "between"),
    *("witness", "hold", "late", "attempts", "process", "clock_error", "asymmetry", "leap"),
]


@settings(max_examples=300)
@given(st.integers(min_value=0), st.sampled_from([SMALL, five_cities()]))
def test_mutated_files_are_refused_or_read(seed: int, text: str) -> None:
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            text = text[:start] + text[start + chance.randint(1, 20) :]
        elif kind == 1:
            text = text[:start] + chance.choice(_WORDS) + text[start:]
        elif kind == 2:
            rows = text.split("\n")
            rows.insert(chance.randrange(len(rows)), chance.choice(rows))
            text = "\n".join(rows)
        elif kind == 3:
            rows = text.split("\n")
            row = chance.randrange(len(rows))
            rows[row] = rows[row].split("=")[0] + "= " + chance.choice(_WORDS)
            text = "\n".join(rows)
        else:
            rows = text.split("\n")
            del rows[chance.randrange(len(rows))]
            text = "\n".join(rows)
    settle(text)


_scalars = st.one_of(
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.sampled_from(["5ms", "0ns", "-3s", "tokyo", "osaka", "all", "majority", "lockstep", "239.0.0.1", ""]),
)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return repr(value)


_keys = st.sampled_from(
    [
        "name",
        "site",
        "id",
        "home",
        "publisher",
        "stripe",
        "symbols",
        "slot",
        "mode",
        "witness",
        "late",
        "request",
        "attempts",
        "hold",
        "process",
        "delay",
        "loss",
        "jitter",
        "pairs",
        "between",
        "group",
        "address",
        "port",
        "watermark",
        "together",
        "main",
        "network",
        "timing",
        "links",
    ]
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "network",
                "site",
                "receiver",
                "reformation",
                "secondary",
                "floor",
                "timing",
                "stripes",
                "links",
                "core",
                "edge",
            ]
        ),
        _values,
    )
)
def test_any_kind_of_value_in_any_place_is_refused_or_read(tables: dict[str, object]) -> None:
    settle("".join(f"{key} = {_toml(value)}\n" for key, value in tables.items()))


# The locator


def _leaves(value: object, path: KeyPath = ()) -> list[KeyPath]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, (*path, index))]
    return [path]


def test_every_value_of_a_file_is_located_on_the_line_that_spells_it() -> None:
    text = five_cities()
    parsed = tomllib.loads(text)
    rows = text.split("\n")
    lines = LineNumbers(text)
    for leaf in _leaves(parsed):
        value: object = parsed
        for step in leaf:
            value = value[step]  # type: ignore[index]
        assert str(value) in rows[lines.of(leaf) - 1], leaf


def test_the_locator_follows_all_the_ways_to_write_a_table() -> None:
    text = (
        "a.b = 1\n"
        '[x]\n"q k" = [ { n = 1, m = [1,\n 2, {z = """\n[not]\n=""" } ] }, # ] }\n { n = 3.5 } ]\n'
        "[[y]]\nk = 1\n[y.sub]\nv = 2\n[[y.deep]]\nw = 1\n[[y.deep]]\nw = 2\n[[y]]\n[y.sub]\nv = 3\n"
    )
    lines = LineNumbers(text)
    assert tomllib.loads(text)["y"][1]["sub"]["v"] == 3
    expected: dict[KeyPath, int] = {
        ("a", "b"): 1,
        ("x", "q k", 0, "m", 1): 4,
        ("x", "q k", 0, "m", 2, "z"): 4,
        ("x", "q k", 1, "n"): 7,
        ("y", 0): 8,
        ("y", 0, "sub", "v"): 11,
        ("y", 0, "deep", 1, "w"): 15,
        ("y", 1, "sub", "v"): 18,
        ("y", 1, "sub", "absent"): 17,
        ("absent",): 1,
    }
    assert {path: lines.of(path) for path in expected} == expected


# Files on disk


def test_load_network_reads_a_file_and_names_it_in_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("\ufeff" + five_cities().replace("\n", "\r\n"), encoding="utf-8", newline="")
    assert load_network(path) == parse_network(five_cities())
    path.write_bytes(b'[network]\nname = "\xff"\n')
    with pytest.raises(NetworkError, match=r"mine\.toml:2: not UTF-8 text"):
        load_network(path)
    with pytest.raises(UserError, match=r"none\.toml: network file not found; write one with `levelcast init --out .*"):
        load_network(tmp_path / "none.toml")
    with pytest.raises(UserError, match="is a directory; pass a network file"):
        load_network(tmp_path)


@pytest.mark.parametrize("module", [model, toml_lines])
def test_the_examples_in_the_docstrings_run(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0


def test_how_packets_travel_can_be_set_and_is_checked() -> None:
    text = five_cities().replace("[core]", "[core]\npacket = 9000\ntrains = false\ncredit = 512")
    text = text.replace("[edge]", "[edge]\npacket = 8900\ntrains = true")
    network = parse_network(text)
    assert (network.carriage.packet_bytes, network.carriage.trains, network.carriage.credit) == (9000, False, 512)
    assert (network.edge.packet_bytes, network.edge.trains) == (8900, True)
    assert parse_network(five_cities()).carriage == Carriage()
    with pytest.raises(NetworkError) as raised:
        parse_network(five_cities().replace("[core]", '[core]\npacket = 100\ntrains = "yes"\ncredit = 0'))
    assert len(raised.value.problems) == 3


def test_credit_follows_from_the_rate_and_the_time_that_a_packet_is_unwitnessed() -> None:
    def credit(core: str) -> int:
        return ring_config(parse_network(five_cities().replace("[core]", "[core]\n" + core))).credit

    timing = ring_config(parse_network(five_cities())).timing
    unwitnessed_ns = (3 + 2) * timing.slot_ns + 2 * timing.late_ns
    assert timing.unwitnessed_ns(3) == unwitnessed_ns
    assert credit('rate = "10MB"') == math.ceil(10_000_000 * unwitnessed_ns / 1e9 / 1_400)
    assert credit('rate = "1kB"') == credit("") == 64
    assert credit('rate = "900GB"') == 65_536
    assert credit('rate = "10MB"\ncredit = 7') == 7


def test_a_bound_of_subscribers_is_a_time_up_to_10_s() -> None:
    assert parse_network(five_cities()).edge.together_ns is None
    assert parse_network(five_cities().replace("[edge]", '[edge]\ntogether = "25ms"')).edge.together_ns == 25_000_000
    with pytest.raises(NetworkError, match="has together = 11 s; the maximum is 10 s"):
        parse_network(five_cities().replace("[edge]", '[edge]\ntogether = "11s"'))
    with pytest.raises(NetworkError, match="it must be more than 0"):
        parse_network(five_cities().replace("[edge]", '[edge]\ntogether = "0ms"'))


def test_what_is_kept_for_customers_is_a_size() -> None:
    assert parse_network(five_cities()).edge.store_bytes == 64 << 20
    assert parse_network(five_cities().replace("[edge]", '[edge]\nstore = "2GB"')).edge.store_bytes == 2_000_000_000
    with pytest.raises(NetworkError, match="the minimum is 1MB"):
        parse_network(five_cities().replace("[edge]", '[edge]\nstore = "5kB"'))


def test_the_identifier_is_that_of_the_file_or_a_hash_of_name_and_members() -> None:
    given = SMALL.replace("[network]\n", '[network]\nid = "00c0ffee00c0ffee"\n', 1)
    assert parse_network(given).id == 0x00C0FFEE00C0FFEE
    derived = parse_network(SMALL)
    floor = '[[floor]]\nname = "XASX"\npublisher = 9\nsite = "tokyo"\n'
    assert derived.id == parse_network(SMALL + floor).id, "a floor changes nothing"
    assert derived.id != parse_network(SMALL.replace("id = 11", "id = 12")).id
    assert ring_config(derived).domain == domain_of(derived.id, 0)


@pytest.mark.parametrize("bad", ['"12"', "12", '"00C0FFEE00C0FFEE"', '"0x00c0ffee00c0ff"'])
def test_an_identifier_has_16_digits(bad: str) -> None:
    with pytest.raises(NetworkError, match=r"id = .*: it must be a string of 16 hexadecimal digits"):
        parse_network(SMALL.replace("[network]\n", f"[network]\nid = {bad}\n", 1))


def test_groups_and_ports_follow_from_the_identifier() -> None:
    ids = [1, 2**64 - 1, 0x1234567]
    networks = [parse_network(five_cities(FiveCities.identified(each))) for each in ids]
    assert [network.id for network in networks] == ids
    places = [(network.core.address, network.core.port, network.edge.groups[0].address) for network in networks]
    assert len({place[0] for place in places}) == 3
    assert five_cities(FiveCities.identified(5)) == five_cities(FiveCities.identified(5))
    for network in networks:
        ports = [network.core.port, network.core.port + 1, *(group.port for group in network.edge.groups)]
        assert network.status is not None
        ports += range(network.status.port, network.status.port + len(network.node_names))
        assert len(set(ports)) == len(ports)
        assert min(ports) >= 10_000
        assert max(ports) < 32_768
