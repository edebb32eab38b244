"""The edge of a receiver over sockets: what is released goes to the region's groups, and customers are answered.

| socket | bound to                   | sends                                | receives                     |
|--------|----------------------------|--------------------------------------|------------------------------|
| UDP    | a port of its own          | packets to the groups, answers       | requests for what was missed |
| TCP    | the same number, for TCP   | a snapshot to whoever connects       | nothing                      |

- The retransmit server of a packet, and the place to get a snapshot, is where the packet came from. So there is nothing
  to configure, and an edge that was restarted is found again by its first packet.
- A released frame is sent first and kept afterwards. Nothing blocks: what the kernel has no room for is a lost packet,
  and is asked for; a customer that does not read its snapshot is dropped.
- A group that is a line has one sender at a time (`levelcast.network.line_assignment`). With every ring that the
  receiver enters it is computed anew which lines it has; one that it takes over hears a heartbeat first, so that
  customers know whom to ask.
- What a slot releases leaves in one system call for each group and 64 kB. Nothing here runs per packet.
- A receiver that catches up has many late frames at once, more than a customer's socket holds. What is more than
  `PACE_BURST` is paced, `PACE_BYTES` every `PACE_NS`; a frame that is on time never waits behind it.
- A receiver that stops is not the end of a session. `end_sessions` is, at the end of a day.
- The state is saved every so many frames and at the end, and the one before it is kept. A start goes back to that one
  and replays the tape: this fills the store of the retransmit server too, so that customers can ask for what was sent
  before the restart.

- Requests are answered one by one, or once to the groups where several customers want the same
  (`levelcast.edge.server.request_policy`); such an answer is paced like a late frame. Who asks too fast is refused.
- What has left that store is taken from the tape (`levelcast.node.edge_archive`), a slice in a turn, and none when the
  ring is about to be due.

    DATA/NAME/edge/state          `levelcast.edge.server.feed`
    DATA/NAME/edge/state.before
    DATA/NAME/edge/marks          `levelcast.node.edge_archive`
"""

from __future__ import annotations

import errno
import socket
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from levelcast.edge.server.feed import Feed, FeedState, decode_state
from levelcast.edge.server.line_rate import LineRate
from levelcast.edge.server.packetizer import GatherConfig, Outgoing, SessionMap
from levelcast.edge.server.plan_switch import PlanLimits
from levelcast.edge.server.request_policy import RequestPolicy, Route
from levelcast.edge.server.retransmit_store import RetransmitConfig
from levelcast.errors import NetError
from levelcast.network import MulticastGroup, Network, Stripe
from levelcast.network.line_assignment import LineAssignment
from levelcast.network.sessions import stripe_session
from levelcast.node.edge_archive import Archive, FeedCheckpoints
from levelcast.protocol.effects import Release
from levelcast.runtime.sockets import Address, SendCounts, Sender
from levelcast.storage.append_file import AppendFile, TapeError
from levelcast.storage.tape.segments import TapeReader
from levelcast.wire.header import Malformed
from levelcast.wire.messages import CONTROL_SOURCE
from levelcast.wire.mold import split_train

STATE = Path("edge") / "state"
MARKS = Path("edge") / "marks"
SEND_BUFFER = 4 << 20
REQUEST_BUFFER = 4 << 20
"""Some thousand requests: one customer's flood should not crowd out the others."""
MAX_REQUESTS = 32
"""Requests that are answered in one turn, those of one customer, and that are read: to refuse one costs little."""
MAX_OF_ONE = 24
MAX_READ = 256
MAX_CLIENTS = 32
"""Customers that may be reading a snapshot at one time."""
SNAPSHOT_AGE_NS = 200_000_000
"""One snapshot serves everybody who asks within this time: the difference comes by retransmission."""
CLIENT_CHUNK = 256 << 10
CLIENT_POLL_NS = 1_000_000
CLIENT_SILENCE_NS = 5_000_000_000
"""A customer that takes nothing for so long is dropped, and so is one that is not done in `CLIENT_LIMIT_NS`."""
CLIENT_LIMIT_NS = 60_000_000_000
SAVE_FRAMES = 1_000
SAVE_RECORDS = 250_000
"""The state is saved after so many frames or records, whichever comes first."""
PACE_BURST = 2 << 20
PACE_BYTES = 512 << 10
PACE_NS = 1_000_000
MAX_BACKLOG = 32 << 20
"""Bytes of late frames that wait; beyond this the oldest of them go at once."""
DIG_GAP_NS = 1_000_000
"""What the ring must have left, when a slice of the tape is read; if it never has, one is read in `DIG_PATIENCE_NS`."""
DIG_PATIENCE_NS = 20_000_000
END_TIMES = 3
END_EVERY_NS = 100_000_000
_PORT_ATTEMPTS = 32


