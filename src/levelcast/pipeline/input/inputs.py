"""Identify the files of an input, so that each is in a lake once, whatever it is listed with.

1. Every file is an input of its own; a LOBSTER file and its order book are one.
2. A file has two hashes: one of its bytes, decompressed, and one of its rows with their positions. A file with a hash
   that the lake knows is skipped: it is the same file, or the same rows under another name or in another format. If it
   is to be read in another way than before (another date, venue, symbol or stripe), it is refused, and both names are
   given.
3. The sequences of a file are a block, which is found by the hash of its rows. So they depend neither on other files
   nor on the order of loading. From the highest bit of 63:

       1 bit          1 for trades of LEAN: they follow the quotes of the same millisecond
       5 bits         k, from 1 on: the block has 2^k sequences (0: a tape, or a file that an earlier version loaded)
       57 - k bits    of the hash of the rows
       k bits         position of the row in the file

   Two files of a stripe with the same block are refused. The chance is 1 in 270,000 for 1,000 files of a million rows.
4. A file with some rows of another one is refused, and both names are given (`levelcast.pipeline.lake.duplicates`).
5. A load commits `inputs` first and `tape` last, each with the mark `file/HASH` of every file, by the hash of its rows.
   Each table accepts the files whose mark it lacks. A file is loaded when `tape` has its mark.
6. Lakes of earlier versions have a mark `input/HASH` of each list of files. The same list is skipped. Rule 4 finds
   files of such a list in any other one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from levelcast.extras import arrow
from levelcast.formats.captures import FILE_STEP, Task
from levelcast.formats.lean import symbol_and_kind
from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.log import CommitMark
from levelcast.pipeline.lake.tables import INPUTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_MARK = "file/"
OLD_MARK = "input/"
BLOCK_BITS = 57
LAST_SIZE = 31
_DIGITS = 32
_ON_SPARK_BYTES = 256 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to be loaded. The values from `rows` on are known when it has been read."""

    task: Task
    content_hash: str
    read_as: str
    stripe: int = 0
    rows: int = 0
    refused: int = 0
    last: int = 0
    """The last position of a row."""
    rows_hash: str = ""

    @property
    def name(self) -> str:
        return self.task.paths[0]

    @property
    def mark(self) -> CommitMark:
        return CommitMark(f"{FILE_MARK}{self.rows_hash}", 1)

    @property
    def first_sequence(self) -> int:
        """Return the start of the file's block of sequences."""
        later = self.task.format == "lean" and symbol_and_kind(Path(self.name))[1] == "trade"
        return block_of(self.rows_hash, max(1, self.last.bit_length()), later=later)

    @property
    def how(self) -> tuple[int, str]:
        return self.stripe, self.read_as


def block_of(rows_hash: str, size: int, *, later: bool = False) -> int:
    """Return the first sequence of a block of 2^size sequences."""
    place = int(rows_hash[:16], 16) % (1 << (BLOCK_BITS - size))
    return (int(later) << (BLOCK_BITS + 5)) + (size << BLOCK_BITS) + (place << size)


def input_files(tasks: Sequence[Task], stripe: int | None, spark: SparkSession | None = None) -> list[InputFile]:
    """Return the files of tasks with the hash of their bytes, which Spark computes if there are many bytes."""
    paths = [Path(path) for task in tasks for path in task.paths]
    if spark is not None and sum(path.stat().st_size for path in paths) > _ON_SPARK_BYTES:
        from levelcast.pipeline.session import on_spark

        hashes = on_spark(spark, hash_file, paths)
    else:
        hashes = [hash_file(path) for path in paths]
    by_path = dict(zip(map(str, paths), hashes, strict=True))
    return [
        InputFile(task, _joined(by_path[path] for path in task.paths), _read_as(task), stripe or 0) for task in tasks
    ]


def hash_file(path: Path) -> str:
    """Return a hash of a file's bytes, decompressed; as they are if they cannot be, which its reader will report."""
    packing = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    digest = blake3()
    if packing is not None:
        pa = arrow()
        try:
            with pa.input_stream(str(path), compression=packing) as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
            return digest.hexdigest()[:_DIGITS]
        except (OSError, pa.ArrowException):
            digest = blake3()
    digest.update_mmap(path) if path.stat().st_size else digest.update(b"")
    return digest.hexdigest()[:_DIGITS]


