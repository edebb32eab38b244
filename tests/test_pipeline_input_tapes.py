"""Tapes by stripe and sequence, whoever recorded them: which pieces, which rows, which sentence when it cannot be."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from levelcast.network import SymbolDirectory, five_cities, parse_network
from levelcast.pipeline.input.tape_rows import rows
from levelcast.pipeline.input.tapes import (
    Definitions,
    Piece,
    Range,
    StripeEnd,
    Tapes,
    TapeSelection,
    end_of_batch,
    split_pieces,
)
from levelcast.protocol.history import Frame, Tip
from levelcast.storage.append_file import TapeError
from levelcast.storage.tape.directory import find_tapes
from levelcast.storage.tape.reader import TapeReader
from levelcast.storage.tape.writer import TapeWriter
from levelcast.wire.messages import Packet
from tests.tape_parts import FIRST, SLOT_NS, T0, frame_of_packets, make_frames, tip_after, trade_payload

PER_SEGMENT = 200


def write(directory: Path, frames: Iterable[Frame], *, stripe: int = 0, first: Tip = FIRST) -> TapeWriter:
    writer = TapeWriter.open(directory, first, stripe=stripe, records_per_segment=PER_SEGMENT)
    writer.extend(frames)
    return writer


def all_rows(pieces: Iterable[Piece], names: Definitions | None = None, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for piece in pieces:
        for batch in rows(piece, names or Definitions(), **options):
            found += batch.to_pylist()
    return found


def expected(directory: Path) -> list[dict[str, Any]]:
    """Record by record, by the tape's own reader."""
    out = []
    for frame in TapeReader(directory).frames():
        for batch in frame.batches():
            for i, record in enumerate(batch.records):
                row = {
                    "sequence": frame.line.first_sequence + batch.first + i,
                    "slot": frame.line.slot,
                    "ts_recv": frame.line.timestamp_ns,
                    "kind": batch.kind.name,
                }
                if batch.kind.name == "trade":
                    row |= {name: int(record[name]) for name in ("trade_id", "size", "venue_sequence")}
                out.append(row)
    return out


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    return make_frames(150, 3)


@pytest.fixture
def tape(tmp_path: Path, frames: list[Frame]) -> Path:
    write(tmp_path / "one" / "tape", frames).close()
    return tmp_path / "one" / "tape"


def test_every_record_is_a_row_with_its_place(tape: Path) -> None:
    stripe = Tapes([tape]).stripes[0]
    assert len(list(tape.glob("*.dbn"))) > 3
    pieces = stripe.pieces(stripe.start.sequence, stripe.end.sequence)
    assert len(pieces) == len(list(tape.glob("*.idx")))
    wanted = expected(tape)
    for batch_rows in (1, 50, 100_000):
        found = all_rows(pieces, batch_rows=batch_rows)
        assert len(found) == len(wanted)
        for row, right in zip(found, wanted, strict=True):
            if right["kind"] == "trade":
                row["trade_id"] = row["trade_id"] % 2**64
            assert {name: row[name] for name in right} == right
    assert {row["kind"] for row in wanted} == {"trade", "quote", "status", "instrument", "system"}
    assert all(row["stripe"] == 0 and row["ts_recv"] == T0 + row["slot"] * SLOT_NS for row in found)


def test_a_range_is_exact_and_can_be_cut_anywhere(tape: Path) -> None:
    stripe = Tapes([tape]).stripes[0]
    pieces = stripe.pieces(150, 477)
    assert pieces[0].start == 150
    assert [row["sequence"] for row in all_rows(pieces)] == list(range(150, 477))
    smaller = split_pieces(pieces, 100)
    assert max(piece.stop - piece.start for piece in smaller) <= 100
    assert [row["sequence"] for row in all_rows(smaller)] == list(range(150, 477))


