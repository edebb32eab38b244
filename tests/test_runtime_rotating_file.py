"""A log of limited size: what is renamed when, and what happens if it cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from levelcast.runtime.rotating_file import RotatingFile


def test_a_file_is_renamed_before_it_exceeds_its_limit_and_the_oldest_is_removed(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", 20, 2)
    for number in range(9):
        file.write(f"line {number}")  # seven bytes: two lines a file
    file.close()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.log": "line 8\n",
        "a.log.1": "line 6\nline 7\n",
        "a.log.2": "line 4\nline 5\n",
    }


def test_a_restart_appends_and_counts_what_is_there(tmp_path: Path) -> None:
    for number in range(3):
        file = RotatingFile(tmp_path / "a.log", 20, 1)
        file.write(f"line {number}")
        file.close()
    assert (tmp_path / "a.log").read_text() == "line 2\n"
    assert (tmp_path / "a.log.1").read_text() == "line 0\nline 1\n"


def test_a_line_longer_than_the_limit_is_written_to_a_file_of_its_own(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", 10, 3)
    for line in ("x" * 50, "y"):
        file.write(line)
    file.close()
    assert (tmp_path / "a.log.1").read_text() == "x" * 50 + "\n"
    assert (tmp_path / "a.log").read_text() == "y\n"


def test_every_line_is_in_the_file_at_once(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", 1000, 1)
    file.write("é")
    assert (tmp_path / "a.log").read_text(encoding="utf-8") == "é\n"
    file.close()


@pytest.mark.parametrize("remove", [False, True])
def test_a_file_that_another_program_moves_or_removes_is_begun_again(remove: bool, tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "a.log", 1000, 1)
    file.write("before")
    if remove:
        (tmp_path / "a.log").unlink()
    else:
        (tmp_path / "a.log").rename(tmp_path / "moved")
    file.write("after")
    file.close()
    assert (tmp_path / "a.log").read_text() == "after\n"


def test_of_a_line_that_does_not_fit_on_the_disk_nothing_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RotatingFile(tmp_path / "a.log", 1000, 1)
    file.write("complete")
    real, room = os.write, [3]

    def write(descriptor: int, content: bytes) -> int:
        if not room:
            raise OSError(28, "No space left on device")
        return real(descriptor, content[: room.pop()])

    monkeypatch.setattr("levelcast.runtime.rotating_file.os.write", write)
    with pytest.raises(OSError, match="No space left"):
        file.write("too long")
    monkeypatch.undo()
    file.write("later")
    file.close()
    assert (tmp_path / "a.log").read_text() == "complete\nlater\n"
