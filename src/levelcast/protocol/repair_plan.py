"""Whom a receiver asks for a missing token or packet, when first, and how often (rule 5).

| | paper (lockstep, or NACK sets) | wide area (pipelined) |
|---|---|---|
| missing after | δ_N, and i·τ_r more in the set S_i (MS §5.2) | the delay of this pair, measured or of the file |
| asks | one at a time: the slot owner, those that claim the slot, the rest | the owner and two helpers at once |
| again after | τ_r | the shortest round trip of those asked, at least 10 ms; twice as long each from the fourth on |

A helper that is near answers long before the owner, and three requests fail together only if three paths do. Helpers
alternate: each attempt takes the next two by nearness, so that all are asked in turn. The slot owner holds the packets
that it acknowledged, so each attempt includes it. A secondary asks its primary alone (MS §4.1).

TT §4.2 lets the nearest holder send again. Deviation: TT waits until a confirmation is overdue; here the receiver that
misses something asks, and does not wait for one helper before it asks the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from levelcast.protocol.config import StripeConfig
from levelcast.timing.rules import GUARD_NS

HELPERS = 2
SHORTEST_NS = 10_000_000
PATIENT_AFTER = 3
"""Number of attempts at the shortest interval."""
MOST_DOUBLED = 16
SECONDARY_DOUBLED = 2
"""A secondary asks its primary again soon: that may still wait for the item itself."""


class RepairPlan:
    """The rules for one receiver."""

    def __init__(self, config: StripeConfig, myself: int) -> None:
        self._config = config
        self._timing = config.timing
        self._myself = myself
        self._most_doubled = SECONDARY_DOUBLED if myself in config.homes else MOST_DOUBLED
        self.measured_ns: Mapping[int, int] = {}
        """Delays from other nodes, by two clocks, that this one has measured."""
        self.wide = config.timing.mode == "pipelined" and config.nack is None and not config.as_in_paper

    def missing_after_ns(self, sender: int) -> int:
        """Return the time after which a message of this node counts as missing: never above δ_N (rule 5)."""
        if not self.wide:
            return self._timing.late_ns
        delay_ns = self.measured_ns.get(sender)
        if delay_ns is None:
            delay_ns = self._config.delay_ns(sender, self._myself) + 2 * self._config.clock_error_ns
        return min(max(0, delay_ns) + GUARD_NS, self._timing.late_ns)

    @property
    def reorder_ns(self) -> int:
        """Time within which packets of one sender may overtake each other."""
        return self._config.reorder_ns + GUARD_NS

    def ask(self, site: int | None, claims: Iterable[tuple[int, bool]], attempt: int) -> list[int]:
        """Return the nodes that attempt number `attempt` goes to.

        `site` is the slot owner, None if it is unknown; `claims` are the other members by nearness, with whether each
        claims the slot.
        """
        first = [site] if site is not None and site != self._myself else []
        others = [(member, has) for member, has in claims if member not in (self._myself, site)]
        if not self.wide:
            ranked = [*first, *(m for m, has in others if has), *(m for m, has in others if not has)]
            return [ranked[attempt % len(ranked)]] if ranked else []
        near = [member for member, _ in others]
        places = range(HELPERS * attempt, HELPERS * attempt + min(HELPERS, len(near)))
        return [*first, *(near[place % len(near)] for place in places)]

    def again_ns(self, asked: Sequence[int], attempt: int) -> int:
        """Return the time until the next attempt, if this one went to `asked`."""
        longest_ns = self._timing.request_ns
        if not self.wide or not asked:
            return longest_ns
        handling_ns = max(0, longest_ns - 2 * self._timing.late_ns)
        trips = (self._round_trip_ns(node) for node in asked)
        interval_ns = max(min(trips) + handling_ns, SHORTEST_NS)
        return min(interval_ns << min(max(0, attempt + 1 - PATIENT_AFTER), self._most_doubled), longest_ns)

    def _round_trip_ns(self, node: int) -> int:
        return self._config.delay_ns(self._myself, node) + self._config.delay_ns(node, self._myself)
