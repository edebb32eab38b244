"""A node's disk before it runs: its first start, and what to do when it is lost (rule 12).

    DATA/network.json     which nodes have been given a journal here, and the life of each

A journal is made once, on purpose: `initialise_disk` at the first start (life 1), `declare_lost` with a higher life
after the disk was lost. A node never makes one by itself: it could not tell the two apart, and a receiver that has
promised and forgotten it can break the agreement of the ring.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

from levelcast.errors import NetError
from levelcast.storage.append_file import NEW, AppendFile, Durability, TapeError, lock_directory, open_directory
from levelcast.storage.journal.file import SUFFIX, initialise, life_of

MARKER = "network.json"
MAX_LIFE = 2**32 - 1


def has_journal(directory: Path) -> bool:
    return any((directory / "journal").glob("*" + SUFFIX))


def is_empty(directory: Path) -> bool:
    """Whether no file has ever been in `directory`; one that was not finished does not count."""
    return not any(path.is_file() and path.suffix != NEW for path in directory.rglob("*"))


def require_journal(data: Path, name: str) -> None:
    """Raises NetError, which names the two ways to get one, for a node without a journal."""
    if has_journal(data / name):
        if name not in lives(data):  # made before there was a marker
            _note(data, name, life_of(data / name / "journal"))
        return
    raise NetError(f"{data / name}: {_why_none(data, name)}: {_commands(data, name)}")


def initialise_disk(data: Path, name: str, stripe: int = 0, durable: Durability = "process") -> bool:
    """Make the empty journal of a first start, life 1; False if there is one. Raises NetError if there was one."""
    directory = data / name
    if has_journal(directory):
        require_journal(data, name)
        return False
    if name in lives(data) or not is_empty(directory):
        raise NetError(f"{directory}: {_why_none(data, name)}, so this is no first start: {_lost_command(data, name)}")
    initialise(directory / "journal", 1, stripe, durable)
    _note(data, name, 1)
    return True


def declare_lost(data: Path, name: str, life: int, stripe: int = 0, durable: Durability = "process") -> Path | None:
    """Make an empty journal of a new life. What is left of the old one is put aside; returns where."""
    highest = known_life(data, name)
    if highest is not None and life <= highest:
        raise NetError(f"{name} has had life {highest} here: the new one must be higher, and {life} is not")
    directory, aside = data / name, None
    if directory.exists() and not is_empty(directory):
        aside = _put_aside(directory)
    initialise(directory / "journal", life, stripe, durable)
    _note(data, name, life)
    return aside


def known_life(data: Path, name: str) -> int | None:
    """The highest life that the directory knows of; None if it knows of none."""
    found = [life for known, life in lives(data).items() if known == name]
    with suppress(TapeError):  # damaged: that is why it is lost
        if has_journal(data / name):
            found.append(life_of(data / name / "journal"))
    return max(found, default=None)


def lives(data: Path) -> dict[str, int]:
    """The nodes that have been given a journal here, with their lives."""
    try:
        found = json.loads((data / MARKER).read_text(encoding="utf-8"))["lives"]
        return {str(name): int(life) for name, life in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NetError(
            f"{data / MARKER}: cannot be read, and it says which nodes have had a journal here: put it back, or remove "
            "it if all of their directories are there"
        ) from None


def _put_aside(directory: Path) -> Path:
    """Rename what is left of a lost disk, which nobody may be writing."""
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


def _why_none(data: Path, name: str) -> str:
    if name in lives(data):
        return f"its journal has vanished ({MARKER} says that it had one)"
    return "there is no journal" if is_empty(data / name) else "there are files but no journal"


def _commands(data: Path, name: str) -> str:
    if name in lives(data) or not is_empty(data / name):
        return _lost_command(data, name)
    return (
        "if this node has never run, `levelcast disk init` (or --init) makes one; if it has, its disk is lost, and "
        "`levelcast disk lost` says so to the ring"
    )


def _lost_command(data: Path, name: str) -> str:
    return f"put it back, or declare the disk lost with `levelcast disk lost --name {name} --data {data}`"
