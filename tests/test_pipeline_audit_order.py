"""The audit *order*: planted faults are found and named, clean tapes pass."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from levelcast.network import five_cities, parse_network
from levelcast.pipeline.audit.base import AuditOptions, Finding, Job, Result
from levelcast.pipeline.audit.inputs import gather
from levelcast.pipeline.audit.order import run
from levelcast.protocol.history import Frame
from levelcast.storage.append_file import TapeError
from tests.audit_parts import change_byte, rechained, record, record_all, rewrite, segment_with, swap_bytes
from tests.tape_parts import make_frames

FRAMES = make_frames(200, 3)
BYTE_OF_PRICE = 16


def audit(data: Path, **options: bool) -> Result:
    return run(Job(None, gather([data]), AuditOptions(**options)))


def only(result: Result) -> Finding:
    assert len(result.findings) == 1, result.findings
    return result.findings[0]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    record_all(tmp_path, FRAMES)
    return tmp_path


def trades_frame(least: int = 3) -> Frame:
    """A frame in the middle of a segment whose records are all trades."""
    return next(f for f in FRAMES[60:] if f.records >= least and len(f.content) == 64 * f.records)


def test_equal_tapes_pass(data: Path) -> None:
    result = audit(data)
    assert result.passed, result.findings
    assert result.looked_at["frames"] == 5 * len(FRAMES)
    assert result.looked_at["records"] == 5 * sum(frame.records for frame in FRAMES)
    assert "5 tapes are identical" in result.sentence
    assert not result.remarks


def test_a_changed_byte_is_named_to_the_byte(data: Path) -> None:
    frame = trades_frame()
    segment, number = segment_with(data / "tokyo-1", frame.slot)
    at = segment.lines[number].at + 64 + BYTE_OF_PRICE
    change_byte(segment.data_path, at)
    found = only(audit(data))
    assert (found.kind, found.subject) == ("changed bytes", "tokyo-1")
    assert (found.slot, found.sequence, found.record) == (frame.slot, frame.first_sequence, frame.first_sequence + 1)
    assert (found.offset, found.segment, found.file) == (at, segment.first_sequence, str(segment.data_path))
    assert "price (" in found.says
    assert "has one changed byte" in found.says


def test_a_changed_stamp_is_found_although_the_hash_does_not_cover_it(data: Path) -> None:
    frame = trades_frame()
    segment, number = segment_with(data / "london-1", frame.slot)
    change_byte(segment.data_path, segment.lines[number].at + 44)  # sequence
    found = only(audit(data))
    assert (found.kind, found.subject, found.record) == ("changed bytes", "london-1", frame.first_sequence)
    assert "the stamp" in found.says


def test_a_changed_byte_of_the_index_is_named(data: Path) -> None:
    segment, number = segment_with(data / "sydney-1", FRAMES[70].slot)
    entry = segment.lines[number]
    change_byte(segment.index_path, entry.packets_at - 10)  # in its chain hash
    found = only(audit(data))
    assert (found.kind, found.subject, found.slot) == ("changed bytes", "sydney-1", FRAMES[70].slot)
    assert (found.offset, found.file) == (entry.packets_at - 10, str(segment.index_path))


def test_a_changed_length_blames_one_frame_only(data: Path) -> None:
    frame = trades_frame()
    segment, number = segment_with(data / "tokyo-1", frame.slot)
    change_byte(segment.data_path, segment.lines[number].at)
    found = only(audit(data))
    assert (found.kind, found.slot, found.offset) == ("changed bytes", frame.slot, segment.lines[number].at)


@pytest.mark.parametrize("stamps", ["moved", "made anew"])
def test_swapped_records_are_named(data: Path, stamps: str) -> None:
    frame = trades_frame()
    segment, number = segment_with(data / "london-1", frame.slot)
    at = segment.lines[number].at
    if stamps == "moved":
        swap_bytes(segment, (at, at + 64), (at + 64, at + 128))
    else:
        content = bytearray(segment.data_path.read_bytes())
        for begin, end in ((0, 32), (48, 64)):  # all but ts_recv, ts_in_delta and sequence
            one, other = slice(at + begin, at + end), slice(at + 64 + begin, at + 64 + end)
            content[one], content[other] = content[other], content[one]
        segment.data_path.write_bytes(content)
    found = only(audit(data))
    assert (found.kind, found.subject, found.slot) == ("swapped records", "london-1", frame.slot)
    assert (found.record, found.offset) == (frame.first_sequence, at)
    assert f"{frame.first_sequence} and {frame.first_sequence + 1}" in found.says


def test_swapped_frames_are_named(data: Path) -> None:
    segment, number = segment_with(data / "frankfurt-1", FRAMES[80].slot)
    one, other = segment.lines[number : number + 2]
    swap_bytes(segment, (one.at, one.at + one.size), (other.at, other.at + other.size))
    found = only(audit(data))
    assert (found.kind, found.subject, found.slot) == ("swapped frames", "frankfurt-1", one.slot)
    assert found.offset == one.at
    assert f"{one.slot} and {other.slot}" in found.says


def test_a_missing_frame_is_named(data: Path) -> None:
    frame = FRAMES[90]
    segment, number = segment_with(data / "new-york-1", frame.slot)
    at = segment.lines[number].at
    rewrite(segment, lambda frames: [each for each in frames if each.slot != frame.slot])
    found = only(audit(data))
    assert (found.kind, found.subject) == ("missing frame", "new-york-1")
    assert (found.slot, found.sequence, found.offset) == (frame.slot, frame.first_sequence, at)


def test_a_frame_there_twice_is_named(data: Path) -> None:
    frame = FRAMES[90]
    segment, _ = segment_with(data / "new-york-1", frame.slot)
    rewrite(
        segment, lambda frames: [each for one in frames for each in ([one, one] if one.slot == frame.slot else [one])]
    )
    found = only(audit(data))
    assert (found.kind, found.subject, found.slot) == ("duplicate frame", "new-york-1", frame.slot)


def test_a_forger_who_chains_anew_is_outvoted(data: Path) -> None:
    """A frame left out, every later sequence and hash made anew: the tape is sound in itself."""
    frame = FRAMES[90]
    shutil.rmtree(data / "tokyo-1")
    record(data / "tokyo-1", rechained([each for each in FRAMES if each.slot != frame.slot]))
    result = audit(data)
    found = result.findings[0]
    assert (found.kind, found.subject, found.slot) == ("missing frame", "tokyo-1", frame.slot)
    assert {each.subject for each in result.findings} == {"tokyo-1"}


def test_of_two_sound_tapes_that_differ_none_is_called_right(tmp_path: Path) -> None:
    frame = trades_frame()
    content = bytearray(frame.content)
    content[BYTE_OF_PRICE] ^= 1
    forged = [each._replace(content=bytes(content)) if each.slot == frame.slot else each for each in FRAMES]
    record(tmp_path / "a", FRAMES, records_per_segment=100_000)
    record(tmp_path / "b", rechained(forged), records_per_segment=100_000)
    found = only(audit(tmp_path))
    assert (found.kind, found.subject, found.record) == ("changed bytes", "b or a", frame.first_sequence)
    assert "no majority" in found.says
    record(tmp_path / "c", FRAMES, records_per_segment=100_000)
    assert only(audit(tmp_path)).subject == "b"


def test_one_tape_alone_is_checked_by_its_hashes(tmp_path: Path) -> None:
    record(tmp_path / "a", FRAMES)
    frame = trades_frame()
    segment, number = segment_with(tmp_path / "a", frame.slot)
    change_byte(segment.data_path, segment.lines[number].at + BYTE_OF_PRICE)
    found = only(audit(tmp_path))
    assert (found.kind, found.slot, found.offset) == ("changed bytes", frame.slot, segment.lines[number].at)
    assert audit(tmp_path, bytes=False).passed  # as it was told


def test_a_missing_segment_is_named(data: Path) -> None:
    segments = sorted((data / "london-1" / "tape").glob("*.dbn"))
    first = int(segments[1].name.partition(".")[0])
    segments[1].unlink()
    segments[1].with_suffix(".idx").unlink()
    found = only(audit(data))
    assert (found.kind, found.subject, found.sequence) == ("missing segment", "london-1", first)


def test_records_cut_short_are_named(data: Path) -> None:
    segment = sorted((data / "london-1" / "tape").glob("*.dbn"))[1]
    segment.write_bytes(segment.read_bytes()[:-5])
    found = only(audit(data))
    assert (found.kind, found.subject, found.file) == ("cut short", "london-1", str(segment))


def test_a_shorter_or_torn_tail_is_a_remark(data: Path) -> None:
    shutil.rmtree(data / "sydney-1")
    record(data / "sydney-1", FRAMES[:-3])
    active = next((data / "tokyo-1" / "tape").glob("*.active"))
    with active.open("ab") as file:
        file.write(b"torn")
    result = audit(data)
    assert result.passed, result.findings
    assert any("sydney-1" in each and "it may still grow" in each for each in result.remarks)
    assert any("tokyo-1" in each and "torn tail, 4 bytes" in each for each in result.remarks)


def test_a_segment_that_gets_its_final_name_meanwhile_is_still_found(data: Path) -> None:
    inputs = gather([data])
    active = next((data / "tokyo-1" / "tape").glob("*.active"))
    active.rename(active.with_suffix(""))
    assert run(Job(None, inputs)).passed


def test_retention_is_a_remark(data: Path) -> None:
    first = min((data / "london-1" / "tape").glob("*.dbn"))
    first.unlink()
    first.with_suffix(".idx").unlink()
    result = audit(data)
    assert result.passed, result.findings
    assert any("london-1" in each and "begins at sequence" in each for each in result.remarks)


# -- input of which nothing can be said -----------------------------------------------------------------


def test_tapes_of_different_networks_are_refused(tmp_path: Path) -> None:
    record(tmp_path / "a", FRAMES)
    later = [f._replace(timestamp_ns=f.timestamp_ns + 10**12) for f in FRAMES]
    record(tmp_path / "b", rechained(later))
    with pytest.raises(TapeError, match=r"a/tape and .*b/tape are of different networks: slot \d+ is at"):
        gather([tmp_path])


def test_overlapping_days_of_one_receiver_are_refused(tmp_path: Path) -> None:
    record(tmp_path / "monday" / "tokyo-1", FRAMES)
    record(tmp_path / "tuesday" / "tokyo-1", FRAMES)
    with pytest.raises(TapeError, match=r"are both of tokyo-1 and both have sequence 1 .*the days overlap"):
        gather([tmp_path / "monday", tmp_path / "tuesday"])


def test_days_of_one_receiver_that_follow_one_another_are_one_tape(tmp_path: Path) -> None:
    record(tmp_path / "monday" / "tokyo-1", FRAMES)
    later = tmp_path / "tuesday" / "tokyo-1" / "tape"
    later.mkdir(parents=True)
    for path in sorted((tmp_path / "monday" / "tokyo-1" / "tape").iterdir())[4:]:
        shutil.move(path, later / path.name)
    result = run(Job(None, gather([tmp_path / "tuesday", tmp_path / "monday"])))
    assert result.passed
    assert result.looked_at["tapes"] == 1
    assert result.looked_at["frames"] == len(FRAMES)


def test_an_empty_tape_is_refused(data: Path) -> None:
    (data / "perth-1" / "tape").mkdir(parents=True)
    with pytest.raises(TapeError, match="perth-1/tape: the tape is empty"):
        gather([data])
    record(data / "lima-1", [])
    shutil.rmtree(data / "perth-1")
    with pytest.raises(TapeError, match="lima-1/tape: the tape is empty"):
        gather([data])


def test_a_source_that_the_network_file_lacks_is_named(data: Path) -> None:
    network = parse_network(five_cities())
    listed = [replace(network.floors[0], id=source) for source in (201, 203)]
    inputs = replace(gather([data]), network=replace(network, floors=tuple(listed)))
    result = run(Job(None, inputs, AuditOptions()))
    assert result.passed, result.findings
    assert result.remarks == ["stripe 0: source 202 is on the tapes and not in the network file"]
