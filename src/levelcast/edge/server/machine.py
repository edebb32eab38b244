"""The sending side of an edge, sans I/O: frames that a receiver releases go to groups, and requests are answered.

An `EdgeServer` takes released frames, requests and the time, and returns effects, which its driver performs in order. A
node drives it over sockets (`levelcast.node.edge_service`), the simulator over virtual links (`levelcast.sim.edges`).

- A released frame is sent first and kept for retransmission afterwards, in the next step. What a slot releases is one
  `Multicast` for each group; nothing here runs per packet, except on a line with a rate.
- A receiver that catches up has many late frames at once, more than the socket of a subscriber holds. What exceeds
  `pace_burst` is paced at `pace_rate`; a frame that is on time never waits for it.
- The packets to a group with a line rate leave no faster than that (`levelcast.edge.server.line_rate`).
- Requests are answered one by one, or once to the groups where several subscribers request the same
  (`levelcast.edge.server.request_policy`); such an answer is paced like a late frame. A subscriber that requests too
  fast is refused.
- What has left the store is taken from the tape (`levelcast.edge.server.archive`): one slice in a call of `work`, and
  none when the ring is about to be due.
- A receiver that stops does not end its sessions. `end_sessions` does, at the end of a day.
- The state is saved every `save_frames` frames and at the end. The one before it is kept: a start begins there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from levelcast.edge.server.archive import Archive
from levelcast.edge.server.feed import END_EVERY_NS, END_TIMES
from levelcast.edge.server.line_rate import LineRate
from levelcast.edge.server.packetizer import Outgoing
from levelcast.edge.server.request_policy import RequestPolicy, RequestPolicyConfig, Route
from levelcast.network.model import MulticastGroup
from levelcast.protocol.effects import Release
from levelcast.protocol.rate import RateLimit
from levelcast.wire import mold
from levelcast.wire.messages import CONTROL_SOURCE

SNAPSHOT_AGE_NS = 200_000_000
"""A snapshot serves all subscribers within this time: the difference comes by retransmission."""
DIG_GAP_NS = 1_000_000
"""Time that the ring must leave for a slice of the tape; if it never does, one is read every `DIG_PATIENCE_NS`."""
DIG_PATIENCE_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class EdgeConfig:
    """Limits of an edge's work."""

    pace_rate: int = 524_288_000
    """Bytes/s of late frames and of answers to groups."""
    pace_burst: int = 2 << 20
    pace_ns: int = 1_000_000
    """The time between two sends of those that wait."""
    max_backlog: int = 32 << 20
    """Bytes of late frames that wait; beyond this the oldest of them go at once."""
    save_frames: int = 1_000
    save_records: int = 250_000
    """The state is saved after this many frames or records, whichever comes first."""
    max_requests: int = 32
    """Requests answered in one step, those of one subscriber, and those read: to refuse one costs little."""
    max_of_one: int = 24
    max_read: int = 256
    policy: RequestPolicyConfig = field(default_factory=RequestPolicyConfig)


class Multicast(NamedTuple):
    """Send packets to one group of a range."""

    group: MulticastGroup
    number: int
    """Of the group in its range: the address is the range's first address + `number`."""
    buffer: bytes
    """The packets back to back."""
    ends: bytes
    """Where each of them ends in `buffer`: little-endian u32."""


class Reply(NamedTuple):
    """Send packets to the subscriber that requested them."""

    to: Hashable
    buffer: bytes
    ends: bytes


class SaveState(NamedTuple):
    """Write the state; `keep_previous` keeps the one that was written before it."""

    content: bytes
    keep_previous: bool


EdgeEffect = Multicast | Reply | SaveState


def _join(sent: Sequence[Outgoing]) -> tuple[bytes, bytes]:
    """Join the packets of several sessions or steps."""
    if len(sent) == 1:
        return sent[0].buffer, sent[0].ends
    starts = accumulate((len(out.buffer) for out in sent), initial=0)
    ends = [np.frombuffer(out.ends, "<u4") + np.uint32(start) for out, start in zip(sent, starts, strict=False)]
    return b"".join([out.buffer for out in sent]), np.concatenate(ends).astype("<u4").tobytes()