def everything_in_one(stripe: Stripe) -> SessionMap:
    """The plan before the first that the tape has: one session holds all that a stripe releases."""
    return SessionMap({}, stripe_session(stripe))


def plan_status(feed: Feed) -> dict[str, Any]:
    """The plan in force, and what became of the one that came last."""
    plans = feed.plans
    told: dict[str, Any] = {"number": plans.number, "sessions": feed.sessions}
    if plans.current is not None:
        told |= {"digest": plans.current.digest.hex(), "groups": len(set(plans.current.groups.tolist()))}
    if plans.ready is not None:
        told["ready"] = {"number": plans.ready.number, "digest": plans.ready.digest.hex()}
    if plans.refused is not None:
        number, reason, digest = plans.refused
        told["refused"] = {"number": number, "digest": digest.hex(), "reason": reason}
    return told


# -- from disk --------------------------------------------------------------------------------------------


def restore(
    tape: TapeReader,
    path: Path,
    plan: SessionMap,
    config: GatherConfig | None = None,
    retransmit: RetransmitConfig | None = None,
    marks: FeedCheckpoints | None = None,
    limits: PlanLimits | None = None,
) -> Feed:
    """The feed at the end of a tape: from a state at `path`, if it fits the tape, and the frames behind it."""
    feed = Feed(plan, tape.stripe, config, retransmit, limits=limits)
    for state in (_read_state(_before(path)), _read_state(path)):
        if state is not None and feed.fits(state) and _is_on(tape, state):
            feed = Feed(plan, tape.stripe, config, retransmit, state, limits)
            break
    else:
        if tape.before.next_sequence > 1:
            raise TapeError(
                f"{path}: is not there or does not fit the tape, and the beginning of the tape is gone, so packets "
                "cannot be numbered as others number them: copy this file from another receiver"
            )
    if marks is not None:
        marks.begin(feed)
    for frame in tape.frames(after_slot=feed.slot):
        content = frame.data()
        feed.book(feed.release(frame.line, content, 0), content)
        if marks is not None:
            marks.note(feed)
    return feed


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")


def _read_state(path: Path) -> FeedState | None:
    try:
        return decode_state(path.read_bytes())
    except (FileNotFoundError, Malformed):
        return None


def _is_on(tape: TapeReader, state: FeedState) -> bool:
    return tape.before.slot <= state.slot <= tape.tip().slot and tape.chain_at(state.slot) == state.chain


# -- sockets ----------------------------------------------------------------------------------------------


def _join(sent: Sequence[Outgoing]) -> tuple[bytes, bytes]:
    """The packets of several sessions, or steps, back to back."""
    starts = accumulate((len(out.buffer) for out in sent), initial=0)
    ends = [np.frombuffer(out.ends, "<u4") + np.uint32(start) for out, start in zip(sent, starts, strict=False)]
    return b"".join([out.buffer for out in sent]), np.concatenate(ends).astype("<u4").tobytes()


@lru_cache(maxsize=4_096)
def _member(block: Address, place: int) -> Address:
    """One group of a block."""
    return str(IPv4Address(block[0]) + place), block[1]


def _open_sockets(interface: str, ttl: int) -> tuple[socket.socket, socket.socket]:
    """A UDP and a TCP socket with the same port number."""
    for _ in range(_PORT_ATTEMPTS):
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            udp.bind((interface, 0))
            tcp.bind(udp.getsockname())
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, REQUEST_BUFFER)
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            tcp.listen(MAX_CLIENTS)
            udp.setblocking(False)
            tcp.setblocking(False)
        except OSError as error:
            udp.close()
            tcp.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise NetError(f"the edge cannot have a socket on {interface}: {error.strerror}") from error
        return udp, tcp
    raise NetError(f"the edge found no port on {interface} that is free for both UDP and TCP: end some programs")


