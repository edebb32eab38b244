"""Create and check certificates: a small file with which third parties verify any tape offline.

A certificate is made from all receivers' tapes of a stripe, which must be valid and identical
(`levelcast.storage.tape.compare`), and from their release logs. It is JSON:

    {"kind": "levelcast certificate", "version": 1, "statement": {...}, "signatures": [...]}

 statement            | meaning |
|----------------------|------|
 `stripe`             | stripe of the tapes |
 `first`, `last`      | sequence, slot and timestamp of the first and the last frame that all receivers have |
 `frames`, `records`  | their number from the first to the last frame, both included |
 `chain_before`       | the hash chain before the first frame |
 `marks`              | slot, sequence and chain at some frames, including the last |
 `receivers`          | name, life, range of the tape, and release statistics: frames, late ones, lateness |
 `spread`             | over all receivers: from the first to the last release of a slot that none marked late |

- **Proved:** The chain at a mark is a hash of everything before it. A valid tape that has the chain of a mark has, up
  to that mark, exactly the records of the certified tapes. Frames after the last mark that a tape has are valid, but
  not certified.
- **Not proved:** Each receiver records its own release times. To verify them, use the receivers' signatures or
  independent logs.
- **Signatures** are over the statement in canonical form (keys sorted, no spaces, UTF-8). Each has the
  receiver's name, an algorithm, a key and the signature, both in hexadecimal.
- The same tapes and logs give the same file, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelcast.errors import UserError
from levelcast.records import RecordArray
from levelcast.storage.append_file import TapeError
from levelcast.storage.journal.file import life_of
from levelcast.storage.release_log import (
    Nanoseconds,
    common_slots,
    first_entries,
    is_late,
    lateness_ns,
    read_releases,
    spreads_ns,
)
from levelcast.storage.tape.compare import TapeCheck, compare, verify
from levelcast.storage.tape.directory import tape_directory
from levelcast.storage.tape.index import IndexEntry
from levelcast.storage.tape.reader import TapeReader
from levelcast.units import quantiles

KIND = "levelcast certificate"
VERSION = 1
MOST_MARKS = 256

_QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}

Statement = dict[str, Any]


class NotCertified(UserError):
    """The tapes do not allow a certificate, or do not match one; the message has the position."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The extent to which a tape matches a certificate."""

    directory: Path
    frames: int
    """Certified frames of the tape; `from_sequence` to `to_sequence` are their records."""
    from_sequence: int
    to_sequence: int
    beyond: int
    """Frames of the tape that are not certified: after the last mark that the tape has."""


def certify(directories: Sequence[Path]) -> dict[str, Any]:
    """Return a certificate of the tapes in receivers' directories. Raise `NotCertified` and `TapeError`."""
    stripes = {directory: TapeReader(tape_directory(directory)).stripe for directory in directories}
    if len(set(stripes.values())) > 1:
        told = ", ".join(f"{path} of stripe {stripe}" for path, stripe in stripes.items())
        raise NotCertified(f"a certificate covers one stripe, but these tapes are of several stripes: {told}")
    verdicts = [_sound(directory) for directory in directories]
    for difference in compare(directories):
        if difference.how:
            raise NotCertified(
                f"{difference.other} differs from {difference.one} at slot {difference.slot}, sequence "
                f"{difference.sequence}: {difference.how}"
            )
    first = max(verdict.first_sequence for verdict in verdicts)
    end = min(verdict.next_sequence for verdict in verdicts)
    reader = TapeReader(tape_directory(directories[0]))
    lines: list[IndexEntry] = []
    before = b""
    for frame in reader.frames(from_sequence=first):
        if frame.line.next_sequence > end:
            break
        before = before or frame.chain_before
        lines.append(frame.line)
    if not lines:
        names = ", ".join(str(directory) for directory in directories)
        raise NotCertified(f"these tapes have no frame in common, so nothing can be certified: {names}")
    logs = [_releases(directory, lines[0].slot, lines[-1].slot) for directory in directories]
    statement = {
        "stripe": reader.stripe,
        "first": _place(lines[0], lines[0].first_sequence),
        "last": _place(lines[-1], lines[-1].next_sequence - 1),
        "frames": len(lines),
        "records": lines[-1].next_sequence - lines[0].first_sequence,
        "chain_before": before.hex(),
        "marks": [
            {"slot": line.slot, "sequence": line.next_sequence - 1, "chain": line.chain.hex()} for line in _some(lines)
        ],
        "receivers": sorted(
            (_receiver(*each) for each in zip(directories, verdicts, logs, strict=True)), key=lambda each: each["name"]
        ),
        "spread": _spread(logs),
    }
    return {"kind": KIND, "version": VERSION, "statement": statement, "signatures": []}


def _sound(directory: Path) -> TapeCheck:
    verdict = verify(directory, dbn=False)
    if verdict.fault is not None:
        raise NotCertified(f"{directory} is not valid: {verdict.fault}")
    return verdict


def _place(line: IndexEntry, sequence: int) -> dict[str, int]:
    return {"sequence": sequence, "slot": line.slot, "timestamp_ns": line.timestamp_ns}


