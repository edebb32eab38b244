"""The journal of one node on disk: append entries, and restore a `JournalImage` (rules 2, 8, 9, 10, 12).

    DIR/0000000000000001.journal     segments, numbered without a gap, the last one grows
    DIR/session                      whether it is open (`levelcast.storage.journal.open_marker`)

    offset  type  field of a segment's header
    0       8s    "LVLCJRNL"
    8       u16   version, 4
    10      u16   stripe
    12      u32   life
    16      u64   number of the segment
    24      u64   network identifier; absent in version 3, where it is 0
    32      u32   CRC-32 of the bytes before

- `append` collects entries, `commit` writes them with one write. After `commit` has returned, they survive a crash of
  the process; with `durable="power"` also a crash of the machine.
- A segment begins with the state that the node must never forget (promise, ring, checkpoint, counter, mark). So an
  older one can be removed as soon as its tokens and packets are forgotten. A new segment gets a copy of the entries of
  the oldest segments that are still needed: normally none, so a roll does not delay the ring.
- A `Forget` is not written. Entries that it removed may reappear after a restart, but only up to the checkpoint, and
  `Receiver` ignores them.
- `open` cuts off an incomplete last write and keeps its bytes beside the journal: its `commit` never returned, so no
  other node knows of it. A bad entry before a later write, or in a journal that was closed in order, is damage: the
  journal is refused without a change, because the node would not know its promises.
- A segment that is not needed any more is overwritten instead of removed, a few of them in turn. Otherwise a node that
  journals the traffic of a ring would allocate and free hundreds of megabytes of kernel memory each second. Checksums
  bind entries to their segment's number, so bytes left from an earlier use are never read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from levelcast.protocol.effects import Checkpoint, JournalEntry, Promise, ServerCounter, SourceMark
from levelcast.protocol.journal_image import JournalImage
from levelcast.storage.advice import lost_disk
from levelcast.storage.append_file import (
    AppendFile,
    Durability,
    TapeError,
    check_version,
    cut_tail,
    cut_text,
    lock_directory,
    remove,
    remove_unfinished,
)
from levelcast.storage.journal.entries import FIRST_OF_WRITE, HEAD, body_of, head_of, later_write_after, read_entries
from levelcast.storage.journal.open_marker import NAME, Extent, LogEnd, Session, mark_session, read_session
from levelcast.wire.header import domain_of, new_tuple, split_domain
from levelcast.wire.messages import Data, Ring, Token

SUFFIX = ".journal"
SEGMENT_BYTES = 8 << 20
"""Size of a segment. The ring waits while a segment is removed; small segments spread that (see docs/tape.md)."""
MOST_SPARES = 2
"""Maximum number of segments kept for reuse."""
_MAGIC = b"LVLCJRNL"
_VERSION = 4
_HEADER = Struct("<8sHHIQQ")
_HEADER_3 = Struct("<8sHHIQ")
_HEADER_CRC = Struct("<I")
_FIRST = 1

_STATE: tuple[type, ...] = (Promise, Ring, Checkpoint, ServerCounter, SourceMark)
"""Entry types of which only the last entry counts."""


class JournalIdentity(NamedTuple):
    """Owner of a journal: the same in the header of each segment."""

    domain: int
    """Network and stripe (`levelcast.wire.header`)."""
    life: int


class EntryLocation(NamedTuple):
    """Location of the bytes of an entry."""

    segment: int
    at: int
    size: int


def initialise(directory: Path | str, life: int, domain: int = 0, durable: Durability = "process") -> None:
    """Create an empty journal: at a node's first start, or with a new `life` after its disk was lost (rule 12)."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.glob("*" + SUFFIX)):
        raise TapeError(f"{directory}: journal already exists; a node keeps one journal for the life of its disk")
    remove_unfinished(directory)
    AppendFile.create(_path(directory, _FIRST), _header(domain, life, _FIRST), durable).close()


def life_of(directory: Path | str) -> int:
    """Return the life of a journal; raise TapeError if it has no readable segment."""
    return identity_of(directory).life


def identity_of(directory: Path | str) -> JournalIdentity:
    """Return the identity of a journal; raise TapeError if it has no readable segment."""
    paths = sorted(Path(directory).glob("*" + SUFFIX))
    if not paths:
        raise TapeError(f"{directory}: journal not found")
    with paths[-1].open("rb") as file:
        return _read_header(paths[-1], file.read(_HEADER.size + _HEADER_CRC.size))[0]