def test_what_is_not_wanted_is_left_out(tape: Path) -> None:
    stripe = Tapes([tape]).stripes[0]
    pieces = stripe.pieces(1, stripe.end.sequence)
    everything = all_rows(pieces)
    names = Definitions({2: "TWO", 3: "THREE"}, {number: f"V{number}" for number in range(1, 14)})
    for wanted, right in (
        (TapeSelection(slot=Range(20, 60)), lambda row: 20 <= row["slot"] <= 60),
        (TapeSelection(ts_recv=Range(T0 + 50 * SLOT_NS)), lambda row: row["slot"] >= 50),
        (TapeSelection(sequence=Range(33, 35)), lambda row: 33 <= row["sequence"] <= 35),
        (TapeSelection(kinds=frozenset({"quote"})), lambda row: row["kind"] == "quote"),
        (
            TapeSelection(symbols=frozenset({"TWO", "NONE"})),
            lambda row: row["instrument_id"] == 2 and row["kind"] != "instrument",
        ),
        (TapeSelection(venues=frozenset({"V7"})), lambda row: row["publisher_id"] == 7),
    ):
        found = all_rows(pieces, names, wanted=wanted)
        assert [row["sequence"] for row in found] == [row["sequence"] for row in everything if right(row)]
        assert found


def test_a_tape_is_continued_by_another_receivers(tmp_path: Path, frames: list[Frame]) -> None:
    early = write(tmp_path / "data" / "a" / "tape", frames[:90])
    late = write(tmp_path / "data" / "b" / "tape", frames)
    late.retain(0, max_bytes=90_000)
    early.close()
    late.close()
    tapes = Tapes([tmp_path / "data"])
    (stripe,) = tapes.stripes.values()
    assert stripe.start.sequence == 1
    assert stripe.end == StripeEnd(tip_after(frames).next_sequence, frames[-1].slot, frames[-1].timestamp_ns)
    found = all_rows(stripe.pieces(1, stripe.end.sequence))
    assert [row["sequence"] for row in found] == list(range(1, stripe.end.sequence))
    shutil.rmtree(tmp_path / "data" / "a")
    tapes.refresh()
    assert tapes.stripes[0].start.sequence > 1
    with pytest.raises(
        TapeError, match="retention has removed sequence 1 of stripe 0, which is still needed; the oldest"
    ):
        stripe.pieces(1, 10)
    with pytest.raises(TapeError, match=r"no tape of stripe 0 has sequence 99,999"):
        stripe.pieces(99_999, 100_000)


def test_a_piece_is_read_where_it_still_is(tmp_path: Path, frames: list[Frame]) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, frames).close()
    (stripe,) = Tapes([tmp_path / "a", tmp_path / "b"]).stripes.values()
    pieces = stripe.pieces(1, stripe.end.sequence)
    assert all(len(piece.tapes) == 2 for piece in pieces)
    shutil.rmtree(tmp_path / "a")
    assert len(all_rows(pieces)) == stripe.end.sequence - 1
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(TapeError, match=r"records 1 to \d+ are missing"):
        all_rows(pieces)


def test_a_growing_tape_is_read_to_its_last_whole_frame(tmp_path: Path, frames: list[Frame]) -> None:
    writer = write(tmp_path / "t", frames[:10])
    tapes = Tapes([tmp_path / "t"])
    (stripe,) = tapes.stripes.values()
    assert stripe.end.slot == frames[9].slot
    index = max((tmp_path / "t").glob("*.idx"))
    with index.open("ab") as file:
        file.write(b"\x80\0\0\0half an entry")
    tapes.refresh()
    assert stripe.end.slot == frames[9].slot
    writer.close()
    upto = stripe.end.sequence
    before = stripe.definitions(1, upto)
    writer = write(tmp_path / "t", frames[10:])
    planned = stripe.pieces(1, stripe.end.sequence)  # its segment has its final name by the time it is read
    assert [row["sequence"] for row in all_rows(planned)] == list(range(1, stripe.end.sequence))
    tapes.refresh()
    assert stripe.end.slot == frames[-1].slot
    assert stripe.definitions(upto, stripe.end.sequence) == before  # theirs are blank
    assert len(all_rows(stripe.pieces(1, stripe.end.sequence))) == stripe.end.sequence - 1
    writer.close()


