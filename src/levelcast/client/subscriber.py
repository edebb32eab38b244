"""Receive the feed over multicast: `levelcast.Subscriber`.

    async with levelcast.Subscriber("network.toml", region="europe", start="snapshot") as tape:
        async for batch in tape:
            ...

- There is one socket for each group that carries requested data, and one for requests and replies. Missing messages
  are requested from the source addresses of the session's packets, latest first. For a session without packets
  so far, source addresses of its stripe are used.
- The plan determines the sessions and groups (`levelcast.edge.subscriber.plan_follower`). Records of many sessions are
  delivered as they arrive, or in one order (`levelcast.edge.subscriber.merge`).
- The region's lines, or several receivers in one group, carry the same numbered bytes: the first arrival counts, the
  others are duplicates. `lines` has the statistics of each.
- The kernel delivers complete trains of packets if it can (UDP_GRO), and the packets of a train are opened together.
- A snapshot is read over TCP from a source address of packets; packets that arrive in the meantime wait.
- With `together`, records wait for their release time and the bound (`levelcast.edge.subscriber.together`) by the wall
  clock. The event loop's timers may fire up to 1 ms late, so the timer is set earlier and the rest is slept. A report
  every 5 s tells the edge how long records needed (`levelcast.wire.delivery_report`).
- Everything runs in the caller's event loop, without threads. When a slow caller has `MAX_QUEUED` batches waiting,
  reading stops: packets that the kernel then drops are requested later.

The protocol is `levelcast.edge.subscriber.session_reader`; here are the sockets, the clock and the arrays.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any, Literal

from levelcast import native, records
from levelcast.client.batches import Batch, BatchQueue, snapshot_batches
from levelcast.client.edge_sockets import GroupSockets, groups_of, line_room, read_snapshot
from levelcast.client.line_stats import LineStats
from levelcast.client.streams import FRESH_NS, Streams
from levelcast.client.symbol_filter import SymbolFilter
from levelcast.client.unicast_sockets import UnicastSockets
from levelcast.edge.subscriber import delivery
from levelcast.edge.subscriber.delivery import Ask, Complete, Deliver, Ended, Grade, Lost, Stuck, SubscriberCounts
from levelcast.edge.subscriber.plan_follower import (
    BASE,
    Closed,
    Followed,
    Happening,
    JoinGroup,
    Leave,
    PlanFollower,
    Replaced,
    Unfit,
)
from levelcast.edge.subscriber.together import TogetherCounts, TogetherQueue
from levelcast.errors import NetError
from levelcast.network import MulticastGroup, Network, load_network
from levelcast.network.model import LONGEST_TOGETHER_NS
from levelcast.network.sessions import stripe_session
from levelcast.runtime.clock_sync import chrony_tracking, kernel_clock
from levelcast.runtime.sockets import LOOPBACK, Address
from levelcast.units import NS_PER_UNIT, parse_amount, show_ns
from levelcast.wire.channel_plan import ChannelPlan
from levelcast.wire.delivery_report import REPORT_EVERY_NS, encode_delivery_report
from levelcast.wire.header import Malformed
from levelcast.wire.mold import HEADER_SIZE, Block, Heartbeat, decode, session_name
from levelcast.wire.snapshot import Snapshot
from levelcast.wire.watermark import Watermark

__all__ = ["Batch", "Grade", "Lost", "Replaced", "Start", "Stuck", "Subscriber", "Unfit"]

Start = Literal["now", "snapshot"] | Mapping[str, int]
Event = Lost | Stuck | Ended | Replaced | Unfit

MAX_DRAIN = 256
"""Maximum datagrams read from a socket before returning to the event loop."""
MAX_QUEUED = 4_096
MAX_EARLY = 16_384
"""Packets kept while the snapshot is read."""
TIMER_GRAIN_NS = 1_000_000
"""Timers of the event loop have milliseconds."""
SNAPSHOT_LIMIT_S = 30.0
SNAPSHOT_AGAIN_S = 0.2


class Subscriber:
    """A region's feed as an asynchronous iterator of batches.

    | argument    | meaning |
    |-------------|------|
    | `network`   | the network, or the path of its file |
    | `region`    | the region of the groups to join; optional if there is only one |
    | `sessions`  | names of the sessions to receive; default: all |
    | `grade`     | `Grade.GUARANTEED` (or "guaranteed") requests missing messages; "best effort" skips them; "latest only" never waits, and requests only messages that may have a newest price |
    | `start`     | "now": from the first packet received; "snapshot": after a snapshot, without a gap; or `{session: sequence}`, and other sessions from the first packet received |
    | `symbols`   | symbols or instrument ids to receive, in addition to records of no instrument; default: all. Only sessions and groups that carry them are followed |
    | `line`      | capacity of each line of the subscriber, such as "1.5Mbit": groups are joined only while their rates fit, and `unfit` has the symbols of the others; default: unlimited |
    | `merged`    | true: deliver the records of all sessions in one order, by time, stripe and position on the tape |
    | `together`  | deliver each record at its release time plus this bound, such as "25ms", so that subscribers at different distances receive it at the same time; "off": as it arrives; default: `together` of `[edge]` in the network file |
    | `watermarks`| true: deliver a batch without records for each watermark, so that time advances without records |
    | `arrivals`  | true: `lines` record the arrival time of the first byte of each slot, to measure the spread |
    | `on_event`  | called with `Lost`, `Stuck`, `Ended`, `Replaced` (another plan is active) and `Unfit` as they happen |
    | `interface` | address of the interface of the groups; default: loopback |
    | `transport` | "multicast", or "unicast": register with the edges of the region, which send copies of the packets |

    The iterator stops when every received session has ended.
    """  # fmt: skip # noqa: E501 - a table

    def __init__(
        self,
        network: Network | str | PathLike[str],
        region: str | None = None,
        sessions: Iterable[str] | None = None,
        grade: Grade | str = Grade.GUARANTEED,
        start: Start = "now",
        symbols: Iterable[str | int] | None = None,
        *,
        line: str | None = None,
        merged: bool = False,
        together: str | None = None,
        watermarks: bool = False,
        arrivals: bool = False,
        on_event: Callable[[Event], None] | None = None,
        interface: str = LOOPBACK,
        transport: Literal["multicast", "unicast"] = "multicast",
        config: delivery.SubscriberConfig | None = None,
    ) -> None:
        self.network = network if isinstance(network, Network) else load_network(network)
        self.groups = groups_of(self.network, region)
        self._room = None if line is None else line_room(self.network, self.groups, line)
        self._unfit: dict[int, tuple[int, ...]] = {}
        self.snapshots: list[Snapshot] = []
        """One per stripe, if the caller or the symbols require them."""
        self._config = config or delivery.SubscriberConfig(grade=_checked_grade(grade))
        self._sessions = None if sessions is None else [_session(name) for name in sessions]
        self._start = _checked_start(start)
        bound_ns = together_bound_ns(self.network, together)
        in_order = self._config.grade is not Grade.LATEST_ONLY
        self._together = None if bound_ns is None else TogetherQueue(bound_ns, in_order=in_order)
        self.clock_doubt: str | None = None
        """With `together`: why this machine's clock may be wrong; None if a time source vouches for it."""
        self._wanted = SymbolFilter(self.network, symbols)
        self._on_event = on_event
        self._core: PlanFollower | None = None
        self._early: deque[bytes | Block] = deque()
        self._early_packets = 0
        self._streams = Streams(self._config.max_sessions)
        self._batches = BatchQueue(self._streams, self._wanted, merged=merged, watermarks=watermarks)
        self._queue = self._batches.batches
        self._error: Exception | None = None
        self._news: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._release_timer: asyncio.TimerHandle | None = None
        self._report_timer: asyncio.TimerHandle | None = None
        self._name = secrets.randbits(64)
        """The subscriber in its reports."""
        self._sockets = _open_sockets(self.network, self.groups, transport, interface, self._readable, arrivals)
        self._closed = False

    @property
    def counts(self) -> SubscriberCounts:
        """Counts of packets, gaps, requests and lost messages."""
        return self._core.counts if self._core is not None else SubscriberCounts()

    @property
    def together(self) -> TogetherCounts | None:
        """Counts of records delivered together and of late ones; None without a bound."""
        return self._together.counts if self._together is not None else None

    @property
    def together_ns(self) -> int | None:
        """The bound after the release time; None without one."""
        return self._together.bound_ns if self._together is not None else None

    @property
    def lines(self) -> dict[str, LineStats]:
        """Statistics of each line, or of each group that is not a line."""
        return {line.name: line for line in self._sockets.lines}

    @property
    def symbols(self) -> dict[int, str]:
        """Instrument ids and their symbols, from the network file and from received definitions."""
        return self._wanted.symbols

    @property
    def unfit(self) -> list[str]:
        """Requested symbols that are not received, because `line` has no room for their groups."""
        return sorted({self.symbols.get(each, str(each)) for some in self._unfit.values() for each in some})

    @property
    def watermarks(self) -> dict[str, Watermark]:
        """The last watermark of each session."""
        return self._streams.watermarks

    @property
    def heard(self) -> bool:
        """True if anything has been received."""
        return bool(self._streams)

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot, if there is one stripe."""
        return self.snapshots[0] if self.snapshots else None

    @property
    def last(self) -> list[Batch]:
        """The selected records of the snapshots: by stripe and type, each in the tape's order."""
        return [batch for snapshot in self.snapshots for batch in snapshot_batches(snapshot, self._wanted)]

    @property
    def positions(self) -> dict[str, int]:
        """The next sequence of each session: with them as `start`, another subscriber continues from here."""
        found = self._core.positions if self._core is not None else {}
        if self._together is not None:
            found = {name: self._together.position(name) or following for name, following in found.items()}
        return {name.decode().rstrip(): following for name, following in found.items()}

    @property
    def plans(self) -> dict[str, int]:
        """The number of the active plan of each stripe; 0 for none."""
        names = {stripe.index: stripe.name for stripe in self.network.stripes}
        known = self._core.plans if self._core is not None else {}
        return {names.get(stripe, str(stripe)): number for stripe, number in known.items()}

    @property
    def channel_plans(self) -> dict[str, ChannelPlan | None]:
        """The active plan of each stripe, where it is known; None: one session for all."""
        names = {stripe.index: stripe.name for stripe in self.network.stripes}
        known = self._core.channel_plans if self._core is not None else {}
        return {names[stripe]: plan for stripe, plan in known.items() if stripe in names}

    def skip(self, session: str, upto: int | None = None) -> None:
        """Skip the gap at which a session is stuck, or its missing messages before a sequence (`Stuck.left`)."""
        if self._core is not None:
            self._perform(self._core.skip(_session(session), time.monotonic_ns(), upto))

    # -- the caller's side --------------------------------------------------------------------------------

    async def __aenter__(self) -> Subscriber:
        self._loop = asyncio.get_running_loop()
        if self._together is not None:
            self.clock_doubt = await asyncio.to_thread(clock_doubt)
        try:
            self._sockets.open(self._loop)
            self._sockets.join(BASE)
            self._sockets.read()
            if self._start == "snapshot" or self._wanted.unknown:
                self.snapshots = await self._fetch_snapshots()
                for snapshot in self.snapshots:
                    self._wanted.note_definitions(snapshot.records)
            self._wanted.settle()
            self._begin()
            self._arm_report()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def __aiter__(self) -> Subscriber:
        return self

    async def __anext__(self) -> Batch:
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._closed or self._is_over():
                raise StopAsyncIteration
            await self._wait()
        if not self._sockets.reading and self._waiting < MAX_QUEUED // 2:
            self._sockets.read()
        return self._queue.popleft()

    def _is_over(self) -> bool:
        return self._core is not None and self._core.over and not (self._together is not None and len(self._together))

    @property
    def _waiting(self) -> int:
        """Batches that the caller has not read, with those that wait for their time."""
        return len(self._queue) + (len(self._together) if self._together is not None else 0)

    async def _wait(self) -> None:
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # -- start and end ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start the protocol at its start position, with the packets received so far."""
        start: dict[bytes, int] = {}
        if isinstance(self._start, Mapping):
            start = {_session(name): first for name, first in self._start.items()}
        elif self._start == "snapshot":
            start = {name: first for snapshot in self.snapshots for name, first in snapshot.sessions}
        if self._sessions is not None:
            start = {name: first for name, first in start.items() if name in self._sessions}
        ids = self._wanted.ids
        self._core = PlanFollower(
            None if ids is None else ids.tolist(),
            {stripe_session(stripe): stripe.index for stripe in self.network.stripes},
            self._sessions,
            start,
            self._config,
            {stripe.index: self._wanted.prices(stripe) for stripe in self.network.stripes},
            self._room,
        )
        for snapshot in self.snapshots:
            self._batches.know_near(snapshot.stripe, snapshot.next_global)
        early, self._early = list(self._early), deque()
        self._receive(early, time.monotonic_ns())

    def _close(self) -> None:
        self._closed = True
        self._sockets.close()
        for timer in (self._timer, self._release_timer, self._report_timer):
            if timer is not None:
                timer.cancel()
        self._wake()

    # -- the snapshot -------------------------------------------------------------------------------------

    async def _fetch_snapshots(self) -> list[Snapshot]:
        """Read a snapshot of each stripe from any edge that sends; try the next edge if one does not reply."""
        found: dict[int, Snapshot] = {}
        until_ns: int | None = None
        tried: set[Address] = set()
        while len(found) < len(self.network.stripes) and (until_ns is None or time.monotonic_ns() < until_ns):
            while not self._streams:
                await self._wait()
            servers = self._streams.servers()
            server = next((each for each in servers if each not in tried), None)
            if server is None:
                tried.clear()
                await asyncio.sleep(SNAPSHOT_AGAIN_S)
                continue
            tried.add(server)
            with suppress(OSError, EOFError, Malformed, records.BadRecords, asyncio.TimeoutError):
                snapshot = await asyncio.wait_for(read_snapshot(server), SNAPSHOT_LIMIT_S)
                found.setdefault(snapshot.stripe, snapshot)
                until_ns = until_ns or time.monotonic_ns() + FRESH_NS  # a stripe without packets is not running
        return [found[stripe] for stripe in sorted(found)]

    # -- datagrams ----------------------------------------------------------------------------------------

    def _readable(self, each: socket.socket) -> None:
        try:
            now = time.monotonic_ns()
            arrived = native.drain_molds(each.fileno(), MAX_DRAIN, Block)
            if each is self._sockets.own:
                self._receive([item for item, _ in arrived if not self._is_refusal(item)], now)
                return
            line = self._sockets.line_of[each]
            came_ns = time.time_ns() - (time.monotonic_ns() - now)
            messages, before = 0, self._known
            take_reply = self._sockets.take_reply
            arrived = [(item, of) for item, of in arrived if isinstance(item, Block) or not take_reply(each, item, of)]
            for item, source in arrived:
                session = self._streams.hear(item, source, now)
                if self._core is None or self._core.wants(session):
                    messages += line.take(item, came_ns, self._config.max_sessions)
            self._receive([item for item, _ in arrived], now)
            if self._core is not None:
                line.counts.first += max(0, messages - (self._known - before))
        except Exception as error:  # a callback has no caller to raise to; the iterator raises it
            self._fail(error)

    @property
    def _known(self) -> int:
        """Messages that were duplicates, or too late to be used."""
        return self.counts.duplicates + self.counts.late

    def _is_refusal(self, item: bytes | Block) -> bool:
        """Return whether a reply is a heartbeat: requested messages are gone; its sequence is the first available."""
        if type(item) is Block or len(item) != HEADER_SIZE or self._core is None:
            return False
        assert isinstance(item, bytes)
        with suppress(Malformed):
            message = decode(item)
            if isinstance(message, Heartbeat):
                self._core.gone(message.session, message.sequence)
                return True
        return False

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._sockets.pause()
        self._wake()

    def _receive(self, arrived: list[bytes | Block], now: int) -> None:
        if self._core is None:
            self._early.extend(arrived)
            self._early_packets += sum(_packets(item) for item in arrived)
            while self._early_packets > MAX_EARLY:
                self._early_packets -= _packets(self._early.popleft())
            self._wake()
            return
        self._perform(self._core.receive(arrived, now))

    def _on_timer(self) -> None:
        self._timer = None
        try:
            assert self._core is not None
            self._perform(self._core.wake(time.monotonic_ns()))
        except Exception as error:
            self._fail(error)

    def _arm(self) -> None:
        """Set the timer to the protocol's next wake-up, or earlier."""
        assert self._core is not None
        next_ns = self._core.next_ns
        if next_ns is None or self._closed:
            return
        at = self._loop.time() + max(0, next_ns - time.monotonic_ns()) / 1e9
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._on_timer)

    # -- together -----------------------------------------------------------------------------------------

    def _on_release(self) -> None:
        """Deliver the records whose time has come; sleep until it if it is next."""
        self._release_timer = None
        try:
            assert self._together is not None
            next_ns = self._together.next_ns
            if next_ns is not None and 0 < (left_ns := next_ns - time.time_ns()) <= 2 * TIMER_GRAIN_NS:
                time.sleep(left_ns / 1e9)
            self._carry_out(self._together.due(time.time_ns()))
            stopped = self._closed or self._error is not None
            if not self._sockets.reading and not stopped and self._waiting < MAX_QUEUED // 2:
                self._sockets.read()
        except Exception as error:
            self._fail(error)

    def _arm_release(self) -> None:
        """Set the timer to shortly before the next records are due."""
        assert self._together is not None
        next_ns = self._together.next_ns
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None
        if next_ns is not None and not self._closed:
            left_ns = max(0, next_ns - time.time_ns() - TIMER_GRAIN_NS)
            self._release_timer = self._loop.call_later(left_ns / 1e9, self._on_release)

    def _arm_report(self) -> None:
        if self._together is not None:
            self._report_timer = self._loop.call_later(REPORT_EVERY_NS / 1e9, self._send_report)

    def _send_report(self) -> None:
        """Tell the edge that sent last how long records needed; a lost report is not repeated."""
        assert self._together is not None
        report = encode_delivery_report(self._together.report(self._name))
        if (own := self._sockets.own) is not None and (servers := self._streams.servers()):
            with suppress(OSError):
                own.sendto(report, servers[0])
        self._arm_report()

    # -- effects ------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Happening]) -> None:
        if self._together is not None:
            effects = self._together.take(effects, time.time_ns())
        self._carry_out(effects)

    def _carry_out(self, effects: Iterable[Happening]) -> None:
        counts = self.counts
        for effect in effects:
            if isinstance(effect, Deliver):
                self._batches.deliver(effect, counts)
            elif isinstance(effect, Complete):
                assert self._core is not None
                waiting = self._together.position(effect.session) if self._together is not None else None
                self._batches.complete(effect, waiting or self._core.position(effect.session) or 1)
            elif isinstance(effect, Ask):
                self._ask(effect)
            elif isinstance(effect, JoinGroup):
                self._sockets.join(effect.group)
            elif isinstance(effect, Leave):
                self._sockets.leave(effect.group)
            elif isinstance(effect, Followed):
                self._batches.follow(effect)
            elif isinstance(effect, Closed):
                self._batches.end(effect)
            else:
                if isinstance(effect, Replaced):
                    self._streams.forget_before(effect)
                if isinstance(effect, Unfit):
                    self._unfit[effect.stripe] = effect.instruments
                if self._on_event is not None:
                    self._on_event(effect)
        self._batches.merge()
        if self._waiting >= MAX_QUEUED:
            self._sockets.pause()
        self._arm()
        if self._together is not None:
            self._arm_release()
        self._wake()

    def _ask(self, ask: Ask) -> None:
        server = self._streams.server_for(ask, time.monotonic_ns())
        if server is not None and (own := self._sockets.own) is not None:
            with suppress(OSError):  # a lost request is repeated
                own.sendto(ask.datagram, server)


