"""Record the exact progress of a floor's publication, so that it survives a crash at any time.

    DATA/NAME/progress

    offset  type  field of the header          offset  type  field of a point
    0       8s    "LVLCPROG"                   0       u64   publication, from 1
    8       u32   version, 1                   8       u64   incarnation of the source
    12      u32   CRC-32 of the bytes before   16      u64   number of the packet
                                               24      u64   records in all packets up to it, definitions left out
                                               32      u64   of them, those of this publication
                                               40      16s   BLAKE2b of those records
                                               56      u32   CRC-32 of the bytes before

The journal forgets a packet, with its content, once the packet is witnessed (rule 10). So a point is written for every
batch of packets that is one entry of the journal, *before* the journal's own write. The point has the last packet.

- A point is valid if its packet is or was in the journal (its number is not above the last one there).
- Otherwise the point was written just before the process crashed. It is removed, and the batch is made again.

No third case exists: an entry of the journal is complete or absent, and no packet is sent before its entry is written.
A publication is identified by the hash of its records so far: the same files, or files that have grown, continue after
their last record; others begin a new publication.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from levelcast.storage.append_file import AppendFile, Durability, TapeError, check_version
from levelcast.storage.journal.file import JournalFile
from levelcast.storage.node_store import JournalStore

FILE = "progress"
COMPACT_BYTES = 1 << 20
DIGEST_BYTES = 16
UNKNOWN_DIGEST = bytes(DIGEST_BYTES)
"""The digest of a publication that is not resumed from files: a program that calls `levelcast.Publisher`."""
_MAGIC = b"LVLCPROG"
_VERSION = 1
_HEADER = Struct("<8sI")
_POINT = Struct("<QQQQQ16s")
_CRC = Struct("<I")
_SIZE = _POINT.size + _CRC.size


class Point(NamedTuple):
    """The last record of a publication that a packet contains."""

    publication: int
    incarnation: int
    number: int
    total: int
    position: int
    digest: bytes


def hasher() -> blake2b:
    """Return the hash that identifies the records of a publication."""
    return blake2b(digest_size=DIGEST_BYTES)


class Progress:
    """The open file of one floor; the process that has the floor's journal open owns it."""

    def __init__(self, path: Path, durable: Durability = "process") -> None:
        self.path = path
        self.last: dict[int, Point] = {}
        """The last point of each publication, in order."""
        self._durable: Durability = durable
        self._file: AppendFile | None = None
        self._pending: list[Point] = []

    @classmethod
    def open(cls, path: Path, incarnation: int, last_number: int, durable: Durability = "process") -> Progress:
        """Return the valid points for a journal in which `last_number` is the last packet of `incarnation`."""
        progress = cls(path, durable)
        if path.exists():
            for point in _read(path):
                if point.incarnation != incarnation or point.number <= last_number:
                    progress.last[point.publication] = point
            progress._compact()
        return progress

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(self.last.values())

    @property
    def total(self) -> int:
        """Number of records that were ever put into packets here."""
        return max((point.total for point in self.last.values()), default=0)

    @property
    def next_publication(self) -> int:
        return max(self.last, default=0) + 1

    def note(self, point: Point) -> None:
        """Add a point to the next `commit`."""
        self._pending.append(point)

    def commit(self) -> None:
        """Write the added points; call this before the journal's `commit`."""
        if not self._pending:
            return
        if self._file is None or self._file.size > COMPACT_BYTES:
            self._compact()
        assert self._file is not None
        self._file.append(b"".join(map(_packed, self._pending)))
        if self._durable == "power":
            self._file.sync()
        for point in self._pending:
            self.last[point.publication] = point
        self._pending.clear()

    def _compact(self) -> None:
        """Rewrite the file with the last point of each publication; points that the journal lacks are not included."""
        if self._file is not None:
            self._file.close()
        head = _HEADER.pack(_MAGIC, _VERSION)
        content = head + _CRC.pack(crc32(head)) + b"".join(map(_packed, self.last.values()))
        self._file = AppendFile.create(self.path, content, self._durable)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class ProgressKeeper(JournalStore):
    """The disk of a publishing floor: writes its progress, and then its journal."""

    def __init__(self, journal: JournalFile, progress: Progress) -> None:
        super().__init__(journal)
        self.progress = progress

    def commit(self) -> None:
        self.progress.commit()
        super().commit()

    def close(self) -> None:
        self.progress.close()
        super().close()


def _packed(point: Point) -> bytes:
    body = _POINT.pack(*point)
    return body + _CRC.pack(crc32(body))


def _read(path: Path) -> Iterator[Point]:
    """Yield the points up to the first incomplete one: no code relied on later ones."""
    content = path.read_bytes()
    head = _HEADER.size + _CRC.size
    if len(content) < head or not content.startswith(_MAGIC):
        raise TapeError(f"{path}: not a Levelcast progress file; restore it, or publish with another --data")
    _, version = _HEADER.unpack_from(content)
    check_version(path, version, _VERSION)
    if _CRC.unpack_from(content, _HEADER.size)[0] != crc32(content[: _HEADER.size]):
        raise TapeError(f"{path}: its header is damaged; restore it, or publish with another --data")
    for at in range(head, len(content) - _SIZE + 1, _SIZE):
        body = content[at : at + _POINT.size]
        if _CRC.unpack_from(content, at + _POINT.size)[0] != crc32(body):
            return
        yield Point(*_POINT.unpack(body))