def test_a_batch_ends_with_a_frame_and_all_stripes_at_one_instant(tmp_path: Path) -> None:
    two = [make_frames(60, 1), make_frames(60, 2)]
    for number, frames in enumerate(two):
        write(tmp_path / f"s{number}", frames, stripe=number).close()
    stripes = Tapes([tmp_path]).stripes
    stops = {number: stripe.end for number, stripe in stripes.items()}
    starts = dict.fromkeys(stripes, 1)
    assert end_of_batch(stripes, starts, stops, 10**6) == stops
    ends = end_of_batch(stripes, starts, stops, 120)
    assert sum(mark.sequence - 1 for mark in ends.values()) <= 120
    instant = max(mark.timestamp_ns for mark in ends.values())
    for number, mark in ends.items():
        following = next(frame for frame in two[number] if frame.slot > mark.slot)
        assert following.first_sequence == mark.sequence
        assert following.timestamp_ns >= instant
    (one,) = end_of_batch(stripes, starts, stops, 1).values()
    assert one.sequence == min(two, key=lambda frames: frames[0].timestamp_ns)[0].records + 1
    assert set(Tapes([tmp_path], stripe=1).stripes) == {1}
    with pytest.raises(TapeError, match="tape of stripe 7 not found"):
        Tapes([tmp_path], stripe=7)


def test_symbols_and_venues_come_from_the_definitions(tmp_path: Path) -> None:
    directory = SymbolDirectory(parse_network(five_cities()))
    floor = directory.floor("XLON")
    tip, made, rng = FIRST.copy(), [], Random(1)
    for number in range(1, 30):
        payload, count = trade_payload(rng, 3), 3
        if number == 2:
            definitions = directory.definitions(floor, T0)
            payload, count = definitions.tobytes() + payload, 3 + len(definitions)
        packets = [Packet(201, 1, number, count, payload)]
        frame = frame_of_packets(tip.slot + 1, T0 + tip.slot * SLOT_NS, tip.next_sequence, packets, tip.chain)
        tip.append(frame)
        made.append(frame)
    write(tmp_path, made).close()
    (stripe,) = Tapes([tmp_path]).stripes.values()
    names = stripe.definitions(1, stripe.end.sequence)
    assert names.symbols == {number: symbol for symbol, number in directory.ids_of(floor).items()}
    assert names.venues == {floor.publisher: "XLON"}
    found = all_rows(stripe.pieces(1, stripe.end.sequence), names)
    assert {row["symbol"] for row in found if row["instrument_id"] in names.symbols} == set(names.symbols.values())
    assert {row["kind"] for row in found if row["symbol"] is None} == {"trade"}


def copy_of(tape: Path, to: Path) -> Path:
    shutil.copytree(tape, to)
    return to


def test_what_cannot_be_read_is_said_in_one_sentence(tape: Path, tmp_path: Path) -> None:
    with pytest.raises(TapeError, match="directory not found"):
        find_tapes(tmp_path / "nowhere")
    with pytest.raises(TapeError, match="no tape found"):
        find_tapes(Path(__file__).parent / "fuzz")
    (tmp_path / "node" / "tape").mkdir(parents=True)
    with pytest.raises(TapeError, match="the tape is empty"):
        find_tapes(tmp_path / "node")
    assert find_tapes(tmp_path) == [tape]  # a node that has only just begun is not in the way of others

    truncated = copy_of(tape, tmp_path / "truncated")
    data = sorted(truncated.glob("*.dbn"))[1]
    data.write_bytes(data.read_bytes()[:-70])
    (stripe,) = Tapes([truncated]).stripes.values()
    with pytest.raises(TapeError, match=rf"{data.name}: truncated, its index has records up to byte"):
        all_rows(stripe.pieces(1, stripe.end.sequence))

    short = copy_of(tape, tmp_path / "short")
    index = sorted(short.glob("*.idx"))[1]
    index.write_bytes(index.read_bytes()[:-70])
    (stripe,) = Tapes([short]).stripes.values()
    with pytest.raises(TapeError, match=rf"{index.name}: records .* are missing; the file is truncated"):
        all_rows(stripe.pieces(1, stripe.end.sequence))

    foreign = copy_of(tape, tmp_path / "foreign")
    (foreign / "backup.dbn").write_bytes(b"DBN")
    with pytest.raises(TapeError, match=r"backup.dbn: not a segment of this tape; move it elsewhere"):
        Tapes([foreign])

    future = copy_of(tape, tmp_path / "future")
    index = min(future.glob("*.idx"))
    content = bytearray(index.read_bytes())
    content[8:10] = (77).to_bytes(2, "little")
    index.write_bytes(content)
    with pytest.raises(TapeError, match="version 77, but this Levelcast reads version 2; use a newer Levelcast"):
        Tapes([future])

    write(tmp_path / "other", make_frames(150, 4)).close()
    with pytest.raises(TapeError, match="are of different networks, pass one of them"):
        Tapes([tape, tmp_path / "other"])


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_only_valid_frames_are_read_from_whichever_tape_has_them(tape: Path, tmp_path: Path) -> None:
    damaged = copy_of(tape, tmp_path / "damaged")
    want = all_rows(Tapes([tape]).stripes[0].pieces(1, 400))
    for segment in TapeReader(damaged).segments[:2]:
        flip(segment.data_path, segment.lines[3].at + 20)
    (stripe,) = Tapes([damaged]).stripes.values()
    pieces = stripe.pieces(1, 400)
    with pytest.raises(TapeError, match=r"do not match its chain hash; nothing was loaded; .* or load it as it is"):
        all_rows(pieces)
    assert len(all_rows(pieces, unsound=True)) == len(want)
    line = TapeReader(damaged).segments[0].lines[3]
    before = [piece._replace(stop=line.first_sequence) for piece in pieces[:1]]
    assert all_rows(before) == want[: line.first_sequence - 1], "only the frames of the piece are checked"
    after = [piece._replace(start=line.first_sequence + line.records) for piece in pieces[:1]]
    assert all_rows(after) == want[after[0].start - 1 : after[0].stop - 1]
    with pytest.raises(TapeError, match="do not match"):
        all_rows([pieces[0]._replace(start=line.first_sequence + 1, stop=line.first_sequence + 2)])
    (both,) = Tapes([damaged, tape]).stripes.values()
    assert all_rows(both.pieces(1, 400)) == want


