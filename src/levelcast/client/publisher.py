"""Publish the records of a floor from a program: `levelcast.Publisher`.

    with levelcast.Publisher("network.toml", "XNYS", data="data") as floor:
        floor.publish(records)      # an array of `levelcast.records`, of this floor and its symbols

- A background thread runs the floor's driver. A source must resend until its packets are witnessed (rule 10), also
  while the program does other work; a loop in the caller's thread would stop between two calls. Several floors of a
  process can use one thread and one pair of sockets (`levelcast.client.source_loop`).
- With `data`, the floor has the directory of a floor node. After a restart it continues in the same incarnation and
  resends unwitnessed packets. Without `data`, nothing is stored: every start uses a higher incarnation (the time), and
  records that were not witnessed when the process exited may be lost. A floor that has published without a journal
  cannot use one later: its incarnation is higher than that of every journal.
- `publish` fills a queue of bounded size; `room` and `waiting` show it. The thread splits all queued records into
  packets together (`levelcast.client.packet_queue`), so large arrays are fastest.
- Leaving the `with` block waits until everything is witnessed; leaving it by an exception does not.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from levelcast.client.floor_input import FloorCounts, FloorInput
from levelcast.client.packet_queue import MAX_PACKET_BYTES, PacketQueue
from levelcast.client.source_loop import FloorSeat, OwnSockets, SourceLoop
from levelcast.errors import NetError, describe
from levelcast.native.layout import AES_GCM_SIZE, CRC32_SIZE
from levelcast.network import Network, SymbolDirectory, load_network
from levelcast.network.placement import Placement, links_to, place_of, places
from levelcast.network.stripe_config import ring_config
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.events import Event, NodeStart, NodeStop, TornTailCut
from levelcast.protocol.journal_image import JournalImage
from levelcast.records import INSTRUMENT, TRADE, RecordArray
from levelcast.ring.source import Source
from levelcast.runtime.driver import Driver
from levelcast.runtime.event_log import NodeLog
from levelcast.runtime.impairment import Impairment
from levelcast.runtime.key_reload import KeyReload, key_status, load_keys, secure
from levelcast.runtime.sockets import LOOPBACK
from levelcast.storage.disk import initialise_disk
from levelcast.storage.journal.file import JournalFile
from levelcast.storage.node_store import NodeStore
from levelcast.storage.publication import FILE, Progress, ProgressKeeper
from levelcast.version import __version__
from levelcast.wire.packets import DATA_OVERHEAD

if TYPE_CHECKING:
    from levelcast.client.async_publisher import AsyncPublisher
    from levelcast.keys.core_security import CoreSecurity

QUEUE_RECORDS = 4_096
"""Minimum default capacity of the queue."""
MIN_PACKET_BYTES = INSTRUMENT.itemsize + DATA_OVERHEAD
"""A packet must hold a definition."""


class Publisher(FloorCounts):
    """Publish as a trading floor; see the module docstring. `async with` yields an `AsyncPublisher`."""

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
        """Open a floor. Default `packet_bytes`: from the network file; default `queue_records`: one window of credit.

        `impair` injects the delay and loss of the file's links into received datagrams; `loop` is a shared loop.
        """
        if not isinstance(network, Network):
            network = load_network(network)
        if packet_bytes is None:
            packet_bytes = network.carriage.packet_bytes
        least = MIN_PACKET_BYTES + (AES_GCM_SIZE - CRC32_SIZE if network.keys is not None else 0)
        if not least <= packet_bytes <= MAX_PACKET_BYTES:
            raise ValueError(f"packet_bytes is {packet_bytes}; it must be {least} to {MAX_PACKET_BYTES}")
        place = place_of(network, floor)
        if place.floor is None:
            raise NetError(f'"{floor}" is a {place.role.name} of the network; only a floor can publish')
        self.floor = place.floor
        self.directory = SymbolDirectory(network)
        now = time.time_ns()
        config = ring_config(network, place.stripe)
        window = config.credit * (packet_bytes // TRADE.itemsize)
        capacity = queue_records if queue_records is not None else max(QUEUE_RECORDS, window)
        keys = load_keys(network, place.name, place.id, place.role.name, now)
        self._security = security = None if keys is None else secure(keys, config.domain, now)
        with ExitStack() as undo:
            source, keeper, progress = open_floor(network, config, place, data, now, security)
            undo.callback(keeper.close)
            self._loop = loop if loop is not None else SourceLoop(network, place.stripe, interface)
            self._own_loop = loop is None
            if self._own_loop:
                undo.callback(self._loop.close)
            sockets = self._loop.seat(place.id)
            if isinstance(sockets, OwnSockets):
                undo.callback(sockets.close)
            definitions = self.directory.definitions(self.floor, now)
            self.source = source
            self.progress = progress
            self.queue = PacketQueue(source, definitions, progress, self._loop.changed, packet_bytes)
            self._input = FloorInput(self.floor, self.directory, self.queue, self._loop, capacity)
            impairment = Impairment(links_to(network, place), crc32(f"{seed} {floor}".encode())) if impair else None
            self._log = None if data is None else _open_log(network, place, Path(data), source, keeper)
            self._driver = Driver(
                place.id,
                config.domain,
                source,
                sockets,
                keeper,
                impairment=impairment,
                work=self.queue,
                overlay=sockets.sockets if isinstance(sockets, OwnSockets) else None,
                security=security,
                services=() if keys is None or security is None else (KeyReload(keys, security, now, self._note),),
                on_event=None if self._log is None else self._note,
            )
            self._seat = FloorSeat(self._driver, sockets, self.queue)
            self._loop.add(self._seat)
            undo.pop_all()

    # -- status -------------------------------------------------------------------------------------------

    @property
    def published(self) -> int:
        """Records in packets: over all starts with `data`, else since the start."""
        return self.queue.total

    @property
    def witnessed(self) -> int:
        """Published records that every tape will have."""
        return self.queue.witnessed

    @property
    def heard_ns(self) -> int:
        """Time of the last datagram from the ring, by the wall clock; 0: none."""
        return self._loop.heard_ns

    @property
    def namesakes(self) -> int:
        """Datagrams of another process that runs under this floor's name: stop one of them."""
        return self._driver.counters.namesakes

    @property
    def keys(self) -> dict[str, Any] | None:
        """State of the keys in use; None in a network without keys."""
        return key_status(self._security)

    @property
    def warning(self) -> str | None:
        """A problem of the configuration, as one line."""
        return self._loop.warning

    @property
    def settled(self) -> bool:
        """True if all accepted records are witnessed."""
        return self._input.settled

    # -- publishing ---------------------------------------------------------------------------------------

    def publish(self, records: RecordArray, *, block: bool = True, timeout: float | None = None) -> int:
        """Queue records for the ring, in order; return the number accepted.

        Without `block`, accept what fits into the queue now; with `timeout` (seconds), what fits by then.
        Raise ValueError for records that are not this floor's, before any is accepted.
        """
        records = self._input.checked(records)
        deadline = None if timeout is None else time.monotonic() + timeout
        taken = self._input.put(records, 0)
        while taken < len(records) and block:
            with self._loop.changed:
                if not self.room:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return taken
                    self._loop.changed.wait(left if left is not None else 1.0)
            taken = self._input.put(records, taken)
        return taken

    def wait_for_room(self, timeout: float) -> bool:
        """Wait until `publish` can accept records without waiting; False after `timeout` seconds."""
        with self._loop.changed:
            return self._loop.changed.wait_for(lambda: self.room > 0, timeout)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all accepted records are witnessed; False after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._input.check()
            with self._loop.changed:
                if self.settled:
                    return True
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._loop.changed.wait(1.0 if left is None else min(left, 1.0))

    def close(self) -> None:
        """Stop immediately. Drop queued records; with `data`, unwitnessed packets are resent at the next start."""
        if not self._input.closed:
            self._input.closed = True
            self._loop.remove(self._seat)
            if self._own_loop:
                self._loop.close()
            if self._log is not None:
                error = self._loop.error
                self._log.add(NodeStop(0, "closed" if error is None else "error", describe(error) if error else ""))
                self._log.close()

    def _note(self, event: Event) -> None:
        if self._log is not None:
            self._log.add(event)

    # -- context manager ----------------------------------------------------------------------------------

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    async def __aenter__(self) -> AsyncPublisher:
        from levelcast.client.async_publisher import AsyncPublisher

        self._awaited = AsyncPublisher(self._input)
        return self._awaited

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self._awaited.flush()
        finally:
            self.close()


