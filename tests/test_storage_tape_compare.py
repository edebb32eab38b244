"""`verify` finds whatever is wrong with a tape; `compare` names the first frame that differs, and how."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from levelcast.protocol.history import Frame
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape import compare as module
from levelcast.storage.tape.compare import compare_two, verify
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.writer import TapeWriter
from tests.tape_parts import FIRST, frame_of_packets, make_frames, repacked, tip_after

FRAMES = make_frames(24)


def record(folder: Path, frames: list[Frame], n: int = 40) -> Path:
    writer = TapeWriter.open(folder, FIRST, records_per_segment=n)
    writer.extend(frames)
    writer.close()
    return folder


def rechained(frames: list[Frame], at: int, change: Callable[[Frame], Frame]) -> list[Frame]:
    """The same tape with another frame at `at`, and everything behind it chained to that."""
    out, tip = frames[:at], tip_after(frames[:at])
    for frame in (change(frames[at]), *frames[at + 1 :]):
        made = frame_of_packets(frame.slot, frame.timestamp_ns, tip.next_sequence, frame.packets, tip.chain)
        tip.append(made)
        out.append(made)
    return out


def other_price(frame: Frame) -> Frame:
    first, *rest = frame.packets
    payload = bytearray(first.payload)
    payload[16] ^= 1
    return repacked(frame, (first._replace(payload=bytes(payload)), *rest))


def swapped(frame: Frame) -> Frame:
    return repacked(frame, sorted(frame.packets, key=lambda packet: -packet.source))


def test_a_sound_tape_is_sound(tmp_path: Path) -> None:
    verdict = verify(record(tmp_path, FRAMES))
    tip = tip_after(FRAMES)
    assert verdict.fault is None
    assert (verdict.frames, verdict.records) == (len(FRAMES), tip.next_sequence - 1)
    assert (verdict.slot, verdict.chain) == (tip.slot, tip.chain)
    assert verdict.dbn_segments == verdict.segments - 1 > 2


def test_without_databento_a_tape_is_still_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "dbn_module", lambda: None)
    verdict = verify(record(tmp_path, FRAMES))
    assert verdict.fault is None
    assert verdict.dbn_segments is None


def test_any_changed_byte_of_a_tape_is_found(tmp_path: Path) -> None:
    record(tmp_path, FRAMES)
    rng = Random(5)
    for path in sorted(tmp_path.iterdir()):
        content = path.read_bytes()
        for at in sorted(rng.sample(range(len(content)), 12)):
            changed = bytearray(content)
            changed[at] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)
            try:
                fault = verify(tmp_path, dbn=False).fault
            except TapeError as error:
                fault = str(error)
            if path.name.endswith(".idx") and TapeReader(tmp_path).segments[-1].index_path == path:
                continue  # the tail of a growing index may be a frame that is not finished yet
            assert fault, f"{path.name} byte {at}"
        path.write_bytes(content)
    assert verify(tmp_path).fault is None


def test_an_entry_of_a_growing_index_that_intact_ones_follow_is_found(tmp_path: Path) -> None:
    record(tmp_path, FRAMES, n=1000)
    path = next(tmp_path.glob("*.idx"))
    content = bytearray(path.read_bytes())
    content[TapeReader(tmp_path).segments[0].lines[4].packets_at - 30] ^= 1
    path.write_bytes(content)
    assert "others are intact" in (verify(tmp_path).fault or "")


def test_a_missing_segment_is_a_gap(tmp_path: Path) -> None:
    record(tmp_path, FRAMES)
    segment = TapeReader(tmp_path).segments[1]
    missing = f"sequences {segment.first_sequence} to {segment.next_sequence - 1} are missing"
    segment.data_path.unlink()
    segment.index_path.unlink()
    assert missing in (verify(tmp_path).fault or "")


def test_bytes_behind_the_last_frame_are_found(tmp_path: Path) -> None:
    record(tmp_path, FRAMES)
    with TapeReader(tmp_path).segments[0].data_path.open("ab") as file:
        file.write(bytes(64))
    assert "belong to complete frames" in (verify(tmp_path, dbn=False).fault or "")


def test_equal_tapes_are_the_same(tmp_path: Path) -> None:
    found = compare_two(record(tmp_path / "a", FRAMES), record(tmp_path / "b", FRAMES, n=1000))
    assert (found.how, found.remark, found.common_frames) == ("", "", len(FRAMES))


def test_a_shorter_tape_is_the_same_as_far_as_it_goes(tmp_path: Path) -> None:
    found = compare_two(record(tmp_path / "a", FRAMES), record(tmp_path / "b", FRAMES[:9]))
    assert found.how == ""
    assert found.common_frames == 9
    assert found.remark == f"{tmp_path / 'b'} ends at sequence {FRAMES[9].first_sequence - 1}"


def test_a_tape_whose_beginning_is_gone_is_compared_from_there(tmp_path: Path) -> None:
    record(tmp_path / "a", FRAMES)
    writer = TapeWriter.open(record(tmp_path / "b", FRAMES), FIRST)
    gone = writer.retain(0, max_bytes=8000)
    writer.close()
    found = compare_two(tmp_path / "a", tmp_path / "b")
    assert found.how == ""
    assert found.common_frames == sum(frame.slot > gone for frame in FRAMES) < len(FRAMES)
    assert "are in both" in found.remark


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda frame: frame._replace(slot=frame.slot + 1), "slot"),
        (lambda frame: frame._replace(timestamp_ns=frame.timestamp_ns + 1), "timestamp_ns"),
        (lambda frame: repacked(frame, frame.packets[:-1]), "packets"),
        (swapped, "packet 1 of the frame is "),
        (other_price, "price of record"),
    ],
)
def test_the_first_frame_that_differs_is_named(tmp_path: Path, change: Callable[[Frame], Frame], how: str) -> None:
    at = next(
        n
        for n, frame in enumerate(FRAMES)
        if n > 5 and len(frame.packets) > 2 and swapped(frame) != frame and frame.packets[0].payload[1] == 0
        and FRAMES[n + 1].slot > frame.slot + 1
    )  # fmt: skip
    record(tmp_path / "a", FRAMES)
    record(tmp_path / "b", rechained(FRAMES, at, change))
    found = compare_two(tmp_path / "a", tmp_path / "b")
    assert found.common_frames == at
    assert (found.slot, found.sequence) == (FRAMES[at].slot, FRAMES[at].first_sequence)
    assert how in found.how


def test_tapes_that_differ_before_what_is_left_are_not_the_same(tmp_path: Path) -> None:
    record(tmp_path / "a", FRAMES)
    writer = TapeWriter.open(record(tmp_path / "b", rechained(FRAMES, 0, other_price)), FIRST)
    writer.retain(0, max_bytes=8000)
    writer.close()
    assert "differ before" in compare_two(tmp_path / "a", tmp_path / "b").how


def test_a_nodes_directory_will_do(tmp_path: Path) -> None:
    record(tmp_path / "node" / "tape", FRAMES)
    assert verify(tmp_path / "node").fault is None


def test_an_empty_tape_is_sound(tmp_path: Path) -> None:
    record(tmp_path / "a", [])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert verify(tmp_path / "a").fault is None
    assert compare_two(tmp_path / "a", tmp_path / "b").how == ""