class EdgeServer:
    """The edge of one stripe at one receiver, whose archive has the feed at the end of the tape."""

    def __init__(self, archive: Archive, now: int, config: EdgeConfig | None = None) -> None:
        self.archive = archive
        self.feed = archive.live
        self.config = config or EdgeConfig()
        self.groups: tuple[MulticastGroup, ...] = ()
        """The ranges of groups that it sends to."""
        self.lines: dict[tuple[MulticastGroup, int], LineRate] = {}
        """By range and number of the group, of those with a rate."""
        self._effects: list[EdgeEffect] = []
        self._unbooked: list[tuple[list[Outgoing], mold.Buffer]] = []
        self._saved_at = (0, 0)
        self._backlog: deque[Outgoing] = deque()
        """Late packets that wait."""
        self._backlog_bytes = 0
        self._pace = RateLimit(self.config.pace_rate, self.config.pace_burst, now)
        self._paced_ns = now
        self._policy = RequestPolicy(self.config.policy, now)
        self._unanswered = 0
        """Requests for messages that had just been sent to the groups."""
        self._snapshot = (0, b"")
        self._ends = (0, 0)
        """How often the ends of the sessions are still to be sent, and when next."""
        self._dug_ns = 0
        self._dig_ns: int | None = None
        self.feed.heartbeats(now)  # the next ones are due an interval from here

    @property
    def wake_ns(self) -> int | None:
        """When a heartbeat, a late frame, a packet of a slow line, a slice of the tape or an end of session is due."""
        paced_ns = self._paced_ns + self.config.pace_ns if self._backlog else None
        ends_ns = self._ends[1] if self._ends[0] else None
        lines_ns = min((at for line in self.lines.values() if (at := line.next_ns) is not None), default=None)
        times = (self.feed.next_ns, paced_ns, self._dig_ns, ends_ns, lines_ns)
        return min((time for time in times if time is not None), default=None)

    # -- what the driver calls ----------------------------------------------------------------------------

    def assign(self, groups: Sequence[MulticastGroup]) -> list[EdgeEffect]:
        """Send to these ranges of groups from now on. A heartbeat tells new ones at once that the edge is there."""
        added = [group for group in groups if group not in self.groups]
        self.groups = tuple(groups)
        self.lines = {where: line for where, line in self.lines.items() if where[0] in self.groups}
        for out in self.feed.announce() if added else ():
            numbers = self.feed.groups_of(out.session)
            self._effects += [Multicast(group, number, out.buffer, out.ends) for group in added for number in numbers]
        return self._take_effects()

    def released(self, release: Release, content: bytes | bytearray, now: int) -> list[EdgeEffect]:
        """Send a frame's packets. `step` keeps them, and adds its records to the snapshot."""
        feed = self.feed
        if feed.ended:
            return []
        control = any(run.source == CONTROL_SOURCE for run in release.frame.runs)
        sent = feed.release(release.frame, content, now, control=control)
        if release.late:
            self._send_paced(sent, now)
        else:
            self._send(sent, now)
        self._unbooked.append((sent, content))
        self.archive.checkpoints.note(feed)
        return self._take_effects()

    def step(self, requests: Iterable[tuple[Hashable, bytes]], complete_ns: int, now: int) -> list[EdgeEffect]:
        """Keep what was sent; then send what is due, and answer.

        `requests` are subscribers and their datagrams; those that are not taken from it are for the next step. Every
        frame up to `complete_ns` is released.
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
        """Do what can wait: read a slice of the tape, and save the state. The ring is due next at `ring_ns`."""
        self._dig(ring_ns, now)
        feed, config, (frames, records) = self.feed, self.config, self._saved_at
        if feed.frames - frames >= config.save_frames or feed.records - records >= config.save_records:
            self._save(keep_previous=True)
        return self._take_effects()

    def end_sessions(self) -> None:
        """End every session, several times. What is released later is not sent."""
        self._ends = (END_TIMES, 0)

    def snapshot(self, now: int) -> bytes:
        """Return the last price of each symbol, and the next number of each session."""
        made_ns, content = self._snapshot
        if not content or now - made_ns > SNAPSHOT_AGE_NS:
            content = self.feed.snapshot()
            self._snapshot = (now, content)
        return content

    def close(self, now: int) -> list[EdgeEffect]:
        """Send what waits and save the state. With the tape it is all that the next start needs."""
        self._book()
        self._send(list(self._backlog), now)
        self._backlog.clear()
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
        """Return the active plan, and what became of the one that came last."""
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

    def _send(self, sent: Sequence[Outgoing], now: int) -> None:
        """Send each session to its groups."""
        by_number: dict[int, list[Outgoing]] = {}
        for out in sent:
            for number in self.feed.groups_of(out.session):
                by_number.setdefault(number, []).append(out)
        for number, some in by_number.items():
            buffer, ends = _join(some)
            for group in self.groups:
                if group.rate_bytes is None:
                    self._effects.append(Multicast(group, number, buffer, ends))
                    continue
                line = self.lines.setdefault((group, number), LineRate(group.rate_bytes, now))
                line.push(mold.split_train(buffer, ends))
                self._drain(group, number, line, now)

    def _drain(self, group: MulticastGroup, number: int, line: LineRate, now: int) -> None:
        """Send what a line with a rate can take now."""
        if due := line.due(now):
            ends = b"".join(size.to_bytes(4, "little") for size in accumulate(map(len, due)))
            self._effects.append(Multicast(group, number, b"".join(due), ends))

    def _send_paced(self, sent: Sequence[Outgoing], now: int) -> None:
        """Send what is not on time, after what waits, in order and as much as may go now."""
        backlog = self._backlog
        backlog.extend(sent)
        self._backlog_bytes += sum(len(out.buffer) for out in sent)
        some = []
        while backlog and (self._pace.is_open(now) or self._backlog_bytes > self.config.max_backlog):
            out = backlog.popleft()
            if self._pace.is_open(now):
                self._pace.spend(len(out.buffer))
            self._backlog_bytes -= len(out.buffer)
            some.append(out)
        self._paced_ns = now
        self._send(some, now)

    # -- requests -----------------------------------------------------------------------------------------

    def _answer(self, requests: Iterable[tuple[Hashable, bytes]], now: int) -> None:
        """Answer the requester or the groups; now, or when the tape has been read."""
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
                self._send_paced((found,), now)
            else:
                self._effects.append(Reply(subscriber, found.buffer, found.ends))

    def _dig(self, ring_ns: int | None, now: int) -> None:
        """Read a slice of the tape, unless the ring is about to be due."""
        archive = self.archive
        archive.checkpoints.save()
        if not archive.is_busy:
            self._dig_ns = None
            archive.rest(now)
            return
        if ring_ns is not None and ring_ns - now < DIG_GAP_NS and abs(now - self._dug_ns) < DIG_PATIENCE_NS:
            self._dig_ns = max(now, ring_ns) + DIG_GAP_NS // 10
            return
        self._effects += [Reply(subscriber, found.buffer, found.ends) for subscriber, found in archive.work(now)]
        self._dug_ns = self._dig_ns = now

    def _save(self, *, keep_previous: bool) -> None:
        self._saved_at = (self.feed.frames, self.feed.records)
        self._effects.append(SaveState(self.feed.state(), keep_previous))
