"""The sending side of an edge, sans I/O: send released frames to multicast groups, and answer requests.

An `EdgeServer` receives released frames, requests and the time, and returns effects that its driver performs in order.
A node drives it over sockets (`levelcast.node.edge_service`), the simulator over virtual links (`levelcast.sim.edges`).

- A released frame is sent first; the next step stores it for retransmission. The packets of one slot are one
  `Multicast` per group. No code here runs per packet, except on a line with a rate.
- A receiver that catches up has many late frames in one batch, more than a subscriber's socket holds. Bytes beyond
  `pace_burst` are paced at `pace_rate`; a frame that is on time never waits for them.
- The packets over a line with a rate, retransmissions included, are sent at most at that rate, which all stripes share
  (`levelcast.edge.server.line_rate`).
- Requests are answered individually, or once to the groups if several subscribers request the same messages
  (`levelcast.edge.server.request_policy`); such an answer is paced like a late frame. A subscriber that sends requests
  too fast is refused.
- Subscribers that deliver together report their delays to the same address (`levelcast.edge.server.delivery_reports`).
- Messages that have left the store are read from the tape (`levelcast.edge.server.archive`): one slice per call of
  `work`, and none shortly before the ring is due.
- A receiver that stops does not end its sessions. `end_sessions` does, at the end of a day.
- The state is saved every `save_frames` frames and at the end. The previous state is kept: a start begins there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np

from levelcast.edge.server.archive import Archive
from levelcast.edge.server.delivery_reports import DeliveryReports
from levelcast.edge.server.feed import END_EVERY_NS, END_TIMES
from levelcast.edge.server.line_budget import LineBudget
from levelcast.edge.server.line_rate import LineRate
from levelcast.edge.server.packetizer import Outgoing
from levelcast.edge.server.request_policy import RequestPolicy, RequestPolicyConfig, Route
from levelcast.network.model import MulticastGroup
from levelcast.protocol.effects import Release
from levelcast.protocol.rate import RateLimit
from levelcast.wire import mold
from levelcast.wire.delivery_report import REPORT_BYTES, decode_delivery_report
from levelcast.wire.header import Malformed
from levelcast.wire.messages import CONTROL_SOURCE

SNAPSHOT_AGE_NS = 200_000_000
"""Maximum age of a snapshot, which all subscribers use; they get the difference by retransmission."""
DIG_GAP_NS = 1_000_000
"""Minimum time before the ring is due to read a slice; if there never is, read one every `DIG_PATIENCE_NS`."""
DIG_PATIENCE_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class EdgeConfig:
    """Limits of an edge's work."""

    pace_rate: int = 524_288_000
    """Rate in bytes/s of late frames and of answers to groups."""
    pace_burst: int = 2 << 20
    pace_ns: int = 1_000_000
    """Time between two sends of queued packets."""
    max_backlog: int = 32 << 20
    """Maximum bytes of queued late frames; above this, the oldest are sent immediately."""
    save_frames: int = 1_000
    save_records: int = 250_000
    """Save the state after this many frames or records, whichever is first."""
    max_requests: int = 32
    """Maximum requests per step: answered, answered per subscriber, and read (a refusal costs little)."""
    max_of_one: int = 24
    max_read: int = 256
    policy: RequestPolicyConfig = field(default_factory=RequestPolicyConfig)


class Multicast(NamedTuple):
    """Send packets to one group of a range."""

    group: MulticastGroup
    number: int
    """Number of the group in its range: the address is the range's first address + `number`."""
    buffer: bytes
    """The packets back to back."""
    ends: bytes
    """End offset of each packet in `buffer`: little-endian u32."""


class Reply(NamedTuple):
    """Send packets to the subscriber that requested them."""

    to: Hashable
    buffer: bytes
    ends: bytes


class SaveState(NamedTuple):
    """Write the state; `keep_previous` keeps the previously written one."""

    content: bytes
    keep_previous: bool


EdgeEffect = Multicast | Reply | SaveState


def own_budget(group: MulticastGroup, number: int) -> LineBudget:
    """Return the budget of a line that only this edge uses."""
    assert group.rate_bytes is not None
    return LineBudget(group.rate_bytes)


def _join(sent: Sequence[Outgoing]) -> tuple[bytes, bytes]:
    """Join the packets of several sessions or steps."""
    if len(sent) == 1:
        return sent[0].buffer, sent[0].ends
    starts = accumulate((len(out.buffer) for out in sent), initial=0)
    ends = [np.frombuffer(out.ends, "<u4") + np.uint32(start) for out, start in zip(sent, starts, strict=False)]
    return b"".join([out.buffer for out in sent]), np.concatenate(ends).astype("<u4").tobytes()


