"""Events of nodes, told in plain words and once."""

from __future__ import annotations

import pytest

from levelcast.cli.demo.event_text import EventText
from levelcast.network import five_cities, parse_network


@pytest.fixture
def tale() -> EventText:
    return EventText(parse_network(five_cities()))


def tell(tale: EventText, *events: tuple[str, str]) -> list[str]:
    for name, what in events:
        tale.hear(1.0, name, what)
    return [sentence.text for sentence in tale.sentences]


def test_a_site_dies_and_comes_back(tale: EventText) -> None:
    assert tell(
        tale,
        ("london-1", "fault outside the ring, suspect 0"),
        ("sydney-1", "fault outside the ring, suspect 0"),
        ("reform-london", "invites generation 1"),
        ("reform-london", "forms generation 1 at slot 1: 101, 102, 103, 104, 105"),
        ("floors", "open 5"),
        ("tokyo-1", "killed (SIGKILL)"),
        ("sydney-1", "fault token missing, suspect 104"),
        ("london-1", "fault token missing, suspect 104"),
        ("reform-london", "forms generation 2 at slot 40: 101, 102, 103, 105"),
        ("sydney-1", "voided 2 slots from 40"),
        ("london-1", "voided 2 slots from 40"),
        ("tokyo-1", "started again on its directory"),
        ("tokyo-1", "fault token missing, suspect 104"),
        ("sydney-1", "fault membership changed, suspect 104"),
        ("tokyo-1", "caught-up by frames from 105"),
        ("tokyo-1", "caught-up by frames from 101"),
        ("tokyo-1", "on-time again"),
        ("floors", "close 12345"),
    ) == [
        "there is no ring yet: the receivers ask for one",
        "reform-london invites everybody into ring 1",
        "ring 1 is formed: 5 members, from slot 1 on",
        "5 floors open",
        "tokyo-1 is killed (kill -9)",
        "sydney-1 asks for a new ring: token missing, it suspects tokyo-1",
        "ring 2 is formed: 4 members, without tokyo-1, from slot 40 on",
        "2 slots of the old ring are void: their trades come in later ones",
        "tokyo-1 is started again on its directory",
        "tokyo-1 finds that the ring went on without it, and asks to be let in",
        "tokyo-1 catches up by frames from sydney-1's tape",
        "tokyo-1 is back: it releases on time again, with the others",
        "the floors close after 12,345 trades; what is held is released",
    ]


def test_what_is_alarming_is_told_and_what_is_ordinary_is_not(tale: EventText) -> None:
    assert tell(
        tale,
        ("tokyo-1", "promised generation 1@201"),
        ("tokyo-1", "entered generation 1@201, members 101"),
        ("tokyo-1", "something new"),
        ("tokyo-1", "diverged frames of 105 do not fit the tape here"),
        ("tokyo-1", "diverged frames of 105 do not fit the tape here"),
        ("reform-london", "gives-up 2 joined, no majority"),
    ) == [
        "tokyo-1: diverged, frames of 105 do not fit the tape here",
        "reform-london gives up for now: 2 joined, no majority",
    ]
