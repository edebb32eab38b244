"""Create and check certificates: a small file with which third parties verify any tape offline.

A certificate is made from all receivers' tapes of a stripe, which must be valid and identical
(`levelcast.storage.tape.compare`), and from their release logs. It is JSON:

    {"kind": "levelcast certificate", "version": 2, "statement": {...}, "hash": "...", "signatures": [...]}

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
- **Checked:** Every figure is compared with the tape, and with the release log where it is present. What cannot be
  compared is listed.
- **Hash:** BLAKE3 of kind, version and statement in canonical form (keys sorted, no spaces, UTF-8). It shows that the
  file was changed, unless the hash was changed with it. Version 1 has none.
- **Not proved:** Each receiver records its own release times. To verify them, use the receivers' signatures or
  independent logs.
- **Signatures** are over kind, version and statement in canonical form. Each has the receiver's name, an algorithm,
  and key and signature in hexadecimal (`levelcast.keys.certificates`).
- The same tapes and logs give the same file, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from blake3 import blake3

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
VERSION = 2
OLDER = 1
"""Version without a hash."""
MOST_MARKS = 256
MOST_SIGNATURES = 4_096
SIGNATURE_FIELDS = ("receiver", "algorithm", "key", "signature")

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
    receiver: str | None = None
    """Receiver whose release figures were compared with its log."""
    not_checked: tuple[str, ...] = ()
    """Figures that could not be compared, each with the reason."""


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
    made = {"kind": KIND, "version": VERSION, "statement": statement}
    return {**made, "hash": hash_of(made), "signatures": []}


def hash_of(certificate: dict[str, Any]) -> str:
    """Return the hash of everything that the certificate states."""
    return blake3(signed_bytes(certificate)).hexdigest()


def signed_bytes(certificate: dict[str, Any]) -> bytes:
    """Return what receivers sign: kind, version and statement in canonical form. It begins with `{`."""
    stated = {name: certificate[name] for name in ("kind", "version", "statement")}
    text = json.dumps(stated, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


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
    return {
        "name": _name(directory),
        "life": _life(directory),
        "first_sequence": verdict.first_sequence,
        "last_sequence": verdict.next_sequence - 1,
        **_release_figures(log),
    }


def _release_figures(log: RecordArray) -> dict[str, Any]:
    behind = lateness_ns(log)
    return {
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
    """Return a certificate with all values that `check` uses. Raise `TapeError` for any other text, and `NotCertified`
    for a certificate that was changed."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TapeError(f"{where}: not a certificate, because it is not valid JSON ({error}); {_WRITE}") from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise TapeError(f"{where}: not a Levelcast certificate; {_WRITE}")
    if found.get("version") not in (OLDER, VERSION):
        raise TapeError(
            f"{where}: certificate version {found.get('version')} is not supported, only {OLDER} and {VERSION}"
        )
    try:
        contradiction = _read_statement(found["statement"])
        own = str(found["hash"]) if found["version"] == VERSION else None
        _read_signatures(found.get("signatures", []))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise TapeError(f"{where}: damaged certificate ({type(error).__name__}: {error})") from None
    if own is not None and own != hash_of(found):
        raise NotCertified(f"{where} was changed after it was made: its hash does not match its content")
    if contradiction:
        raise NotCertified(f"{where} contradicts itself: {contradiction}")
    return found


