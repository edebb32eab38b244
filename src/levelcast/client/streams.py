"""Track each session that a subscriber receives: its stripe and plan, last watermark, and the addresses that send it.

Missing packets are requested from the address received from last, then from the others in turn, while they send. For a
session without packets so far, addresses of the same stripe are used.
"""

from __future__ import annotations

from levelcast.edge.subscriber.delivery import Ask
from levelcast.edge.subscriber.plan_follower import Replaced
from levelcast.records.sequences import whole_sequence
from levelcast.runtime.sockets import Address
from levelcast.wire.channel_plan import parse_session
from levelcast.wire.mold import HEADER_SIZE, SESSION_SIZE, Block
from levelcast.wire.watermark import Watermark

MAX_ADDRESSES = 64
FRESH_NS = 3_000_000_000
"""An edge that has sent within this time is preferred for requests: each sends at least once per second."""


class Stream:
    """One session."""

    def __init__(self, session: bytes) -> None:
        self.name = session.decode("ascii", "replace").rstrip()
        place = parse_session(session)
        self.stripe = place.stripe if place is not None else 0
        self.plan = place.number if place is not None else 0
        self.watermark: Watermark | None = None
        self.near: int | None = None
        """A recent 64-bit global sequence; the next ones are close to it."""
        self.servers: dict[Address, int] = {}
        """Source addresses of packets, and the time of the last packet."""

    def whole(self, low: int) -> int | None:
        """Return a global sequence from its low 32 bits."""
        return None if self.near is None else whole_sequence(low, self.near)

    def hear(self, source: Address, now: int) -> None:
        self.servers[source] = now
        if len(self.servers) > MAX_ADDRESSES:
            del self.servers[min(self.servers, key=self.servers.__getitem__)]

    def server(self, attempt: int, now: int) -> Address | None:
        """Choose the address for a request."""
        recent = sorted(self.servers, key=self.servers.__getitem__, reverse=True)
        fresh = [each for each in recent if now - self.servers[each] < FRESH_NS] or recent
        return fresh[attempt % len(fresh)] if fresh else None


class Streams:
    """All sessions; at most `max_sessions` are accepted from packets alone."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._streams: dict[bytes, Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __getitem__(self, session: bytes) -> Stream:
        stream = self._streams.get(session)
        if stream is None:
            stream = self._streams[session] = Stream(session)
        return stream

    @property
    def watermarks(self) -> dict[str, Watermark]:
        """The last watermark of each session."""
        return {each.name: each.watermark for each in self._streams.values() if each.watermark is not None}

    def hear(self, item: bytes | Block, source: Address, now: int) -> bytes:
        """Record the source address of a session's packets. Return the session."""
        if type(item) is Block:
            session, whole = item.session, True
        else:
            assert isinstance(item, bytes)
            session, whole = item[:SESSION_SIZE], len(item) >= HEADER_SIZE
        if session in self._streams or (whole and len(self._streams) < self._max_sessions):
            self[session].hear(source, now)
        return session

    def servers(self, stripe: int | None = None) -> list[Address]:
        """Return the source addresses of packets, latest first; of one stripe, or of all."""
        heard: dict[Address, int] = {}
        for stream in self._streams.values():
            if stripe is None or stream.stripe == stripe:
                for address, at in stream.servers.items():
                    heard[address] = max(at, heard.get(address, 0))
        return sorted(heard, key=heard.__getitem__, reverse=True)

    def server_for(self, ask: Ask, now: int) -> Address | None:
        """Choose the address for a request."""
        stream = self[ask.session]
        server = stream.server(ask.attempt, now)
        if server is None and (others := self.servers(stream.stripe)):
            server = others[ask.attempt % len(others)]
        return server

    def forget_before(self, replaced: Replaced) -> None:
        """Drop the sessions of plans that were replaced."""
        for name, stream in list(self._streams.items()):
            if stream.stripe == replaced.stripe and stream.plan < replaced.number:
                del self._streams[name]
