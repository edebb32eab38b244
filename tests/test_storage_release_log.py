"""The release log keeps every release, in order, and a torn one never looks like one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.node.demo import outcome
from levelcast.pipeline.audit import release_stats
from levelcast.pipeline.audit.stats import histogram
from levelcast.pipeline.input import release_logs
from levelcast.records import RecordArray
from levelcast.storage.append_file import TapeError
from levelcast.storage.journal.open_marker import LogEnd
from levelcast.storage.release_log import (
    LATE,
    RELEASE,
    Released,
    ReleaseLog,
    common_slots,
    first_entries,
    is_late,
    lateness_ns,
    read_releases,
    spreads_ns,
    write_file,
)
from levelcast.storage.tape import certificate

numbers = st.integers(0, 2**63)
releases = st.builds(Released, numbers, numbers, numbers, numbers, st.integers(0, 2**32 - 1), st.booleans())


def some(count: int) -> list[Released]:
    return [Released(slot, 3, 10**18 + slot, 10**18 + slot + 40_000, 7, slot % 5 == 0) for slot in range(1, count + 1)]


def write(folder: Path, listed: list[Released], entries_per_file: int = 100) -> None:
    log = ReleaseLog(folder, entries_per_file)
    for each in listed:
        log.append([each])
    log.close()


@settings(max_examples=40)
@given(st.lists(st.lists(releases, min_size=1, max_size=4), max_size=10), st.integers(1, 9))
def test_what_goes_in_comes_out(batches: list[list[Released]], entries_per_file: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        log = ReleaseLog(name, entries_per_file)
        for batch in batches:
            log.append(batch)
        log.close()
        read = read_releases(name)
        flat = [each for batch in batches for each in batch]
        assert [tuple(row)[:5] for row in read.tolist()] == [each[:5] for each in flat]
        assert [bool(flags & LATE) for flags in read["flags"]] == [each.late for each in flat]


def test_a_torn_entry_is_cut_off_and_the_log_goes_on(tmp_path: Path) -> None:
    write(tmp_path, some(3))
    path = next(tmp_path.iterdir())
    content = path.read_bytes()
    for cut in range(2 * RELEASE.itemsize, len(content)):
        path.write_bytes(content[:cut])
        whole = cut // RELEASE.itemsize - 1
        assert len(read_releases(tmp_path)) == whole, "a reader beside a writer"
        write(tmp_path, some(3)[whole:])
        assert path.read_bytes() == content
        if cut % RELEASE.itemsize:
            end = cut // RELEASE.itemsize * RELEASE.itemsize
            assert path.with_name(f"{path.name}.torn-at-{end}").read_bytes() == content[end:cut]
            path.with_name(f"{path.name}.torn-at-{end}").unlink()


def refused(folder: Path, says: str, closed: LogEnd | None = None) -> None:
    """A start is refused with these words and changes nothing; the command that it names starts the node again."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(TapeError, match=says) as caught:
        ReleaseLog(folder, 10, closed)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert "certificates and audits then lack the release times in it" in str(caught.value)
    command = str(caught.value).split("`")[1]
    assert command.startswith(("mv ", "touch "))
    subprocess.run(command.split(), check=True)
    log = ReleaseLog(folder, 10, closed)
    log.append(some(1))
    log.close()


@pytest.mark.parametrize("at", [0, 3, 12, 20])
@pytest.mark.parametrize("file", [1, 3, 4])
def test_any_changed_bit_is_found_and_the_rest_stays_readable(tmp_path: Path, at: int, file: int) -> None:
    write(tmp_path, some(38), entries_per_file=10)
    path = tmp_path / f"{file:016}.releases"
    content = bytearray(path.read_bytes())
    content[5 * RELEASE.itemsize + at] ^= 1 << at % 8
    path.write_bytes(content)
    with pytest.raises(TapeError, match=f"{path}: damaged at byte 200: the entry has a wrong checksum"):
        read_releases(tmp_path)
    refused(tmp_path, f"{path}: damaged at byte 200: the entry has a wrong checksum")
    slots = read_releases(tmp_path)["slot"].tolist()
    lost = range(10 * file - 9, min(10 * file, 38) + 1)
    assert slots == [*(slot for slot in range(1, 39) if slot not in lost), 1]


def test_bad_entries_that_nothing_follows_are_a_torn_tail_unless_the_log_was_closed(tmp_path: Path) -> None:
    write(tmp_path, some(5), entries_per_file=10)
    path = next(tmp_path.iterdir())
    whole = path.read_bytes()
    torn = whole[:-80] + bytes(80)
    path.write_bytes(torn)
    assert read_releases(tmp_path)["slot"].tolist() == [1, 2, 3]
    log = ReleaseLog(tmp_path, 10)
    log.close()
    assert path.read_bytes() == whole[:-80]
    assert path.with_name(f"{path.name}.torn-at-{len(whole) - 80}").read_bytes() == bytes(80)
    assert len(log.notices) == 1
    path.write_bytes(torn)
    refused(tmp_path, "the entry has a wrong checksum", LogEnd(1, len(whole)))


