"""Prepare a node's disk before it runs: first start, and declaration of its loss (rule 12).

    DATA/network.json     the nodes that have been given a journal here, and the life of each

A journal is created only on request: by `initialise_disk` at the first start (life 1), or by `declare_lost` with a
higher life after the disk was lost. A node never creates one by itself, because it cannot distinguish the two cases. A
receiver that has lost its promises can break the agreement of the ring.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

from levelcast.errors import NetError
from levelcast.storage.advice import MARKER
from levelcast.storage.append_file import NEW, AppendFile, Durability, TapeError, lock_directory, open_directory
from levelcast.storage.journal.file import SUFFIX, identity_of, initialise, life_of
from levelcast.wire.header import Reason, split_domain, wrong_domain

MAX_LIFE = 2**32 - 1


def create_data(data: Path) -> None:
    """Create a data directory unless it exists; raise NetError if that is not possible."""
    try:
        data.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NetError(f"{data}: not a directory; pass a directory with --data") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise NetError(f"{data}: cannot be used as data directory ({reason}); pass another one with --data") from error


def has_journal(directory: Path) -> bool:
    return any((directory / "journal").glob("*" + SUFFIX))


def is_empty(directory: Path) -> bool:
    """Return whether `directory` has no files, apart from unfinished ones."""
    return not any(path.is_file() and path.suffix != NEW for path in directory.rglob("*"))


def require_journal(data: Path, name: str, domain: int) -> None:
    """Raise NetError for a node without a journal, with the two ways to create one, or with that of another network."""
    if has_journal(data / name):
        found = identity_of(data / name / "journal").domain
        if fault := wrong_domain(found, domain):
            raise NetError(f"{data / name}: {_wrong_journal(fault, found, domain)}")
        if name not in lives(data):  # created before the marker was introduced
            _note(data, name, life_of(data / name / "journal"))
        return
    raise NetError(f"{data / name}: {_why_none(data, name)}; {_commands(data, name)}")


def initialise_disk(data: Path, name: str, domain: int = 0, durable: Durability = "process") -> bool:
    """Create the empty journal of a first start, life 1; return False if it exists. Raise NetError if it is lost."""
    directory = data / name
    if has_journal(directory):
        require_journal(data, name, domain)
        return False
    if name in lives(data) or not is_empty(directory):
        raise NetError(f"{directory}: {_why_none(data, name)}, so it is not a first start; {_lost_command(data, name)}")
    initialise(directory / "journal", 1, domain, durable)
    _note(data, name, 1)
    return True


def declare_lost(data: Path, name: str, life: int, domain: int = 0, durable: Durability = "process") -> Path | None:
    """Create an empty journal of a new life. Rename the remains of the old one; return their new path."""
    highest = known_life(data, name)
    if highest is not None and life <= highest:
        raise NetError(f"{name} has had life {highest} here; the new life must be higher, not {life}")
    directory, aside = data / name, None
    if directory.exists() and not is_empty(directory):
        aside = _put_aside(directory)
    initialise(directory / "journal", life, domain, durable)
    _note(data, name, life)
    return aside


def known_life(data: Path, name: str) -> int | None:
    """Return the highest life recorded in the directory; None if there is none."""
    found = [life for known, life in lives(data).items() if known == name]
    with suppress(TapeError):  # damaged, which is the reason for the declaration
        if has_journal(data / name):
            found.append(life_of(data / name / "journal"))
    return max(found, default=None)


def lives(data: Path) -> dict[str, int]:
    """Return the nodes that have been given a journal here, with their lives."""
    try:
        found = json.loads((data / MARKER).read_text(encoding="utf-8"))["lives"]
        return {str(name): int(life) for name, life in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NetError(
            f"{data / MARKER}: not readable, but it lists the nodes that have had a journal here; restore it or remove "
            "it if the directories of all nodes exist"
        ) from None


def _put_aside(directory: Path) -> Path:
    """Rename the remains of a lost disk, which no process may be writing."""
    with ExitStack() as stack:
        if (directory / "journal").is_dir():
            stack.callback(os.close, lock_directory(directory / "journal", "journal"))
        names = (directory.with_name(f"{directory.name}.lost-{number}") for number in count(1))
        aside = next(name for name in names if not name.exists())
        directory.rename(aside)
    return aside


def _note(data: Path, name: str, life: int) -> None:
    with open_directory(data) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)  # nodes that are started together do not overwrite each other's lines
        content = json.dumps({"lives": {**lives(data), name: life}}, indent=1) + "\n"
        AppendFile.create(data / MARKER, content.encode(), "power").close()


def _wrong_journal(fault: Reason, found: int, domain: int) -> str:
    (network, stripe), (other, its_stripe) = split_domain(found), split_domain(domain)
    if fault is Reason.WRONG_STRIPE:
        return f"this journal belongs to stripe {stripe} of the network, not to stripe {its_stripe}; check --stripe"
    return (
        f"this journal belongs to the network {network:016x}, and the network file describes {other:016x}; "
        f'pass another --data or, to continue that network, write id = "{network:016x}" below [network] in the file'
    )


def _why_none(data: Path, name: str) -> str:
    if name in lives(data):
        return f"its journal is missing ({MARKER} shows that it had one)"
    return "journal not found" if is_empty(data / name) else "files but no journal found"


def _commands(data: Path, name: str) -> str:
    if name in lives(data) or not is_empty(data / name):
        return _lost_command(data, name)
    return (
        "if this node has never run, create one with `levelcast disk init` (or --init); otherwise its disk is lost: "
        "report this to the ring with `levelcast disk lost`"
    )


def _lost_command(data: Path, name: str) -> str:
    return f"restore it, or declare the disk lost with `levelcast disk lost --name {name} --data {data}`"
