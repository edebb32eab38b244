"""`levelcast tape`: show, verify, compare, repair and export recorded tapes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
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
from levelcast.cli.tape.export import ZSTD, open_dbn, write_native, write_trades
from levelcast.cli.tape.table import price_text, tables, write_csv, write_parquet
from levelcast.records import UNDEF_PRICE, UNDEF_TIMESTAMP, RecordType
from levelcast.storage.tape.compare import TapeCheck, compare_checked, verify
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.reader import CheckedReader, TapeReader
from levelcast.storage.tape.repair import repair

app = typer.Typer(help=COMMANDS["tape"].help, no_args_is_help=True)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a tape, or of a node with a tape.")]
Directories = Annotated[
    list[Path], typer.Argument(metavar="DIR", help="Directories of tapes, or of nodes with a tape.")
]
FromSequence = Annotated[int, option("First sequence number.", "--from", min=1)]
Count = Annotated[int | None, option("Maximum number of records.", "--count", min=1, unset="all")]
Symbols = Annotated[
    list[int] | None,
    option("Only records of this instrument id (repeatable).", "--symbol", metavar="ID", unset="all"),
]

_PRICES = frozenset({"price", "bid_px_00", "ask_px_00", "stop_price"})
_SUFFIXES = (".dbn", ZSTD, ".csv", ".parquet")

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
    if as_json:
        for sequence, kind, record in islice(_rows(reader, from_sequence, symbol), count):
            typer.echo(json.dumps(_object(sequence, kind, record)))
    else:
        write_csv(sys.stdout, tables(reader, from_sequence, symbol), count)


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


def _object(sequence: int, kind: RecordType, record: np.void) -> dict[str, Any]:
    names = [name for name in kind.dtype.names or () if name not in ("length", "rtype", "_reserved")]
    found = {"seq": sequence, "type": kind.name}
    return found | {name: _value(record, name) for name in names if name != "sequence"}


def _value(record: np.void, name: str) -> Any:
    """Return a field as a plain value, prices as decimals; None if it is undefined."""
    value = record[name].item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if name in _PRICES:
        return None if value == UNDEF_PRICE else price_text(value)
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
    out: Annotated[Path, option("Output file: .dbn, .dbn.zst, .csv or .parquet.", "--out", "-o", metavar="FILE")],
    from_sequence: FromSequence = 1,
    symbol: Symbols = None,
    native: Annotated[bool, option("DBN: write all records as on the tape, with their tails.", "--native")] = False,
    network: Annotated[
        Path | None, option("DBN: network file, for names that the tape does not define.", metavar="FILE", unset="none")
    ] = None,
    force: Force = False,
    unsound: Unsound = False,
) -> None:
    """Write the records of a valid tape to one file: DBN for market-data tools, CSV or Parquet for tables.

    A .dbn file has the trades in standard form (48 bytes, schema trades, symbol mappings), as databento reads them.

    Examples:

    levelcast tape export data/tokyo-1 -o day.dbn

    levelcast tape export data/tokyo-1 -o tape.dbn --native

    levelcast tape export data/tokyo-1 -o trades.csv --symbol 7
    """
    suffix = next((each for each in _SUFFIXES if out.name.endswith(each)), None)
    if suffix is None:
        raise typer.BadParameter(f"{out}: file type not supported; use one of {', '.join(_SUFFIXES)}")
    if suffix in (".csv", ".parquet") and (native or network):
        which = "--native" if native else "--network"
        raise typer.BadParameter(f"{out}: {which} applies to .dbn and {ZSTD} files only; omit it")
    require_new(out, force=force)
    reader = _reader(directory, unsound=unsound)
    notes: list[str] = []
    with replacing(out) as unfinished:
        if suffix == ".csv":
            with unfinished.open("w", newline="", encoding="utf-8") as text:
                count = write_csv(text, tables(reader, from_sequence, symbol))
        elif suffix == ".parquet":
            count = write_parquet(str(unfinished), tables(reader, from_sequence, symbol))
        else:
            with open_dbn(unfinished, zstd=suffix == ZSTD) as file:
                if native:
                    count = write_native(file, reader, from_sequence, symbol)
                else:
                    count, notes = write_trades(file, reader, from_sequence, symbol, network)
    typer.echo(f"Wrote {count:,} records to {out}")
    for note in notes:
        typer.echo(note, err=True)