def _joined(hashes: Iterable[str]) -> str:
    all_of_them = [*hashes]
    return all_of_them[0] if len(all_of_them) == 1 else blake3("".join(all_of_them).encode()).hexdigest()[:_DIGITS]


def _read_as(task: Task) -> str:
    """Return what the rows of a file depend on besides its bytes."""
    told = {"format": task.format, "date": task.day, "venue": task.venue}
    if task.format == "lean":
        told["symbol"], told["kind"] = symbol_and_kind(Path(task.paths[0]))
    return ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)


@dataclass(slots=True)
class Choice:
    """Files to be loaded, and a message for each of the others."""

    files: list[InputFile]
    skipped: list[str]


def choose(lake: Lake, files: Sequence[InputFile], by: str) -> Choice:
    """Choose the files that are new to the lake and to the list, by `content_hash` or `rows_hash`. Raises LakeError if
    one is there already but was read in another way."""
    known = {str(row[by]): (str(row["file"]), (int(row["stripe"]), str(row["read_as"]))) for row in loaded(lake, by, [
        getattr(file, by) for file in files
    ])}  # fmt: skip
    chosen = Choice([], [])
    for file in sorted(files, key=lambda file: file.name):
        same = known.get(getattr(file, by))
        if same is None:
            known[getattr(file, by)] = file.name, file.how
            chosen.files.append(file)
            continue
        name, how = same
        what = "content" if by == "content_hash" else "rows"
        if (by == "content_hash" and how != file.how) or how[0] != file.stripe:
            raise LakeError(
                f"{file.name}: has the same {what} as {name}, which is read as stripe {how[0]}, {how[1]}; "
                f"this one would be stripe {file.stripe}, {file.read_as}; load only one of them"
            )
        chosen.skipped.append(f"{file.name}: skipped, same {what} as {name}" if name != file.name
                              else f"{file.name}: skipped, already loaded")  # fmt: skip
    return chosen


def loaded(lake: Lake, column: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the rows of `inputs` with one of these values, of files that are completely loaded."""
    rows = lake.rows("inputs", where=[(column, "in", sorted(set(values)))]) if values else []
    marks = lake.all_marks("tape", FILE_MARK) if rows else {}
    return [row for row in rows if f"{FILE_MARK}{row['rows_hash']}" in marks]


def check_blocks(lake: Lake, files: Sequence[InputFile]) -> None:
    """Raise LakeError if a file is too large for a block, or if two files of a stripe have the same one."""
    for file in files:
        if file.last.bit_length() > LAST_SIZE:
            raise LakeError(f"{file.name}: has more than {2**LAST_SIZE - 1:,} rows; split the file")
    of = {
        (int(row["stripe"]), int(row["first_sequence"])): str(row["file"])
        for row in loaded(lake, "first_sequence", [file.first_sequence for file in files])
    }
    for file in files:
        other = of.setdefault((file.stripe, file.first_sequence), file.name)
        if other != file.name:
            raise LakeError(
                f"{file.name}: gets the same sequences as {other} in stripe {file.stripe}; "
                "load it with another --stripe"
            )


def renumbered(files: Sequence[InputFile]) -> list[InputFile]:
    """Return the files with tasks whose sequences begin at multiples of `FILE_STEP`, by their place in the list."""
    return [replace(file, task=replace(file.task, first=at * FILE_STEP)) for at, file in enumerate(files)]


def rows_of_inputs(files: Sequence[InputFile]) -> Any:
    """Return rows of `inputs` as a pyarrow table."""
    import pyarrow as pa

    rows = [
        {"stripe": file.stripe, "first_sequence": file.first_sequence, "rows_hash": file.rows_hash,
         "content_hash": file.content_hash, "file": file.name, "format": file.task.format, "read_as": file.read_as,
         "rows": file.rows, "refused": file.refused, "removed": 0}
        for file in files
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=INPUTS.arrow_schema())


def old_identity(paths: Iterable[Path], how: Sequence[str]) -> str:
    """Return the hash by which earlier versions marked a list of files."""
    digest = blake3("\0".join(how).encode())
    for path in paths:
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        if not files:
            raise LakeError(f"{path}: empty directory; pass one with files in it")
        for file in files:
            each = blake3()
            each.update_mmap(file) if file.stat().st_size else each.update(b"")
            digest.update(each.digest())
    return digest.hexdigest()[:_DIGITS]
