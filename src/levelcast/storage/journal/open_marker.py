"""Record whether a journal is open, to detect a restart of the machine meanwhile, and damage after an orderly close.

With `durable="process"` the last entries are in the kernel, but may not be on the device. If the machine crashes, the
journal can be shorter than the node's claims and promises, and nothing in the journal shows that. To the ring it is a
lost disk (rule 12). So a small file records whether the journal is open:

    DIR/session     levelcast session 1: open process 1b4e28ba-2fa1-11d2-883f-0016d3cca427 crc 5a1c07de
                    levelcast session 1: closed process 1b4e28ba-… segments from 7, 8388701+12345 bytes, releases 3 of
                    4040 bytes crc 90a1b2c3

`open` or `closed`, the durability, and the kernel's boot id. It is on the device before the journal is written. Once
closed, the journal has exactly these segments and bytes and no torn tail: anything else is damage. The same holds for
the last file of the node's release log. The CRC-32 is that of the text before it. Earlier versions wrote three words.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from levelcast.storage.append_file import AppendFile, Durability, TapeError

NAME = "session"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LINE = re.compile(
    r"(levelcast session 1: (open|closed) (process|power) (\S+)"
    r"(?: segments from (\d+), ([\d+]+) bytes)?(?:, releases (\d+) of (\d+) bytes)?)"
    r"(?: crc ([0-9a-f]{8}))?\n",
    re.ASCII,
)


class Extent(NamedTuple):
    """The segments of a closed journal: number of the first, size of each."""

    first: int
    sizes: tuple[int, ...]


class LogEnd(NamedTuple):
    """The last file of a release log when it was closed in order: its number and its size."""

    number: int
    size: int


class Session(NamedTuple):
    """The content of the marker."""

    is_closed: bool
    durable: str
    boot_id: str
    extent: Extent | None
    releases: LogEnd | None

    def was_cut_off_by_a_restart(self) -> bool:
        """Return whether the machine restarted while the journal was open without power durability."""
        now = _boot_id()
        is_exposed = not self.is_closed and self.durable == "process"
        return is_exposed and "unknown" not in (self.boot_id, now) and self.boot_id != now


def mark_session(
    directory: Path, durable: Durability, closed: Extent | None = None, releases: LogEnd | None = None
) -> None:
    """Record that the journal is open from now on, or closed and completely on the device."""
    line = f"levelcast session 1: {'open' if closed is None else 'closed'} {durable} {_boot_id()}"
    if closed is not None:
        line += f" segments from {closed.first}, {'+'.join(map(str, closed.sizes))} bytes"
    if closed is not None and releases is not None:
        line += f", releases {releases.number} of {releases.size} bytes"
    line += f" crc {crc32(line.encode()):08x}\n"
    AppendFile.create(directory / NAME, line.encode(), "power").close()


def read_session(directory: Path) -> Session | None:
    """Return the marker; None if there is none. Raise TapeError if it is damaged."""
    try:
        text = (directory / NAME).read_bytes().decode("ascii", "replace")
    except FileNotFoundError:
        return None
    found = _LINE.fullmatch(text)
    if found is None or (found[9] is not None and int(found[9], 16) != crc32(found[1].encode())):
        raise TapeError(f"{directory / NAME}: damaged")
    sizes = [int(size) for size in (found[6] or "").split("+") if size]
    extent = Extent(int(found[5]), tuple(sizes)) if found[5] is not None else None
    releases = LogEnd(int(found[7]), int(found[8])) if found[7] is not None else None
    return Session(found[2] == "closed", found[3], found[4], extent, releases)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