def checkpoint_of(directory: Path | str) -> Checkpoint | None:
    """Return the last readable checkpoint of a journal, which may be damaged; it is not changed."""
    found: Checkpoint | None = None
    for path in sorted(Path(directory).glob("*" + SUFFIX)):
        content = path.read_bytes()
        try:
            identity, number, end = _read_header(path, content)
        except TapeError:
            continue
        for each in read_entries(content, end, identity.domain, number):
            if isinstance(each.entry, Checkpoint):
                found = each.entry
    return found


class JournalFile:
    """An open journal. One process may have it open at a time."""

    def __init__(self, directory: Path, durable: Durability, segment_bytes: int) -> None:
        self.directory = directory
        self.durable = durable
        self.segment_bytes = segment_bytes
        self.identity = JournalIdentity(0, 0)
        self.notices: list[str] = []
        """Descriptions of the torn tails that `open` has cut off."""
        self.log_end: LogEnd | None = None
        """End of the node's release log: at `open` as it was recorded by an orderly close, which `close` records."""
        self._lock = -1
        self._is_open = False
        self._segments: dict[int, AppendFile] = {}
        self._spares: list[AppendFile] = []
        self._current = 0
        self._begun_at = 0
        """The size of the current segment when it was created."""
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._state: dict[type, tuple[int, bytes]] = {}
        self._tokens: dict[tuple[int, int], EntryLocation] = {}
        self._packets: dict[tuple[int, int], dict[tuple[int, int], EntryLocation]] = {}
        """By (source, incarnation), then by the first and last packet number of an entry."""
        self._live: Counter[int] = Counter()
        """Bytes of each segment that are still needed."""

    # -- opening ------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        directory: Path | str,
        *,
        durable: Durability = "process",
        segment_bytes: int = SEGMENT_BYTES,
        accept_restart: bool = False,
    ) -> tuple[JournalFile, JournalImage]:
        """Open the journal for writing; also return the image of its entries.

        `accept_restart` continues although the machine crashed while the journal was open without power durability. Use
        it only in a network in which no two members can have lost entries at the same time.
        """
        directory = Path(directory)
        paths = sorted(directory.glob("*" + SUFFIX))
        if not paths:
            raise TapeError(
                f"{directory}: journal not found; if this node has never run, initialise one; if it has, its disk is "
                f"lost: {lost_disk(directory.parent)}"
            )
        journal = cls(directory, durable, segment_bytes)
        journal._lock = lock_directory(directory, "journal")
        try:
            session = _session(directory)
            if session is not None and session.was_cut_off_by_a_restart() and not accept_restart:
                raise TapeError(
                    f"{directory}: the machine restarted while this journal was open without power durability, so "
                    f"promises of this node may be lost; {lost_disk(directory.parent)}"
                )
            image = journal._read(paths, session)
            journal.log_end = session.releases if session is not None else None
            mark_session(directory, durable)
            journal._is_open = True
            return journal, image
        except BaseException:
            journal.close()
            raise

    def _read(self, paths: list[Path], session: Session | None) -> JournalImage:
        life_of(self.directory)  # do not change a journal of another version
        if session is not None and session.extent is not None:
            _check_extent(self.directory, session.extent)
        remove_unfinished(self.directory)
        image: JournalImage | None = None
        for path in paths:
            file = AppendFile.open(path)
            content = file.read(file.size, 0)
            try:
                identity, number, end = _read_header(path, content)
            except TapeError:
                file.close()
                raise
            self._segments[number] = file
            if image is None:
                self.identity = identity
                image = JournalImage(identity.life)
            elif (identity, number) != (self.identity, self._current + 1):
                raise _refused(path, "does not follow the previous segment; a segment of this journal is missing")
            self._current = number
            for found in read_entries(content, end, identity.domain, number):
                image.apply(found.entry)
                place = EntryLocation(number, found.at, found.size)
                end = found.at + found.size
                body = content[found.at + HEAD.size : end] if isinstance(found.entry, _STATE) else b""
                self._keep(found.entry, content[found.at + 2], body, place)
            if end < len(content):
                is_tail = path == paths[-1] and not (session is not None and session.is_closed)
                self._cut_off(file, content, end, is_tail=is_tail)
        assert image is not None
        self._begun_at = _HEADER.size + _HEADER_CRC.size
        return image

    def _cut_off(self, file: AppendFile, content: bytes, end: int, *, is_tail: bool) -> None:
        later = later_write_after(content, end, self._current)
        if not is_tail or later is not None:
            when = "before entries that were written later" if later is not None else "though it was closed in order"
            raise _refused(file.path, f"damaged at byte {end}, {when}, so promises of this node may be lost")
        if (kept := cut_tail(file, end, self.durable)) is not None:
            self.notices.append(cut_text(file.path, end, kept))

    # -- writing ------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self._segments.values())

    def append(self, entry: JournalEntry) -> None:
        """Add an entry to the next `commit`."""
        kind, body = body_of(entry)
        head = head_of(kind, 0 if self._pending else FIRST_OF_WRITE, body, self._current)
        size = len(head) + len(body)
        at = self._segments[self._current].size + self._pending_bytes
        self._pending.append(head)
        self._pending.append(body)
        self._pending_bytes += size
        self._keep(entry, kind, body, new_tuple(EntryLocation, (self._current, at, size)))

    def commit(self) -> None:
        """Write the added entries. After an error none of them is in the file, and `commit` may be repeated."""
        if not self._pending:
            return
        file = self._segments[self._current]
        file.append(*self._pending)
        if self.durable == "power":
            file.sync()
        self._pending.clear()
        self._pending_bytes = 0
        if file.size - self._begun_at >= self.segment_bytes:
            self._roll()

    def forget(self, slot: int, ordered: Mapping[int, tuple[int, int]]) -> None:
        """Forget tokens up to `slot` and packets below `ordered`, as in `JournalImage.forget`."""
        for key in [key for key in self._tokens if key[1] <= slot]:
            self._let_go(self._tokens.pop(key))
        for key in list(self._packets):
            if key[0] in ordered:
                self._forget_packets(key, ordered[key[0]])
        self._drop_dead_segments()

    def _forget_packets(self, key: tuple[int, int], until: tuple[int, int]) -> None:
        """Forget packets of one (source, incarnation) below `until`: incarnation and number."""
        pieces, incarnation = self._packets[key], key[1]
        for span in [span for span in pieces if (incarnation, span[1]) < until]:
            self._let_go(pieces.pop(span))
        if not pieces:
            del self._packets[key]

    def close(self) -> None:
        """Write the added entries, and release the journal for other processes."""
        try:
            if self._pending:
                self.commit()
            if self._is_open:
                for file in self._segments.values():
                    file.finish()
                    file.sync()
                mark_session(self.directory, self.durable, self._extent(), self.log_end)
        finally:
            for spare in self._spares:
                remove(spare.path)
                spare.close()
            self._spares.clear()
            self._is_open = False
            for file in self._segments.values():
                file.close()
            self._segments.clear()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _extent(self) -> Extent:
        return Extent(min(self._segments), tuple(self._segments[number].size for number in sorted(self._segments)))

    # -- entries still needed, and their locations --------------------------------------------------------

    def _keep(self, entry: JournalEntry, kind: int, body: bytes, place: EntryLocation) -> None:
        if type(entry) is Data:
            pieces = self._packets.setdefault((entry.source, entry.incarnation), {})
            span = (entry.first, entry.last)
            known = pieces.get(span)
            pieces[span] = place
        elif type(entry) is Token:
            known = self._tokens.get((entry.generation, entry.slot))
            self._tokens[entry.generation, entry.slot] = place
        else:
            self._state[type(entry)] = (kind, body)
            if isinstance(entry, SourceMark):
                for key in list(self._packets):  # a source need not keep witnessed packets (rule 10)
                    self._forget_packets(key, (entry.incarnation, entry.number + 1))
            return
        if known is not None:
            self._let_go(known)
        self._live[place.segment] += place.size

    def _let_go(self, place: EntryLocation) -> None:
        self._live[place.segment] -= place.size

    # -- segments -----------------------------------------------------------------------------------------

    def _roll(self) -> None:
        """Begin a new segment. If the disk is full, continue the old one; the next commit tries again."""
        number = self._current + 1
        content = bytearray(_header(*self.identity, number))
        for kind, body in self._state.values():
            content += head_of(kind, FIRST_OF_WRITE, body, number) + body
        moved: dict[EntryLocation, EntryLocation] = {}
        for place in self._left_alive():
            moved[place] = EntryLocation(number, len(content), place.size)
            entry = self._segments[place.segment].read(place.size, place.at)
            body = entry[HEAD.size :]
            content += head_of(entry[2], entry[3], body, number) + body
        reuse = self._spares.pop() if self._spares else None
        try:
            self._segments[self._current].finish()
            file = AppendFile.create(_path(self.directory, number), bytes(content), self.durable, reuse)
        except (OSError, TapeError):
            return
        self._segments[number] = file
        self._current = number
        self._begun_at = file.size
        if moved:
            self._move(moved)
        self._drop_dead_segments()

    def _left_alive(self) -> list[EntryLocation]:
        """Return the entries to copy before the oldest segments are removed; keep a segment that is mostly needed."""
        leaving = set()
        for number in sorted(self._segments)[:-1]:
            if self._live[number] > self.segment_bytes // 4:
                break
            leaving.add(number)
        if not leaving:
            return []
        places = chain(self._tokens.values(), *(pieces.values() for pieces in self._packets.values()))
        return sorted(place for place in places if place.segment in leaving)

    def _move(self, moved: Mapping[EntryLocation, EntryLocation]) -> None:
        self._tokens = {key: moved.get(place, place) for key, place in self._tokens.items()}
        for pieces in self._packets.values():
            pieces.update({span: moved[place] for span, place in pieces.items() if place in moved})
        for old, new in moved.items():
            self._live[old.segment] -= old.size
            self._live[new.segment] += new.size

    def _drop_dead_segments(self) -> None:
        """Remove unneeded segments from the oldest on, so that the remaining numbers have no gap."""
        for number in sorted(self._segments)[:-1]:
            if self._live[number]:
                return
            file = self._segments.pop(number)
            del self._live[number]
            if len(self._spares) < MOST_SPARES:
                file.retire()
                self._spares.append(file)
            else:
                remove(file.path)
                file.close()


