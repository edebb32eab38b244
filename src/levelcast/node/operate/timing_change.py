"""Change the hold time, the beat interval and the cut-offs of a running ring by a timing record (rule W9)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from levelcast.errors import NetError
from levelcast.network import Network
from levelcast.network.placement import places
from levelcast.network.stripe_config import ring_config
from levelcast.node.operate.control_source import next_incarnation, send_records
from levelcast.node.status_client import Answer, ask_all
from levelcast.protocol.config import StripeConfig
from levelcast.protocol.timing_record import timing_record
from levelcast.runtime.sockets import LOOPBACK
from levelcast.units import show_ns
from levelcast.wire.messages import PaceChange
from levelcast.wire.pace_change import encode_pace_change

_ASK_S = 1.0
MARGIN_NS = 2_000_000_000
"""Time within which the record is ordered: it is sent by a process that starts for it."""
_LOOK_S = 0.05


class TimingApplied(NamedTuple):
    """A timing record that was witnessed."""

    version: int
    before_ns: int
    hold_ns: int
    from_ns: int


def apply_timing(
    network: Network, stripe: str, hold_ns: int, timeout_s: float, interface: str = LOOPBACK
) -> TimingApplied:
    """Use this hold time, and the network file's beats and cut-offs."""
    config = ring_config(network, stripe)
    if not config.timing.beat_ns:
        raise NetError(
            f"stripe {stripe}: in lockstep the hold time does not change; edit the network file and restart all nodes"
        )
    answers = _receivers(network, stripe)
    newest = newest_timing(stripe, answers)
    record = newest["record"]
    now = time.time_ns()
    if record is not None and (now < record["from_ns"] or newest["hold_ns"] != record["hold_ns"]):
        raise NetError(
            f"stripe {stripe}: timing record {record['version']} is still taking effect; try again in a few seconds"
        )
    change = _change(config, newest, hold_ns, now)
    what = f"timing record {change.version}"
    send_records(
        network, stripe, [encode_pace_change(change)], next_incarnation(answers, now), timeout_s, interface, what=what
    )
    until = time.monotonic() + _ASK_S + change.before_ns / 1e9
    while time.monotonic() < until:
        record = newest_timing(stripe, _receivers(network, stripe))["record"]
        if record == {"version": change.version, "from_ns": change.from_ns, "hold_ns": change.pace.hold_ns}:
            return TimingApplied(change.version, change.before_ns, change.pace.hold_ns, change.from_ns)
        time.sleep(_LOOK_S)
    raise NetError(
        f"stripe {stripe}: {what} was witnessed, but does not count: it was ordered later than "
        f"{show_ns(MARGIN_NS)} after it was sent, or another change came first; try again"
    )


def _change(config: StripeConfig, newest: dict[str, Any], hold_ns: int, now: int) -> PaceChange:
    members = [life.member for life in config.membership.members]
    pace = config.pace(members)._replace(hold_ns=newest["hold_ns"])
    version = newest["record"]["version"] if newest["record"] is not None else 0
    return timing_record(version, pace, hold_ns, now, margin_ns=MARGIN_NS)


def newest_timing(stripe: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the timing in the status of the receiver that knows the newest record."""
    known: list[dict[str, Any]] = [answer.status["timing"] for answer in answers]
    if not known:
        raise NetError(f"no receiver of stripe {stripe} replies, so its hold time is unknown; start them first")
    return max(known, key=lambda each: each["record"]["version"] if each["record"] is not None else 0)


def _receivers(network: Network, stripe: str) -> list[Answer]:
    parts = [place.part for place in places(network, stripe) if place.role.in_ring]
    answers = ask_all(network, parts, _ASK_S)
    return [answer for answer in answers if answer.ok and answer.status.get("state") == "ACTIVE"]
