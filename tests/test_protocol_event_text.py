"""Texts and levels of events: who reports what about whom, by name, and no fault at a first start."""

from __future__ import annotations

import pytest

from levelcast.protocol.event_levels import Level, level_of
from levelcast.protocol.event_text import cause_of, headline, names_in, sentence
from levelcast.protocol.events import (
    NODE_EVENTS,
    CaughtUp,
    ClockDoubt,
    ClockDoubted,
    Conflict,
    Diverged,
    Event,
    EventRepeated,
    FaultReceived,
    FaultReported,
    GroupFormed,
    HoldChosen,
    LeapAnnounced,
    LeaveAnnounced,
    LeaveReceived,
    NodeStart,
    NodeStop,
    PromiseMade,
    RefuseReason,
    Rejected,
    RejectReason,
    RingEntered,
    RingFormed,
    RingInvited,
    RingRefused,
    TapeDamaged,
    Witnessed,
    event_fields,
    event_from_json,
    event_name,
)
from levelcast.wire.messages import FaultReason

NAMES = {1: "tokyo-1", 2: "london-1", 9: "XNYS", 201: "reform-london"}
GENERATION = 3 << 32 | 201 << 16
FAULTS = {
    FaultReason.TOKEN_MISSING: "tokyo-1 reported a missing token of london-1",
    FaultReason.PACKET_MISSING: "tokyo-1 reported missing packets of the token of london-1",
    FaultReason.REFUSED: "tokyo-1 reported that it refused a ring of london-1",
    FaultReason.CONTRADICTION: "tokyo-1 reported a token of london-1 that contradicts the order",
}
REQUESTS = {
    FaultReason.OUTSIDE: "tokyo-1 asked to join the ring",
    FaultReason.STUCK: "tokyo-1 asked again for the ring that it promised to join",
    FaultReason.MEMBERSHIP: "tokyo-1 asked for a ring with the changed members",
    FaultReason.LEAVING: "tokyo-1 left the ring as planned",
}


@pytest.mark.parametrize(("reason", "text"), FAULTS.items())
def test_the_cause_of_a_reformation_names_reporter_fault_and_suspect(reason: int, text: str) -> None:
    reported, received = FaultReported(7, reason, 2), FaultReceived(0, reason, 1, 2)
    assert headline(received, NAMES) == f"starts a reformation: {text}"
    assert cause_of(received, "reform-london", NAMES) == cause_of(reported, "tokyo-1", NAMES) == text
    said = text.removeprefix("tokyo-1 ").replace("reported", "reports")
    assert headline(reported, NAMES) == f"{said} at slot 7 to the reformation servers"
    assert {level_of(reported), level_of(received)} == {Level.WARNING}
    assert (event_name(reported), event_name(received)) == ("fault", "fault-heard")


@pytest.mark.parametrize(("reason", "text"), REQUESTS.items())
def test_a_request_is_not_called_a_fault(reason: int, text: str) -> None:
    for event in (FaultReported(7, reason, 0), FaultReceived(0, reason, 1, 0)):
        assert level_of(event) == Level.INFO
        assert "fault" not in headline(event, NAMES)
        assert "fault" not in event_name(event)
        assert event_from_json(event_name(event), event.slot, event_fields(event)) == event
    assert sentence(FaultReceived(0, reason, 1, 0), NAMES) == text


def test_a_member_that_vouches_for_another_names_it() -> None:
    assert headline(FaultReported(7, FaultReason.MEMBERSHIP, 2), NAMES) == "supports the request of london-1 to join"


def test_a_planned_stop_is_a_cause_and_no_fault() -> None:
    announced, received = LeaveAnnounced(7), LeaveReceived(0, 2)
    assert cause_of(announced, "london-1", NAMES) == cause_of(received, "x", NAMES) == "london-1 stops as planned"
    assert headline(announced, NAMES) == "leaves the ring, for a planned stop"
    assert headline(received, NAMES) == "starts a reformation: london-1 stops as planned"
    assert {level_of(announced), level_of(received)} == {Level.INFO}


def test_every_reason_has_a_text_of_its_own() -> None:
    texts = {sentence(FaultReceived(0, reason, 1, 0), NAMES) for reason in FaultReason.NAMES}
    assert len(texts) == len(FaultReason.NAMES)
    assert sentence(FaultReported(0, 99, 0)) == "asks for a ring: reason 99"