def _some(lines: Sequence[IndexEntry]) -> list[IndexEntry]:
    """Return at most `MOST_MARKS` evenly spaced lines, always including the last one."""
    count = min(MOST_MARKS, len(lines))
    return [lines[(number + 1) * len(lines) // count - 1] for number in range(count)]


def _receiver(directory: Path, verdict: TapeCheck, log: RecordArray) -> dict[str, Any]:
    behind = lateness_ns(log)
    return {
        "name": _name(directory),
        "life": _life(directory),
        "first_sequence": verdict.first_sequence,
        "last_sequence": verdict.next_sequence - 1,
        "releases": len(log),
        "late": int(is_late(log).sum()),
        "early": int((behind < 0).sum()),
        "lateness_ns": _quantiles(behind),
    }


def _name(directory: Path) -> str:
    resolved = directory.resolve()
    return resolved.parent.name if resolved.name == "tape" else resolved.name


def _life(directory: Path) -> int | None:
    """Return the life of the disk, if the journal is stored next to the tape."""
    try:
        return life_of(tape_directory(directory).parent / "journal")
    except (TapeError, OSError):
        return None


def _releases(directory: Path, first_slot: int, last_slot: int) -> RecordArray:
    """Return the first release of each slot in the range: a restart may have released one again."""
    log = read_releases(tape_directory(directory).parent / "releases")
    return first_entries(log[(log["slot"] >= first_slot) & (log["slot"] <= last_slot)])


def _spread(logs: Sequence[RecordArray]) -> dict[str, Any]:
    """Measure the spread of the slots that all receivers released and none marked late."""
    rows = common_slots(logs)
    late = is_late(rows).any(axis=0)
    return {
        "receivers": len(logs),
        "slots": rows.shape[1],
        "late_slots": int(late.sum()),
        "spread_ns": _quantiles(spreads_ns(rows[:, ~late])),
    }


def _quantiles(values: Nanoseconds) -> dict[str, int] | None:
    found = map(int, quantiles(values, _QUANTILES.values()))
    return dict(zip(_QUANTILES, found, strict=True)) if len(values) else None


# -- reading ----------------------------------------------------------------------------------------------


def write_certificate(certificate: dict[str, Any]) -> str:
    """Return the text of the file."""
    return json.dumps(certificate, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


_WRITE = "write one with `levelcast certify DIR... --out FILE`"


def read_certificate(text: str, where: object) -> dict[str, Any]:
    """Return a certificate with all values that `check` uses. Raise `TapeError` for any other text."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise TapeError(f"{where}: not a certificate, because it is not valid JSON ({error}); {_WRITE}") from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise TapeError(f"{where}: not a Levelcast certificate; {_WRITE}")
    if found.get("version") != VERSION:
        raise TapeError(f"{where}: certificate version {found.get('version')} is not supported, only {VERSION}")
    try:
        statement = found["statement"]
        int(statement["stripe"]), int(statement["first"]["sequence"]), bytes.fromhex(statement["chain_before"])
        marks = [(int(m["slot"]), int(m["sequence"]), bytes.fromhex(m["chain"])) for m in statement["marks"]]
        if not marks or marks != sorted(marks):
            raise ValueError("its marks are not in order")
    except (KeyError, TypeError, ValueError) as error:
        raise TapeError(f"{where}: damaged certificate ({type(error).__name__}: {error})") from None
    return found


def check(certificate: dict[str, Any], directory: Path) -> Checked:
    """Compare a tape with a certificate. Raise `NotCertified` if they differ or have nothing in common."""
    statement: Statement = certificate["statement"]
    reader = TapeReader(tape_directory(directory))
    if reader.stripe != statement["stripe"]:
        raise NotCertified(f"{directory} is of stripe {reader.stripe}, the certificate of stripe {statement['stripe']}")
    _sound(directory)
    marks = {int(mark["slot"]): mark for mark in statement["marks"] if int(mark["slot"]) > reader.before.slot}
    first_sequence = int(statement["first"]["sequence"])
    certified: IndexEntry | None = None
    first: int | None = None
    frames = waiting = 0
    for frame in reader.frames():
        line = frame.line
        if line.first_sequence == first_sequence and frame.chain_before.hex() != statement["chain_before"]:
            raise NotCertified(f"{directory} differs from the certificate before sequence {first_sequence}")
        if line.first_sequence >= first_sequence:
            first = first or line.first_sequence
            waiting += 1
        # If the tape passes a mark without having its slot, it lacks a certified frame.
        due = next((slot for slot in marks if slot <= line.slot), None)
        if due is None:
            continue
        mark = marks.pop(due)
        if due != line.slot or mark["chain"] != line.chain.hex():
            after = certified.next_sequence if certified is not None else reader.before.next_sequence
            raise NotCertified(
                f"{directory} differs from the certificate in sequences {after:,} to {int(mark['sequence']):,}"
            )
        certified = line
        frames, waiting = frames + waiting, 0
    if certified is None or first is None:
        raise NotCertified(
            f"{directory} has none of the marks of the certificate, which covers sequences {first_sequence:,} to "
            f"{int(statement['last']['sequence']):,}, so it proves nothing about this tape"
        )
    return Checked(directory, frames, first, certified.next_sequence - 1, waiting)
