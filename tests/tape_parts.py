"""What the tape's tests build with: frames of real records, and a simulated history whose disks are files."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import JournalEntry, ServeTape
from levelcast.protocol.history import Frame, MembershipChange, Tip, first_tip, make_frame
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.machine import Machine
from levelcast.records import instruments, quotes, statuses, trades
from levelcast.ring.member import Member
from levelcast.ring.reformation_server import ReformationServer
from levelcast.ring.source import Source
from levelcast.sim.engine.disk import Disk, SimTape
from levelcast.sim.engine.world import SimNode
from levelcast.sim.scenarios.ring import RingHistory
from levelcast.storage.journal.file import initialise
from levelcast.storage.receiver_store import ReceiverStore, serve
from levelcast.storage.release_log import Released
from levelcast.storage.tape.reader import TapeReader
from levelcast.wire.membership import encode_membership
from levelcast.wire.messages import CONTROL_SOURCE, MemberLife, Membership, Message, Packet
from levelcast.wire.packets import DATA_OVERHEAD, seal

T0 = 1_700_000_000_000_000_000
SLOT_NS = 5_000_000
FIRST = Tip(records=[MembershipChange(0, Membership(0, (MemberLife(1, 1), MemberLife(2, 1), MemberLife(3, 1))))])


def trade_payload(rng: Random, count: int) -> bytes:
    batch = trades(count)
    batch["publisher_id"] = rng.randint(1, 13)
    batch["instrument_id"] = [rng.randint(1, 5) for _ in range(count)]
    batch["ts_event"] = T0 + np.arange(count, dtype=np.uint64)
    batch["price"] = [rng.randint(1, 10**12) for _ in range(count)]
    batch["size"] = [rng.randint(1, 10**6) for _ in range(count)]
    batch["trade_id"] = [rng.getrandbits(64) for _ in range(count)]
    batch["venue_sequence"] = [rng.getrandbits(32) for _ in range(count)]
    return batch.tobytes()


def mixed_payload(rng: Random) -> tuple[int, bytes]:
    """Records of several types, one without its tail and one with a longer tail than ours."""
    quote = quotes(1)
    quote["bid_px_00"] = rng.randint(1, 10**12)
    bare = bytearray(trades(1).tobytes()[:48])
    bare[0] = 48 // 4
    longer = bytearray(trades(1).tobytes() + b"later!!!")
    longer[0] = 72 // 4
    parts = [quote.tobytes(), bytes(bare), statuses(1).tobytes(), bytes(longer), instruments(1).tobytes()]
    rng.shuffle(parts)
    return len(parts), b"".join(parts)


def make_frames(count: int, seed: int = 0, *, records: int = 6, first: Tip = FIRST) -> list[Frame]:
    """Frames of trades of three sources, now and then mixed records, empty slots between, one change of the set."""
    rng, tip = Random(seed), first.copy()
    frames: list[Frame] = []
    numbers: dict[int, int] = {}
    for _ in range(count):
        packets = []
        for source in rng.sample((201, 202, 203), rng.randint(1, 3)):
            for _ in range(rng.randint(1, 2)):
                numbers[source] = number = numbers.get(source, 0) + 1
                size, payload = rng.randint(1, records), b""
                if rng.random() < 0.1:
                    size, payload = mixed_payload(rng)
                packets.append(Packet(source, 1, number, size, payload or trade_payload(rng, size)))
        if len(frames) == count // 2:
            changed = Membership(1, (MemberLife(1, 1), MemberLife(2, 2), MemberLife(3, 1)))
            packets.append(Packet(CONTROL_SOURCE, 1, 1, 1, encode_membership(changed)))
        slot = tip.slot + rng.choice((1, 1, 2, 5))
        frame = frame_of_packets(slot, T0 + slot * SLOT_NS, tip.next_sequence, packets, tip.chain)
        tip.append(frame)
        frames.append(frame)
    return frames


def frame_of_packets(
    slot: int, timestamp_ns: int, first_sequence: int, packets: Iterable[Packet], chain_before: bytes
) -> Frame:
    return make_frame(slot, timestamp_ns, first_sequence, [seal(packet, 0) for packet in packets], chain_before)


def repacked(frame: Frame, packets: Iterable[Packet]) -> Frame:
    """The frame with other packets, and the hash that goes with them."""
    return frame_of_packets(frame.slot, frame.timestamp_ns, frame.first_sequence, packets, frame.chain_before)


def tip_after(frames: Sequence[Frame], first: Tip = FIRST) -> Tip:
    tip = first.copy()
    for frame in frames:
        tip.append(frame)
    return tip


def content_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def tape_of(directory: Path) -> dict[str, bytes]:
    """The files of a tape, without the torn tails that are kept beside them."""
    return {name: content for name, content in content_of(directory).items() if ".torn-at-" not in name}


# -- a history whose disks are files ----------------------------------------------------------------------


class TradeHistory(RingHistory):
    """A ring history whose packets are trades, so that they can go to a tape. The disks are the simulator's."""

    def _submit(self, node: SimNode, together: int) -> None:
        source = node.machine
        if isinstance(source, Source) and source.room and self.world.now >= node.paused_until_ns:
            batch = trades(min(together, source.room))
            batch["trade_id"] = [self.rng.getrandbits(63) for _ in batch]
            batch["publisher_id"] = node.id
            submitted = source.submit_all(batch.tobytes(), DATA_OVERHEAD + batch.dtype.itemsize, node.local_ns)
            assert submitted.records == len(batch)
            node.perform(submitted.effects)


