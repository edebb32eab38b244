"""Registrations of subscribers without multicast, sans I/O: who gets a copy of the packets of a group.

- An address is challenged first: the reply to its first registration has a cookie, a keyed hash of the address and of
  the minute, which it must return. So nobody can direct the packets to another address, and the edge keeps nothing
  about addresses that have not answered.
- A reply is shorter than the registration (`levelcast.wire.registration`). Copies go only to registered addresses.
- The number of registrations and the rate of all copies together are limited. What exceeds the rate is not sent;
  subscribers request it like lost packets.
"""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import blake2b
from typing import Any, NamedTuple

from levelcast.wire.header import Malformed
from levelcast.wire.registration import (
    ACCEPTED,
    CHALLENGE,
    COOKIE_BYTES,
    EXPIRY_NS,
    LEAVE,
    REFUSED,
    REGISTRATION_BYTES,
    Registration,
    decode_registration,
    encode_registration,
)

PERIOD_NS = 60_000_000_000
"""A cookie is valid in the period in which it was made, and in the next one."""
BURST_NS = 100_000_000
"""Copies that may be sent at once: those of this time at the full rate."""


class _Key(NamedTuple):
    """One registration."""

    address: Hashable
    group: int
    place: int


class Registrations:
    """The registrations at one edge."""

    def __init__(self, secret: bytes, most: int, rate_bytes: int | None) -> None:
        """`most` is the maximum number of registrations; `rate_bytes` is in bytes/s; `secret` keys the cookies."""
        self.refused = 0
        """Registrations for which there was no room."""
        self.malformed = 0
        self.dropped = 0
        """Packets that exceeded the rate, once per copy."""
        self.sent = 0
        self._secret = secret
        self._most = most
        self._rate = rate_bytes
        self._free_ns = 0
        """Time at which the copies sent so far would be over, at the full rate."""
        self._until_ns: dict[_Key, int] = {}
        self._by_group: dict[tuple[int, int], list[Hashable]] = {}
        self._expires_ns = 0

    def hear(self, datagram: bytes, source: Hashable, now: int) -> bytes | None:
        """Handle a registration; return the reply, None if there is none."""
        try:
            found = decode_registration(datagram)
        except Malformed:
            self.malformed += 1
            return None
        if len(datagram) != REGISTRATION_BYTES:
            self.malformed += 1
            return None
        self._expire(now)
        if not self._answered(found.cookie, source, now):
            return _reply(CHALLENGE, found, self._cookie(source, now // PERIOD_NS))
        key = _Key(source, found.group, found.place)
        if found.what == LEAVE:
            self._until_ns.pop(key, None)
            self._index(now)
            return None
        if key not in self._until_ns and len(self._until_ns) >= self._most:
            self.refused += 1
            return _reply(REFUSED, found)
        self._until_ns[key] = now + EXPIRY_NS
        self._index(now)
        return _reply(ACCEPTED, found, self._cookie(source, now // PERIOD_NS))

    def addresses(self, group: int, place: int, packets: int, size: int, now: int) -> list[Hashable]:
        """Return the addresses that get copies of a group's packets, as far as the rate allows."""
        if now >= self._expires_ns:
            self._expire(now)
        found = self._by_group.get((group, place), [])
        chosen = [each for each in found if self._may_send(size, now)]
        self.sent += packets * len(chosen)
        self.dropped += packets * (len(found) - len(chosen))
        return chosen

    def status(self, now: int) -> dict[str, Any]:
        """Return the registrations for the status."""
        self._expire(now)
        return {
            "most": self._most,
            "refused": self.refused,
            "sent": self.sent,
            "dropped": self.dropped,
            "registered": [
                {"address": _shown(key.address), "group": key.group, "place": key.place, "left_s": (until - now) / 1e9}
                for key, until in self._until_ns.items()
            ],
        }

    def _may_send(self, size: int, now: int) -> bool:
        if self._rate is None:
            return True
        if self._free_ns > now + BURST_NS:
            return False
        self._free_ns = max(self._free_ns, now) + size * 1_000_000_000 // self._rate
        return True

    def _answered(self, cookie: bytes, source: Hashable, now: int) -> bool:
        period = now // PERIOD_NS
        return cookie in (self._cookie(source, period), self._cookie(source, period - 1))

    def _cookie(self, source: Hashable, period: int) -> bytes:
        return blake2b(f"{source} {period}".encode(), key=self._secret, digest_size=COOKIE_BYTES).digest()

    def _expire(self, now: int) -> None:
        gone = [key for key, until in self._until_ns.items() if until <= now]
        for key in gone:
            del self._until_ns[key]
        if gone or now >= self._expires_ns:
            self._index(now)

    def _index(self, now: int) -> None:
        self._by_group = {}
        for key in self._until_ns:
            self._by_group.setdefault((key.group, key.place), []).append(key.address)
        self._expires_ns = min(self._until_ns.values(), default=now + EXPIRY_NS)


def _reply(what: int, found: Registration, cookie: bytes = bytes(COOKIE_BYTES)) -> bytes:
    return encode_registration(Registration(what, found.group, found.place, cookie))


def _shown(address: Hashable) -> str:
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)