def test_an_index_that_is_damaged_before_intact_entries_is_refused(tape: Path) -> None:
    newest = TapeReader(tape).segments[-1]
    assert len(newest.lines) > 2
    flip(newest.index_path, newest.lines[1].packets_at - 40)
    with pytest.raises(TapeError, match=rf"{newest.index_path}: damaged at byte .* others are intact"):
        Tapes([tape])
    assert Tapes([tape], unsound=True).stripes[0].end.sequence == newest.lines[0].next_sequence


def test_names_come_only_from_valid_definitions(tmp_path: Path) -> None:
    directory = SymbolDirectory(parse_network(five_cities()))
    floor = directory.floor("XLON")
    definitions = directory.definitions(floor, T0)
    packets = [Packet(201, 1, 1, len(definitions), definitions.tobytes())]
    frame = frame_of_packets(1, T0, 1, packets, FIRST.chain)
    write(tmp_path / "a", [frame]).close()
    write(tmp_path / "b", [frame]).close()
    path = next((tmp_path / "a").glob("*.active"))
    at = path.read_bytes().rindex(b"XLON")
    flip(path, at)
    with pytest.raises(TapeError, match="do not match its chain hash"):
        Tapes([tmp_path / "a"]).stripes[0].definitions(1, 2)
    both = Tapes([tmp_path / "a", tmp_path / "b"]).stripes[0]
    assert both.definitions(1, 2).venues == {floor.publisher: "XLON"}
    assert Tapes([tmp_path / "a"], unsound=True).stripes[0].definitions(1, 2).venues == {floor.publisher: "YLON"}


def test_a_stream_passes_over_what_it_cannot_read(tape: Path, tmp_path: Path) -> None:
    tapes = Tapes([tmp_path / "gone", tape], strict=False)
    assert [found.directory for found in tapes.stripes[0].tapes] == [tape]
    with pytest.raises(TapeError, match="directory not found"):
        Tapes([tmp_path / "gone", tape])
    with pytest.raises(TapeError, match="directory not found"):
        Tapes([tmp_path / "gone"], strict=False)


def test_rows_have_the_schema(tape: Path) -> None:
    (stripe,) = Tapes([tape]).stripes.values()
    (piece,) = stripe.pieces(1, 20)
    (batch,) = rows(piece, Definitions(), columns=["symbol", "sequence"])
    assert batch.schema.names == ["sequence", "symbol"]
    assert batch.schema.types == [pa.int64(), pa.string()]