class FileJournal(JournalImage):
    """Stands where the simulator has an image; keeps nothing in memory."""

    def __init__(self, store: ReceiverStore) -> None:
        super().__init__(store.journal.identity.life)
        self._store = store

    def apply(self, entry: JournalEntry) -> None:
        self._store.persist(entry)
        self._store.commit()

    def forget(self, slot: int, ordered: object) -> None:
        self._store.forget(slot, ordered)  # type: ignore[arg-type]


class FileTape(SimTape):
    def __init__(self, config: StripeConfig, store: ReceiverStore) -> None:
        super().__init__(config)
        self._store = store
        self.tip = store.tape.tip

    def append(self, frame: Frame) -> None:
        self._store.tape.append(frame)
        late_ns = frame.timestamp_ns + SLOT_NS
        self._store.releases.append([Released(frame.slot, 1, late_ns, late_ns + 9, frame.records, False)])
        self.tip = self._store.tape.tip

    @property
    def frames(self) -> list[Frame]:
        return [found.frame() for found in TapeReader(self._store.tape.directory).frames()]

    @frames.setter
    def frames(self, frames: list[Frame]) -> None:
        assert not frames

    def serve(self, member: int, request: ServeTape, credit: int) -> list[Message]:
        return serve(TapeReader(self._store.tape.directory), member, request, credit)


class FileDisk(Disk):
    """A node's files. `reopen` is what a process does that starts; the kill before may have cut a write short."""

    def __init__(
        self,
        config: StripeConfig,
        life: int,
        directory: Path,
        rng: Random,
        segment_bytes: int,
        records_per_segment: int = 7,
    ) -> None:
        self.config = config
        self._records_per_segment = records_per_segment
        self.directory = directory
        self._rng = rng
        self._segment_bytes = segment_bytes
        initialise(directory / "journal", life)
        self.torn = 0
        self._open()

    def _open(self) -> JournalImage:
        self.store = ReceiverStore.open(
            self.directory, first_tip(self.config), records_per_segment=self._records_per_segment
        )
        self.store.journal.segment_bytes = self._segment_bytes
        self.journal = FileJournal(self.store)
        self.tape = FileTape(self.config, self.store)
        return self.store.image

    def reopen(self) -> JournalImage:
        self.store.journal._is_open = False  # as the kernel closes the files of a process that was killed
        self.store.close()
        self._tear()
        return self._open()

    def _tear(self) -> None:
        """Leave the first bytes of a next write, as a kill in the middle of it does."""
        for pattern, like in (("journal/*.journal", 28), ("tape/*.active", 8), ("tape/*.idx", 0)):
            path = max(self.directory.glob(pattern))
            if self._rng.random() < 0.5:
                content = path.read_bytes()
                rest = content[like:] if like else b"\x80\0\0\0" * 5
                with path.open("ab") as file:
                    file.write(rest[: self._rng.randint(0, min(len(rest), 11))])
                self.torn += 1


class FileHistory(TradeHistory):
    """The same history on files under `directory`: every start of a node reads them again."""

    def __init__(self, seed: int, directory: Path, segment_bytes: int = 2_000, records_per_segment: int = 7) -> None:
        self._directory = directory
        self._records_per_segment = records_per_segment
        self._torn_rng = Random(seed)
        self._segment_bytes = segment_bytes
        self.file_disks: list[FileDisk] = []
        super().__init__(seed)

    def _add(self, *args: object) -> SimNode:
        added = super()._add(*args)  # type: ignore[arg-type]
        added.disk = self._new_disk(added)
        return added

    def _wipe(self, node: SimNode) -> None:
        super()._wipe(node)
        node.disk = self._new_disk(node)

    def _new_disk(self, node: SimNode) -> FileDisk:
        life = node.disk.journal.life
        directory = self._directory / f"{node.id}-{life}"
        disk = FileDisk(self.config, life, directory, self._torn_rng, self._segment_bytes, self._records_per_segment)
        self.file_disks.append(disk)
        return disk

    def _start_receiver(self, node: SimNode) -> Machine:
        assert isinstance(node.disk, FileDisk)
        image = node.disk.reopen()
        return self._with_delays(Member(self.config, node.id, image, node.disk.tape.tip, node.local_ns))

    def _start_server(self, node: SimNode) -> Machine:
        assert isinstance(node.disk, FileDisk)
        return ReformationServer(self.config, node.id, node.disk.reopen(), node.local_ns)

    def _start_source(self, node: SimNode) -> Machine:
        assert isinstance(node.disk, FileDisk)
        return Source(self.config, node.id, node.disk.journal.life, node.disk.reopen(), node.local_ns)

    def close(self) -> None:
        for disk in self.file_disks:
            disk.store.close()


# -- a process that dies, and a disk that is full ---------------------------------------------------------


class Killed(BaseException):
    """kill -9 at a system call."""


class MortalOs:
    """The module `os`, until the call `lives` that changes a file: that one is half done, and the process dead."""

    CHANGES = frozenset({"open", "pwrite", "pwritev", "ftruncate", "rename", "unlink", "link", "fdatasync", "fsync"})

    def __init__(self, lives: int) -> None:
        self.lives = lives
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.CHANGES:
            return real

        def call(*args: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) > self.lives:
                if name in ("pwrite", "pwritev"):
                    fd, content, at = args
                    view = b"".join(content) if name == "pwritev" else content
                    os.pwrite(fd, view[: len(view) // 2], at)
                raise Killed(name)
            return real(*args)

        return call


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The kernel itself refuses what goes beyond `size`, after writing what fits: as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