def _read_statement(statement: Statement) -> str:
    """Check the type of every figure; return a contradiction between them, or ""."""
    _integers(statement, "stripe", "frames", "records")
    for name in ("first", "last"):
        _integers(statement[name], "sequence", "slot", "timestamp_ns")
    bytes.fromhex(statement["chain_before"])
    for mark in statement["marks"]:
        _integers(mark, "slot", "sequence")
    marks = [(mark["slot"], mark["sequence"], bytes.fromhex(mark["chain"])) for mark in statement["marks"]]
    if not marks:
        raise ValueError("it has no marks")
    receivers = statement["receivers"]
    for each in receivers:
        _integers(each, "first_sequence", "last_sequence", "releases", "late", "early")
        if not isinstance(each["name"], str) or type(each["life"]) not in (int, type(None)):
            raise TypeError("a receiver needs a name and a life")
        _read_quantiles(each["lateness_ns"])
    spread = statement["spread"]
    _integers(spread, "receivers", "slots", "late_slots")
    _read_quantiles(spread["spread_ns"])
    first, last = statement["first"]["sequence"], statement["last"]["sequence"]
    if statement["records"] != last - first + 1:
        return f"it states {statement['records']} records, but sequences {first} to {last}"
    if any(one[0] >= two[0] or one[1] >= two[1] for one, two in pairwise(marks)):
        return "its marks are not in order"
    if marks[-1][:2] != (statement["last"]["slot"], last):
        return "its last mark is not its last frame"
    if not receivers or spread["receivers"] != len(receivers):
        return f"it states the spread of {spread['receivers']} receivers, but lists {len(receivers)}"
    if first != max(each["first_sequence"] for each in receivers):
        return f"it begins at sequence {first}, which is not the latest beginning of its receivers"
    if last != min(each["last_sequence"] for each in receivers):
        return f"it ends at sequence {last}, which is not the earliest end of its receivers"
    return ""


def _read_signatures(found: object) -> None:
    if not isinstance(found, list) or len(found) > MOST_SIGNATURES:
        raise TypeError("signatures are not a list")
    for each in found:
        if not isinstance(each, dict) or not all(isinstance(each[name], str) for name in SIGNATURE_FIELDS):
            raise TypeError("a signature without its fields")
        bytes.fromhex(each["key"] + each["signature"])


def _integers(found: dict[str, Any], *names: str) -> None:
    for name in names:
        if type(found[name]) is not int:
            raise TypeError(f"{name} is not an integer")


def _read_quantiles(found: dict[str, Any] | None) -> None:
    if found is not None:
        _integers(found, *_QUANTILES)


# -- checking ---------------------------------------------------------------------------------------------


def check_all(certificate: dict[str, Any], directories: Sequence[Path]) -> tuple[list[Checked], list[str]]:
    """Compare tapes and release logs with a certificate. Raise `NotCertified` if they differ.

    Return the result of each tape, and the figures of the certificate that none of them allows to check.
    """
    statement: Statement = certificate["statement"]
    checked = [check(certificate, directory) for directory in directories]
    found = {each.receiver: each.directory for each in reversed(checked) if each.receiver is not None}
    names = [each["name"] for each in statement["receivers"]]
    missing = [name for name in names if name not in found]
    if missing:
        return checked, [f"spread and late slots of all receivers: the release log of {', '.join(missing)} is missing"]
    spread = _spread([_releases_of(found[name], statement) for name in names])
    for name, value in spread.items():
        _same(f"{name} of the spread", value, statement["spread"][name], "the release logs")
    return checked, []


def check(certificate: dict[str, Any], directory: Path) -> Checked:
    """Compare a tape, and the release log beside it, with a certificate. Raise `NotCertified` if they differ or have
    nothing in common."""
    statement: Statement = certificate["statement"]
    reader = TapeReader(tape_directory(directory))
    if reader.stripe != statement["stripe"]:
        raise NotCertified(f"{directory} is of stripe {reader.stripe}, the certificate of stripe {statement['stripe']}")
    _sound(directory)
    marks = {mark["slot"]: mark for mark in statement["marks"] if mark["slot"] > reader.before.slot}
    first_sequence, last_sequence = (statement[name]["sequence"] for name in ("first", "last"))
    certified: IndexEntry | None = None
    lines: list[IndexEntry] = []
    frames = waiting = 0
    for frame in reader.frames():
        line = frame.line
        if line.first_sequence == first_sequence and frame.chain_before.hex() != statement["chain_before"]:
            raise NotCertified(f"{directory} differs from the certificate before sequence {first_sequence}")
        if line.first_sequence >= first_sequence:
            waiting += 1
            if line.first_sequence <= last_sequence:
                lines.append(line)
        # If the tape passes a mark without having its slot, it lacks a certified frame.
        due = next((slot for slot in marks if slot <= line.slot), None)
        if due is None:
            continue
        mark = marks.pop(due)
        if (due, mark["sequence"], mark["chain"]) != (line.slot, line.next_sequence - 1, line.chain.hex()):
            after = certified.next_sequence if certified is not None else reader.before.next_sequence
            raise NotCertified(
                f"{directory} differs from the certificate in sequences {after:,} to {mark['sequence']:,}"
            )
        certified = line
        frames, waiting = frames + waiting, 0
    if certified is None or not lines:
        raise NotCertified(
            f"{directory} has none of the marks of the certificate, which covers sequences {first_sequence:,} to "
            f"{last_sequence:,}, so it proves nothing about this tape"
        )
    missing = _check_range(statement, lines, directory)
    name, unknown = _check_receiver(statement, reader, directory)
    place = (lines[0].first_sequence, certified.next_sequence - 1)
    return Checked(directory, frames, *place, waiting, name, (*missing, *unknown))


