"""Events of nodes, told in plain words and once."""

from __future__ import annotations

import pytest

from levelcast.cli.demo.event_text import EventText
from levelcast.network import five_cities, parse_network
from levelcast.node.cluster import NodeKilled, NodeStarted
from levelcast.node.demo.run import BackOnTime, FloorsClosed, FloorsOpened
from levelcast.protocol.events import (
    CaughtUp,
    Diverged,
    Event,
    FaultReported,
    InvitationEnded,
    PromiseMade,
    RingEntered,
    RingFormed,
    RingInvited,
    Voided,
    Witnessed,
)
from levelcast.wire.messages import FaultReason


@pytest.fixture
def tale() -> EventText:
    return EventText(parse_network(five_cities()))


def tell(tale: EventText, *events: tuple[str, Event]) -> list[str]:
    for name, event in events:
        tale.add(1.0, name, event)
    return [sentence.text for sentence in tale.sentences]


def test_a_site_dies_and_comes_back(tale: EventText) -> None:
    assert tell(
        tale,
        ("london-1", FaultReported(0, FaultReason.OUTSIDE, 0)),
        ("sydney-1", FaultReported(0, FaultReason.OUTSIDE, 0)),
        ("reform-london", RingInvited(0, 1 << 32)),
        ("reform-london", RingFormed(1, 1 << 32, 1, (101, 102, 103, 104, 105))),
        ("floors", FloorsOpened(0, 5)),
        ("tokyo-1", NodeKilled(0)),
        ("sydney-1", FaultReported(40, FaultReason.TOKEN_MISSING, 104)),
        ("london-1", FaultReported(40, FaultReason.TOKEN_MISSING, 104)),
        ("reform-london", RingFormed(40, 2 << 32, 40, (101, 102, 103, 105))),
        ("sydney-1", Voided(40, 2)),
        ("london-1", Voided(40, 2)),
        ("tokyo-1", NodeStarted(0)),
        ("tokyo-1", FaultReported(40, FaultReason.TOKEN_MISSING, 104)),
        ("sydney-1", FaultReported(0, FaultReason.MEMBERSHIP, 104)),
        ("tokyo-1", CaughtUp(60, 105, 41)),
        ("tokyo-1", CaughtUp(70, 101, 61)),
        ("tokyo-1", BackOnTime(0)),
        ("floors", FloorsClosed(0, 12345)),
    ) == [
        "no ring yet; the receivers request one",
        "reform-london invites all receivers to ring 1",
        "ring 1 is formed: 5 members, from slot 1 on",
        "5 floors open",
        "tokyo-1 is killed (kill -9)",
        "sydney-1 requests a new ring: token missing, it suspects tokyo-1",
        "ring 2 is formed: 4 members, without tokyo-1, from slot 40 on",
        "2 slots of the old ring are void; their trades follow in later slots",
        "tokyo-1 is started again on its directory",
        "tokyo-1 is no longer in the ring; requesting to rejoin",
        "tokyo-1 catches up with frames from sydney-1's tape",
        "tokyo-1 is back: it releases on time again, with the others",
        "the floors close after 12,345 trades; held trades are released",
    ]


def test_what_is_alarming_is_told_and_what_is_ordinary_is_not(tale: EventText) -> None:
    assert tell(
        tale,
        ("tokyo-1", PromiseMade(0, 1 << 32 | 201 << 16)),
        ("tokyo-1", RingEntered(1, 1 << 32 | 201 << 16, (101,))),
        ("tokyo-1", Witnessed(3)),
        ("tokyo-1", Diverged(9, 105)),
        ("tokyo-1", Diverged(9, 105)),
        ("reform-london", InvitationEnded(0, 2)),
    ) == [
        "tokyo-1: diverged, frames of sydney-1 do not continue this tape",
        "reform-london gives up for now: 2 joined, no majority",
    ]
