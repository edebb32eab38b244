"""The audit *timeliness*: old records and clocks ahead are said of the floor and the hour."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np

from levelcast.pipeline.audit.base import AuditOptions, Finding, Job, Result
from levelcast.pipeline.audit.inputs import gather
from levelcast.pipeline.audit.timeliness import HOUR_NS, measure, run
from levelcast.protocol.history import Frame
from levelcast.records import TRADE
from levelcast.wire.messages import Packet
from tests.audit_parts import record
from tests.tape_parts import FIRST, T0, frame_of_packets, trade_payload

SLOT_NS = 1_000_000_000


def frames_of(ages_ns: dict[int, list[int]], records: int = 10) -> list[Frame]:
    """A frame a second; every floor sends a packet in each, whose records are so old."""
    tip, frames = FIRST.copy(), []
    rng = Random(1)
    for number in range(len(next(iter(ages_ns.values())))):
        stamp = T0 + (number + 1) * SLOT_NS
        packets = []
        for floor, ages in ages_ns.items():
            batch = np.frombuffer(trade_payload(rng, records), TRADE).copy()
            batch["publisher_id"] = floor
            batch["ts_event"] = stamp - ages[number]
            packets.append(Packet(200 + floor, 1, number + 1, records, batch.tobytes()))
        frame = frame_of_packets(number + 1, stamp, tip.next_sequence, packets, tip.chain)
        tip.append(frame)
        frames.append(frame)
    return frames


def audit(data: Path, frames: list[Frame], **options: int) -> Result:
    record(data / "a", frames)
    return run(Job(None, gather([data]), AuditOptions(**options)))  # type: ignore[arg-type]


def only(result: Result) -> Finding:
    assert len(result.findings) == 1, result.findings
    return result.findings[0]


def test_floors_in_time_pass(tmp_path: Path) -> None:
    frames = frames_of({1: [80_000_000] * 200, 2: [20_000_000] * 200})
    result = audit(tmp_path, frames)
    assert result.passed, result.findings
    assert result.looked_at["records"] == 4_000
    (figures,) = result.figures
    assert [row[1] for row in figures.rows] == ["publisher 1", "publisher 2"]
    assert result.sentence.startswith("Every floor was on time: 99 % of 4,000 records")


def test_a_slow_floor_is_named_with_its_hour(tmp_path: Path) -> None:
    slow = [3_000_000_000 if number % 5 == 0 else 50_000_000 for number in range(300)]
    found = only(audit(tmp_path, frames_of({1: [50_000_000] * 300, 2: slow})))
    assert (found.kind, found.subject, found.value) == ("old records", "publisher 2", 0.2)
    assert "2023-11-14 22:00 UTC" in found.says
    assert "older than 1.000 s" in found.says


def test_a_clock_that_is_ahead_is_named_with_the_record(tmp_path: Path) -> None:
    ahead = [-4_000_000 if number % 10 == 3 else 50_000_000 for number in range(300)]
    ahead[13] = -250_000_000
    frames = frames_of({1: [50_000_000] * 300, 2: ahead})
    found = only(audit(tmp_path, frames))
    assert (found.kind, found.subject, found.value) == ("clock ahead", "publisher 2", 250_000_000.0)
    assert found.record is not None
    assert frames[13].first_sequence <= found.record < frames[14].first_sequence
    assert "10.00% of 3,000 records" in found.says


def test_a_token_that_was_late_once_does_not_make_a_clock_ahead(tmp_path: Path) -> None:
    ages = [50_000_000] * 300
    ages[7] = -8_000_000
    result = audit(tmp_path, frames_of({1: ages}))
    assert result.passed, result.findings
    assert result.figures[0].rows[0][-2:] == (10, 8_000_000)


def test_within_the_tolerance_a_clock_is_not_ahead(tmp_path: Path) -> None:
    assert audit(tmp_path, frames_of({1: [-1_900_000] * 50})).passed


def test_hours_are_apart(tmp_path: Path) -> None:
    until = (HOUR_NS - T0 % HOUR_NS) // SLOT_NS
    ages = [50_000_000 if number < until else 5_000_000_000 for number in range(until + 200)]
    found = only(audit(tmp_path, frames_of({1: ages}, records=1)))
    assert "2023-11-14 23:00 UTC" in found.says


def test_ages_add_up() -> None:
    age = np.array([5, -3_000_000, 2_000_000_000])
    stamp = np.array([0, 61_000_000_000, 62_000_000_000])
    found = measure(age, stamp, np.array([7, 8, 9]), 1_000_000_000, 1_000_000)
    assert (int(found.ahead.sum()), found.worst_ns, found.worst_record) == (1, 3_000_000, 8)
    assert (found.oldest_ns, found.oldest_record) == (2_000_000_000, 9)
    assert found.counts[:2].tolist() == [1, 2]
    assert found.old[:2].tolist() == [0, 1]
    found.add(measure(age - 1_000_000, stamp, np.array([17, 18, 19]), 1_000_000_000, 1_000_000))
    assert (int(found.ahead.sum()), found.worst_record, int(found.counts.sum())) == (2, 18, 6)
