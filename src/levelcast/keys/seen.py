"""Store the newest statement that a holder has accepted on this machine, so that an older one is refused (K3)."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from levelcast.keys.files import FILE_MODE
from levelcast.keys.secret import KeysError
from levelcast.keys.statement import KeyStatement


def accept(directory: Path, name: str, statement: KeyStatement, content: bytes) -> None:
    """Store the statement's number and hash. Refuse a lower number, and another content of the same number."""
    path = directory / f"{name}.seen"
    digest = sha256(content).hexdigest()
    number, known = _read(path)
    if statement.number < number:
        raise KeysError(
            f"{statement.where}: statement {statement.number} is older than {number}, which {name} has accepted; copy "
            "the newest statement from the authority's machine"
        )
    if statement.number == number and digest != known:
        raise KeysError(
            f"{statement.where}: differs from the statement {number} that {name} has accepted, so the authority signed "
            "two; create a new one there with `levelcast keys rotate`"
        )
    if statement.number > number:
        new = path.with_name(path.name + ".new")
        file = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            json.dump({"number": statement.number, "sha256": digest}, opened)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(path)


def newest_number(directory: Path, name: str) -> int:
    """Return the number of the newest statement that a holder has accepted here; 0 without one."""
    return _read(directory / f"{name}.seen")[0]


def _read(path: Path) -> tuple[int, str]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        return int(found["number"]), str(found["sha256"])
    except FileNotFoundError:
        return 0, ""
    except (ValueError, KeyError, TypeError):
        raise KeysError(
            f"{path}: damaged; remove it only after comparing the statement with that of the authority's machine"
        ) from None
