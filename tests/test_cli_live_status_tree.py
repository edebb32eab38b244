"""`levelcast status` and the metrics of a network with secondaries and stripes, from what its nodes might say."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from levelcast.cli.live.status import as_object, is_well, page
from levelcast.network import parse_network
from levelcast.node.status_client import Answer, in_one_ring, not_served, with_lags
from tests.status_parts import metrics_of
from tests.test_cli_live_status import common, receiver
from tests.test_network import SMALL

NETWORK = parse_network(SMALL)
Status = dict[str, Any]


def primary(name: str, stripe: str = "main", **members: tuple[int, bool]) -> Status:
    told = {other: {"have": 1239 - lag, "lag": lag, "counts": counts} for other, (lag, counts) in members.items()}
    return receiver(name) | {"stripe": stripe, "part": name, "group": {"number": 3, "members": told}}


def secondary(name: str, served_by: str | None = "a", **said: Any) -> Status:
    group = {"number": 3, "members": [name, "t"]} if served_by else None
    told = {"role": "secondary", "stripe": "main", "part": name, "state": "FOLLOWS", "home": "a", "suspect": None}
    return receiver(name) | told | {"primary": served_by, "group": group, "have": 1236} | said


def answers_of(*said: Status) -> list[Answer]:
    return with_lags([Answer(each["part"], each) for each in said])


def shown(*said: Status) -> str:
    console = Console(width=240)
    with console.capture() as capture:
        console.print(page(NETWORK, answers_of(*said)))
    return capture.get()


def test_a_secondary_is_shown_with_its_primary_and_how_far_it_is_behind() -> None:
    output = shown(primary("a", s=(3, True)), secondary("s"))
    assert "served by a, lag 3 slots, with t" in output
    assert "covers s" in output
    assert "served by b instead of a" in shown(secondary("s", "b"))
    assert "no primary (assigned: a)" in shown(secondary("s", None, state="ALONE"))


def test_who_left_the_minimum_is_named() -> None:
    assert "covers t; without s" in shown(primary("a", s=(900, False), t=(0, True)))


def test_a_server_shows_its_groups() -> None:
    server = common("r", "reformation") | {"part": "r", "phase": "IDLE", "rings_formed": 1, "groups": {"a": ["s", "t"]}}
    assert "formed nothing yet; groups a: s, t" in shown(server)


@pytest.mark.parametrize("state", ["ALONE", "LOST", "ORPHAN", "SILENT"])
def test_a_secondary_that_does_not_follow_is_not_well(state: str) -> None:
    good, bad = answers_of(primary("a"), secondary("s")), answers_of(primary("a"), secondary("s", state=state))
    assert is_well(good)
    assert not is_well(bad)
    assert in_one_ring(bad)
    assert not_served(bad) == ["s"]
    assert as_object(bad)["not_served"] == ["s"]
    assert "The secondary s does not follow the ring." in shown(primary("a"), secondary("s", state=state))


def test_the_lag_is_told_in_json_where_both_answer() -> None:
    assert as_object(answers_of(primary("a"), secondary("s")))["nodes"]["s"]["lag"] == 3
    assert "lag" not in as_object(answers_of(secondary("s")))["nodes"]["s"]
    other_stripe = primary("a", "fx") | {"part": "fx/a"}
    assert "lag" not in as_object(answers_of(other_stripe, secondary("s")))["nodes"]["s"]


def test_stripes_have_rings_of_their_own() -> None:
    main = [primary("a"), primary("b")]
    fx = [each | {"stripe": "fx", "part": f"fx/{each['name']}", "generation": "7@11"} for each in main]
    assert in_one_ring(answers_of(*main, *fx))
    assert not in_one_ring(answers_of(*main, fx[0], fx[1] | {"generation": "8@11"}))


def test_metrics_tell_of_secondaries_and_stripes() -> None:
    told = {"version": "0", "part": "fx/a", "stripe": "fx"}
    text = metrics_of(primary("a", s=(900, False)) | told)
    assert 'levelcast_secondary_lag_slots{node="a",role="receiver",stripe="fx",secondary="s"} 900' in text
    assert 'levelcast_secondary_counts{node="a",role="receiver",stripe="fx",secondary="s"} 0' in text
    text = metrics_of(secondary("s") | {"version": "0"})
    assert 'levelcast_state{node="s",role="secondary",state="FOLLOWS"} 1' in text
    assert 'state="ORPHAN"} 0' in text
    assert 'state="ACTIVE"' not in text
    server = common("r", "reformation") | {"version": "0", "groups_formed": 4}
    assert 'levelcast_groups_formed_total{node="r",role="reformation"} 4' in metrics_of(server)
