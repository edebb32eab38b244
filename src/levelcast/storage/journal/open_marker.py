"""Detect a restart of the machine while a journal was open without power durability.

With `durable="process"` the last entries are in the kernel, but may not be on the device. If the machine crashes, the
journal can be shorter than the node's claims and promises, and nothing in the journal shows that. To the ring it is a
lost disk (rule 12). So a small file records whether the journal is open:

    DIR/session     levelcast session 1: open process 1b4e28ba-2fa1-11d2-883f-0016d3cca427

`open` or `closed`, the durability, and the kernel's boot id. It is on the device before the journal is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from levelcast.storage.append_file import AppendFile, Durability

NAME = "session"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START = "levelcast session 1:"


def mark_session(directory: Path, state: Literal["open", "closed"], durable: Durability) -> None:
    """Record that the journal is open from now on, or closed and completely on the device."""
    line = f"{_START} {state} {durable} {_boot_id()}\n"
    AppendFile.create(directory / NAME, line.encode(), "power").close()


def was_cut_off_by_a_restart(directory: Path) -> bool:
    """Return whether the machine restarted while the journal was open without power durability."""
    try:
        words = (directory / NAME).read_text(errors="replace").removeprefix(_START).split()
    except FileNotFoundError:
        return False
    now = _boot_id()
    return len(words) == 3 and words[:2] == ["open", "process"] and "unknown" not in (words[2], now) and words[2] != now


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