def _session(directory: Path) -> Session | None:
    try:
        return read_session(directory)
    except TapeError as error:
        raise TapeError(
            f"{error}, so it is unknown whether the machine restarted while the journal was open; if it did not, "
            f"`rm {directory / NAME}`; if it did, {lost_disk(directory.parent)}"
        ) from None


def _check_extent(directory: Path, extent: Extent) -> None:
    """Check that a journal that was closed in order still has all of its files and bytes."""
    for number, size in enumerate(extent.sizes, extent.first):
        path = _path(directory, number)
        if not path.exists():
            raise _refused(path, "this segment of the journal is missing")
        if (found := path.stat().st_size) != size:
            raise _refused(
                path, f"damaged at byte {min(found, size)}: it had {size} bytes when it was closed, not {found}"
            )


def _refused(path: Path, why: str) -> TapeError:
    return TapeError(f"{path}: {why}; nothing was changed; {lost_disk(path.parent.parent)}")


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:016}{SUFFIX}"


def _header(domain: int, life: int, number: int) -> bytes:
    network, stripe = split_domain(domain)
    head = _HEADER.pack(_MAGIC, _VERSION, stripe, life, number, network)
    return head + _HEADER_CRC.pack(crc32(head))


def _read_header(path: Path, content: bytes) -> tuple[JournalIdentity, int, int]:
    """Return the journal's identity, the segment's number, and the size of the header."""
    if len(content) < _HEADER_3.size + _HEADER_CRC.size or not content.startswith(_MAGIC):
        raise _refused(path, "not a Levelcast journal")
    _, version, stripe, life, number = _HEADER_3.unpack_from(content)
    size = _HEADER_3.size if version <= 3 else _HEADER.size
    if content[size : size + _HEADER_CRC.size] != _HEADER_CRC.pack(crc32(content[:size])):
        raise _refused(path, "its header is damaged")
    if version < 3:
        raise TapeError(
            f"{path}: this journal has datagrams of header version 1, which nodes no longer accept; move the data "
            "directory of every node aside (tapes, release logs and certificates stay readable there) and start the "
            "network again with `levelcast disk init --network FILE --all --data DIR`"
        )
    if version != 3:
        check_version(path, version, _VERSION)
    if path != _path(path.parent, number):
        raise _refused(path, f"has the header of segment {number}, which does not match its file name")
    network = 0 if version == 3 else _HEADER.unpack_from(content)[-1]
    return JournalIdentity(domain_of(network, stripe), life), number, size + _HEADER_CRC.size
