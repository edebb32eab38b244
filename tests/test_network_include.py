"""Files that a network file includes: what they may say, who wins, and what is wrong where."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli import main
from levelcast.network import Link, Network, NetworkError, load_network, parse_network
from levelcast.network.stripe_config import ring_config

OWN = """\
include = ["measured.toml"]

[network]
name = "three"

[[site]]
name = "a"
[[site]]
name = "b"
[[site]]
name = "c"

[timing]
slot = "20ms"

[[receiver]]
name = "a-1"
id = 1
site = "a"
[[receiver]]
name = "b-1"
id = 2
site = "b"
[[receiver]]
name = "c-1"
id = 3
site = "c"
[[reformation]]
name = "reform"
id = 11
site = "a"
"""
MEASURED = """\
[measured]
network = "three"
at = "2026-11-16T08:00Z"

[links]
pairs = [
    { between = ["a", "b"], delay = "10ms", jitter = "2ms", loss = 0.2 },
    { between = ["a", "c"], delay = "40ms", jitter = "5ms", loss = 0.01 },
    { between = ["b", "c"], delay = "30ms", loss = 0.01 },
]

[helpers]
a = ["c", "b"]
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "network.toml").write_text(OWN)
    (tmp_path / "measured.toml").write_text(MEASURED)
    return tmp_path


def problems(here: Path) -> list[str]:
    with pytest.raises(NetworkError) as caught:
        load_network(here / "network.toml")
    return [line.removeprefix(f"{here}/") for line in str(caught.value).split("\n")]


def load(here: Path) -> Network:
    return load_network(here / "network.toml")


def test_measured_links_and_helpers_are_those_of_the_network(here: Path) -> None:
    network = load(here)
    assert network.link("c", "a") == Link(40_000_000, 5_000_000, 0.01)
    assert network.link("a", "b").source == str(here / "measured.toml")
    assert network.path().delay_ns == 45_000_000
    assert network.helpers == {"a": ("c", "b")}
    assert [(each.pairs, each.helpers) for each in network.included] == [(3, 1)]


def test_who_asks_whom_follows_the_helpers_and_then_the_delay(here: Path) -> None:
    nearness = ring_config(load(here)).nearness
    assert nearness == {1: (3, 2), 2: (1, 3), 3: (2, 1)}
    (here / "measured.toml").write_text(MEASURED.partition("[helpers]")[0])
    assert ring_config(load(here)).nearness[1] == (2, 3)


def test_a_secondary_without_a_home_goes_to_its_sites_best_helper(here: Path) -> None:
    own = OWN + '[[site]]\nname = "d"\n[[secondary]]\nname = "d-1"\nsite = "d"\n'
    more = "".join(f'{{ between = ["{x}", "d"], delay = "{ms}ms" }},' for x, ms in (("a", 5), ("b", 6), ("c", 7)))
    pairs = MEASURED.replace("pairs = [", f"pairs = [{more}")
    (here / "network.toml").write_text(own)
    (here / "measured.toml").write_text(pairs)
    assert load(here).secondaries[0].home == "a-1"
    (here / "measured.toml").write_text(pairs + 'd = ["c", "a"]\n')
    assert load(here).secondaries[0].home == "c-1"


def test_the_including_file_wins_pair_by_pair_and_key_by_key(here: Path) -> None:
    own = OWN + '[links]\nloss = 0.005\npairs = [{ between = ["c", "a"], delay = "90ms" }]\n[helpers]\na = ["b"]\n'
    (here / "network.toml").write_text(own)
    network = load(here)
    assert network.link("a", "c") == Link(90_000_000, 0, 0.005)
    assert network.link("a", "c").source == ""
    assert network.link("b", "c") == Link(30_000_000, 0, 0.01)
    assert network.helpers == {"a": ("b",)}
    assert [(each.pairs, each.helpers) for each in network.included] == [(2, 0)]


def test_a_measured_pair_goes_before_the_default_of_the_including_file(here: Path) -> None:
    (here / "network.toml").write_text(OWN + '[links]\ndelay = "1ms"\njitter = "9ms"\n')
    network = load(here)
    assert network.link("b", "c") == Link(30_000_000, 9_000_000, 0.01)


