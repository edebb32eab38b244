"""`levelcast tape`: show, verify, compare, repair and export recorded tapes."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from levelcast.cli.errors import replacing, require_new
from levelcast.cli.main import COMMANDS
from levelcast.cli.options import AsJson, Force, Unsound, option
from levelcast.cli.output import print_json, table
from levelcast.extras import arrow
from levelcast.records import UNDEF_PRICE, UNDEF_TIMESTAMP, RecordType, dbn_metadata, price_to_decimal, record_ends
from levelcast.storage.tape.compare import TapeCheck, compare_checked, verify
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.reader import CheckedReader, TapeReader
from levelcast.storage.tape.repair import repair

app = typer.Typer(help=COMMANDS["tape"].help, no_args_is_help=True)

Directory = Annotated[Path, typer.Argument(help="Directory of a tape, or of a node with a tape.")]
Directories = Annotated[list[Path], typer.Argument(help="Directories of tapes, or of nodes with a tape.")]
FromSequence = Annotated[int, option("First sequence number.", "--from", min=1)]
Count = Annotated[int | None, option("Maximum number of records.", "--count", min=1, unset="all")]
Symbols = Annotated[list[int] | None, option("Only records of this instrument id (repeatable).", "--symbol")]

COLUMNS = (
    "seq", "ts_event", "ts_recv", "type", "floor", "instrument_id", "price", "size", "action", "side", "condition",
    "trade_id", "venue_sequence",
)  # fmt: skip
"""Columns of `cat` and of an exported table; fields that a record type does not have stay empty."""
_RENAMED = {"floor": "publisher_id"}
_PRICES = frozenset({"price", "bid_px_00", "ask_px_00", "stop_price"})
_BLOCK = 4096

Row = tuple[int, RecordType, np.void]
"""A record with its full sequence and its type."""


@app.command()
def info(directories: Directories, as_json: AsJson = False) -> None:
    """Show the contents of a tape: segments, sequences, slots, times, sizes and the head of its hash chain.

    Examples:

    levelcast tape info data/tokyo-1

    levelcast tape info data/* --json
    """
    reports = [_report(directory) for directory in directories]
    if as_json:
        print_json(reports)
        return
    console = Console()
    for report in reports:
        rows = []
        for each in report["segments"]:
            begin, end = _time(each["first_ns"]), _time(each["last_ns"])
            sequences = f"{each['first_sequence']:,}-{each['last_sequence']:,}"
            slots = f"{each['first_slot']:,}-{each['last_slot']:,}"
            end = end[11:] if end[:10] == begin[:10] else end
            state = "growing" if each["active"] else "finished"
            rows.append((state, sequences, slots, begin, end, each["frames"], each["bytes"]))
        columns = ("segment", ">sequences", ">slots", "from, UTC", "to", ">frames", ">bytes")
        console.print(table(columns, rows, title=report["directory"]))
        console.print(
            f"{report['records']:,} records, {report['bytes']:,} bytes, stripe {report['stripe']}, "
            f"at slot {report['slot']:,}, chain {report['chain']}\n",
            highlight=False,
            soft_wrap=True,
        )


def _report(directory: Path) -> dict[str, Any]:
    reader = TapeReader(tape_directory(directory))
    segments = []
    for segment in reader.segments:
        lines = segment.lines
        segments.append(
            {
                "name": segment.data_path.name,
                "active": segment.active,
                "first_sequence": segment.first_sequence,
                "last_sequence": segment.next_sequence - 1,
                "first_slot": lines[0].slot if lines else segment.header.tip.slot,
                "last_slot": lines[-1].slot if lines else segment.header.tip.slot,
                "first_ns": lines[0].timestamp_ns if lines else None,
                "last_ns": lines[-1].timestamp_ns if lines else None,
                "frames": len(lines),
                "bytes": segment.size_bytes(),
            }
        )
    tip = reader.tip()
    return {
        "directory": str(directory),
        "stripe": reader.stripe,
        "records": tip.next_sequence - reader.segments[0].first_sequence,
        "bytes": sum(each["bytes"] for each in segments),
        "slot": tip.slot,
        "chain": tip.chain.hex(),
        "segments": segments,
    }


def _time(ns: int | None) -> str:
    return "" if ns is None else str(np.datetime_as_string(np.datetime64(ns, "ns"), unit="s")).replace("T", " ")


@app.command()
def cat(
    directory: Directory,
    from_sequence: FromSequence = 1,
    count: Count = None,
    symbol: Symbols = None,
    as_json: Annotated[bool, option("Print one JSON object per line, with all fields.", "--json")] = False,
    unsound: Unsound = False,
) -> None:
    """Print the records of a tape as CSV, or as JSON lines. A segment is checked before its records are printed.

    Examples:

    levelcast tape cat data/tokyo-1 --count 10

    levelcast tape cat data/tokyo-1 --from 1000000 --symbol 7 --json
    """
    reader = _reader(directory, unsound=unsound)
    rows = islice(_rows(reader, from_sequence, symbol), count)
    if as_json:
        for sequence, kind, record in rows:
            typer.echo(json.dumps(_object(sequence, kind, record)))
    else:
        _write_csv(sys.stdout, rows)


def _reader(directory: Path, *, unsound: bool) -> TapeReader:
    """Open a tape; unless `unsound` is set, reading a segment that is not valid is an error."""
    tape = tape_directory(directory)
    return TapeReader(tape) if unsound else CheckedReader(tape)


def _rows(reader: TapeReader, from_sequence: int, symbols: list[int] | None) -> Iterator[Row]:
    """Yield the records of a tape one by one."""
    for frame in reader.frames(from_sequence=from_sequence):
        for batch in frame.batches():
            first = frame.line.first_sequence + batch.first
            chosen = np.arange(max(0, from_sequence - first), len(batch.records))
            if symbols:
                chosen = chosen[np.isin(batch.records["instrument_id"][chosen], symbols)]
            for i in chosen.tolist():
                yield first + i, batch.kind, batch.records[i]


def _write_csv(file: Any, rows: Iterator[Row]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    written = 0
    for sequence, kind, record in rows:
        writer.writerow(["" if value is None else value for value in _columns(sequence, kind, record)])
        written += 1
    return written


def _columns(sequence: int, kind: RecordType, record: np.void, *, exact: bool = False) -> list[Any]:
    values: dict[str, Any] = {"seq": sequence, "type": kind.name}
    names = [(column, _RENAMED.get(column, column)) for column in COLUMNS]
    return [values[column] if column in values else _value(record, name, exact=exact) for column, name in names]


def _object(sequence: int, kind: RecordType, record: np.void) -> dict[str, Any]:
    names = [name for name in kind.dtype.names or () if name not in ("length", "rtype", "_reserved")]
    found = {"seq": sequence, "type": kind.name}
    return found | {name: _value(record, name) for name in names if name != "sequence"}


def _value(record: np.void, name: str, *, exact: bool = False) -> Any:
    """Return a field as a plain value, prices as decimals or as `exact` integers of 1e-9; None if missing."""
    if name not in (record.dtype.names or ()):
        return None
    value = record[name].item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if name in _PRICES:
        return None if value == UNDEF_PRICE else value if exact else str(price_to_decimal(value))
    return None if value == UNDEF_TIMESTAMP else value


@app.command("verify")
def verify_command(
    directories: Directories,
    as_json: AsJson = False,
    dbn: Annotated[bool, option("Also read finished segments with databento-dbn, if installed.")] = True,
) -> None:
    """Check tapes: hashes, gaps, readability as DBN. Several valid tapes are also compared with the first one.

    Exit code 1 if a tape is not valid or differs; the first frame that differs is reported, and the difference.

    Examples:

    levelcast tape verify data/tokyo-1

    levelcast tape verify data/*
    """
    verdicts = [verify(directory, dbn=dbn) for directory in directories]
    differences = compare_checked(verdicts)
    bad = any(verdict.fault for verdict in verdicts) or not all(each.is_same for each in differences)
    if as_json:
        report = {
            "sound": [_verdict_json(verdict) for verdict in verdicts],
            "differences": [
                {"one": str(each.one), "other": str(each.other), "common_frames": each.common_frames, "slot": each.slot,
                 "sequence": each.sequence, "how": each.how or None, "remark": each.remark or None,
                 "not_compared": each.not_compared or None}
                for each in differences
            ],
            "identical": not bad,
        }  # fmt: skip
        print_json(report)
    else:
        for verdict in verdicts:
            typer.echo(_verdict_line(verdict))
        for each in differences:
            if each.not_compared:
                typer.echo(f"{each.other} was not compared with {each.one}: {each.not_compared}")
            elif each.how:
                typer.echo(
                    f"{each.other} differs from {each.one} at slot {each.slot}, sequence {each.sequence}, "
                    f"after {each.common_frames:,} equal frames: {each.how}"
                )
            else:
                remark = f" ({each.remark})" if each.remark else ""
                typer.echo(f"{each.other} is identical to {each.one} in {each.common_frames:,} frames{remark}")
    if bad:
        raise typer.Exit(1)


def _verdict_line(verdict: TapeCheck) -> str:
    if verdict.fault is not None:
        return f"{verdict.directory}: NOT VALID: {verdict.fault}"
    read = (
        "databento-dbn is not installed" if verdict.dbn_segments is None
        else f"{verdict.dbn_segments} finished segments read by databento-dbn"
    )  # fmt: skip
    return (
        f"{verdict.directory}: valid, {verdict.frames:,} frames, sequences {verdict.first_sequence:,} to "
        f"{verdict.next_sequence - 1:,}, {read}, chain {verdict.chain.hex()}"
    )


def _verdict_json(verdict: TapeCheck) -> dict[str, Any]:
    return {
        "directory": str(verdict.directory), "fault": verdict.fault, "segments": verdict.segments,
        "frames": verdict.frames, "records": verdict.records, "first_sequence": verdict.first_sequence,
        "last_sequence": verdict.next_sequence - 1, "slot": verdict.slot, "chain": verdict.chain.hex(),
        "dbn_segments": verdict.dbn_segments,
    }  # fmt: skip


@app.command("repair")
def repair_command(
    directory: Directory,
    other: Annotated[Path, option("Directory of another receiver of the same stripe, or of its tape.", "--from")],
    as_json: AsJson = False,
) -> None:
    """Restore a damaged tape from another receiver's, checked by the hash chain. Stop the node first.

    Valid segments stay as they are. A damaged file keeps its bytes under another name, ending in .damaged-1. The tape
    ends where it ended before; the node requests later frames from the ring. The other receiver may be running.

    Example:

    levelcast tape repair data/tokyo-1 --from data/london-1
    """
    done = repair(directory, other)
    if as_json:
        report = {
            "tape": str(done.tape), "from": str(done.other), "restored": [str(path) for path in done.restored],
            "kept": {str(path): str(kept) for path, kept in done.kept.items()}, **_verdict_json(done.check),
        }  # fmt: skip
        print_json(report)
        return
    for path in done.restored:
        kept = f"; the damaged file is {done.kept[path].name}" if path in done.kept else ""
        typer.echo(f"{path}: restored from {done.other}{kept}")
    for path in sorted(done.kept.keys() - set(done.restored)):
        typer.echo(f"{path}: not part of the tape, renamed to {done.kept[path].name}")
    if not done.restored and not done.kept:
        typer.echo(f"{done.tape}: nothing to restore; it agrees with {done.other}")
    typer.echo(_verdict_line(done.check))


@app.command()
def export(
    directory: Directory,
    out: Annotated[Path, option("Output file; its name ends in .dbn, .csv or .parquet.", "--out", "-o")],
    from_sequence: FromSequence = 1,
    symbol: Symbols = None,
    force: Force = False,
    unsound: Unsound = False,
) -> None:
    """Write the records of a valid tape to one file: DBN for market-data tools, CSV or Parquet for tables.

    Examples:

    levelcast tape export data/tokyo-1 -o day.dbn

    levelcast tape export data/tokyo-1 -o trades.csv --symbol 7
    """
    writers = {".dbn": _export_dbn, ".csv": _export_csv, ".parquet": _export_parquet}
    if out.suffix not in writers:
        raise typer.BadParameter(f"{out}: file type not supported; use one of {', '.join(writers)}")
    require_new(out, force=force)
    reader = _reader(directory, unsound=unsound)
    with replacing(out) as unfinished:
        count = writers[out.suffix](reader, unfinished, from_sequence, symbol)
    typer.echo(f"Wrote {count:,} records to {out}")


def _export_dbn(reader: TapeReader, out: Path, from_sequence: int, symbols: list[int] | None) -> int:
    count = 0
    with out.open("wb") as file:
        file.write(dbn_metadata())
        if from_sequence == 1 and not symbols:
            for frame in reader.frames():
                file.write(frame.data())
                count += frame.line.records
        else:
            for record in _raw_records(reader, from_sequence, symbols):
                file.write(record)
                count += 1
    return count


def _raw_records(reader: TapeReader, from_sequence: int, symbols: list[int] | None) -> Iterator[memoryview]:
    """Yield records as stored in the file, with any trailing bytes."""
    for frame in reader.frames(from_sequence=from_sequence):
        data, at = frame.data(), 0
        for sequence, end in enumerate(record_ends(data).tolist(), frame.line.first_sequence):
            instrument_id = int.from_bytes(data[at + 4 : at + 8], "little")
            if sequence >= from_sequence and (not symbols or instrument_id in symbols):
                yield data[at:end]
            at = end


def _export_csv(reader: TapeReader, out: Path, from_sequence: int, symbols: list[int] | None) -> int:
    with out.open("w", newline="", encoding="utf-8") as file:
        return _write_csv(file, _rows(reader, from_sequence, symbols))


def _export_parquet(reader: TapeReader, out: Path, from_sequence: int, symbols: list[int] | None) -> int:
    """Write Parquet with prices as integers of 1e-9, for exact computation."""
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    types = {"price": pa.int64(), **dict.fromkeys(("type", "action", "side"), pa.string())}
    schema, count = pa.schema([(name, types.get(name, pa.uint64())) for name in COLUMNS]), 0
    with parquet.ParquetWriter(str(out), schema) as writer:
        rows = _rows(reader, from_sequence, symbols)
        while block := list(islice(rows, _BLOCK)):
            columns = zip(*(_columns(*row, exact=True) for row in block), strict=True)
            arrays = [_array(*each) for each in zip(columns, schema.types, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            count += len(block)
    return count


def _array(values: Iterable[Any], kind: Any) -> Any:
    """Return a column of a table; a field that is a letter in one record type and a number in another is text."""
    if kind == arrow().string():
        values = (None if value is None else str(value) for value in values)
    return arrow().array(values, kind)