@pytest.mark.parametrize(
    ("event", "text", "level"),
    [
        (
            RingEntered(512, GENERATION, (1, 2)),
            "entered slot 512: generation 3@reform-london, members tokyo-1, london-1",
            Level.INFO,
        ),
        (
            HoldChosen(0, 1, 3, 1_204, 417_500_000, 60, 459_300_000, 417_000_000),
            "hold-chosen: tokyo-1 had 3 of 1,204 slots late in 60 s: hold time 417 ms -> 459.3 ms",
            Level.INFO,
        ),
        (
            HoldChosen(0, 1, 0, 12_000, 330_000_000, 600, 413_400_000, 459_300_000),
            "hold-chosen: no receiver needed more than 330 ms in 600 s: hold time 459.3 ms -> 413.4 ms",
            Level.INFO,
        ),
        (PromiseMade(511, GENERATION), "promised slot 511: generation 3@reform-london", Level.INFO),
        (RingFormed(0, GENERATION, 512, (1, 3)), "forms: generation 3 at slot 512: tokyo-1, 3", Level.INFO),
        (RingInvited(0, GENERATION), "invites: generation 3", Level.INFO),
        (GroupFormed(0, 2 << 32, 1, ()), "forms-group: group 2, primary tokyo-1, members none", Level.INFO),
        (CaughtUp(40, 2, 12), "caught-up slot 40: by frames from london-1", Level.INFO),
        (Conflict(5, 2), "conflict slot 5: two different tokens of london-1 for one slot", Level.ERROR),
        (Diverged(5, 2), "diverged slot 5: frames of london-1 do not continue this tape", Level.ERROR),
        (TapeDamaged(0, "f: bad"), "tape-damaged: f: bad", Level.ERROR),
        (
            Rejected(0, RejectReason.CREDIT, source=9, number=70),
            "rejected: packet 70 of source XNYS is beyond its credit",
            Level.INFO,
        ),
        (
            Rejected(0, RejectReason.PARITY, source=9, number=70),
            "rejected: a parity of source XNYS does not contain packet 70",
            Level.WARNING,
        ),
        (
            Rejected(5, RejectReason.ORDER, 2),
            "rejected slot 5: the token of london-1 does not continue the order",
            Level.WARNING,
        ),
        (
            RingRefused(5, 201, RefuseReason.FAR, 2, 1),
            "refused slot 5: the ring of reform-london: its start time is too far in the future",
            Level.WARNING,
        ),
        (NodeStart(0, "1.2", "00ff", "floor", 1), "start: version 1.2, network 00ff, floor, life 1", Level.INFO),
        (NodeStop(0, "SIGTERM"), "stop: SIGTERM", Level.INFO),
        (NodeStop(0, "error", "the disk is full"), "stop: error: the disk is full", Level.ERROR),
        (
            EventRepeated(5, "fault", "WARNING", "reports a fault", 57, 60),
            "repeated 57 times in 60 s: reports a fault",
            Level.WARNING,
        ),
        (
            ClockDoubted(0, ClockDoubt.BOUND, 1_250_000, 1_000_000, 1),
            "clock-doubted: a receiver is muted: the error of this clock may be 1.25 ms, more than clock_error = 1 ms; "
            "check its time source",
            Level.ERROR,
        ),
        (
            ClockDoubted(0, ClockDoubt.OFFSET, -20_000_000, 4_000_000, 4),
            "clock-doubted: a receiver is muted: this clock is 20 ms behind the median of 4 members, more than 4 ms; "
            "set it right",
            Level.ERROR,
        ),
        (
            ClockDoubted(0, ClockDoubt.APART, 900_000_000, 4_000_000, 5),
            "clock-doubted: a receiver is muted: no majority of the members can agree with this clock, 900 ms ahead of "
            "the median of 5; set it right",
            Level.ERROR,
        ),
        (
            ClockDoubted(0, ClockDoubt.LEAP, 0, 4_000_000, 5),
            "clock-doubted: a receiver is muted: a leap second is due; restart the node after it, or use smeared "
            'clocks everywhere and leap = "smear" in [timing]',
            Level.ERROR,
        ),
        (
            LeapAnnounced(0, 1, False),
            "leap-second: a leap second is announced for the end of this UTC day; this node stops 10 s before it",
            Level.WARNING,
        ),
        (
            LeapAnnounced(0, 1, True),
            'leap-second: a leap second is announced for the end of this UTC day; leap = "smear": this node runs on',
            Level.WARNING,
        ),
        (Witnessed(5), "witnessed slot 5", Level.DEBUG),
    ],
)
def test_a_line_has_names_instead_of_ids_and_a_level(event: Event, text: str, level: Level) -> None:
    assert (headline(event, NAMES), level_of(event)) == (text, level)


def test_without_names_a_text_has_ids() -> None:
    assert sentence(RingEntered(9, GENERATION, (1, 2))) == "generation 3@201, members 1, 2"
    assert sentence(FaultReceived(0, FaultReason.TOKEN_MISSING, 1, 2)) == "1 reported a missing token of 2"


def test_names_for_json_are_by_field() -> None:
    assert names_in(FaultReceived(0, FaultReason.TOKEN_MISSING, 1, 2), NAMES) == {
        "reporter": "tokyo-1",
        "suspect": "london-1",
    }
    assert names_in(RingEntered(9, GENERATION, (1, 5)), NAMES) == {"members": ["tokyo-1", "5"]}
    assert names_in(FaultReported(9, FaultReason.OUTSIDE, 0), NAMES) == {}


def test_every_event_of_a_node_can_be_read_from_its_line() -> None:
    for kind, known in NODE_EVENTS.items():
        assert kind == known.KIND
    start = NodeStart(0, "1.2", "00ff", "floor", 1)
    assert event_from_json("start", 0, event_fields(start)) == start
    doubted = ClockDoubted(0, ClockDoubt.OFFSET, 5, 4, 3)
    read = event_from_json("clock-doubted", 0, event_fields(doubted) | {"doubt": "offset"})
    assert read == doubted
    assert sentence(read) == sentence(doubted)