def _open_log(network: Network, place: Placement, data: Path, source: Source, keeper: NodeStore) -> NodeLog:
    """Return the log of a floor, with its start."""
    names = {each.id: each.name for each in places(network, place.stripe)}
    log = NodeLog(data / place.part, place.part, names, network.log)
    for notice in keeper.notices:
        log.add(TornTailCut(0, notice))
    log.add(NodeStart(0, __version__, f"{network.id:016x}", place.role.name, source.incarnation))
    return log


def open_floor(
    network: Network,
    config: StripeConfig,
    place: Placement,
    data: str | PathLike[str] | None,
    now: int,
    security: CoreSecurity | None = None,
) -> tuple[Source, NodeStore, Progress | None]:
    """Create the source from its journal; without `data`, with an incarnation above all earlier ones."""
    sealer = security.sealer if security is not None else None
    if data is None:
        return Source(config, place.id, now, JournalImage(), now, sealer), NodeStore(), None
    folder, durable = Path(data), network.tape.durable
    folder.mkdir(parents=True, exist_ok=True)
    initialise_disk(folder, place.part, config.domain, durable)
    journal, image = JournalFile.open(folder / place.part / "journal", durable=durable)
    source = Source(config, place.id, image.life, image, now, sealer)
    last = source.witnessed + source.unwitnessed
    try:
        progress = Progress.open(folder / place.part / FILE, source.incarnation, last, durable)
    except BaseException:
        journal.close()
        raise
    return source, ProgressKeeper(journal, progress), progress