def test_of_two_included_files_the_later_wins(here: Path) -> None:
    (here / "later").mkdir()
    (here / "later" / "more.toml").write_text('[links]\npairs = [{ between = ["b", "a"], delay = "11ms" }]\n')
    (here / "network.toml").write_text(OWN.replace('"measured.toml"', '"measured.toml", "later/more.toml"'))
    network = load(here)
    assert network.link("a", "b") == Link(11_000_000)
    assert network.link("a", "c").delay_ns == 40_000_000
    assert [each.pairs for each in network.included] == [2, 1]


def test_timing_that_is_measured_counts_unless_it_is_given(here: Path) -> None:
    (here / "measured.toml").write_text(MEASURED + '[timing]\nlate = "60ms"\nattempts = 20\n')
    assert load(here).timing().late_ns == 60_000_000
    (here / "network.toml").write_text(OWN.replace("[timing]", '[timing]\nlate = "70ms"'))
    network = load(here)
    assert (network.timing().late_ns, network.timing().attempts) == (70_000_000, 20)
    assert network.included[0].timing == ("attempts",)


def test_timing_shows_what_is_from_an_included_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(here)
    result = CliRunner().invoke(main.app, ["timing"])
    assert result.exit_code == 0
    assert "measured.toml (at 2026-11-16T08:00Z) provides 3 pairs of sites and helpers of 1 sites." in result.output
    assert "The longest delay, between a and c, is from measured.toml." in result.output
    assert '"file": "measured.toml"' in CliRunner().invoke(main.app, ["timing", "--json"]).output


def test_what_is_wrong_in_an_included_file_is_told_with_its_own_line(here: Path) -> None:
    (here / "measured.toml").write_text(MEASURED.replace('"40ms"', "40").replace('a = ["c", "b"]', 'a = ["a"]'))
    told = problems(here)
    assert [line.partition(": ")[0] for line in told] == ["measured.toml:8", "measured.toml:13"]
    assert "must be a duration with a unit" in told[0]
    assert "as its own helper" in told[1]


def test_a_contradiction_names_the_file_that_has_the_number(here: Path) -> None:
    (here / "measured.toml").write_text(MEASURED + '[timing]\nrequest = "1ms"\n')
    assert problems(here)[0].startswith("measured.toml:15: request (τ_r) is 1 ms")
    (here / "measured.toml").write_text(MEASURED.replace("0.2", "0.9"))
    assert problems(here)[0].startswith("measured.toml:7: a loss of 0.9 between a and b")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("[measured]", 'include = ["x.toml"]\n[measured]'), "1: an included file cannot include others"),
        (("[helpers]", "[core]\n[helpers]"), "12: [core] cannot be included; only [links], [helpers], [timing]"),
        (("[helpers]", '[timing]\nslot = "1s"\n[helpers]'), '13: "slot" of [timing] cannot be included; only late'),
        (
            ('"three"', '"four"'),
            '2: this was measured for the network "four", but the including file is for "three"',
        ),
        (
            ('["b", "c"]', '["x", "y"]'),
            '9: site "x" and 1 more of this file are not defined in a [[site]]',
        ),
        (('["b", "c"]', '["x", "c"]'), '9: site "x" is not defined in a [[site]] of the network'),
        (("[links]", "[links"), "5: not valid TOML: expected ']' at the end of a table declaration"),
    ],
)
def test_a_file_that_cannot_be_included_is_refused_in_one_sentence(
    here: Path, change: tuple[str, str], told: str
) -> None:
    (here / "measured.toml").write_text(MEASURED.replace(*change))
    (sentence,) = problems(here)
    assert sentence.startswith(f"measured.toml:{told}")


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ('"measured.toml"', 'include must be an array of files, such as ["measured.toml"]'),
        ('["none.toml"]', 'include has "none.toml", which cannot be read: file not found'),
        ('["."]', 'include has ".", which cannot be read: Is a directory'),
        ('["measured.toml", "measured.toml"]', 'include has "measured.toml" twice'),
    ],
)
def test_an_include_that_cannot_be_followed_is_told(here: Path, listed: str, told: str) -> None:
    (here / "network.toml").write_text(OWN.replace('["measured.toml"]', listed))
    (sentence,) = problems(here)
    assert sentence.startswith(f"network.toml:1: {told}")


def test_a_text_without_a_place_cannot_include(here: Path) -> None:
    with pytest.raises(NetworkError, match=r"network.toml:1: include is supported only in a file"):
        parse_network(OWN)
