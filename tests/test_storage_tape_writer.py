"""The tape: the same bytes at every receiver, whole frames whatever happens, and DBN that other tools read."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import databento_dbn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.native import crc32
from levelcast.protocol.effects import Checkpoint
from levelcast.protocol.history import Frame, Tip
from levelcast.records import dbn_metadata, stamp
from levelcast.storage import append_file
from levelcast.storage.append_file import AppendFile, TapeError
from levelcast.storage.tape import start_check
from levelcast.storage.tape.directory import SegmentFile
from levelcast.storage.tape.index import pack_header, unpack_header
from levelcast.storage.tape.reader import CheckedReader, TapeReader
from levelcast.storage.tape.stamps import frame_bytes, packet_fault
from levelcast.storage.tape.writer import TapeWriter
from levelcast.wire.messages import Cutoff, Pace, PaceChange, Packet
from tests.tape_parts import (
    FIRST,
    T0,
    Killed,
    MortalOs,
    content_of,
    frame_of_packets,
    largest_file,
    make_frames,
    tape_of,
    tip_after,
    trade_payload,
)

N = 40
FRAMES = make_frames(30)


def record(folder: Path, frames: list[Frame], *, batches: list[int] | None = None, n: int = N, **options: Any) -> None:
    writer = TapeWriter.open(folder, FIRST, records_per_segment=n, **options)
    at = 0
    for size in batches if batches is not None else [1] * len(frames):
        writer.extend(frames[at : at + size])
        at += size
    writer.extend(frames[at:])
    writer.close()


def reopen(folder: Path) -> TapeWriter:
    return TapeWriter.open(folder, FIRST, records_per_segment=N)


def read(folder: Path) -> list[Frame]:
    return [found.frame() for found in TapeReader(folder).frames()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    record(folder, FRAMES)
    return folder


# -- what goes in comes out -------------------------------------------------------------------------------


def test_frames_come_back_as_the_ring_had_them(whole: Path) -> None:
    assert read(whole) == FRAMES
    reader = TapeReader(whole)
    assert reader.tip() == tip_after(FRAMES)
    assert reader.before == FIRST
    assert len(reader.segments) > 5


def test_records_are_stamped_and_are_views_of_the_file(whole: Path) -> None:
    sequence = 1
    for found, frame in zip(TapeReader(whole).frames(), FRAMES, strict=True):
        for batch in found.batches():
            names = batch.kind.dtype.names or ()
            expected = np.arange(sequence, sequence + len(batch.records))
            if "sequence" in names:
                assert (batch.records["sequence"] == expected).all()
            if "ts_recv" in names:
                assert (batch.records["ts_recv"] == frame.timestamp_ns).all()
            sequence += len(batch.records)
    assert sequence == tip_after(FRAMES).next_sequence


def test_a_reader_starts_where_it_is_told(whole: Path) -> None:
    reader = TapeReader(whole)
    for frame in FRAMES:
        after = [found.line.slot for found in reader.frames(after_slot=frame.slot)]
        assert after == [each.slot for each in FRAMES if each.slot > frame.slot]
        assert next(reader.frames(from_sequence=frame.first_sequence)).line.slot == frame.slot
        assert reader.chain_at(frame.slot) == frame.chain
    assert reader.chain_at(0) == FIRST.chain


def test_a_reader_beside_a_writer_sees_what_was_added(tmp_path: Path) -> None:
    writer = TapeWriter.open(tmp_path, FIRST, records_per_segment=N)
    reader = TapeReader(tmp_path)
    for number, frame in enumerate(FRAMES, 1):
        writer.append(frame)
        reader.refresh()
        assert reader.tip() == writer.tip
        assert sum(1 for _ in reader.frames()) == number
    writer.close()
    assert [found.frame() for found in reader.frames()] == FRAMES


def test_the_tip_reads_no_records_but_those_that_change_the_set(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tape"
    shutil.copytree(whole, folder)
    active = next(folder.glob("*.active"))
    size = active.stat().st_size
    active.write_bytes(bytes(size))
    assert TapeReader(folder).tip() == tip_after(FRAMES)


def test_an_index_without_one_of_its_entries_is_an_error(tmp_path: Path) -> None:
    record(tmp_path, FRAMES[:9], n=1000)
    (segment,) = TapeReader(tmp_path).segments
    first, second, third = (line.packets_at - 88 for line in segment.lines[1:4])
    content = segment.index_path.read_bytes()
    for without in (content[:first] + content[second:], content[:second] + content[first:second] + content[third:]):
        segment.index_path.write_bytes(without)
        with pytest.raises(TapeError, match="does not follow the previous frame"):
            TapeReader(tmp_path).tip()


def test_a_second_pass_does_not_check_again(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []

    def check(segment: SegmentFile) -> None:
        checked.append(segment.first)

    monkeypatch.setattr("levelcast.storage.tape.reader.damage_of", check)
    reader = CheckedReader(whole)
    for _ in range(2):
        assert [found.frame() for found in reader.frames()] == FRAMES
    assert checked == [segment.first_sequence for segment in reader.segments]


# -- the same at every receiver ---------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.integers(1, 9)), st.integers(0, 30))
def test_batches_and_restarts_leave_no_trace(whole: Path, batches: list[int], restart: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        record(Path(name), FRAMES[:restart], batches=batches)
        writer = reopen(Path(name))
        writer.extend(FRAMES[restart:])
        writer.close()
        assert content_of(Path(name)) == content_of(whole)


def test_borders_depend_on_the_sequence_alone(whole: Path) -> None:
    for segment in TapeReader(whole).segments:
        first, last = segment.first_sequence, segment.next_sequence - 1
        before_last = segment.lines[-1].first_sequence - 1 if segment.lines else 0
        if segment.active:
            assert last // N == (first - 1) // N
        else:
            assert last // N > (first - 1) // N, "it reaches a multiple of N"
            assert before_last // N == (first - 1) // N, "with its last frame"


def test_finished_segments_are_dbn_with_the_same_values(whole: Path) -> None:
    dbn: Any = databento_dbn
    expected: list[bytes] = []
    for frame in FRAMES:
        sequence = frame.first_sequence
        for packet in frame.packets:
            expected.append(stamp(packet.payload, sequence, frame.timestamp_ns))
            sequence += packet.records
    joined, decoded = b"", []
    for segment in TapeReader(whole).segments:
        content = segment.data_path.read_bytes()
        joined += content.removeprefix(dbn_metadata())
        if not segment.active:
            decoder = dbn.DBNDecoder()
            decoder.write(content)
            metadata, *records = decoder.decode()
            assert isinstance(metadata, dbn.Metadata)
            assert decoder.buffer() == b""
            assert len(records) == segment.next_sequence - segment.first_sequence
            decoded += records
    assert joined == b"".join(expected)
    ours = [row for found in TapeReader(whole).frames() for batch in found.batches() for row in batch.records]
    compared = 0
    for theirs, row in zip(decoded, ours, strict=False):
        assert theirs.instrument_id == row["instrument_id"]
        if isinstance(theirs, dbn.TradeMsg):
            compared += 1
            for name in ("publisher_id", "ts_event", "price", "size", "ts_recv", "sequence"):
                assert getattr(theirs, name) == row[name]
    assert compared > 100


# -- torn, killed, damaged --------------------------------------------------------------------------------


def test_a_cut_at_any_byte_leaves_whole_frames(tmp_path: Path) -> None:
    frames = make_frames(4, seed=3, records=2)
    record(tmp_path / "whole", frames, n=1000)
    want = content_of(tmp_path / "whole")
    for name in want:
        for cut in range(0 if name.endswith("active") else 200, len(want[name])):
            folder = tmp_path / "cut"
            shutil.copytree(tmp_path / "whole", folder)
            (folder / name).write_bytes(want[name][:cut])
            writer = TapeWriter.open(folder, FIRST, records_per_segment=1000)
            kept = [frame for frame in frames if frame.slot <= writer.tip.slot]
            assert len(kept) < len(frames)
            assert writer.tip == tip_after(kept)
            assert read(folder) == kept
            writer.extend(frames[len(kept) :])
            writer.close()
            assert tape_of(folder) == want
            shutil.rmtree(folder)


@settings(max_examples=80)
@given(st.data())
def test_a_changed_byte_of_the_growing_segment_is_never_believed(data: st.DataObject) -> None:
    frames = make_frames(5, seed=4, records=2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record(folder, frames, n=1000)
        path = folder / data.draw(st.sampled_from(sorted(content_of(folder))))
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        try:
            writer = TapeWriter.open(folder, FIRST, records_per_segment=1000)
        except TapeError:
            return
        kept = [frame for frame in frames if frame.slot <= writer.tip.slot]
        assert writer.tip == tip_after(kept)
        writer.close()
        assert read(folder) == kept


def test_killed_at_any_system_call_whole_frames_are_left(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives, frames = 0, FRAMES[:12]
    record(tmp_path / "want", frames)
    while True:
        folder = tmp_path / f"{lives}"
        monkeypatch.setattr(append_file, "os", mortal := MortalOs(lives))
        writer, appended = None, 0
        try:
            writer = reopen(folder)
            for frame in frames:
                writer.append(frame)
                appended += 1
        except Killed:
            pass
        dead = len(mortal.calls) > lives
        monkeypatch.setattr(append_file, "os", os)
        if writer is not None:
            writer.close()
        writer = reopen(folder)
        kept = [frame for frame in frames if frame.slot <= writer.tip.slot]
        assert len(kept) in (appended, appended + 1)
        assert read(folder) == kept
        writer.extend(frames[len(kept) :])
        writer.close()
        assert tape_of(folder) == content_of(tmp_path / "want")
        shutil.rmtree(folder)
        if not dead:
            break
        lives += 1
    assert lives > 30


def test_a_torn_tail_is_cut_off_and_kept_beside_the_tape(tmp_path: Path) -> None:
    record(tmp_path, FRAMES[:3], n=1000)
    whole = content_of(tmp_path)
    for round in (1, 2):
        with next(tmp_path.glob("*.active")).open("ab") as file:
            file.write(b"half a frame %d" % round)
        with next(tmp_path.glob("*.idx")).open("ab") as file:
            file.write(b"half")
        writer = TapeWriter.open(tmp_path, FIRST, records_per_segment=1000)
        writer.close()
        assert tape_of(tmp_path) == whole
        data, index = (f"{name}.torn-at-{len(content)}" for name, content in sorted(whole.items()))
        assert [index in text or data in text for text in writer.notices] == [True, True]
    kept = {name: content for name, content in content_of(tmp_path).items() if name not in whole}
    assert kept == {data: b"half a frame 1", f"{data}-2": b"half a frame 2", index: b"half"}


def refused(folder: Path, says: str) -> None:
    """A start is refused with these words and the next command, and changes nothing."""
    before = content_of(folder)
    with pytest.raises(TapeError, match=says) as caught:
        reopen(folder)
    assert f"`levelcast tape repair {folder} --from OTHER`" in str(caught.value)
    assert content_of(folder) == before


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_changed_byte_in_the_middle_is_refused_and_nothing_is_cut(tmp_path: Path) -> None:
    record(tmp_path, FRAMES[:12], n=1000)
    path = next(tmp_path.glob("*.active"))
    line = TapeReader(tmp_path).segments[0].lines[5]
    flip(path, line.at + 20)
    refused(tmp_path, rf"{path}: damaged at byte {line.at:,}: its records do not match .* slot {line.slot}, sequence")


@pytest.mark.parametrize("segment", [0, 3, -2])
@pytest.mark.parametrize("what", ["records", "stamp", "dbn header", "index entry", "index header"])
def test_a_changed_byte_of_any_segment_is_found_at_the_start(
    whole: Path, tmp_path: Path, segment: int, what: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    chosen = TapeReader(folder).segments[segment]
    line = chosen.lines[0]
    path, at = {
        "records": (chosen.data_path, line.at + 30),
        "stamp": (chosen.data_path, line.at + 41),
        "dbn header": (chosen.data_path, 12),
        "index entry": (chosen.index_path, line.packets_at - 20),
        "index header": (chosen.index_path, 45),
    }[what]
    flip(path, at)
    refused(folder, str(path))


def test_an_older_segment_than_those_that_are_read_is_checked_by_its_ends(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_check, "CHECKED_BYTES", 0)
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    one, two = TapeReader(folder).segments[1:3]
    flip(one.data_path, 3000)
    reopen(folder).close()
    flip(one.data_path, 3000)
    for path, change, says in (
        (one.data_path, lambda content: content[:-64], "damaged at byte"),
        (one.index_path, lambda content: content[:-9], "does not end with an intact entry"),
        (one.index_path, lambda content: content[:9] + b"x" + content[10:], "version|header"),
        (one.data_path, lambda content: b"x" + content[1:], "does not begin with the header"),
    ):
        content = path.read_bytes()
        path.write_bytes(change(content))
        refused(folder, says)
        path.write_bytes(content)
    for left, right in ((one.data_path, two.data_path), (one.index_path, two.index_path)):
        contents = left.read_bytes(), right.read_bytes()
        left.write_bytes(contents[1])
        right.write_bytes(contents[0])
        refused(folder, "damaged at byte|does not match its file name")
        left.write_bytes(contents[0])
        right.write_bytes(contents[1])
    one.data_path.unlink()
    one.index_path.unlink()
    refused(folder, f"{two.index_path}: does not follow the previous segment")


def test_segments_of_one_size_that_are_swapped_are_found_by_their_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_check, "CHECKED_BYTES", 0)
    tip, frames = FIRST.copy(), []
    for number in range(1, 6):
        payload = trade_payload(Random(number), 10)
        frames.append(
            frame_of_packets(number, T0 + number, tip.next_sequence, [Packet(9, 1, number, 10, payload)], tip.chain)
        )
        tip.append(frames[-1])
    record(tmp_path, frames, n=10)
    one, two = (each.data_path for each in TapeReader(tmp_path).segments[1:3])
    contents = one.read_bytes(), two.read_bytes()
    one.write_bytes(contents[1])
    two.write_bytes(contents[0])
    refused(tmp_path, "its first record is not sequence 11")


def test_an_entry_that_is_damaged_before_intact_ones_is_not_a_torn_tail(tmp_path: Path) -> None:
    record(tmp_path, FRAMES[:12], n=1000)
    path = next(tmp_path.glob("*.idx"))
    line = TapeReader(tmp_path).segments[0].lines[5]
    start = line.packets_at - 88
    for at in (start, start + 1, start + 60):  # its size too, so that the next entry must be searched
        flip(path, at)
        refused(tmp_path, rf"{path}: damaged at byte {start:,}: the entry at byte")
        flip(path, at)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(300))
    refused(tmp_path, f"{path}: damaged at byte {start:,}: the entry at byte")


def test_the_journal_decides_whether_a_tail_can_be_cut_off(tmp_path: Path) -> None:
    """The journal supplies frames after its checkpoint again; earlier ones exist on the tape alone."""
    record(tmp_path, FRAMES[:12], n=1000)
    path = next(tmp_path.glob("*.active"))
    path.write_bytes(path.read_bytes()[:-10])
    before = content_of(tmp_path)
    last = FRAMES[11]
    with pytest.raises(TapeError, match=f"the journal needs a tape up to slot {last.slot}, but the valid part of it"):
        TapeWriter.open(tmp_path, FIRST, needs=Checkpoint(last.slot, last.chain))
    assert content_of(tmp_path) == before
    with pytest.raises(TapeError, match=f"not the tape of the journal, they differ at slot {FRAMES[4].slot}"):
        TapeWriter.open(tmp_path, FIRST, needs=Checkpoint(FRAMES[4].slot, last.chain))
    assert content_of(tmp_path) == before
    writer = TapeWriter.open(tmp_path, FIRST, needs=Checkpoint(FRAMES[10].slot + 1, FRAMES[10].chain))
    assert writer.tip == tip_after(FRAMES[:11])
    writer.close()


# -- what may not go to a tape ----------------------------------------------------------------------------


def frame_of(*packets: Packet) -> Frame:
    return frame_of_packets(1, T0, 1, packets, FIRST.chain)


GOOD = trade_payload(Random(1), 3)


@pytest.mark.parametrize(
    ("packet", "says"),
    [
        (Packet(201, 1, 1, 2, GOOD), "3 records, but the packet states 2"),
        (Packet(201, 1, 1, 3, GOOD[:-1]), "runs past the end"),
        (Packet(201, 1, 1, 3, stamp(GOOD, 1, 0)), "already has a sequence or a receive time"),
        (Packet(201, 1, 1, 3, stamp(GOOD, 0, 7)), "already has a sequence or a receive time"),
        (Packet(201, 1, 1, 1, b"\x10\x77" + bytes(62)), "unknown rtype 0x77"),
        (Packet(201, 1, 1, 1, bytes(64)), "record of length zero"),
    ],
)
def test_a_packet_that_would_spoil_the_tape_is_refused(tmp_path: Path, packet: Packet, says: str) -> None:
    assert says in (packet_fault(packet) or "")
    writer = reopen(tmp_path)
    before = content_of(tmp_path)
    for frame in (frame_of(packet), frame_of(Packet(202, 1, 1, 3, GOOD), packet)):
        with pytest.raises(TapeError, match=r"cannot be written to a tape|already has a sequence"):
            writer.append(frame)
    assert content_of(tmp_path) == before
    assert writer.tip == FIRST
    writer.close()


def test_good_packets_have_no_fault() -> None:
    for frame in FRAMES:
        assert [packet_fault(packet) for packet in frame.packets] == [None] * len(frame.packets)


def test_records_of_two_packets_never_run_into_each_other() -> None:
    """Half a record in each of two packets is a whole record only when they are joined."""
    with pytest.raises(TapeError, match="cannot be written to a tape"):
        frame_bytes(frame_of(Packet(201, 1, 1, 1, GOOD[:96]), Packet(201, 1, 2, 2, GOOD[96:])))


@pytest.mark.parametrize("other", [FRAMES[1], FRAMES[0]._replace(chain_before=b"x" * 32)])
def test_a_frame_that_does_not_follow_is_refused(tmp_path: Path, other: Frame) -> None:
    writer = reopen(tmp_path)
    with pytest.raises(TapeError, match="does not follow the tape"):
        writer.append(other)
    writer.close()


# -- a full disk ------------------------------------------------------------------------------------------


def test_on_a_full_disk_no_frame_is_half_written(whole: Path, tmp_path: Path) -> None:
    """At every size of the disk: an error in one sentence, whole frames, and it goes on when there is room."""
    said: list[str] = []
    for size in range(150, 6000, 450):
        folder = tmp_path / f"{size}"
        with largest_file(size):
            try:
                writer = reopen(folder)
            except TapeError:
                continue
            written = 0
            for frame in FRAMES:
                before = content_of(folder)
                try:
                    writer.append(frame)
                except TapeError as error:
                    said.append(str(error))
                    after = content_of(folder)
                    changed = [name for name in before if after[name] != before[name]]
                    assert not changed
                    break
                written += 1
        assert read(folder) == FRAMES[:written]
        writer.extend(FRAMES[written:])
        writer.close()
        assert content_of(folder) == content_of(whole)
    assert said
    assert all("nothing of this write is in the file" in each for each in said)


def test_a_segment_that_cannot_begin_is_tried_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = reopen(tmp_path)
    create = AppendFile.create

    def full(path: Path, *rest: Any) -> AppendFile:
        raise TapeError(f"{path}: full")

    for number, frame in enumerate(FRAMES):
        monkeypatch.setattr(AppendFile, "create", full)
        try:
            writer.append(frame)
        except TapeError:
            assert writer.tip == tip_after(FRAMES[:number])
            monkeypatch.setattr(AppendFile, "create", create)
            writer.append(frame)
        monkeypatch.setattr(AppendFile, "create", create)
    writer.close()
    reopen(tmp_path).close()
    assert content_of(tmp_path) == content_of(whole)


# -- retention --------------------------------------------------------------------------------------------


def test_retention_by_size_takes_the_oldest_and_never_the_growing_segment(whole: Path, tmp_path: Path) -> None:
    record(tmp_path, FRAMES)
    total = sum(map(len, content_of(tmp_path).values()))
    writer = reopen(tmp_path)
    gone = writer.retain(0, max_bytes=total // 2)
    left = content_of(tmp_path)
    assert sum(map(len, left.values())) <= total // 2
    assert left.items() <= content_of(whole).items()
    assert read(tmp_path) == [frame for frame in FRAMES if frame.slot > gone]
    writer.retain(0, max_bytes=0)
    assert {Path(name).suffix for name in content_of(tmp_path)} == {".active", ".idx"}
    assert writer.tip == tip_after(FRAMES)
    writer.close()
    writer = reopen(tmp_path)
    assert writer.tip == tip_after(FRAMES), "what is left is enough to go on from"
    writer.close()


def test_retention_by_age(tmp_path: Path) -> None:
    record(tmp_path, FRAMES)
    writer = reopen(tmp_path)
    now = FRAMES[-1].timestamp_ns
    age = now - FRAMES[15].timestamp_ns
    gone = writer.retain(now, max_age_ns=age)
    frames = read(tmp_path)
    assert frames == [frame for frame in FRAMES if frame.slot > gone]
    assert set(FRAMES[15:]) <= set(frames)
    assert 0 < len(FRAMES) - len(frames) <= 15
    assert writer.retain(now, max_age_ns=age) == gone
    writer.close()


def test_retention_that_was_killed_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lives in range(4):
        folder = tmp_path / f"{lives}"
        record(folder, FRAMES)
        oldest, second, *_ = TapeReader(folder).segments
        writer = reopen(folder)
        monkeypatch.setattr(append_file, "os", MortalOs(lives))
        with suppress(Killed):
            writer.retain(0, max_bytes=0, most=1)
        monkeypatch.setattr(append_file, "os", os)
        writer.close()
        writer = reopen(folder)
        assert oldest.index_path.exists() is oldest.data_path.exists() is (lives == 0)
        assert not list(folder.glob("*.removed"))
        assert writer.tip == tip_after(FRAMES)
        writer.close()
        assert TapeReader(folder).segments[0].first_sequence == (second if lives else oldest).first_sequence


def test_a_missing_file_is_no_retention(tmp_path: Path) -> None:
    record(tmp_path, FRAMES)
    oldest = TapeReader(tmp_path).segments[0]
    oldest.data_path.unlink()
    refused(tmp_path, f"{oldest.index_path}: the records of this segment are missing")


# -- errors, one sentence each ----------------------------------------------------------------------------


def test_a_tape_has_one_writer(tmp_path: Path) -> None:
    writer = reopen(tmp_path)
    with pytest.raises(TapeError, match="another process is writing this tape"):
        reopen(tmp_path)
    writer.close()


def test_a_tape_of_another_stripe_is_refused(tmp_path: Path) -> None:
    reopen(tmp_path).close()
    with pytest.raises(TapeError, match="the tape is of stripe 0, not 3"):
        TapeWriter.open(tmp_path, FIRST, stripe=3)


def test_lost_records_are_noticed(tmp_path: Path) -> None:
    record(tmp_path, FRAMES)
    segments = TapeReader(tmp_path).segments
    segments[2].data_path.unlink()
    with pytest.raises(TapeError, match="the records of this segment are missing"):
        reopen(tmp_path)
    for segment in segments:
        segment.data_path.unlink(missing_ok=True)
    with pytest.raises(TapeError, match="the records of this segment are missing"):
        reopen(tmp_path)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: shutil.rmtree(folder), "directory not found"),
        (lambda folder: [path.unlink() for path in folder.iterdir()], "not a tape directory"),
        (lambda folder: next(folder.glob("*.idx")).unlink(), "the index of this segment is missing"),
        (lambda folder: next(folder.glob("*.idx")).write_bytes(b"GIF89a"), "not an index of a Levelcast tape"),
        (lambda folder: next(folder.glob("*.idx")).write_bytes(b"LVLCTAPE\x01\0"), "header is damaged or truncated"),
        (lambda folder: next(folder.glob("*.idx")).write_bytes(b"LVLCTAPE\x09\0" + bytes(99)), "version 9, but"),
        (lambda folder: next(folder.glob("*.idx")).write_bytes(pack_header(0, 9, Tip())), "has no configured set"),
    ],
)
def test_what_is_no_tape_is_named(tmp_path: Path, make: Any, says: str) -> None:
    folder = tmp_path / "tape"
    record(folder, FRAMES[:3], n=1000)
    make(folder)
    with pytest.raises(TapeError, match=says):
        TapeReader(folder).tip()


def test_the_index_keeps_the_timing_records_before_its_segment() -> None:
    tip = Tip(records=FIRST.records)
    without = pack_header(0, 9, tip)
    for version in (1, 2):
        tip.paces.append(PaceChange(version, 10**18, 6 * 10**8, Pace(5 * 10**8, 10**7, (Cutoff(1, 10**7),))))
    content = pack_header(0, 9, tip)
    assert unpack_header(without, "x").tip.paces == []
    assert unpack_header(content, "x").tip == tip
    text = content.index(b"levelcast timing v2")
    damaged = bytearray(content)
    damaged[text] ^= 1
    damaged[-4:] = crc32(damaged[:-4]).to_bytes(4, "little")
    with pytest.raises(TapeError, match="damaged timing record"):
        unpack_header(bytes(damaged), "x")
