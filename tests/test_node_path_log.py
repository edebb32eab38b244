"""Measured paths on disk: a line per peer and minute."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from levelcast.node.path_log import AFTER_NS, PathLog, PathRecorder
from levelcast.overlay.paths import MINUTE_NS, REORDER, Paths
from levelcast.protocol.events import Event, PathsNotWritten

MS = 1_000_000
DAY_NS = 1_440 * MINUTE_NS
T0 = 20_000 * DAY_NS + 600 * MINUTE_NS
NAMES, SITES = {1: "a-1", 2: "b-1"}, {1: "a", 2: "b"}


def beats(paths: Paths, begin_ns: int, numbers: range, lost: int = 0) -> None:
    for number in numbers:
        if number != lost:
            sent_ns = begin_ns + (number - numbers.start) * 50 * MS
            paths.hear_beat(2, number, sent_ns, sent_ns + 12 * MS)


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def paths() -> Paths:
    return Paths(1, {2}, T0)


def test_a_minute_is_written_once_it_is_over_and_the_last_one_at_the_end(tmp_path: Path, paths: Paths) -> None:
    log = PathLog(tmp_path / "paths", 1, NAMES, SITES, T0)
    beats(paths, T0, range(1, 101), lost=7)
    assert log.write(paths, T0 + 10_000 * MS) == 0
    beats(paths, T0 + MINUTE_NS, range(101, 111))
    assert log.write(paths, T0 + MINUTE_NS + 20_000 * MS) == 1
    assert log.write(paths, T0 + MINUTE_NS + 21_000 * MS) == 0
    assert log.write(paths, T0 + MINUTE_NS + 22_000 * MS, all_of_it=True) == 1
    (file,) = (tmp_path / "paths").iterdir()
    assert file.name == "2024-10-04.csv"
    first, second = lines(file)
    assert (first["from_site"], first["to_site"], first["from_node"], first["to_node"]) == ("b", "a", "b-1", "a-1")
    assert (first["start_ns"], first["since_ns"]) == (str(T0), str(T0))
    assert (first["heard"], first["lost"], first["bursts"], first["outages"]) == ("99", "1", "1", "0")
    assert (first["least_ns"], first["delays"]) == (str(12 * MS), "120:99")
    assert second["heard"] == "10"


def test_a_day_has_its_own_file_and_a_torn_line_is_cut(tmp_path: Path, paths: Paths) -> None:
    log = PathLog(tmp_path, 1, NAMES, SITES, T0)
    evening = T0 + 839 * MINUTE_NS
    beats(paths, evening, range(1, 50))
    log.write(paths, evening + MINUTE_NS)
    beats(paths, evening + MINUTE_NS, range(50, 99))
    log.write(paths, evening + 2 * MINUTE_NS)
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["2024-10-04.csv", "2024-10-05.csv"]
    last = tmp_path / names[1]
    with last.open("ab") as file:
        file.write(b"b,a,b-1,a")
    again = PathLog(tmp_path, 1, NAMES, SITES, T0 + 1)
    beats(paths, evening + 2 * MINUTE_NS, range(99, 120))
    again.write(paths, evening + 3 * MINUTE_NS)
    assert [line["start_ns"] for line in lines(last)][-1] == str(evening + 2 * MINUTE_NS)
    assert all(line["delays"] for line in lines(last))


def test_it_is_written_a_moment_after_each_minute(tmp_path: Path, paths: Paths) -> None:
    reports: list[Event] = []
    recorder = PathRecorder(PathLog(tmp_path, 1, NAMES, SITES, T0), paths, T0 + 5, reports.append)
    assert recorder.wake_ns == T0 + MINUTE_NS + AFTER_NS
    beats(paths, T0, range(1, REORDER))
    recorder.step((), T0 + MINUTE_NS)
    assert list(tmp_path.iterdir()) == []
    recorder.step((), T0 + MINUTE_NS + AFTER_NS)
    assert len(lines(next(tmp_path.iterdir()))) == 1
    assert recorder.wake_ns == T0 + 2 * MINUTE_NS + AFTER_NS
    recorder.close()
    assert reports == []


def test_a_disk_that_cannot_be_written_is_reported_and_stops_nothing(tmp_path: Path, paths: Paths) -> None:
    (tmp_path / "paths").write_text("a file in the way")
    reports: list[Event] = []
    recorder = PathRecorder(PathLog(tmp_path / "paths", 1, NAMES, SITES, T0), paths, T0, reports.append)
    beats(paths, T0, range(1, REORDER))
    recorder.step((), T0 + MINUTE_NS + AFTER_NS)
    (report,) = reports
    assert isinstance(report, PathsNotWritten)
    recorder.close()
