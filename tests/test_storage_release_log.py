"""The release log keeps every release, in order, and a torn one never looks like one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.storage.append_file import TapeError
from levelcast.storage.release_log import LATE, RELEASE, Released, ReleaseLog, read_releases

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
    [(b"GIF89a" + bytes(50), "is no release log"), (b"LVLCRELS\x07\0" + bytes(40), "has version 7, and")],
)
def test_a_foreign_file_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "0000000000000001.releases").write_bytes(content)
    for use in (read_releases, ReleaseLog):
        with pytest.raises(TapeError, match=says):
            use(tmp_path)


def test_no_log_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match="there is no release log"):
        read_releases(tmp_path)
