"""Choose detours: additional copies over one node, where the direct path is cut or much longer (sans I/O; TT, O5).

Each receiver publishes the figures of the paths to it once a second, so all nodes know the whole matrix
(`levelcast.overlay.paths`). From it each node decides by itself for which pairs it is the best detour. It passes on to
the receiver what arrives from the sender, so that no message is needed to agree. Two nodes may decide differently for
a second; the copies that this causes are dropped.

- A path is *cut* if nothing has arrived on it lately, while the receiver has published its row for `SETTLED_NS`. Its
  packets and tokens are then passed on. Beats are not: they measure the direct path, and show when it works again.
- A path is *long* if the detour is 10 % and 10 ms shorter. Packets are then passed on, if the configuration wants that.
  The detour is kept until it is less than 5 % or 5 ms shorter.

- A receiver may have a *second path* (W11): the best detour passes on all packets and tokens.

The direct copy is always sent, too. Delays of a detour and of the direct path contain the same offset of clocks, so
the comparison is right also with wrong clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from levelcast.overlay.paths import HeardPath
from levelcast.wire.messages import NOTHING_RECENT

RELAY_US = 500
"""Time in which a node passes a packet on."""
TAKE, KEEP = (0.9, 10_000), (0.95, 5_000)
"""Factor and difference in µs by which a detour is shorter: to begin with it, and to keep it."""
ROW_AGE_NS = 3_000_000_000
"""Age of a row from which on it says nothing."""
SETTLED_NS = 5_000_000_000
"""Time after the first row of a receiver in which paths on which nothing has arrived yet are not cut."""

Rows = Mapping[int, Mapping[int, HeardPath]]


class DetourTo(NamedTuple):
    """A receiver to which this node passes on what arrives from one sender."""

    to: int
    tokens: bool
    """Tokens are passed on, too: the direct path is cut, or the receiver has a second path."""


class Detours:
    """Pairs for which one node is the best detour."""

    def __init__(
        self,
        here: int,
        receivers: frozenset[int],
        floors: Mapping[int, int],
        *,
        shorter: bool,
        second: frozenset[int] = frozenset(),
    ) -> None:
        """`floors` has a receiver at the site of each floor that has one; with `shorter`, long paths get copies.

        The receivers of `second` have a second path.
        """
        self._here, self._receivers, self._floors, self._shorter = here, receivers, floors, shorter
        self._second = second
        self._active: dict[int, tuple[DetourTo, ...]] = {}
        self._since_ns: dict[int, int] = {}
        """Since when each receiver has published its row."""

    @property
    def count(self) -> int:
        """Return the number of pairs for which this node is the detour."""
        return sum(map(len, self._active.values()))

    def over_here(self, sender: int) -> tuple[DetourTo, ...]:
        """Return where to pass on what has arrived from a sender. A floor has the paths of its site's receiver."""
        return self._active.get(self._floors.get(sender, sender), ())

    def update(self, rows: Rows, now: int) -> None:
        """Choose again, by the rows that all nodes have published."""
        fresh = {node: row for node, row in rows.items() if node in self._receivers and _is_fresh(row, now)}
        self._since_ns = {node: self._since_ns.get(node, now) for node in fresh}
        active: dict[int, tuple[DetourTo, ...]] = {}
        if self._here in fresh:
            for sender in self._receivers - {self._here}:
                found = [self._pair(fresh, sender, to, now) for to in sorted(fresh) if to not in (sender, self._here)]
                if chosen := tuple(each for each in found if each is not None):
                    active[sender] = chosen
        self._active = active

    def _pair(self, rows: Rows, sender: int, to: int, now: int) -> DetourTo | None:
        """Return the detour of a pair if this node is the best one and it is worth its copies."""
        times = {node: _over(rows, sender, node, to) for node in rows if node not in (sender, to)}
        able = {node: us for node, us in times.items() if us is not None}
        if self._here not in able or min(able, key=lambda node: (able[node], node)) != self._here:
            return None
        direct_us = _delay_us(rows, sender, to)
        if direct_us is None:
            return DetourTo(to, tokens=True) if now >= self._since_ns[to] + SETTLED_NS else None
        if to in self._second:
            return DetourTo(to, tokens=True)
        is_kept = any(each.to == to and not each.tokens for each in self._active.get(sender, ()))
        factor, margin_us = KEEP if is_kept else TAKE
        own_us = able[self._here]
        is_worth = self._shorter and own_us <= factor * direct_us and own_us <= direct_us - margin_us
        return DetourTo(to, tokens=False) if is_worth else None


def _is_fresh(row: Mapping[int, HeardPath], now: int) -> bool:
    return any(path.at_ns > now - ROW_AGE_NS for path in row.values())


def _delay_us(rows: Rows, sender: int, to: int) -> int | None:
    """Return the median delay of a path on which something has arrived lately; None if it is cut."""
    path = rows[to].get(sender)
    return None if path is None or path.figures.recent_us == NOTHING_RECENT else path.figures.p50_us


def _over(rows: Rows, sender: int, node: int, to: int) -> int | None:
    """Return the delay over a node; None if one of its two paths is cut."""
    first_us, last_us = _delay_us(rows, sender, node), _delay_us(rows, node, to)
    return None if first_us is None or last_us is None else first_us + last_us + RELAY_US
