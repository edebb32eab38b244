"""Mutations of order entry: each removes one clause of E1 to E9, so that a random or a named history must fail.

`tests/test_market_fair_mutations.py` states for each clause whether random histories of the scenario `entry` find it,
or which named history does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from levelcast.market.fair import eras, fair_order, stamps, stripes
from levelcast.records import RecordArray
from levelcast.sim.mutations import Mutation, Patch

_tickets = fair_order.tickets
_beat = stamps.GatewayStamper.beat


def _none(first: npt.NDArray[Any], *_: object) -> npt.NDArray[np.bool_]:
    return np.zeros(len(first), np.bool_)


def _never(*_: object) -> bool:
    return False


def _always(*_: object) -> bool:
    return True


def _zero(*_: object) -> int:
    return 0


def _no_turns(ends: npt.NDArray[np.int64], *_: object) -> npt.NDArray[np.int64]:
    return np.zeros(len(ends), np.int64)


def _by_stamp(
    ends: npt.NDArray[np.int64], _accounts: object, stamps: npt.NDArray[np.int64], arrivals: npt.NDArray[np.int64],
    _seed: object,
) -> npt.NDArray[np.intp]:  # fmt: skip
    return np.lexsort((arrivals, stamps, ends))


def _per_order(
    ends: npt.NDArray[np.int64], _accounts: object, _stamps: object, arrivals: npt.NDArray[np.int64], seed: bytes
) -> npt.NDArray[np.intp]:
    return np.lexsort((_tickets(arrivals.astype(np.uint64), ends, seed), ends))


def _known_seed(accounts: npt.NDArray[np.uint64], ends: npt.NDArray[np.int64], _seed: bytes) -> Any:
    return _tickets(accounts, ends, bytes(16))


def _uncapped(self: stamps.ReleaseClock, received_ns: npt.NDArray[np.int64]) -> Any:
    at = np.array([each.released_ns for each in self._releases], np.int64)
    late = np.array([0, *(each.late_ns for each in self._releases)], np.int64)
    return late[np.searchsorted(at, received_ns, side="right")]


def _uncorrected(_self: stamps.ReleaseClock, received_ns: npt.NDArray[np.int64]) -> Any:
    return np.zeros_like(received_ns)


def _free_stamps(self: stamps.ReleaseClock, received_ns: npt.NDArray[np.int64]) -> Any:
    corrections = self.corrections(received_ns)
    return received_ns - corrections, corrections


def _later_release_counts(self: stamps.ReleaseClock, frame: tuple[int, int], scheduled: int, released: int) -> None:
    self._releases = [each for each in self._releases if each.frame != frame]
    self._releases.append(stamps.SiteRelease(released, scheduled, frame))
    self._releases.sort()


def _as_read(
    self: stamps.GatewayStamper, commands: RecordArray, received_ns: npt.NDArray[np.int64], now: int
) -> RecordArray:
    records = commands.copy()
    records["publisher_id"] = self.gateway
    records["ts_event"], records["ts_in_delta"] = self.clock.stamps(received_ns)
    return records


def _all_frames(self: stripes.StripeMerge) -> Any:
    self.complete_ns = dict.fromkeys(self.complete_ns, 2**63 - 1)
    return _take(self)


_take = stripes.StripeMerge.take


def _clause(name: str, history: str, rule: str, without: str, *patches: Patch) -> tuple[str, Mutation]:
    return name, Mutation(name, history, rule, without, patches)


ENTRY_MUTATIONS: dict[str, Mutation] = dict(
    (
        _clause("stamped-as-read", "E1", "E1", "orders are stamped in the order in which their sockets are read",
                (stamps.GatewayStamper, "stamped", _as_read)),
        _clause("lateness-ignored", "E2a", "E2", "a stamp is the time of the clock",
                (stamps.ReleaseClock, "corrections", _uncorrected)),
        _clause("lateness-uncapped", "E2b", "E2", "a stamp is corrected by any lateness",
                (stamps.ReleaseClock, "corrections", _uncapped)),
        _clause("stamps-go-back", "E2c", "E2", "a later release may turn the release clock back",
                (stamps.ReleaseClock, "stamps", _free_stamps)),
        _clause("later-receiver-counts", "E2d", "E2", "of two receivers at a site the later one counts",
                (stamps.ReleaseClock, "released", _later_release_counts)),
        _clause("beat-states-now", "E4a", "E4", "a beat shows the time at which it is sent",
                (stamps.GatewayStamper, "beat", lambda self, read_ns, now: _beat(self, now, now))),
        _clause("first-clock-closes", "E4b", "E4", "a bucket is closed when one gateway has passed it",
                (fair_order, "shown_by_all", lambda passed: max(passed, default=0))),
        _clause("waits-for-ever", "E4c", "E4", "a bucket waits for all gateways without a limit",
                (fair_order, "timed_out", _zero)),
        _clause("dead-one-stays", "E4d", "E4", "a gateway that let Θ pass stays in the set",
                (fair_order, "lets_pass", _never)),
        _clause("readmitted-at-once", "E4e", "E4", "a gateway is readmitted at once, however often it fails",
                (fair_order, "pause_ns", _zero)),
        _clause("no-turns", "E5a", "E5", "all orders of an account have the same turn",
                (fair_order, "turns", _no_turns)),
        _clause("ticket-per-order", "E5b", "E5", "each order has a ticket of its own",
                (fair_order, "fair_order", _per_order)),
        _clause("no-tickets", "E5c", "E5", "inside a bucket the stamp decides",
                (fair_order, "fair_order", _by_stamp)),
        _clause("seed-is-known", "E5d", "E5", "tickets do not depend on the frame that closes the bucket",
                (fair_order, "tickets", _known_seed)),
        _clause("phase-is-known", "E5e", "E5", "all epochs begin with the same phase",
                (eras, "phase", _zero)),
        _clause("late-in-its-bucket", "E6a", "E6", "an order of a closed bucket is not moved to the open one",
                (fair_order, "is_late", _none)),
        _clause("may-go-back", "E6b", "E6", "a gateway may date an order before a clock that it has shown",
                (fair_order, "goes_back", _none)),
        _clause("future-accepted", "E6c", "E6", "a stamp may be after its token", (fair_order, "is_future", _none)),
        _clause("any-correction", "E6d", "E6", "a correction may be above the cap",
                (fair_order, "exceeds_cap", _none)),
        _clause("any-source", "E6e", "E6", "a source may use the id of another gateway",
                (fair_order, "is_foreign", _none)),
        _clause("rules-at-once", "E8a", "E8", "rules apply before all receivers have released them",
                (eras, "is_known_in_time", _always)),
        _clause("any-version", "E8b", "E8", "rules count in any order",
                (eras, "rules_follow", _always)),
        _clause("stripes-as-they-come", "E9", "E9", "frames of several stripes are taken as they arrive",
                (stripes.StripeMerge, "take", _all_frames)),
    )
)  # fmt: skip