@dataclass(slots=True)
class _Client:
    """A customer that reads a snapshot."""

    socket: socket.socket
    rest: memoryview
    until_ns: int
    silent_ns: int


@dataclass(slots=True)
class EdgeCounts:
    """What the edge has done since it was started."""

    packets: int = 0
    """Sent to groups; one that went to two groups counts twice."""
    bytes: int = 0
    """Of what was handed to the kernel."""
    unsent: Counter[str] = field(default_factory=Counter)
    """Packets that the kernel did not take, by reason."""
    snapshots: int = 0
    clients_dropped: int = 0
    states_unsaved: int = 0


class EdgeService:
    """The edge of one receiver, as a `Service` of the driver."""

    def __init__(
        self,
        feed: Feed,
        groups: Sequence[Address],
        interface: str,
        complete_upto_ns: Callable[[], int],
        state_path: Path,
        now: int,
        *,
        ttl: int = 1,
        trains: bool = False,
        lines: LineAssignment | None = None,
        members: Callable[[], tuple[int, ...]] = tuple,
        archive: Archive | None = None,
        ring_ns: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.feed = feed
        self.counts = EdgeCounts()
        self._groups = tuple(groups)
        """The first group of each block."""
        self._rates: dict[Address, int] = {}
        """Bytes a second, of the blocks whose lines are narrow."""
        self._narrow: dict[tuple[Address, int], LineRate] = {}
        """By block and place in it."""
        self._names: tuple[str, ...] = ()
        self._lines = lines
        self._members = members
        self._seen: tuple[int, ...] = ()
        """The ring for which the lines were assigned."""
        self._ttl = ttl
        self._ttls: dict[Address, int] = {}
        """Of groups that have one of their own; `_scope` is that of the socket."""
        self._scope = ttl
        self._complete_upto_ns = complete_upto_ns
        self._state_path = state_path
        self._now = now
        self._saved_at = (0, 0)
        self._unbooked: list[tuple[list[Outgoing], bytes | bytearray]] = []
        self._backlog: deque[Outgoing] = deque()
        self._backlog_bytes = 0
        self._pace = (0, 0)
        """When something that was not on time went last, and how many bytes of such could have gone still."""
        self._clients: list[_Client] = []
        self._poll_ns: int | None = None
        self._snapshot = (0, b"")
        self._ends = (0, 0)
        self._archive = archive
        self._ring_ns = ring_ns
        self._dug_ns = 0
        self._dig_ns: int | None = None
        self._unanswered = 0
        """Requests for what had just been sent to the groups."""
        self._desk = RequestPolicy(now=now)
        self._udp, self._tcp = _open_sockets(interface, ttl)
        self._sender = Sender(self._udp, SendCounts(), trains)
        self.filenos: Sequence[int] = (self._udp.fileno(), self._tcp.fileno())
        self.address: Address = self._udp.getsockname()
        feed.heartbeats(now)  # the next ones are due an interval from here

    @classmethod
    def open(
        cls,
        network: Network,
        receiver: str,
        stripe: str,
        directory: Path,
        interface: str,
        complete_upto_ns: Callable[[], int],
        now: int,
        ring_ns: Callable[[], int | None] = lambda: None,
        members: Callable[[], tuple[int, ...]] = tuple,
    ) -> EdgeService:
        """The edge of a receiver whose tape is in `directory`; the tape is mended before.

        `ring_ns` says when the ring is due next: work that can wait keeps out of its way. `members` are the primaries
        of the ring in which the receiver is, none while it is in none: by them it knows its lines.
        """
        path = directory / STATE
        path.parent.mkdir(exist_ok=True)
        plan = everything_in_one(network.stripe(stripe))
        edge = network.edge
        config = GatherConfig(packet_bytes=edge.packet_bytes, watermark_ns=edge.watermark_ns)
        retransmit = RetransmitConfig(edge.store_bytes, edge.packet_bytes)
        tape = TapeReader(directory / "tape")
        marks = FeedCheckpoints(directory / MARKS, tape, network.tape.segment_records)
        feed = restore(tape, path, plan, config, retransmit, marks, PlanLimits.of_network(network))
        lines = LineAssignment(network, receiver)
        service = cls(
            feed,
            (),
            interface,
            complete_upto_ns,
            path,
            now,
            ttl=edge.ttl,
            trains=edge.trains,
            lines=lines,
            members=members,
            archive=Archive(directory / "tape", feed, marks),
            ring_ns=ring_ns,
        )
        try:
            service.assign(lines.groups(()), must=True)
        except BaseException:
            service.close()
            raise
        return service

    # -- as a service of the driver -----------------------------------------------------------------------

    @property
    def wake_ns(self) -> int | None:
        """When a heartbeat, a late frame, a slow customer or an end of session is due."""
        paced_ns = self._pace[0] + PACE_NS if self._backlog else None
        ends_ns = self._ends[1] if self._ends[0] else None
        lines_ns = min((at for line in self._narrow.values() if (at := line.next_ns) is not None), default=None)
        times = (self.feed.next_ns, paced_ns, self._poll_ns, self._dig_ns, ends_ns, lines_ns)
        return min((time for time in times if time is not None), default=None)

    def released(self, release: Release, content: bytes | bytearray, now: int) -> None:
        """Send a frame's packets; they are kept, and the snapshot follows, when there is time (`step`)."""
        feed = self.feed
        if feed.ended:
            return
        control = any(run.source == CONTROL_SOURCE for run in release.frame.runs)
        self._now = now
        sent = feed.release(release.frame, content, now, control=control)
        if release.late:
            self._send_paced(sent, now)
        else:
            self._send(sent)
        self._unbooked.append((sent, content))
        if self._archive is not None:
            self._archive.marks.note(feed)

    def _book(self) -> None:
        for sent, content in self._unbooked:
            self.feed.book(sent, content)
        self._unbooked.clear()

    def step(self, ready: Collection[int], now: int) -> None:
        """What was sent is kept; watermarks, heartbeats, answers, snapshots, ends; then the state, when it is time."""
        feed, self._now = self.feed, now
        self._book()
        if self._lines is not None and (members := self._members()) != self._seen:
            self._seen = members
            self.assign(self._lines.groups(members))
        if self._backlog:
            self._send_paced((), now)
        for (block, place), line in self._narrow.items():
            self._drain(block, place, line)
        marks = feed.advance(self._complete_upto_ns(), now)
        if marks:
            self._send_paced(marks, now)
            feed.book(marks)
        next_ns = feed.next_ns
        if next_ns is not None and next_ns <= now:
            self._send(feed.heartbeats(now))
        if self._ends[0] and self._ends[1] <= now:
            self._ends = (self._ends[0] - 1, now + END_EVERY_NS)
            self._send_paced(feed.end(), now)
        if self.filenos[0] in ready:
            self._answer(now)
        if self.filenos[1] in ready:
            self._accept(now)
        if self._clients:
            self._serve(now)
        if self._archive is not None:
            self._dig(self._archive, now)
        frames, records = self._saved_at
        if feed.frames - frames >= SAVE_FRAMES or feed.records - records >= SAVE_RECORDS:
            self._save(rotate=True)

    def assign(self, groups: Sequence[MulticastGroup], *, must: bool = False) -> None:
        """Send to these groups from now on. New ones hear at once that the edge is there; one that `must` be reached
        and cannot is an error."""
        before = set(self._groups)
        self._names = tuple(group.name for group in groups)
        self._groups = tuple((group.address, group.port) for group in groups)
        self._ttls = {(group.address, group.port): group.ttl for group in groups if group.ttl is not None}
        self._rates = {(group.address, group.port): rate for group in groups if (rate := group.rate_bytes) is not None}
        self._narrow = {where: line for where, line in self._narrow.items() if where[0] in self._rates}
        self._announce([group for group in self._groups if group not in before], must)

    def end_sessions(self) -> None:
        """The day is over: every session ends, which is said several times. What is released later stays inside."""
        self._ends = (END_TIMES, 0)

    def close(self) -> None:
        """Let go of the sockets and save the state. With the tape it is all that the next start needs."""
        self._book()
        self._send(list(self._backlog))
        self._backlog.clear()
        if self.feed.frames > self._saved_at[0]:
            self._save(rotate=False)
        if self._archive is not None:
            self._archive.close()
        for client in self._clients:
            client.socket.close()
        self._clients.clear()
        self._udp.close()
        self._tcp.close()

    def status(self) -> dict[str, Any]:
        """What people want to know of the edge, for `--json` too."""
        counts, asked, archive = self.counts, self.feed.retransmitter.counts, self._archive
        refused = {"gone": asked.gone, "ahead": asked.ahead, "unknown session": asked.unknown}
        refused["too fast"] = self._desk.counts.too_fast
        refused["too many waiting"] = archive.counts.too_many if archive is not None else 0
        refused |= {reason.value: number for reason, number in asked.malformed.items()}
        return {
            "address": f"{self.address[0]}:{self.address[1]}",
            "groups": list(self._names),
            "sessions": {name.decode().rstrip(): number for name, number in self.feed.next_sequences.items()},
            "packets": counts.packets,
            "bytes": counts.bytes,
            "unsent": dict(counts.unsent),
            "requests": asked.whole + asked.partly + self._unanswered + sum(refused.values()),
            "shared": self._desk.counts.shared,
            "to_group": self._desk.counts.to_group,
            "retransmitted": asked.packets,
            "from_tape": archive.counts.packets if archive is not None else 0,
            "refused": {reason: number for reason, number in refused.items() if number},
            "snapshots": counts.snapshots,
            "clients_dropped": counts.clients_dropped,
            "states_unsaved": counts.states_unsaved,
            "unplanned": self.feed.unplanned,
            "plan": plan_status(self.feed),
            "narrow": {
                _member(block, place)[0]: {"behind_s": line.behind_ns / 1e9, "dropped": line.dropped}
                for (block, place), line in self._narrow.items()
            },
        }

    # -- packets ------------------------------------------------------------------------------------------

    def _announce(self, groups: Sequence[Address], must: bool) -> None:
        """Say at once that the edge is there, and find out now whether the groups can be reached."""
        for out in self.feed.announce() if groups else ():
            places = self.feed.groups_of(out.session)
            for block, group in ((block, _member(block, place)) for block in groups for place in places):
                try:
                    self._reach(block)
                    self._udp.sendto(out.buffer, group)
                except OSError as error:
                    if not must:
                        self.counts.unsent[error.strerror or str(error)] += 1
                        continue
                    raise NetError(
                        f"the edge cannot send to {group[0]} port {group[1]} ({error.strerror}): "
                        "ip route add 224.0.0.0/4 dev INTERFACE gives multicast a route"
                    ) from error

    def _reach(self, group: Address) -> None:
        """What is sent next goes as far as the group's scope says (MS §4.3)."""
        ttl = self._ttls.get(group, self._ttl)
        if ttl != self._scope:
            self._udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            self._scope = ttl

    def _send_paced(self, sent: Sequence[Outgoing], now: int) -> None:
        """Send what is not on time, and what waits, in order and as much as may go now."""
        backlog = self._backlog
        backlog.extend(sent)
        self._backlog_bytes += sum(len(out.buffer) for out in sent)
        before_ns, room = self._pace
        room = min(PACE_BURST, room + abs(now - before_ns) * PACE_BYTES // PACE_NS)
        some = []
        while backlog and (room > 0 or self._backlog_bytes > MAX_BACKLOG):
            some.append(backlog.popleft())
            room -= len(some[-1].buffer)
            self._backlog_bytes -= len(some[-1].buffer)
        self._pace = (now, max(room, -PACE_BURST))
        self._send(some)

    def _send(self, sent: Sequence[Outgoing]) -> None:
        """Each session to its groups. A packet that is not taken is lost, and customers ask for it."""
        by_place: dict[int, list[Outgoing]] = {}
        for out in sent:
            for place in self.feed.groups_of(out.session):
                by_place.setdefault(place, []).append(out)
        for place, some in by_place.items():
            buffer, ends = (some[0].buffer, some[0].ends) if len(some) == 1 else _join(some)
            for block in self._groups:
                if block in self._rates:
                    line = self._narrow.setdefault((block, place), LineRate(self._rates[block], self._now))
                    line.push(split_train(buffer, ends))
                    self._drain(block, place, line)
                else:
                    self._send_to(block, place, buffer, ends)

    def _send_to(self, block: Address, place: int, buffer: bytes, ends: bytes) -> None:
        counts = self.counts
        self._reach(block)
        number, error = self._sender.send_buffer(_member(block, place), buffer, ends)
        if error is not None:
            counts.unsent[error.strerror or str(error)] += number
            counts.packets -= number
        counts.packets += len(ends) // 4
        counts.bytes += len(buffer)

    def _drain(self, block: Address, place: int, line: LineRate) -> None:
        """What a narrow line can take now."""
        if due := line.due(self._now):
            ends = b"".join(size.to_bytes(4, "little") for size in accumulate(map(len, due)))
            self._send_to(block, place, b"".join(due), ends)

    def _answer(self, now: int) -> None:
        """Requests: an answer to the socket that asked, or to everybody; now, or when the tape has been read."""
        admitted: Counter[Address] = Counter()
        for _ in range(MAX_READ):
            try:
                request, source = self._udp.recvfrom(64)
            except BlockingIOError:
                return
            except OSError as error:  # the network's word on an answer that did not arrive
                self.counts.unsent[error.strerror or str(error)] += 1
                continue
            if self._desk.admit(source, now, admitted[source] < MAX_OF_ONE):
                self._answer_one(request, source, now)
                admitted[source] += 1
                if admitted.total() == MAX_REQUESTS:
                    return

    def _answer_one(self, request: bytes, customer: Address, now: int) -> None:
        server, archive, desk = self.feed.retransmitter, self._archive, self._desk
        wanted = server.open(request)
        if wanted is None:
            return
        if archive is not None and archive.takes(wanted):
            archive.ask(wanted, customer)
            return
        route = desk.route(customer, wanted, now)
        if route is Route.NOBODY:
            self._unanswered += 1
        elif (found := server.give(wanted)) is not None:
            if desk.answered(customer, found, route, now) is Route.GROUP:
                self._send_paced((found,), now)
            else:
                self._reply(customer, found)

    def _reply(self, customer: Address, answer: Outgoing) -> None:
        number, failed = self._sender.send_buffer(customer, answer.buffer, answer.ends)
        if failed is not None:
            self.counts.unsent[failed.strerror or str(failed)] += number

    def _dig(self, archive: Archive, now: int) -> None:
        """Go on with what has to be read from the tape, a slice at a time and not when the ring is about to be due."""
        archive.marks.save()
        if not archive.is_busy:
            self._dig_ns = None
            archive.rest(now)
            return
        ring_ns = self._ring_ns()
        if ring_ns is not None and ring_ns - now < DIG_GAP_NS and abs(now - self._dug_ns) < DIG_PATIENCE_NS:
            self._dig_ns = max(now, ring_ns) + DIG_GAP_NS // 10
            return
        for customer, answer in archive.work(now):
            self._reply(customer, answer)
        self._dug_ns = now
        self._dig_ns = now

    # -- snapshots ----------------------------------------------------------------------------------------

    def _accept(self, now: int) -> None:
        for _ in range(MAX_CLIENTS):
            try:
                client, _ = self._tcp.accept()
            except OSError:
                return
            if len(self._clients) >= MAX_CLIENTS:
                client.close()
                self.counts.clients_dropped += 1
                continue
            client.setblocking(False)
            made_ns, content = self._snapshot
            if not content or now - made_ns > SNAPSHOT_AGE_NS:
                content = self.feed.snapshot()
                self._snapshot = (now, content)
            limits = (now + CLIENT_LIMIT_NS, now + CLIENT_SILENCE_NS)
            self._clients.append(_Client(client, memoryview(content), *limits))

    def _serve(self, now: int) -> None:
        """Give every customer as much as it takes now."""
        for client in list(self._clients):
            try:
                sent = client.socket.send(client.rest[:CLIENT_CHUNK])
                client.rest = client.rest[sent:]
                client.silent_ns = now + CLIENT_SILENCE_NS
            except BlockingIOError:
                pass
            except OSError:  # it has gone
                client.until_ns = 0
            done = not client.rest
            if done or now >= min(client.until_ns, client.silent_ns):
                self._clients.remove(client)
                client.socket.close()
                self.counts.snapshots += done
                self.counts.clients_dropped += not done
        self._poll_ns = now + CLIENT_POLL_NS if self._clients else None

    # -- the state ----------------------------------------------------------------------------------------

    def _save(self, *, rotate: bool) -> None:
        """Save the state; `rotate` keeps the one that was saved before it."""
        self._saved_at = (self.feed.frames, self.feed.records)
        try:
            if rotate:
                with suppress(FileNotFoundError):
                    self._state_path.rename(_before(self._state_path))
            AppendFile.create(self._state_path, self.feed.state()).close()
        except (OSError, TapeError):  # the tape has everything: only the next start takes longer
            self.counts.states_unsaved += 1