def _same(what: str, found: object, stated: object, where: object) -> None:
    if found != stated:
        raise NotCertified(f"the certificate states {_text(stated)} as {what}, but {where} has {_text(found)}")


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "none" if value is None else str(value)


def _check_range(statement: Statement, lines: Sequence[IndexEntry], directory: Path) -> list[str]:
    """Check beginning, end and counts as far as the tape has them; return what it does not have."""
    missing = []
    has_first = lines[0].first_sequence == statement["first"]["sequence"]
    has_last = lines[-1].next_sequence - 1 == statement["last"]["sequence"]
    for has, name, place in (
        (has_first, "first", _place(lines[0], lines[0].first_sequence)),
        (has_last, "last", _place(lines[-1], lines[-1].next_sequence - 1)),
    ):
        if not has:
            missing.append(f"the {name} frame: the tape does not have it")
            continue
        for key, value in place.items():
            _same(f"{key} of the {name} frame", value, statement[name][key], directory)
    if has_first and has_last:
        _same("number of frames", len(lines), statement["frames"], directory)
    else:
        missing.append("the number of frames: the tape does not have all of them")
    return missing


def _check_receiver(statement: Statement, reader: TapeReader, directory: Path) -> tuple[str | None, list[str]]:
    """Check the figures of the receiver whose directory this is; return its name if its log was compared, and what
    could not be checked."""
    name = _name(directory)
    stated = next((each for each in statement["receivers"] if each["name"] == name), None)
    if stated is None:
        return None, [f"release times: {name} is not a receiver of the certificate"]
    missing = _check_tape_range(stated, reader, directory)
    life = _life(directory)
    if life is None or stated["life"] is None:
        missing.append(f"life of {name}: it is in the journal, which is missing")
    else:
        _same(f"life of {name}", life, stated["life"], directory)
    try:
        log = _releases_of(directory, statement)
    except TapeError as error:
        return None, [*missing, f"releases, late and early ones, and lateness of {name}: {error}"]
    slots = [statement[place]["slot"] for place in ("first", "last")]
    is_complete = len(log) and [int(log["slot"][0]), int(log["slot"][-1])] == slots
    if len(log) < stated["releases"] and not is_complete:
        return None, [*missing, f"releases of {name}: its log does not reach from slot {slots[0]} to slot {slots[1]}"]
    for key, value in _release_figures(log).items():
        _same(f"{key} of {name}", value, stated[key], "its release log")
    return name, missing


def _check_tape_range(stated: dict[str, Any], reader: TapeReader, directory: Path) -> list[str]:
    """Check the range that a receiver's tape had. It may have grown, and retention may have removed its beginning."""
    missing = []
    first, last = stated["first_sequence"], stated["last_sequence"]
    begins = [segment.first_sequence for segment in reader.segments]
    if first < begins[0]:
        missing.append(f"first sequence of {stated['name']}: retention has removed it")
    elif first not in begins:
        raise NotCertified(
            f"the certificate states that {directory} began at sequence {first}, where no segment begins"
        )
    if last >= reader.tip().next_sequence:
        missing.append(f"last sequence of {stated['name']}: the tape is shorter")
    else:
        ends = next(reader.frames(from_sequence=last), None) if last else None
        if ends is None or ends.line.next_sequence - 1 != last:
            raise NotCertified(f"the certificate states sequence {last} as end of {directory}; no frame ends there")
    return missing


def _releases_of(directory: Path, statement: Statement) -> RecordArray:
    return _releases(directory, statement["first"]["slot"], statement["last"]["slot"])