def test_a_log_that_was_closed_has_all_of_its_files_and_bytes(tmp_path: Path) -> None:
    for shortened, missing in ((True, 0), (False, 1), (False, 2), (False, 3)):
        folder = tmp_path / f"{missing}"
        log = ReleaseLog(folder, 10)
        for each in some(25):
            log.append([each])
        end = log.end
        log.close()
        path = folder / f"{missing or 3:016}.releases"
        if shortened:
            path.write_bytes(path.read_bytes()[:-40])
            refused(folder, f"{path}: damaged at byte 200: it had 240 bytes when it was closed, not 200", end)
        elif missing == 1:
            path.unlink()
            ReleaseLog(folder, 10, end).close()  # as after retention
        else:
            path.unlink()
            refused(folder, f"{path}: this file of the release log is missing", end)
    empty = tmp_path / "empty"
    refused_log = ReleaseLog(empty, 10)
    end = refused_log.end
    refused_log.close()
    shutil.rmtree(empty)
    empty.mkdir()
    refused(empty, "this file of the release log is missing", end)


def test_swapped_files_are_found(tmp_path: Path) -> None:
    write(tmp_path, some(38), entries_per_file=10)
    one, two = (tmp_path / f"{number:016}.releases" for number in (2, 3))
    contents = one.read_bytes(), two.read_bytes()
    one.write_bytes(contents[1])
    two.write_bytes(contents[0])
    with pytest.raises(TapeError, match=rf"{one}: damaged at byte 16: it has the header of file 3"):
        ReleaseLog(tmp_path, 10)
    one.write_bytes(contents[0][:40] + contents[1][40:])
    with pytest.raises(TapeError, match=f"{one}: damaged at byte 40: the entry has a wrong checksum"):
        ReleaseLog(tmp_path, 10)


def test_a_log_of_version_1_is_read_and_continued_in_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "0000000000000001.releases"
    old = np.array([(slot, 1, 10, 20, 3, slot % 2) for slot in range(1, 6)], RELEASE)
    path.write_bytes((b"LVLCRELS\1\0").ljust(40, b"\0") + old.tobytes())
    assert read_releases(tmp_path).tolist() == old.tolist()
    write(tmp_path, some(2))
    assert path.read_bytes()[40:] == old.tobytes()
    assert read_releases(tmp_path)["slot"].tolist() == [1, 2, 3, 4, 5, 1, 2]


def test_a_file_written_at_once_is_one_of_the_log(tmp_path: Path) -> None:
    write(tmp_path / "one", some(7))
    (tmp_path / "two").mkdir()
    write_file(tmp_path / "two" / "0000000000000001.releases", read_releases(tmp_path / "one"))
    one, two = (next((tmp_path / name).iterdir()).read_bytes() for name in ("one", "two"))
    assert one == two


def test_old_files_go_with_the_tape(tmp_path: Path) -> None:
    write(tmp_path, some(95), entries_per_file=10)
    log = ReleaseLog(tmp_path, 10)
    log.retain(upto_slot=37)
    assert read_releases(tmp_path)["slot"].min() == 31
    log.retain(upto_slot=10**9)
    assert read_releases(tmp_path)["slot"].min() == 91, "never the file that grows"
    log.close()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"GIF89a" + bytes(50), "not a Levelcast release log"),
        (b"LVLCRELS\x07\0" + bytes(40), "version 7, but"),
        (b"LVLCRELS\x02\0" + bytes(40), "its header is damaged"),
    ],
)
def test_a_foreign_file_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "0000000000000001.releases").write_bytes(content)
    for use in (read_releases, ReleaseLog):
        with pytest.raises(TapeError, match=says):
            use(tmp_path)


def test_no_log_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match="release log not found"):
        read_releases(tmp_path)


def logged(*rows: tuple[int, int, int]) -> RecordArray:
    """A log of (slot, released_ns, late); every slot is scheduled at 10 times its number."""
    return np.array([(slot, 1, slot * 10, at_ns, 1, late) for slot, at_ns, late in rows], RELEASE)


def test_the_first_entry_of_a_slot_counts_for_every_reader() -> None:
    again = logged((1, 12, 0), (2, 25, LATE), (2, 21, 0), (1, 99, LATE))
    first = first_entries(again)
    assert first["slot"].tolist() == [1, 2]
    assert first["released_ns"].tolist() == [12, 25]
    assert is_late(first).tolist() == [False, True]
    assert lateness_ns(first).tolist() == [2, 5]
    rows = common_slots([again, logged((1, 10, 0), (2, 20, 0), (3, 30, 0))])
    assert rows["slot"].tolist() == [[1, 2], [1, 2]]
    assert spreads_ns(rows).tolist() == [2, 5]


def test_spreads_of_logs_without_a_common_slot_are_none() -> None:
    assert spreads_ns(common_slots([])).tolist() == []
    assert spreads_ns(common_slots([logged((1, 10, 0)), logged((2, 20, 0))])).tolist() == []


def test_certificate_audit_lake_and_demo_read_a_slot_that_is_logged_twice_alike() -> None:
    logs = {"a": logged((1, 12, 0), (1, 900, 0)), "b": logged((1, 10, 0))}
    entries = list(logs.values())
    (counted,) = np.flatnonzero(release_stats.measure(logs, 1, 1, 0).spread)
    (same,) = np.flatnonzero(histogram(np.array([2])))
    assert counted == same
    assert certificate._spread(entries)["spread_ns"]["max"] == 2
    rows = release_logs.release_rows(logs).to_pylist()
    (spread,) = [row for row in rows if row["kind"] == "spread"]
    assert spread["low_ns"] <= 2 < spread["high_ns"]
    assert outcome._evenness(logs, set())[1].tolist() == [2]
