"""A tape is restored from another receiver's byte for byte, or nothing is changed; and no damaged byte is lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.protocol.effects import Checkpoint
from levelcast.protocol.history import Frame
from levelcast.storage import append_file
from levelcast.storage.append_file import TapeError
from levelcast.storage.journal.file import JournalFile, initialise
from levelcast.storage.release_log import Released, ReleaseLog
from levelcast.storage.tape.compare import verify
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.repair import repair
from levelcast.storage.tape.writer import TapeWriter
from tests.tape_parts import FIRST, Killed, MortalOs, content_of, make_frames
from tests.test_storage_tape_compare import other_price, rechained, record

FRAMES = make_frames(30)
Damage = Callable[[Path], object]


def node(folder: Path, frames: list[Frame] = FRAMES, checkpoint: Frame | None = None, n: int = 40) -> Path:
    """A receiver's directory: journal, tape and release log."""
    initialise(folder / "journal", 1)
    record(folder / "tape", frames, n)
    log = ReleaseLog(folder / "releases")
    log.append([Released(frame.slot, 1, 5, 6, frame.records, False) for frame in frames])
    log.close()
    if checkpoint is not None:
        journal, _ = JournalFile.open(folder / "journal")
        journal.append(Checkpoint(checkpoint.slot, checkpoint.chain))
        journal.close()
    return folder


@pytest.fixture(autouse=True)
def _no_waiting_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    return node(tmp_path / "a"), node(tmp_path / "b")


def nth(folder: Path, number: int, suffix: str) -> Path:
    return sorted(folder.glob(f"*{suffix}"))[number]


def flip(path: Path, at: int = 300) -> None:
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 4
    path.write_bytes(content)


def swap(one: Path, two: Path) -> None:
    contents = one.read_bytes(), two.read_bytes()
    one.write_bytes(contents[1])
    two.write_bytes(contents[0])