def _packets(item: bytes | Block) -> int:
    return item.packets if type(item) is Block else 1


def _open_sockets(
    network: Network,
    groups: Sequence[MulticastGroup],
    transport: str,
    interface: str,
    on_readable: Callable[[socket.socket], None],
    arrivals: bool,
) -> GroupSockets:
    if transport == "unicast":
        return UnicastSockets(network, groups, interface, on_readable, arrivals=arrivals)
    if transport != "multicast":
        raise NetError(f'"{transport}" is not a transport of a subscriber; use "multicast" or "unicast"')
    return GroupSockets(groups, interface, on_readable, arrivals=arrivals)


# -- arguments --------------------------------------------------------------------------------------------


def _session(name: str) -> bytes:
    try:
        return session_name(name)
    except ValueError as error:
        raise NetError(str(error)) from None


def _checked_grade(grade: Grade | str) -> Grade:
    try:
        return Grade(grade)
    except ValueError:
        known = ", ".join(f'"{each.value}"' for each in Grade)
        raise NetError(f'"{grade}" is not a grade of service; use one of {known}') from None


def together_bound_ns(network: Network, together: str | None) -> int | None:
    """Return the bound of an option, or that of the network file; None for delivery on arrival."""
    if together is None:
        return network.edge.together_ns
    if together == "off":
        return None
    amount = parse_amount(together, NS_PER_UNIT)
    if amount is None or not 0 < amount <= LONGEST_TOGETHER_NS:
        longest = show_ns(LONGEST_TOGETHER_NS)
        raise NetError(f'together "{together}" is not a time up to {longest}, such as "25ms", nor "off"')
    return int(amount)


def clock_doubt() -> str | None:
    """Return why this machine's clock may be wrong; None if the kernel or chronyd reports a time source."""
    kernel = kernel_clock()
    if (kernel is not None and kernel.synchronised) or chrony_tracking() is not None:
        return None
    why = (
        "the kernel does not report its clock's state" if kernel is None else "the kernel reports it as unsynchronised"
    )
    return f"no time source vouches for this machine's clock: {why}, and chronyd does not run or has no source"


def _checked_start(start: Any) -> Start:
    if start in ("now", "snapshot"):
        return "now" if start == "now" else "snapshot"
    if not isinstance(start, Mapping) or not all(isinstance(each, int) and each >= 1 for each in start.values()):
        raise NetError('start must be "now", "snapshot", or a sequence of 1 or more for each session\'s name')
    return start
