"""The log of a node: its lines, repetitions that are counted, and a disk that fails."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from levelcast.network.model import LogFiles
from levelcast.protocol.events import (
    ClockBack,
    ClockWrong,
    Event,
    EventRepeated,
    FaultReported,
    NodeStart,
    NodeStop,
    Rejected,
    RejectReason,
    RingEntered,
    Witnessed,
)
from levelcast.runtime.event_log import REPEATS_S, NodeLog, RepeatFilter, text_line, utc_time
from levelcast.wire.messages import FaultReason

NAMES = {101: "a-1", 102: "b-1", 201: "reform-a"}
GENERATION = 1 << 32 | 201 << 16
FAULT = FaultReported(5, FaultReason.TOKEN_MISSING, 102)


def rejected(number: int, source: int = 1) -> Rejected:
    return Rejected(0, RejectReason.CREDIT, source=source, number=number)


# -- repetitions ------------------------------------------------------------------------------------------


class Stage:
    """A filter, and all that it passed on."""

    def __init__(self) -> None:
        self.filter = RepeatFilter(NAMES)
        self.passed: list[Event] = []

    def add(self, event: Event, now_s: float) -> None:
        self.passed += self.filter.add(event, now_s)

    def counts(self) -> list[tuple[int, int]]:
        return [(each.count, each.seconds) for each in self.passed if isinstance(each, EventRepeated)]


def test_an_event_that_repeats_is_passed_on_once_and_then_counted_in_intervals() -> None:
    stage = Stage()
    for second in range(150):
        stage.add(rejected(second), float(second))
        stage.passed += stage.filter.due(float(second))
    assert stage.passed[0] == rejected(0)
    assert len(stage.passed) == 3
    assert stage.counts() == [(59, 60), (60, 60)]
    assert stage.passed[1] == EventRepeated(
        0, "rejected", "INFO", "rejected: packet 59 of source 1 is beyond its credit", 59, 60
    )
    stage.passed += stage.filter.rest(150.0)
    assert stage.counts()[-1] == (30, 30)
    assert list(stage.filter.rest(151.0)) == []


def test_a_count_is_due_without_a_further_event() -> None:
    stage = Stage()
    for _ in range(3):
        stage.add(ClockWrong(0), 10.0)
    assert list(stage.filter.due(10.0 + REPEATS_S - 1)) == []
    (counted,) = stage.filter.due(10.0 + REPEATS_S)
    assert isinstance(counted, EventRepeated)
    assert (counted.of, counted.level, counted.count) == ("clock-wrong", "ERROR", 2)


def test_an_event_is_written_again_when_it_did_not_repeat_for_the_interval() -> None:
    stage = Stage()
    stage.add(ClockWrong(0), 0.0)
    stage.add(ClockWrong(0), REPEATS_S)
    assert stage.passed == [ClockWrong(0), ClockWrong(0)]


def test_different_events_do_not_count_as_repetitions() -> None:
    stage = Stage()
    events = [rejected(1), rejected(2, source=2), ClockWrong(0), ClockBack(0), FAULT]
    for event in events:
        stage.add(event, 0.0)
    assert stage.passed == events


def test_only_the_slot_differs_in_a_repetition() -> None:
    stage = Stage()
    stage.add(FAULT, 0.0)
    stage.add(FaultReported(6, FaultReason.TOKEN_MISSING, 102), 1.0)
    stage.add(FaultReported(6, FaultReason.TOKEN_MISSING, 101), 2.0)
    assert len(stage.passed) == 2


@pytest.mark.parametrize("change", [RingEntered(9, GENERATION, (101, 102)), NodeStop(0, "SIGTERM")])
def test_counts_precede_a_change_of_the_ring_and_events_after_it_are_new(change: Event) -> None:
    stage = Stage()
    for event in (FAULT, FAULT, change, FAULT):
        stage.add(event, 1.0)
    first, counted, second, third = stage.passed
    assert isinstance(counted, EventRepeated)
    assert counted.count == 1
    assert (first, second, third) == (FAULT, change, FAULT)


def test_what_no_longer_happens_is_forgotten() -> None:
    stage = Stage()
    for number in range(1000):
        stage.add(rejected(1, source=number), float(number))
    assert len(stage.filter._known) <= REPEATS_S + 1


# -- files ------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_text_and_json_have_the_same_events_with_time_level_and_names(tmp_path: Path) -> None:
    echoed: list[str] = []
    log = NodeLog(tmp_path / "a-1", "a-1", NAMES, LogFiles(), echo=echoed.append)
    before = datetime.now(UTC)
    log.add(NodeStart(0, "1.2", "00ff", "receiver", 1))
    log.add(Witnessed(4))
    log.add(FAULT)
    log.add(RingEntered(9, GENERATION, (101, 103)))
    text, objects = lines(tmp_path / "a-1.log"), [json.loads(line) for line in lines(tmp_path / "a-1.jsonl")]
    log.close()
    assert text == echoed
    assert [line.split(maxsplit=1)[1] for line in text] == [
        "INFO a-1 start: version 1.2, network 00ff, receiver, life 1",
        "WARNING a-1 reports a missing token of b-1 at slot 5 to the reformation servers",
        "INFO a-1 entered slot 9: generation 1@reform-a, members a-1, 103",
    ]
    assert [line.split(maxsplit=1)[0] for line in text] == [each["time"] for each in objects]
    assert before <= datetime.fromisoformat(objects[0]["time"]) <= datetime.now(UTC)
    assert objects[1] == {
        "time": objects[1]["time"],
        "level": "WARNING",
        "node": "a-1",
        "event": "fault",
        "slot": 5,
        "detail": "reports a missing token of b-1",
        "names": {"suspect": "b-1"},
        "reason": FaultReason.TOKEN_MISSING,
        "suspect": 102,
    }
    assert (objects[2]["members"], objects[2]["names"]) == ([101, 103], {"members": ["a-1", "103"]})


def test_a_time_is_utc_with_microseconds() -> None:
    assert utc_time(1_700_000_000_000_001_999) == "2023-11-14T22:13:20.000001Z"


def test_a_text_cannot_break_a_line() -> None:
    assert text_line(NodeStop(0, "error", "one\ntwo\r"), "a-1", {}, 0).endswith("stop: error: one\\ntwo\\r")


def test_json_can_be_switched_off_and_files_are_rotated(tmp_path: Path) -> None:
    log = NodeLog(tmp_path / "a-1", "a-1", NAMES, LogFiles(bytes=200, keep=2, json=False))
    for slot in range(9):
        log.add(RingEntered(slot, GENERATION, (101,)))
    log.close()
    assert {path.name for path in tmp_path.iterdir()} == {"a-1.log", "a-1.log.1", "a-1.log.2"}
    assert all(path.stat().st_size <= 200 for path in tmp_path.iterdir())


def test_repetitions_are_written_when_the_log_is_closed(tmp_path: Path) -> None:
    log = NodeLog(tmp_path / "a-1", "a-1", NAMES, LogFiles())
    for number in range(58):
        log.add(rejected(number))
    log.tick()
    assert len(lines(tmp_path / "a-1.log")) == 1
    log.close()
    assert lines(tmp_path / "a-1.log")[-1].endswith(
        "INFO a-1 repeated 57 times in 1 s: rejected: packet 57 of source 1 is beyond its credit"
    )


def test_lines_that_cannot_be_written_are_reported_once_and_counted_later(tmp_path: Path) -> None:
    problems: list[str] = []
    directory = tmp_path / "none"
    log = NodeLog(directory / "a-1", "a-1", NAMES, LogFiles(), problems.append)
    log.add(ClockWrong(0))
    log.add(ClockBack(0))
    assert problems == [
        f"{directory / 'a-1.log'}: the log cannot be written (No such file or directory); the node continues"
    ]
    directory.mkdir()
    log.add(FAULT)
    log.close()
    first, second = lines(directory / "a-1.log")
    assert first.endswith("WARNING a-1 lines-lost: 2 lines for the log could not be written")
    assert "reports a missing token" in second
    assert len(lines(directory / "a-1.jsonl")) == 2
