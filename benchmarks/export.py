"""Exports of a tape: records per second of CPU time in every form, against a copy of the tape's bytes.

    python -m benchmarks export

The tape has trades of many symbols, with their definitions at the start (`benchmarks.source.make_tape`). The functions
of `levelcast tape export` run in this process; the least CPU time of a few runs counts. The limit, *copy*, reads the
segments and writes their bytes to one file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import Figure, Options, Result, Table, least_cpu_s, tell
from benchmarks.source import make_tape
from levelcast.cli.tape.export import open_dbn, write_native, write_trades
from levelcast.cli.tape.table import tables, write_csv, write_parquet
from levelcast.storage.tape.reader import TapeReader

RECORDS = 1_000_000
QUICK = 50
"""A quick run does this many times less."""
REPEATS = 3


def run(options: Options) -> Result:
    """Export one tape in every form."""
    result = Result("export")
    count = RECORDS // (QUICK if options.quick else 1)
    options.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="export-", dir=options.out) as folder:
        place = Path(folder).absolute()
        tell(f"export: a tape of {count:,} records")
        make_tape(place / "tape", count)
        forms: dict[str, Callable[[], object]] = {
            "copy": lambda: _copy(place),
            ".dbn": lambda: _standard(place, zstd=False),
            ".dbn.zst": lambda: _standard(place, zstd=True),
            ".dbn, native": lambda: _native(place),
            ".parquet": lambda: write_parquet(str(place / "out"), tables(TapeReader(place / "tape"))),
            ".csv": lambda: _csv(place),
        }
        rows: list[tuple[str, float, float, float]] = []
        for name, work in forms.items():
            took = least_cpu_s(work, 1 if options.quick else REPEATS)
            rows.append((name, took, count / took, (place / "out").stat().st_size / count))
    result.tables.append(Table(f"{count:,} records", ("form", "CPU s", "records/CPU s", "bytes per record"), [*rows]))
    (_, _, limit, _), *others = rows
    result.figures += [Figure(f"export to {name}", rate, "records/CPU s", "copy", limit) for name, _, rate, _ in others]
    return result


def _copy(place: Path) -> None:
    with (place / "out").open("wb") as file:
        for segment in sorted((place / "tape").glob("*.dbn*")):
            file.write(segment.read_bytes())


def _standard(place: Path, *, zstd: bool) -> None:
    with open_dbn(place / "out", zstd=zstd) as file:
        write_trades(file, TapeReader(place / "tape"), 1, None, None)


def _native(place: Path) -> None:
    with open_dbn(place / "out", zstd=False) as file:
        write_native(file, TapeReader(place / "tape"), 1, None)


def _csv(place: Path) -> None:
    with (place / "out").open("w", newline="", encoding="utf-8") as file:
        write_csv(file, tables(TapeReader(place / "tape")))
