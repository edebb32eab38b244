"""`levelcast regions`: a table for people, a network file for nodes, one sentence for mistakes."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.network import MulticastGroup, parse_network
from levelcast.network.hold_input import hold_input
from levelcast.network.regions.file import site_names
from levelcast.timing.hold import derive_hold

CITIES = ["Oslo", "Rome", "Bonn", "New York", "Lima", "Quito"]


@pytest.fixture
def pings(tmp_path: Path) -> Path:
    """Six cities in a row, 10 ms apart."""
    rows = [f"{a},{b},{abs(i - k) * 10},2" for i, a in enumerate(CITIES) for k, b in enumerate(CITIES) if a != b]
    path = tmp_path / "delays.csv"
    path.write_text("\n".join(["from,to,delay_ms,jitter_ms", *rows]), encoding="utf-8")
    return path


def test_the_plan_is_a_network_file_with_two_lines_a_region(pings: Path, tmp_path: Path) -> None:
    out = tmp_path / "network.toml"
    done = CliRunner().invoke(app, ["regions", str(pings), "--receivers", "7", "--regions", "3", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert f"levelcast timing --network {out}" in done.output.replace("\n", "")
    text = out.read_text(encoding="utf-8")
    groups = tomllib.loads(text)["edge"]["group"]
    assert sorted(group["line"] for group in groups) == ["a", "a", "a", "b", "b", "b"]
    assert len({(group["address"], group["port"]) for group in groups}) == 6
    if "line" not in {field.name for field in fields(MulticastGroup)}:
        text = re.sub(r'\nline = "[ab]"', "", text)
    network = parse_network(text)
    assert len(network.receivers) == 7
    assert len(network.sites) == 6
    for region in {site.region for site in network.sites}:
        sites = {receiver.site for receiver in network.receivers if network.region_of(receiver.name) == region}
        assert len(sites) == 2, "a region's lines come from two sites"
    assert network.link("oslo", "rome").quantile_ns == 12_000_000
    derived = derive_hold(hold_input(network))
    assert network.timing().hold_ns == derived.hold_ms * 1_000_000, "it is stored"


def test_json_has_what_the_table_has(pings: Path) -> None:
    done = CliRunner().invoke(app, ["regions", str(pings), "--receivers", "4", "--loss", "0.1", "--json"])
    told = json.loads(done.stdout)
    assert sum(region["receivers"] for region in told) == 4
    assert sum(region["customers"] for region in told) == pytest.approx(6)
    assert told[0]["both_lost"] == pytest.approx(0.01)


def test_reach_keeps_far_sites_out(pings: Path) -> None:
    done = CliRunner().invoke(app, ["regions", str(pings), "--receivers", "2", "--reach", "15ms", "--json"])
    sites = json.loads(done.stdout)[0]["sites"]
    assert abs(CITIES.index(sites[0]) - CITIES.index(sites[1])) == 1


def test_customers_draw_the_receivers_to_them(pings: Path, tmp_path: Path) -> None:
    customers = tmp_path / "customers.csv"
    customers.write_text("city,customers\nOslo,0\nRome,0\nBonn,0\nNew+York,0\nLima,5\nQuito,9\n", encoding="utf-8")
    given = ["regions", str(pings), "--receivers", "2", "--customers", str(customers), "--json"]
    told = json.loads(CliRunner().invoke(app, given).stdout)
    assert told[0]["sites"] == ["Quito", "Lima"]
    assert told[0]["customers"] == 14


def test_locations_without_two_lines_within_the_limits_are_listed_with_the_receivers_they_need(pings: Path) -> None:
    given = ["regions", str(pings), "--receivers", "2", "--within", "15ms", "--loss", "1%"]
    told = json.loads(CliRunner().invoke(app, [*given, "--json"]).stdout)
    (region,) = told["regions"]
    served = {name for name in CITIES if all(_apart(name, site) <= 1 for site in region["sites"])}
    assert {each["location"] for each in told["outside"]} == set(CITIES) - served
    assert told["receivers_needed"] == 2 * len(told["sites_needed"]) > 0
    assert not set(region["sites"]) & {site for pair in told["sites_needed"] for site in pair}
    shown = CliRunner().invoke(app, given).stdout
    assert f"No region has both lines within 15ms and 1.00% loss of {len(told['outside'])} locations" in shown
    assert f"{told['receivers_needed']} more receivers would serve " in shown
    enough = CliRunner().invoke(app, [*given[:4], "--within", "60ms"])
    assert "Every location has a region with both lines within 60ms and 1.00% loss.\n" in enough.stdout
    wrong = CliRunner().invoke(app, [*given[:4], "--within", "20"])
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)
    lossy = CliRunner().invoke(app, [*given[:4], "--loss", "70%"])
    assert (lossy.exit_code, lossy.stderr.count("\n")) == (2, 1)


def _apart(one: str, other: str) -> int:
    return abs(CITIES.index(one) - CITIES.index(other))


def test_the_scope_of_a_line_reaches_the_subscribers_of_its_region(tmp_path: Path) -> None:
    rows = [f"{a},{b},{_apart(a, b) * 10},2,{_apart(a, b)}" for a in CITIES for b in CITIES if a < b]
    pings, out = tmp_path / "delays.csv", tmp_path / "network.toml"
    pings.write_text("\n".join(["from,to,delay_ms,jitter_ms,hops", *rows]), encoding="utf-8")
    done = CliRunner().invoke(app, ["regions", str(pings), "--receivers", "2", "--out", str(out)])
    assert done.exit_code == 0, done.output
    network = parse_network(out.read_text(encoding="utf-8"))
    sites = [site.city for site in network.sites]
    assert {group.ttl for group in network.edge.groups} == {max(_apart(a, b) for a in sites for b in CITIES) + 1}
    assert network.link(*(site.name for site in network.sites)).hops == _apart(*sites)


def test_what_cannot_be_planned_is_one_sentence(pings: Path, tmp_path: Path) -> None:
    few = CliRunner().invoke(app, ["regions", str(pings), "--receivers", "14"])
    assert few.exit_code == 2
    assert "7 regions need 14 sites, two each; only 6 given" in few.stderr
    odd = CliRunner().invoke(app, ["regions", str(pings), "--receivers", "3", "--regions", "2"])
    assert odd.exit_code == 2
    out = tmp_path / "there.toml"
    out.write_text("mine", encoding="utf-8")
    kept = CliRunner().invoke(app, ["regions", str(pings), "--receivers", "2", "--out", str(out)])
    assert (kept.exit_code, kept.stderr) == (2, f"levelcast: {out}: already exists; use --force to replace it\n")
    assert out.read_text(encoding="utf-8") == "mine"


def test_names_of_cities_become_names_of_sites() -> None:
    assert site_names(["St. John's", "東京", "東京"]) == ["st-john-s", "site", "site-2"]
