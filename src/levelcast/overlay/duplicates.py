"""Drop copies of messages before they cost a step: of packets by their numbers, of tokens by their bytes (O4, W11).

Two forwarders, a second path and a repeated token bring a message more than once. Only a copy that arrives within
`KEEP_NS` of the first is dropped. What arrives later may be a retransmission: a source sends a packet again because
somebody lacks it, perhaps this node, which could not use the first copy. Tokens are compared byte by byte, so that one
that contradicts another is still reported.
"""

from __future__ import annotations

from levelcast.wire.messages import Data
from levelcast.wire.packets import cut

KEEP_NS = 150_000_000
"""Time in which a copy is dropped: below the time after which a source sends a packet again."""

_Ranges = dict[tuple[int, int], list[list[int]]]


class RecentMessages:
    """The packets and tokens that arrived in the last `KEEP_NS`, up to twice that."""

    def __init__(self, keep_ns: int = KEEP_NS) -> None:
        self.dropped = 0
        self._keep_ns = keep_ns
        self._window = 0
        self._packets: tuple[_Ranges, _Ranges] = ({}, {})
        self._tokens: tuple[set[bytes], set[bytes]] = (set(), set())

    def is_repeated(self, token: bytes, now: int) -> bool:
        """Return whether the same token arrived lately, and remember it."""
        self._turn(now)
        if token in self._tokens[0] or token in self._tokens[1]:
            self.dropped += 1
            return True
        self._tokens[0].add(token)
        return False

    def new_parts(self, data: Data, now: int) -> list[Data]:
        """Return the packets that have not arrived lately, and remember them."""
        self._turn(now)
        key = data.source, data.incarnation
        parts = [(data.first, data.last)]
        for ranges in self._packets:
            for first, last in ranges.get(key, ()):
                parts = [piece for part in parts for piece in _without(part, first, last)]
        recent = self._packets[0].setdefault(key, [])
        for first, last in parts:
            if recent and recent[-1][1] + 1 == first:
                recent[-1][1] = last
            else:
                recent.append([first, last])
        self.dropped += data.last - data.first + 1 - sum(last - first + 1 for first, last in parts)
        return [cut(data, first, last) for first, last in parts]

    def _turn(self, now: int) -> None:
        """Forget what is older. A clock that was set back forgets all."""
        window = now // self._keep_ns
        if window == self._window:
            return
        kept = window == self._window + 1
        self._packets = {}, self._packets[0] if kept else {}
        self._tokens = set(), self._tokens[0] if kept else set()
        self._window = window


def _without(part: tuple[int, int], first: int, last: int) -> list[tuple[int, int]]:
    """Return the parts of a range outside of another one."""
    if last < part[0] or part[1] < first:
        return [part]
    return [each for each in ((part[0], first - 1), (last + 1, part[1])) if each[0] <= each[1]]