def cut(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


def drop(*paths: Path) -> None:
    for path in paths:
        path.unlink()


def swap_segments(tape: Path) -> None:
    for suffix in (".dbn", ".idx"):
        swap(nth(tape, 1, suffix), nth(tape, 3, suffix))


def damage_two(tape: Path) -> None:
    flip(nth(tape, 0, ".dbn"))
    cut(nth(tape, 4, ".idx"), 130)


DAMAGES: dict[str, Damage] = {
    "record": lambda tape: flip(nth(tape, 2, ".dbn"), 700),
    "last frame": lambda tape: flip(nth(tape, 0, ".active"), -20),
    "dbn header": lambda tape: flip(nth(tape, 0, ".dbn"), 3),
    "index entry": lambda tape: flip(nth(tape, 3, ".idx"), 200),
    "index header": lambda tape: flip(nth(tape, 3, ".idx"), 20),
    "last index": lambda tape: flip(nth(tape, -1, ".idx"), -30),
    "short data": lambda tape: cut(nth(tape, 1, ".dbn"), 500),
    "empty data": lambda tape: cut(nth(tape, 1, ".dbn"), 0),
    "empty index": lambda tape: cut(nth(tape, -1, ".idx"), 0),
    "index without entries": lambda tape: cut(nth(tape, -1, ".idx"), TapeReader(tape).segments[-1].header.size),
    "torn data": lambda tape: nth(tape, 0, ".active").open("ab").write(b"half a frame"),
    "torn index": lambda tape: nth(tape, -1, ".idx").open("ab").write(b"half an entry"),
    "more data": lambda tape: nth(tape, 1, ".dbn").open("ab").write(bytes(64)),
    "no data": lambda tape: nth(tape, 2, ".dbn").unlink(),
    "no index": lambda tape: nth(tape, 2, ".idx").unlink(),
    "no last data": lambda tape: nth(tape, 0, ".active").unlink(),
    "no last index": lambda tape: nth(tape, -1, ".idx").unlink(),
    "no segment": lambda tape: drop(nth(tape, 2, ".dbn"), nth(tape, 2, ".idx")),
    "no last segment": lambda tape: drop(nth(tape, 0, ".active"), nth(tape, -1, ".idx")),
    "swapped data": lambda tape: swap(nth(tape, 1, ".dbn"), nth(tape, 2, ".dbn")),
    "swapped index": lambda tape: swap(nth(tape, 1, ".idx"), nth(tape, 2, ".idx")),
    "swapped segments": swap_segments,
    "wrong name": lambda tape: nth(tape, 2, ".dbn").rename(nth(tape, 2, ".dbn").with_suffix(".dbn.active")),
    "two at once": damage_two,
    "everything": lambda tape: drop(*tape.iterdir()),
    "the directory": shutil.rmtree,
}


@pytest.mark.parametrize("what", DAMAGES)
def test_any_damage_is_restored_byte_for_byte(what: str, two: tuple[Path, Path]) -> None:
    mine, other = two
    want = content_of(other / "tape")
    DAMAGES[what](mine / "tape")
    damaged = content_of(mine / "tape") if (mine / "tape").exists() else {}
    done = repair(mine, other)
    found = content_of(mine / "tape")
    assert {name: found[name] for name in found if ".damaged-" not in name} == want
    assert done.check.fault is None
    changed = {name: content for name, content in damaged.items() if want.get(name) != content}
    assert {name: found[f"{name}.damaged-1"] for name in changed} == changed
    assert {path.name for path in done.restored} == {name for name in want if damaged.get(name) != want[name]}
    again = repair(mine, other)
    assert (again.restored, again.kept) == ([], {})
    assert content_of(mine / "tape") == found
    assert content_of(other / "tape") == want


def test_the_tape_ends_where_it_ended_and_may_be_longer_than_the_other(tmp_path: Path) -> None:
    for what, damage in DAMAGES.items():
        shorter, longer = node(tmp_path / what / "a", FRAMES[:24]), node(tmp_path / what / "b")
        want = content_of(shorter / "tape")
        damage(shorter / "tape")
        repair(shorter, longer)
        found = content_of(shorter / "tape")
        assert {name: found[name] for name in found if ".damaged-" not in name} == want, what


@pytest.mark.parametrize("what", ["record", "index entry", "short data", "no data", "last frame", "no last data"])
def test_frames_after_the_end_of_the_other_tape_are_kept_or_it_is_refused(what: str, tmp_path: Path) -> None:
    longer, shorter = node(tmp_path / "a"), node(tmp_path / "b", FRAMES[:29])
    want = content_of(longer / "tape")
    DAMAGES[what](longer / "tape")
    before = content_of(longer / "tape")
    if what.startswith(("last", "no last")):
        with pytest.raises(TapeError, match=rf"b ends at slot {FRAMES[28].slot}, .* pass a receiver that has more"):
            repair(longer, shorter)
        assert content_of(longer / "tape") == before
    else:
        repair(longer, shorter)
        assert content_of(longer / "tape").items() >= want.items()


def test_own_frames_continue_the_last_segment_of_a_shorter_tape(tmp_path: Path) -> None:
    longer, shorter = node(tmp_path / "a", n=1000), node(tmp_path / "b", FRAMES[:12], n=1000)
    want = content_of(longer / "tape")
    lines = TapeReader(longer / "tape").segments[-1].lines
    flip(nth(longer / "tape", 0, ".active"), lines[5].at + 20)
    repair(longer, shorter)
    assert content_of(longer / "tape").items() >= want.items()
    for at in (lines[5].at, lines[15].at):
        flip(nth(longer / "tape", 0, ".active"), at + 20)
    refused(longer, shorter, "b ends at slot .* pass a receiver that has more")


def refused(mine: Path, other: Path, says: str) -> None:
    before = content_of(mine / "tape")
    with pytest.raises(TapeError, match=says):
        repair(mine, other)
    assert content_of(mine / "tape") == before


@pytest.mark.parametrize("what", ["record", "no index", "index entry", "no last segment"])
def test_another_tape_is_refused(what: str, tmp_path: Path) -> None:
    mine, foreign = node(tmp_path / "a"), node(tmp_path / "b", make_frames(30, seed=9))
    refused(mine, foreign, "different tapes")
    DAMAGES[what](mine / "tape")
    refused(mine, foreign, "different tapes")
    forged = node(tmp_path / "c", rechained(FRAMES, 0, other_price))
    refused(mine, forged, "different tapes")


def test_another_tape_is_refused_by_the_frames_of_the_damaged_segment_alone(tmp_path: Path) -> None:
    mine = node(tmp_path / "a", n=1000)
    flip(nth(mine / "tape", 0, ".active"), 700)
    foreign = node(tmp_path / "b", rechained(FRAMES, 3, other_price), n=1000)
    refused(mine, foreign, f"contradicts .* at slot {FRAMES[3].slot}: they are different tapes")


def test_another_tape_is_refused_by_the_chain_before_it_alone(tmp_path: Path) -> None:
    mine, foreign = node(tmp_path / "a"), node(tmp_path / "b", rechained(FRAMES, 0, other_price))
    for path in sorted((foreign / "tape").iterdir())[:4]:
        path.unlink()
    index = nth(mine / "tape", 2, ".idx")
    index.write_bytes(bytes(index.stat().st_size))
    for path in sorted((mine / "tape").iterdir())[6:]:
        path.unlink()
    shutil.rmtree(mine / "releases")
    refused(mine, foreign, f"{foreign}/tape/{index.name}: does not continue the tape after sequence")


def test_the_size_of_the_records_shows_where_a_copy_ended(tmp_path: Path) -> None:
    copy, longer = record(tmp_path / "copy", FRAMES[:20], 1000), node(tmp_path / "b", n=1000)
    want = content_of(copy)
    cut(nth(copy, 0, ".idx"), TapeReader(copy).segments[0].header.size + 200)
    repair(copy, longer)
    assert content_of(copy).items() >= want.items()


def test_without_an_intact_frame_the_journal_decides(tmp_path: Path) -> None:
    for checkpoint in (FRAMES[10], FRAMES[29]):
        mine = node(tmp_path / f"{checkpoint.slot}", checkpoint=checkpoint)
        for path in (mine / "tape").iterdir():
            path.write_bytes(bytes(path.stat().st_size))
        foreign = node(tmp_path / f"{checkpoint.slot}b", rechained(FRAMES, 0, other_price))
        refused(mine, foreign, f"it contradicts the journal at slot {checkpoint.slot}")
    refused(mine, node(tmp_path / "short", FRAMES[:20]), "pass a receiver that has more")
    repair(mine, node(tmp_path / "good"))
    assert verify(mine).fault is None


def test_an_empty_slot_after_the_last_frame_needs_no_other_tape(tmp_path: Path) -> None:
    last = FRAMES[-1]
    mine = node(tmp_path / "a", checkpoint=last._replace(slot=last.slot + 7))
    done = repair(mine, node(tmp_path / "b", FRAMES[:20]))
    assert (done.restored, done.kept) == ([], {})


def test_a_damaged_helper_is_refused(two: tuple[Path, Path]) -> None:
    mine, other = two
    flip(nth(mine / "tape", 2, ".dbn"))
    flip(nth(other / "tape", 2, ".dbn"))
    refused(mine, other, "damaged at byte .* the other tape is damaged too, pass another receiver")
    refused(mine, mine, "this is the tape to restore")
    nth(other / "tape", 2, ".dbn").unlink()
    refused(mine, other, "the records of this segment are missing")


def test_a_segment_that_retention_removed_there_is_named(two: tuple[Path, Path]) -> None:
    mine, other = two
    writer = TapeWriter.open(other / "tape", FIRST)
    writer.retain(0, max_bytes=9000)
    writer.close()
    later = TapeReader(mine / "tape").segments[1].first_sequence
    flip(nth(mine / "tape", 0, ".dbn"))
    refused(mine, other, f"has no segment that begins with sequence 1, .* move the files before {later:016} elsewhere")
    for path in (mine / "tape").glob("0000000000000001.*"):
        path.rename(mine / path.name)
    repair(mine, other)
    assert verify(mine).fault is None


def test_a_running_node_is_refused(two: tuple[Path, Path]) -> None:
    mine, other = two
    writer = TapeWriter.open(mine / "tape", FIRST)
    with pytest.raises(TapeError, match="another process is writing this tape"):
        repair(mine, other)
    writer.close()
    running = TapeWriter.open(other / "tape", FIRST)
    flip(nth(mine / "tape", 1, ".dbn"))
    repair(mine, other)
    running.close()


@pytest.mark.parametrize("what", ["record", "swapped index", "wrong name", "no last index"])
def test_killed_at_any_system_call_nothing_is_half_written_or_lost(
    what: str, two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = two
    want = content_of(other / "tape")
    DAMAGES[what](mine / "tape")
    damaged = content_of(mine / "tape")
    shutil.copytree(mine, start := mine.with_name("start"))
    lives = 0
    while True:
        shutil.rmtree(mine)
        shutil.copytree(start, mine)
        monkeypatch.setattr(append_file, "os", mortal := MortalOs(lives))
        with suppress(Killed):
            repair(mine, other)
        is_dead = len(mortal.calls) > lives
        monkeypatch.setattr(append_file, "os", os)
        found = content_of(mine / "tape")
        for name, content in found.items():
            if not name.endswith(".new") and ".damaged-" not in name:
                assert content in (want.get(name), damaged.get(name)), "complete, old or new"
        assert set(damaged.values()) <= set(found.values()), "nothing is lost"
        repair(mine, other)
        found = content_of(mine / "tape")
        assert {name: found[name] for name in found if ".damaged-" not in name} == want
        assert set(damaged.values()) <= set(found.values())
        if not is_dead:
            break
        lives += 1
    assert lives > 5


def run(*args: object) -> Any:
    return CliRunner().invoke(app, ["tape", *map(str, args)])


def test_the_command_restores_and_the_tape_is_valid(two: tuple[Path, Path], tmp_path: Path) -> None:
    mine, other = two
    path = nth(mine / "tape", 2, ".dbn")
    flip(path)
    assert "NOT VALID" in run("verify", mine).output
    result = run("repair", mine, "--from", other)
    assert result.exit_code == 0
    assert f"{path}: restored from {other / 'tape'}; the damaged file is {path.name}.damaged-1" in result.output
    assert result.output.splitlines()[-1].startswith(f"{mine / 'tape'}: valid, 30 frames")
    assert run("verify", mine, other).exit_code == 0
    assert "nothing to restore" in run("repair", mine, "--from", other).output
    flip(path)
    report = json.loads(run("repair", mine, "--from", other, "--json").output)
    assert report["restored"] == [str(path)]
    assert report["kept"] == {str(path): f"{path}.damaged-2"}
    assert (report["fault"], report["frames"]) == (None, 30)
    for args in ((tmp_path / "none", "--from", other), (mine, "--from", tmp_path / "none"), (mine, "--from", mine)):
        result = run("repair", *args)
        assert result.exit_code == 2
        assert len(result.output.strip().splitlines()) == 1


def test_an_empty_directory_becomes_a_copy(two: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    repair(tmp_path / "copy", two[1])
    assert content_of(tmp_path / "copy") == content_of(two[1] / "tape")
