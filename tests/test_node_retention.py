"""A receiver's tape is kept within its limits while the node runs, a segment at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from levelcast.network import Keeping
from levelcast.node.retention import EVERY_NS, GAP_NS, PATIENCE_NS, SOON_NS, Leaving, Retention
from levelcast.protocol import machine
from levelcast.protocol.effects import Effect, Release
from levelcast.protocol.events import Event, RetentionFailed
from levelcast.storage.journal.file import initialise
from levelcast.storage.receiver_store import ReceiverStore
from levelcast.storage.tape.segment import open_segments
from tests.tape_parts import FIRST, make_frames

FRAMES = make_frames(120, records=2)
AT = FRAMES[-1].timestamp_ns


class Machine(machine.Machine):
    def __init__(self) -> None:
        self.wake_ns: int | None = None

    def step(self, batch: object, now: int, *, clock_trusted: bool = True) -> list[Effect]:
        raise AssertionError


class Stage:
    def __init__(self, directory: Path, keeping: Keeping) -> None:
        initialise(directory / "journal", life=1)
        self.store = ReceiverStore.open(directory, FIRST, records_per_segment=20)
        for frame in FRAMES:
            self.store.release(Release(frame, frame.timestamp_ns, False), self.store.content(frame), 1, 0)
        self.machine = Machine()
        self.reports: list[Event] = []
        self.retention = Retention(self.store, keeping, self.machine, AT, self.reports.append)

    @property
    def segments(self) -> int:
        return len(open_segments(self.store.tape.directory))


def test_one_segment_goes_at_a_time_until_the_tape_is_short_enough(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Keeping(keep_bytes=20_000))
    before, now = stage.segments, AT
    stage.retention.step((), now)
    assert stage.segments == before - 1
    stage.retention.step((), now + 1)
    assert stage.segments == before - 1
    for _ in range(50):
        now += EVERY_NS
        stage.retention.step((), now)
    assert 1 < stage.segments < before - 3
    assert stage.store.tape.size_bytes <= 20_000
    assert stage.segments == stage.store.tape.segments
    on_disk = sum(path.stat().st_size for path in stage.store.tape.directory.iterdir())
    assert on_disk == stage.store.tape.size_bytes
    stage.retention.close()
    stage.store.close()
    assert stage.reports == []


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    age_ns = AT - FRAMES[60].timestamp_ns
    stage = Stage(tmp_path, Keeping(keep_age_ns=age_ns))
    for turn in range(50):
        stage.retention.step((), AT + turn * EVERY_NS // 1_000_000)
        stage.retention._due_ns = stage.retention.wake_ns = 0
    (oldest, *_) = open_segments(stage.store.tape.directory)
    assert AT - oldest.lines[-1].timestamp_ns <= age_ns
    assert oldest.lines[0].slot > FRAMES[30].slot
    stage.retention.close()


def test_the_ring_goes_first_but_not_for_ever(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Keeping(keep_bytes=0))
    before, now = stage.segments, AT
    while stage.segments == before:
        stage.machine.wake_ns = now + GAP_NS - 1
        stage.retention.step((), now)
        if stage.segments == before:
            assert stage.retention.wake_ns == now + SOON_NS
            now += SOON_NS
    assert PATIENCE_NS <= now - AT < PATIENCE_NS + 2 * SOON_NS
    stage.retention.close()


def test_a_clock_that_is_set_back_does_not_stop_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Keeping(keep_bytes=0))
    before = stage.segments
    stage.retention.step((), AT)
    earlier = AT - 3600 * 1_000_000_000
    stage.retention.step((), earlier)
    stage.retention.step((), earlier + EVERY_NS)
    assert stage.segments == before - 2
    stage.retention.close()


def test_a_segment_that_cannot_be_removed_is_reported_and_the_node_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Keeping(keep_bytes=0))
    oldest = open_segments(stage.store.tape.directory)[0]
    os.unlink(oldest.data_path)
    stage.retention.step((), AT)
    (report,) = stage.reports
    assert isinstance(report, RetentionFailed)
    assert oldest.data_path.name in report.error
    stage.retention.step((), AT + EVERY_NS)
    assert len(stage.reports) == 1
    stage.retention.close()


def test_a_file_that_leaves_is_still_read_by_who_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"records")
    leaving = Leaving()
    with path.open("rb") as reader:
        leaving.remove(path)
        assert not path.exists()
        leaving.close()
        assert reader.read() == b"records"
    leaving.close()
    with pytest.raises(FileNotFoundError):
        leaving.remove(path)
