"""A floor in a program of its own: `levelcast.Publisher`.

    with levelcast.Publisher("network.toml", "XNYS", data="data") as floor:
        floor.publish(records)      # an array of `levelcast.records`, of this floor and its symbols

- A background thread runs the floor's driver. A source must resend until its packets are witnessed (rule 10), whatever
  the program that filled them is doing; a loop in the caller's thread would stand still between two calls.
- Several floors of a process share one thread and one pair of sockets (`SourceLoop`): what the group says is received
  once, and only tokens are decoded for each floor. Each floor has a `Driver`, a journal and links of its own, as a
  process would have.
- With `data` the floor has the directory of a floor node, goes on in the same incarnation after a restart and sends
  again what is not witnessed. Without, nothing is kept: every start takes a higher incarnation (the time), and what
  was not yet witnessed when the process ended may be lost. A floor that has once published without a journal is ahead
  of every journal: it cannot go back to one.
- `publish` fills a queue of bounded size; `room` and `waiting` show it. Leaving the `with` block waits until everything
  is witnessed; leaving it by an exception does not.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from os import PathLike
from pathlib import Path
from threading import Condition, Lock, Thread
from types import TracebackType
from zlib import crc32

import numpy as np

from levelcast.client.packet_queue import MAX_PACKET_BYTES, PacketQueue
from levelcast.errors import NetError
from levelcast.network import Network, SymbolDirectory, load_network
from levelcast.network.placement import Placement, links_to, place_of
from levelcast.network.stripe_config import ring_config
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import JournalEntry
from levelcast.protocol.journal_image import JournalImage
from levelcast.records import INSTRUMENT, RECORD_TYPES, RTYPE_INSTRUMENT, TRADE, RecordArray
from levelcast.ring.source import Source
from levelcast.runtime.driver import LONGEST_SLEEP_NS, Driver
from levelcast.runtime.impairment import Impairment, sender_of
from levelcast.runtime.sockets import LOOPBACK, Address, Arrival, CoreSockets
from levelcast.storage.disk import initialise_disk
from levelcast.storage.journal.file import JournalFile
from levelcast.storage.node_store import JournalStore, NodeStore
from levelcast.storage.publication import FILE, Progress, ProgressKeeper
from levelcast.wire.codec import KIND_TOKEN
from levelcast.wire.header import KIND_AT
from levelcast.wire.messages import Data
from levelcast.wire.packets import DATA_OVERHEAD

QUEUE_RECORDS = 4_096
"""The smallest queue, unless one is asked for."""
MIN_PACKET_BYTES = INSTRUMENT.itemsize + DATA_OVERHEAD
"""A definition has to fit."""
_KINDS = {kind.rtype: kind for kind in RECORD_TYPES}


class _SharedSockets:
    """What one floor's driver sees of the loop's sockets. It never sleeps there: the loop has slept for all."""

    def __init__(self, core: CoreSockets) -> None:
        self.inbox: list[Arrival] = []
        self._core = core

    def wait(self, timeout_s: float, others: Sequence[int] = (), *, packets: bool = True) -> tuple[bool, list[int]]:
        return bool(self.inbox), []

    def drain(self, stripe: int | None = None) -> list[Arrival]:
        arrivals, self.inbox = self.inbox, []
        return arrivals

    def learn(self, node: int, address: Address) -> None:
        self._core.learn(node, address)

    def send(self, to: int, datagrams: Sequence[bytes]) -> None:
        self._core.send(to, datagrams)

    def send_buffer(self, to: int, buffer: bytes, ends: bytes) -> None:
        self._core.send_buffer(to, buffer, ends)

    def close(self) -> None:
        """The loop closes them."""


class _NoDisk(JournalStore):
    """The disk of a floor that keeps nothing."""

    def __init__(self) -> None:
        pass

    def persist(self, entry: JournalEntry, datagram: bytes | None = None) -> None:
        pass

    def commit(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Seat:
    """One floor of a loop."""

    def __init__(self, driver: Driver, sockets: _SharedSockets, feed: PacketQueue) -> None:
        self.driver = driver
        self.sockets = sockets
        self.feed = feed

    def due_ns(self) -> int | None:
        impairment = self.driver.impairment
        dues = (self.driver.machine.wake_ns, self.feed.wake_ns, impairment.next_ns if impairment is not None else None)
        return min((due for due in dues if due is not None), default=None)


class SourceLoop:
    """One thread that drives the floors of one stripe over one pair of sockets."""

    def __init__(self, network: Network, stripe: int | str = 0, interface: str = LOOPBACK) -> None:
        group = network.core_group(stripe)
        self.stripe = network.stripe(stripe).name
        self.changed = Condition()
        """Told after every turn; guards the queues of the floors."""
        self.error: BaseException | None = None
        """What has ended the thread."""
        self.heard_ns = 0
        """When the ring was heard last; 0: never."""
        self.watchers: list[Callable[[], None]] = []
        """Called after every turn, in the loop's thread."""
        self._core = CoreSockets(group.address, group.port, interface, hears_data=False)
        self._core.trains = self._core.trains and network.carriage.trains
        self.warning = self._core.warning
        self._seats: list[_Seat] = []
        self._nodes: frozenset[int] = frozenset()
        self._turning = Lock()
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._rope, False)
        self._stopping = False
        self._thread = Thread(target=self._run, name=f"levelcast floors of {self.stripe}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        with suppress(BlockingIOError):  # it has been told often enough
            os.write(self._rope, b"x")

    def seat(self) -> _SharedSockets:
        """Sockets for one more floor."""
        return _SharedSockets(self._core)

    def add(self, seat: _Seat) -> None:
        with self._turning:
            self._seats.append(seat)
            self._nodes = frozenset(each.driver.node for each in self._seats)
        self.wake()

    def remove(self, seat: _Seat) -> None:
        """End one floor between two turns, and write what is left."""
        with self._turning:
            if seat in self._seats:
                self._seats.remove(seat)
                self._nodes = frozenset(each.driver.node for each in self._seats)
                seat.driver.close()

    def close(self) -> None:
        self._stopping = True
        if self._thread.is_alive():
            self.wake()
            self._thread.join()
        for seat in list(self._seats):
            self.remove(seat)
        if self._bell >= 0:
            self._core.close()
            os.close(self._bell)
            os.close(self._rope)
            self._bell = self._rope = -1

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:
            self.error = error
        with self.changed:
            self.changed.notify_all()
        for watcher in list(self.watchers):
            watcher()

    def _turn(self) -> None:
        now = time.time_ns()
        dues = [due for seat in self._seats if (due := seat.due_ns()) is not None]
        until = min(now + LONGEST_SLEEP_NS, *dues) if dues else now + LONGEST_SLEEP_NS
        came, rung = self._core.wait(max(0, until - now) / 1e9, (self._bell,))
        if rung:
            os.read(self._bell, 4096)
        arrivals = [arrival for arrival in self._core.drain() if self._matters(arrival[0])] if came else []
        with self._turning:
            now = time.time_ns()
            for seat in self._seats:
                seat.sockets.inbox += arrivals
                due = seat.due_ns()
                if arrivals or (due is not None and due <= now):
                    seat.driver.turn()
        if arrivals:
            self.heard_ns = now
        with self.changed:
            self.changed.notify_all()
        for watcher in list(self.watchers):
            watcher()

    def _matters(self, datagram: bytes | Data) -> bool:
        """Sources listen to tokens alone; what comes from a namesake is for the driver to count."""
        assert isinstance(datagram, bytes)  # these sockets do not hear packets
        return (len(datagram) > KIND_AT and datagram[KIND_AT] == KIND_TOKEN) or sender_of(datagram) in self._nodes


class Publisher:
    """A trading floor at work. See the module's head; `async with` gives an `AsyncPublisher`."""

    def __init__(
        self,
        network: Network | str | PathLike[str],
        floor: str,
        *,
        data: str | PathLike[str] | None = None,
        packet_bytes: int | None = None,
        queue_records: int | None = None,
        impair: bool = False,
        seed: int = 1,
        interface: str = LOOPBACK,
        loop: SourceLoop | None = None,
    ) -> None:
        """`packet_bytes` is by default the network file's; `queue_records` what fills one window of credit.

        `impair` adds the delay and loss of the file's links to what the floor hears; `loop` shares one.
        """
        if not isinstance(network, Network):
            network = load_network(network)
        if packet_bytes is None:
            packet_bytes = network.carriage.packet_bytes
        if not MIN_PACKET_BYTES <= packet_bytes <= MAX_PACKET_BYTES:
            raise ValueError(f"packet_bytes is {packet_bytes}: it must be {MIN_PACKET_BYTES} to {MAX_PACKET_BYTES}")
        place = place_of(network, floor)
        if place.floor is None:
            raise NetError(f'"{floor}" is a {place.role} of the network, and only a floor publishes')
        self.floor = place.floor
        self.directory = SymbolDirectory(network)
        self._ids = np.array(sorted(self.directory.ids_of(self.floor).values()), np.uint32)
        now = time.time_ns()
        config = ring_config(network, place.stripe)
        window = config.credit * (packet_bytes // TRADE.itemsize)
        self._queue_records = queue_records if queue_records is not None else max(QUEUE_RECORDS, window)
        with ExitStack() as undo:
            source, keeper, progress = _disk(network, config, place, data, now)
            undo.callback(keeper.close)
            self._loop = loop if loop is not None else SourceLoop(network, place.stripe, interface)
            self._own_loop = loop is None
            if self._own_loop:
                undo.callback(self._loop.close)
            sockets = self._loop.seat()
            definitions = self.directory.definitions(self.floor, now)
            self.source = source
            self.progress = progress
            self.feed = PacketQueue(source, definitions, progress, self._loop.changed, packet_bytes)
            impairment = Impairment(links_to(network, place), crc32(f"{seed} {floor}".encode())) if impair else None
            self._driver = Driver(
                place.id, config.stripe, source, sockets, keeper, impairment=impairment, work=self.feed
            )
            self._seat = _Seat(self._driver, sockets, self.feed)
            self._loop.add(self._seat)
            undo.pop_all()
        self._closed = False

    # -- what it has come to ------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Records that `publish` takes now without waiting."""
        return max(0, self._queue_records - self.feed.waiting)

    @property
    def waiting(self) -> int:
        """Records that `publish` has taken and that are in no packet yet: they wait for credit (rule 10)."""
        return self.feed.waiting

    @property
    def unwitnessed(self) -> int:
        """Packets that were sent and are not yet safe."""
        return self.source.unwitnessed

    @property
    def published(self) -> int:
        """Records in packets: over all starts with `data`, since the start without."""
        return self.feed.total

    @property
    def witnessed(self) -> int:
        """Of them, those that every tape will have."""
        return self.feed.witnessed

    @property
    def heard_ns(self) -> int:
        """When the ring was heard last, by the wall clock; 0: never."""
        return self._loop.heard_ns

    @property
    def namesakes(self) -> int:
        """Datagrams of another process that takes itself for this floor: end one of them."""
        return self._driver.counters.namesakes

    @property
    def warning(self) -> str | None:
        """What is not as it should be, in one sentence."""
        return self._loop.warning

    @property
    def settled(self) -> bool:
        """Whether everything that was taken is witnessed."""
        return not self.feed.waiting and not self.source.unwitnessed

    def _check(self) -> None:
        if self._closed:
            raise NetError(f"the publisher of {self.floor.name} is closed")
        if self._loop.error is not None:
            raise self._loop.error
        if self.source.superseded:
            raise NetError(
                f"another process publishes as {self.floor.name}, or has, in a newer incarnation: what this one sends "
                "is not heard any more"
            )

    # -- publishing ---------------------------------------------------------------------------------------

    def publish(self, records: RecordArray, *, block: bool = True, timeout: float | None = None) -> int:
        """Queue records for the ring, in order; how many were taken.

        Without `block` those for which there is room now; with `timeout` (seconds) those for which there was by then.
        Raises ValueError for records that are not this floor's, before any is taken.
        """
        records = self._checked(records)
        deadline = None if timeout is None else time.monotonic() + timeout
        taken = self._put(records, 0)
        while taken < len(records) and block:
            with self._loop.changed:
                if not self.room:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return taken
                    self._loop.changed.wait(left if left is not None else 1.0)
            taken = self._put(records, taken)
        return taken

    def wait_for_room(self, timeout: float) -> bool:
        """Wait until `publish` takes records without waiting; False if that took longer than `timeout` seconds."""
        with self._loop.changed:
            return self._loop.changed.wait_for(lambda: self.room, timeout)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything that was taken is witnessed; False if that took longer than `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._check()
            with self._loop.changed:
                if self.settled:
                    return True
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._loop.changed.wait(1.0 if left is None else min(left, 1.0))

    def close(self) -> None:
        """End at once. With `data`, what is not witnessed is sent again at the next start; what waited is dropped."""
        if not self._closed:
            self._closed = True
            self._loop.remove(self._seat)
            if self._own_loop:
                self._loop.close()

    def _put(self, records: RecordArray, first: int) -> int:
        """Queue records from `first` on, as far as there is room; up to which."""
        self._check()
        with self._loop.changed:
            count = min(self.room, len(records) - first)
            if count:
                self.feed.put(records[first : first + count].tobytes(), count)
        if count:
            self._loop.wake()
        return first + count

    def _checked(self, records: RecordArray) -> RecordArray:
        """Records that may go on this floor's tape, else a ValueError: a receiver would only drop the packet."""
        kind = _KINDS.get(int(records["rtype"][0])) if len(records) and records.dtype.names else None
        if not len(records):
            return records
        if kind is None or records.dtype != kind.dtype:
            raise ValueError("these are no records of levelcast.records: make them with trades(n), quotes(n) ...")
        words = kind.dtype.itemsize // 4
        if np.any(records["length"] != words) or np.any(records["rtype"] != kind.rtype):
            raise ValueError("a record has another length or rtype than its array")
        if np.any(records["publisher_id"] != self.floor.publisher):
            raise ValueError(f"a record's publisher_id is not {self.floor.publisher}, that of {self.floor.name}")
        for name in ("sequence", "ts_recv"):
            if name in (kind.dtype.names or ()) and records[name].any():
                raise ValueError(f"a record has a {name} already: the ring stamps it on release")
        if kind.rtype != RTYPE_INSTRUMENT and not np.isin(records["instrument_id"], self._ids).all():
            raise ValueError(
                f"a record's instrument_id is no symbol of {self.floor.name}: take ids from levelcast.network.Directory"
            )
        return records

    # -- with ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    async def __aenter__(self) -> AsyncPublisher:
        return AsyncPublisher(self)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                await AsyncPublisher(self).flush()
        finally:
            self.close()


class AsyncPublisher:
    """A `Publisher` for an event loop: `publish` and `flush` are awaited, and may be cancelled."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher

    @property
    def room(self) -> int:
        return self.publisher.room

    @property
    def waiting(self) -> int:
        return self.publisher.waiting

    @property
    def unwitnessed(self) -> int:
        return self.publisher.unwitnessed

    async def publish(self, records: RecordArray) -> int:
        """Queue all records. If it is cancelled, those that had found room are published."""
        records = self.publisher._checked(records)
        taken = 0

        def advance() -> bool:
            nonlocal taken
            taken = self.publisher._put(records, taken)
            return taken == len(records)

        await self._until(advance)
        return taken

    async def flush(self) -> None:
        """Wait until everything that was taken is witnessed."""

        def settled() -> bool:
            self.publisher._check()
            return self.publisher.settled

        await self._until(settled)

    async def _until(self, condition: Callable[[], bool]) -> None:
        if condition():
            return
        running, turned = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            if not running.is_closed():
                running.call_soon_threadsafe(turned.set)

        watchers = self.publisher._loop.watchers
        watchers.append(tell)
        try:
            while not condition():
                await turned.wait()
                turned.clear()
        finally:
            watchers.remove(tell)


def _disk(
    network: Network, config: StripeConfig, place: Placement, data: str | PathLike[str] | None, now: int
) -> tuple[Source, NodeStore, Progress | None]:
    """The source on what its disk holds; without one in an incarnation that is higher than any before."""
    if data is None:
        return Source(config, place.id, now, JournalImage(), now), _NoDisk(), None
    folder, durable = Path(data), network.tape.durable
    folder.mkdir(parents=True, exist_ok=True)
    initialise_disk(folder, place.part, config.stripe, durable)
    journal, image = JournalFile.open(folder / place.part / "journal", durable=durable)
    source = Source(config, place.id, image.life, image, now)
    last = source.witnessed + source.unwitnessed
    try:
        progress = Progress.open(folder / place.part / FILE, source.incarnation, last, durable)
    except BaseException:
        journal.close()
        raise
    return source, ProgressKeeper(journal, progress), progress