class EdgeServer:
    """The edge of one stripe at one receiver. Its archive has the feed at the end of the tape."""

    def __init__(
        self,
        archive: Archive,
        now: int,
        config: EdgeConfig | None = None,
        budget: Callable[[MulticastGroup, int], LineBudget] = own_budget,
    ) -> None:
        """Begin without groups. `budget` returns the budget of a group with a rate."""
        self.archive = archive
        self.feed = archive.live
        self.config = config or EdgeConfig()
        self.groups: tuple[MulticastGroup, ...] = ()
        """The ranges of groups to which the edge sends."""
        self.lines: dict[tuple[MulticastGroup, int], LineRate] = {}
        """Groups with a rate, by range and number."""
        self._budget = budget
        self._effects: list[EdgeEffect] = []
        self._unbooked: list[tuple[list[Outgoing], mold.Buffer]] = []
        self._saved_at = (0, 0)
        self._backlog: deque[tuple[Outgoing, bool]] = deque()
        """Late packets that wait to be sent, and whether they are retransmissions."""
        self._backlog_bytes = 0
        self._pace = RateLimit(self.config.pace_rate, self.config.pace_burst, now)
        self._paced_ns = now
        self._policy = RequestPolicy(self.config.policy, now)
        self.reports = DeliveryReports()
        self._unanswered = 0
        """Requests for messages that had just been sent to the groups."""
        self._snapshot = (0, b"")
        self._ends = (0, 0)
        """Number of times that the session ends are still to be sent, and the time of the next send."""
        self._dug_ns = 0
        self._dig_ns: int | None = None
        self.feed.heartbeats(now)  # the next ones are due an interval from here

    @property
    def wake_ns(self) -> int | None:
        """Time of the next heartbeat, late frame, packet of a slow line, slice of the tape or end of session."""
        paced_ns = self._paced_ns + self.config.pace_ns if self._backlog else None
        ends_ns = self._ends[1] if self._ends[0] else None
        lines_ns = min((at for line in self.lines.values() if (at := line.next_ns) is not None), default=None)
        times = (self.feed.next_ns, paced_ns, self._dig_ns, ends_ns, lines_ns)
        return min((time for time in times if time is not None), default=None)

    # -- interface for the driver -------------------------------------------------------------------------

    def assign(self, groups: Sequence[MulticastGroup], now: int) -> list[EdgeEffect]:
        """Send to these ranges of groups from now on. New ranges get a heartbeat of every session immediately."""
        added = [group for group in groups if group not in self.groups]
        self.groups = tuple(groups)
        for where in [where for where in self.lines if where[0] not in self.groups]:
            self.lines.pop(where).close()
        for out in self.feed.announce() if added else ():
            for group in added:
                for number in self.feed.groups_of(out.session):
                    self._send_to(group, number, out.buffer, out.ends, now)
        return self._take_effects()

    def released(
        self, release: Release, content: bytes | bytearray, now: int, ring_hold_ns: int = 0
    ) -> list[EdgeEffect]:
        """Send a frame's packets. `step` stores them, and adds the records to the snapshot.

        `ring_hold_ns` is the hold time of the ring before all timing records; 0: not known.
        """
        feed = self.feed
        if feed.ended:
            return []
        control = any(run.source == CONTROL_SOURCE for run in release.frame.runs)
        sent = feed.release(release.frame, content, now, control=control)
        feed.ring_holds(ring_hold_ns)
        if release.late or release.delayed:
            self._send_paced(sent, now)
        else:
            self._send(sent, now)
        self._unbooked.append((sent, content))
        self.archive.checkpoints.note(feed)
        return self._take_effects()

    def step(self, requests: Iterable[tuple[Hashable, bytes]], complete_ns: int, now: int) -> list[EdgeEffect]:
        """Store sent packets, send packets that are due, and answer requests.

        `requests` yields subscribers and their datagrams; those not consumed are left for the next step. Every frame up
        to `complete_ns` has been released.
        """
        feed = self.feed
        self._book()
        if self._backlog:
            self._send_paced((), now)
        for (group, number), line in self.lines.items():
            self._drain(group, number, line, now)
        watermarks = feed.advance(complete_ns, now)
        if watermarks:
            self._send_paced(watermarks, now)
            feed.book(watermarks)
        next_ns = feed.next_ns
        if next_ns is not None and next_ns <= now:
            self._send(feed.heartbeats(now), now)
        if self._ends[0] and self._ends[1] <= now:
            self._ends = (self._ends[0] - 1, now + END_EVERY_NS)
            self._send_paced(feed.end(), now)
        if requests:
            self._answer(requests, now)
        return self._take_effects()

    def work(self, ring_ns: int | None, now: int) -> list[EdgeEffect]:
        """Do deferred work: read a slice of the tape, and save the state. The ring is due next at `ring_ns`."""
        self._dig(ring_ns, now)
        feed, config, (frames, records) = self.feed, self.config, self._saved_at
        if feed.frames - frames >= config.save_frames or feed.records - records >= config.save_records:
            self._save(keep_previous=True)
        return self._take_effects()

    def end_sessions(self) -> None:
        """End every session, several times. Frames released later are not sent."""
        self._ends = (END_TIMES, 0)

    def snapshot(self, now: int) -> bytes:
        """Return the last price of each symbol, and the next number of each session."""
        made_ns, content = self._snapshot
        if not content or now - made_ns > SNAPSHOT_AGE_NS:
            content = self.feed.snapshot()
            self._snapshot = (now, content)
        return content

    def close(self, now: int) -> list[EdgeEffect]:
        """Send queued packets and save the state. The next start needs only this state and the tape."""
        self._book()
        self._send([out for out, _ in self._backlog], now)
        self._backlog.clear()
        for line in self.lines.values():
            line.close()
        self.lines.clear()
        if self.feed.frames > self._saved_at[0]:
            self._save(keep_previous=False)
        self.archive.close()
        return self._take_effects()

    def status(self) -> dict[str, Any]:
        """Return counts and positions, as in a node's status."""
        asked, archive, policy = self.feed.retransmitter.counts, self.archive, self._policy.counts
        refused = {"gone": asked.gone, "ahead": asked.ahead, "unknown session": asked.unknown}
        refused["too fast"] = policy.too_fast
        refused["too many waiting"] = archive.counts.too_many
        refused |= {reason.value: number for reason, number in asked.malformed.items()}
        return {
            "groups": [group.name for group in self.groups],
            "sessions": {name.decode().rstrip(): number for name, number in self.feed.next_sequences.items()},
            "requests": asked.whole + asked.partly + self._unanswered + sum(refused.values()),
            "shared": policy.shared,
            "to_group": policy.to_group,
            "retransmitted": asked.packets,
            "from_tape": archive.counts.packets,
            "refused": {reason: number for reason, number in refused.items() if number},
            "unplanned": self.feed.packetizer.unplanned,
            "plan": self._plan_status(),
        }

    def _plan_status(self) -> dict[str, Any]:
        """Return the active plan, and the result of the last plan received."""
        plans = self.feed.plans
        status: dict[str, Any] = {"number": plans.number, "sessions": self.feed.sessions}
        if plans.current is not None:
            status |= {"digest": plans.current.digest.hex(), "groups": len(set(plans.current.groups.tolist()))}
        if plans.ready is not None:
            status["ready"] = {"number": plans.ready.number, "digest": plans.ready.digest.hex()}
        if plans.refused is not None:
            number, reason, digest = plans.refused
            status["refused"] = {"number": number, "digest": digest.hex(), "reason": reason}
        return status

    def _take_effects(self) -> list[EdgeEffect]:
        effects, self._effects = self._effects, []
        return effects

    # -- packets ------------------------------------------------------------------------------------------

    def _book(self) -> None:
        for sent, content in self._unbooked:
            self.feed.book(sent, content)
        self._unbooked.clear()

    def _send(self, sent: Sequence[Outgoing], now: int, *, again: bool = False) -> None:
        """Send each session to its groups; `again`: as retransmissions."""
        by_number: dict[int, list[Outgoing]] = {}
        for out in sent:
            for number in self.feed.groups_of(out.session):
                by_number.setdefault(number, []).append(out)
        for number, some in by_number.items():
            buffer, ends = _join(some)
            for group in self.groups:
                self._send_to(group, number, buffer, ends, now, again=again)

    def _send_to(
        self, group: MulticastGroup, number: int, buffer: bytes, ends: bytes, now: int, *, again: bool = False
    ) -> None:
        """Send packets to one group, or queue them for its line."""
        if group.rate_bytes is None:
            self._effects.append(Multicast(group, number, buffer, ends))
            return
        line = self._line(group, number)
        if again:
            line.push_again(mold.split_train(buffer, ends), None, now)
        else:
            line.push(mold.split_train(buffer, ends), now)
        self._drain(group, number, line, now)

    def _reply(self, subscriber: Hashable, found: Outgoing, now: int) -> None:
        """Send packets to one subscriber: over the slowest line that carries their session, if one has a rate."""
        rated = [
            (group.rate_bytes, group, number)
            for group in self.groups
            if group.rate_bytes is not None
            for number in self.feed.groups_of(found.session)
        ]
        if not rated:
            self._effects.append(Reply(subscriber, found.buffer, found.ends))
            return
        _, group, number = min(rated, key=lambda each: each[0])
        line = self._line(group, number)
        line.push_again(found.datagrams, subscriber, now)
        self._drain(group, number, line, now)

    def _line(self, group: MulticastGroup, number: int) -> LineRate:
        line = self.lines.get((group, number))
        if line is None:
            line = self.lines[group, number] = LineRate(self._budget(group, number))
        return line

    def _drain(self, group: MulticastGroup, number: int, line: LineRate, now: int) -> None:
        """Send the packets that a line with a rate accepts now."""
        for to, some in groupby(line.due(now), key=lambda packet: packet.to):
            due = [packet.datagram for packet in some]
            ends = b"".join(size.to_bytes(4, "little") for size in accumulate(map(len, due)))
            if to is None:
                self._effects.append(Multicast(group, number, b"".join(due), ends))
            else:
                self._effects.append(Reply(to, b"".join(due), ends))

    def _send_paced(self, sent: Sequence[Outgoing], now: int, *, again: bool = False) -> None:
        """Queue packets that are not on time, and send from the queue, in order, as much as the pace allows."""
        backlog = self._backlog
        backlog.extend((out, again) for out in sent)
        self._backlog_bytes += sum(len(out.buffer) for out in sent)
        some = []
        while backlog and (self._pace.is_open(now) or self._backlog_bytes > self.config.max_backlog):
            out, is_again = backlog.popleft()
            if self._pace.is_open(now):
                self._pace.spend(len(out.buffer))
            self._backlog_bytes -= len(out.buffer)
            some.append((out, is_again))
        self._paced_ns = now
        for is_again, part in groupby(some, key=lambda each: each[1]):
            self._send([out for out, _ in part], now, again=is_again)

    # -- requests -----------------------------------------------------------------------------------------

    def _answer(self, requests: Iterable[tuple[Hashable, bytes]], now: int) -> None:
        """Answer the requester or the groups, immediately or after the tape has been read."""
        config = self.config
        admitted: Counter[Hashable] = Counter()
        for number, (subscriber, request) in enumerate(requests, 1):
            if self._policy.admit(subscriber, now, admitted[subscriber] < config.max_of_one):
                self._answer_one(request, subscriber, now)
                admitted[subscriber] += 1
            if number == config.max_read or admitted.total() == config.max_requests:
                return

    def _answer_one(self, request: bytes, subscriber: Hashable, now: int) -> None:
        server, archive, policy = self.feed.retransmitter, self.archive, self._policy
        if len(request) == REPORT_BYTES:
            try:
                self.reports.take(subscriber, decode_delivery_report(request), now)
            except Malformed as error:
                server.counts.malformed[error.reason] += 1
            return
        wanted = server.open(request)
        if wanted is None:
            return
        if archive.takes(wanted):
            archive.ask(wanted, subscriber)
            return
        route = policy.route(subscriber, wanted, now)
        if route is Route.NOBODY:
            self._unanswered += 1
        elif (found := server.give(wanted)) is not None:
            if policy.answered(subscriber, found, route, now) is Route.GROUP:
                self._send_paced((found,), now, again=True)
            else:
                self._reply(subscriber, found, now)

    def _dig(self, ring_ns: int | None, now: int) -> None:
        """Read a slice of the tape, unless the ring is due soon."""
        archive = self.archive
        archive.checkpoints.save()
        if not archive.is_busy:
            self._dig_ns = None
            archive.rest(now)
            return
        if ring_ns is not None and ring_ns - now < DIG_GAP_NS and abs(now - self._dug_ns) < DIG_PATIENCE_NS:
            self._dig_ns = max(now, ring_ns) + DIG_GAP_NS // 10
            return
        for subscriber, found in archive.work(now):
            self._reply(subscriber, found, now)
        self._dug_ns = self._dig_ns = now

    def _save(self, *, keep_previous: bool) -> None:
        self._saved_at = (self.feed.frames, self.feed.records)
        self._effects.append(SaveState(self.feed.state(), keep_previous))
