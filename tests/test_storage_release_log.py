"""The release log keeps every release, in order, and a torn one never looks like one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from binascii import crc_hqx
from pathlib import Path
from struct import Struct

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
    MOVED,
    RELEASE,
    TOKEN,
    Released,
    ReleaseLog,
    TokenDelay,
    common_slots,
    first_entries,
    is_late,
    lateness_ns,
    read_entries,
    read_file,
    read_releases,
    scheduling_ns,
    span_of,
    spreads_ns,
    subtract_token_delays,
    write_file,
)
from levelcast.storage.tape import certificate

numbers = st.integers(0, 2**63)
counts, flags = st.integers(0, 2**32 - 1), st.booleans()
releases = st.builds(Released, numbers, numbers, numbers, numbers, counts, flags, numbers, flags)


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
        assert read[["slot", "generation", "scheduled_ns", "released_ns", "records"]].tolist() == [
            each[:5] for each in flat
        ]
        assert read["ready_ns"].tolist() == [each.ready_ns for each in flat]
        assert read["flags"].tolist() == [LATE * each.late + MOVED * each.moved for each in flat]


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
    with pytest.raises(TapeError, match=f"{path}: damaged at byte 240: the entry has a wrong checksum"):
        read_releases(tmp_path)
    refused(tmp_path, f"{path}: damaged at byte 240: the entry has a wrong checksum")
    slots = read_releases(tmp_path)["slot"].tolist()
    lost = range(10 * file - 9, min(10 * file, 38) + 1)
    assert slots == [*(slot for slot in range(1, 39) if slot not in lost), 1]


def test_bad_entries_that_nothing_follows_are_a_torn_tail_unless_the_log_was_closed(tmp_path: Path) -> None:
    write(tmp_path, some(5), entries_per_file=10)
    path = next(tmp_path.iterdir())
    whole = path.read_bytes()
    torn = whole[:-96] + bytes(96)
    path.write_bytes(torn)
    assert read_releases(tmp_path)["slot"].tolist() == [1, 2, 3]
    log = ReleaseLog(tmp_path, 10)
    log.close()
    assert path.read_bytes() == whole[:-96]
    assert path.with_name(f"{path.name}.torn-at-{len(whole) - 96}").read_bytes() == bytes(96)
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
            path.write_bytes(path.read_bytes()[:-48])
            refused(folder, f"{path}: damaged at byte 240: it had 288 bytes when it was closed, not 240", end)
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
    one.write_bytes(contents[0][:48] + contents[1][48:])
    with pytest.raises(TapeError, match=f"{one}: damaged at byte 48: the entry has a wrong checksum"):
        ReleaseLog(tmp_path, 10)


@pytest.mark.parametrize("version", [1, 2])
def test_a_log_of_an_older_version_is_read_and_continued_in_a_new_file(tmp_path: Path, version: int) -> None:
    path = tmp_path / "0000000000000001.releases"
    rows = [(slot, 1, 10, 20, 3, slot % 2) for slot in range(1, 6)]
    entries = [Struct("<QQQQIHH").pack(*row, 0)[:38] for row in rows]
    head = (b"LVLCRELS" + version.to_bytes(2, "little")).ljust(38, b"\0")
    if version == 2:
        head = head[:16] + (1).to_bytes(8, "little") + head[24:]
    seeds = [0, *(2 for _ in rows)]  # the start of the CRC: that of the header, those of file 1
    bodies = zip(seeds, [head, *entries], strict=True)
    content = b"".join(
        body + (crc_hqx(body, seed) if version == 2 else 0).to_bytes(2, "little") for seed, body in bodies
    )
    path.write_bytes(content)
    assert read_releases(tmp_path).tolist() == [(*row[:4], 0, *row[4:]) for row in rows]
    assert span_of(path) == (1, 5, 5)
    write(tmp_path, some(2))
    assert path.read_bytes() == content
    assert read_releases(tmp_path)["slot"].tolist() == [1, 2, 3, 4, 5, 1, 2]


def test_delayed_tokens_follow_the_next_release_and_are_no_releases(tmp_path: Path) -> None:
    log = ReleaseLog(tmp_path, entries_per_file=2)
    log.note_token(TokenDelay(90, 3, 100, 107))
    log.append([])
    for each in some(3):
        log.append([each])
    log.close()
    assert read_releases(tmp_path)["slot"].tolist() == [1, 2, 3]
    files = sorted(tmp_path.iterdir())
    assert read_entries(files[0]).tolist()[1] == (90, 3, 100, 107, 0, 0, TOKEN)
    assert [read_file(path)["slot"].tolist() for path in files[:2]] == [[1], [2, 3]]
    assert span_of(files[0]) == (1, 1, 2), "the slots of releases"


def entry(slot: int, ready: int, flags: int = LATE, scheduled: int = 1000) -> RecordArray:
    return np.array([(slot, 1, scheduled, ready + 5, ready, 1, flags)], RELEASE)


def token(slot: int, due: int, sent: int) -> RecordArray:
    return np.array([(slot, 1, due, sent, 0, 0, TOKEN)], RELEASE)


@pytest.mark.parametrize(
    ("release", "delayed", "late"),
    [
        (entry(5, 1040), token(7, 950, 990), False),
        (entry(5, 1040), token(5, 950, 990), False),
        (entry(5, 1040), token(7, 951, 990), True),
        (entry(5, 1040), token(4, 950, 990), True),
        (entry(5, 1040), token(7, 1001, 1041), True),
        (entry(5, 1040, LATE | MOVED), token(7, 950, 990), True),
        (entry(5, 990, LATE | MOVED), token(7, 950, 990), True),
        (entry(5, 1040), token(7, 950, 990)[:0], True),
        (entry(5, 990, 0), token(7, 950, 990), False),
        (entry(5, 0), token(7, 950, 990), True),  # of an older log, which does not know when it was ready
    ],
    ids=[
        "its-delay",
        "of-the-slot",
        "too-short",
        "earlier-slot",
        "sent-later",
        "moved",
        "only-moved",
        "none",
        "on-time",
        "old-log",
    ],
)
def test_a_delayed_token_that_a_slot_may_have_waited_for_is_subtracted(
    release: RecordArray, delayed: RecordArray, late: bool
) -> None:
    found = subtract_token_delays({"a": release, "b": np.concatenate([delayed, entry(6, 900, 0)])})
    assert is_late(found["a"]).tolist() == [late]
    assert found["b"]["slot"].tolist() == [6]
    assert is_late(release).tolist() == [bool(release["flags"][0] & LATE)], "the log itself is not changed"


def test_the_scheduling_delay_counts_from_the_time_from_which_the_release_was_possible() -> None:
    assert scheduling_ns(np.concatenate([entry(1, 900, 0), entry(2, 1500)])).tolist() == [-95, 5]


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
        (b"LVLCRELS\x03\0" + bytes(40), "its header is damaged"),
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
    return np.array([(slot, 1, slot * 10, at_ns, 0, 1, late) for slot, at_ns, late in rows], RELEASE)


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
