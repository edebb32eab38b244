"""Activate stored plans: read a plan's directory and publish it in the sequence of a running network (rule 15).

1. The plan is checked against the network file: symbols, the groups of the blocks, the line rates. A plan that does
   not fit is refused before anything is sent. Symbols that it leaves out, such as those without a subscriber, get one
   more session: every symbol of the network is in a group, so anyone may subscribe to it later.
2. Its parts are sent as `CONTROL_SOURCE`, stripe by stripe: each stripe gets the instruments that its floors trade.
   Every edge that replies reports that it is ready, or its reason for refusing.
3. When all are ready, the record that activates it is sent, and every edge reports that it is active.

Edges that do not reply are not waited for: their tapes have the same records, so they switch at the same record.
A plan that was sent and not activated stays ready but unused; the next one replaces it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from levelcast.client.subscriber import Subscriber
from levelcast.edge.server.plan_switch import PACKET_OVERHEAD, PlanLimits, plan_fault, standing_rate
from levelcast.errors import NetError
from levelcast.extras import arrow
from levelcast.network import Network, Stripe, SymbolDirectory
from levelcast.network.line_assignment import share_of_line
from levelcast.node.operate.control_source import next_incarnation, send_records
from levelcast.node.status_client import Answer, ask_all
from levelcast.planner.files import StoredPlan
from levelcast.planner.model import Limits, Plan, PlanError
from levelcast.records import TRADE
from levelcast.runtime.sockets import LOOPBACK
from levelcast.units import show_rate
from levelcast.wire.channel_plan import ChannelPlan, build_channel_plan, part_records, swap_record, symbols_crc
from levelcast.wire.mold import LENGTH_SIZE

__all__ = [
    "Applied",
    "PlanRefused",
    "apply_plan",
    "has_line_rate",
    "line_fault",
    "line_limits",
    "make_channel_plan",
    "plan_in_force",
    "require_lines",
    "running_plans",
]

PLANNED = 0.9
"""Fraction of a line that a plan may use; the pace of `LineBudget` and retransmissions need the rest."""
POLL_S = 0.1
_ASK_S = 1.0
_NAMED = 3
_REST = -1
"""Key of the session for symbols that a plan leaves out."""

Rates = Mapping[str, float]


class PlanRefused(NetError):
    """A plan that does not fit; the active plan stays."""


class Applied(NamedTuple):
    """An active plan."""

    number: int
    edges: int
    """Number of edges that have reported it."""
    ready_s: float
    """From sending its first part until all edges were ready; `swap_s` is from then until it was active."""
    swap_s: float
    added: tuple[str, ...] = ()
    """Symbols that the plan leaves out, which are in one more session."""


# -- from a directory -------------------------------------------------------------------------------------


def make_channel_plan(
    network: Network, stripe: Stripe, stored: StoredPlan, number: int, rates: Rates | None = None
) -> ChannelPlan:
    """Return the part of a stored plan that a stripe uses. Raise PlanRefused, with the reason, if it does not fit."""
    directory = SymbolDirectory(network)
    by_name = {**directory.symbols, **{str(number): number for number in directory.symbols.values()}}
    symbols = {number: symbol for symbol, number in directory.symbols.items()}
    flows = [str(each) for each in stored.flows.to_pylist()]
    unknown = [flow for flow in flows if flow not in by_name]
    if unknown:
        raise PlanRefused(f"the plan is for another symbol directory; no floor of the network trades {_some(unknown)}")
    traded = {
        number for floor in network.floors if floor.stripe == stripe.name for number in directory.ids_of(floor).values()
    }
    session_of = {by_name[flow]: int(at) for flow, at in zip(flows, stored.plan.session, strict=True) if at >= 0}
    mine = {instrument: session for instrument, session in session_of.items() if instrument in traded}
    used = sorted(set(mine.values()))
    index = {session: place for place, session in enumerate(used)}
    groups = [int(stored.group_ids[stored.plan.group[session]]) for session in used]
    if min(groups, default=0) < 0:
        raise PlanRefused("the plan has a group with a number below 0")
    limits, default = PlanLimits.of_network(network), 0
    if left_out := traded - mine.keys():
        default = len(groups)
        index[_REST] = default
        groups.append(_group_of_rest(stored, limits.groups))
        mine |= dict.fromkeys(left_out, _REST)
    expected = None if rates is None else _session_rates(network, stripe, mine, index, symbols, rates)
    pairs = [(instrument, index[session]) for instrument, session in mine.items()]
    if expected is not None and not left_out:
        default = int(np.argmin(expected))
    crc = symbols_crc((each, symbols[each]) for each in sorted(mine))
    try:
        plan = build_channel_plan(number, pairs, groups, rates=expected or (), default=default, symbols=crc)
    except ValueError as error:
        raise PlanRefused(f"the plan cannot be sent: {error}") from None
    if fault := plan_fault(plan, limits, stripe.index, traded):
        raise PlanRefused(f"plan {number} is refused: {fault}")
    return plan


def symbols_left_out(network: Network, stored: StoredPlan) -> tuple[str, ...]:
    """Return the symbols of a network that a plan leaves out."""
    sent = {str(flow) for flow, at in zip(stored.flows.to_pylist(), stored.plan.session, strict=True) if at >= 0}
    ids = SymbolDirectory(network).symbols
    return tuple(symbol for symbol, number in ids.items() if symbol not in sent and str(number) not in sent)


def _group_of_rest(stored: StoredPlan, groups: int) -> int:
    """Return the group for symbols that a plan leaves out: one that it does not use, or the one with fewest symbols."""
    used = set(stored.group_ids.tolist())
    if (free := next((number for number in range(groups) if number not in used), None)) is not None:
        return free
    flows = np.bincount(stored.plan.flow_group()[stored.plan.session >= 0], minlength=len(stored.group_ids))
    return int(stored.group_ids[flows.argmin()])


def _session_rates(
    network: Network, stripe: Stripe, mine: Mapping[int, int], index: Mapping[int, int], symbols: Mapping[int, str],
    rates: Rates,
) -> list[int]:  # fmt: skip
    """Return the expected rate of each session in bytes/s on the line: records, and the headers of their packets."""
    messages = [0.0] * len(index)
    for instrument, session in mine.items():
        rate = rates.get(symbols[instrument], rates.get(str(instrument)))
        if rate is None:
            raise PlanRefused(f"the plan sends {symbols[instrument]}, but its rate is missing; add it to --rates")
        messages[index[session]] += rate
    slots = 1e9 / network.timing(stripe.name).slot_ns
    block = TRADE.itemsize + LENGTH_SIZE
    packets = [min(each, slots + each * block / network.edge.packet_bytes) for each in messages]
    return [
        max(1, min(2**32 - 1, round(each * block + count * PACKET_OVERHEAD)))
        for each, count in zip(messages, packets, strict=True)
    ]


def has_line_rate(network: Network) -> bool:
    """Return whether a group has a rate."""
    return any(group.rate_bytes is not None for group in network.edge.groups)


def line_fault(network: Network, plans: Mapping[str, ChannelPlan]) -> str | None:
    """Return the reason why the plans of all stripes together exceed a line, or None.

    A stripe without a plan has one session in group 0. An edge checks only its own stripe, so this check is here.
    """
    rated = [(share_of_line(network, group), group) for group in network.edge.groups if group.rate_bytes is not None]
    if not rated:
        return None
    rate, slowest = min(rated, key=lambda each: each[0])
    standing = standing_rate(network.edge.watermark_ns)
    total = np.zeros(max((int(plan.groups.max()) for plan in plans.values()), default=0) + 1)
    total[0] += standing * (len(network.stripes) - len(plans))
    for plan in plans.values():
        np.add.at(total, plan.groups, plan.rates + standing)
    worst = int(total.argmax())
    if total[worst] <= rate * PLANNED:
        return None
    return (
        f"group {worst} is expected to have {show_rate(total[worst])} in {len(network.stripes)} stripes, and a plan "
        f"may use {PLANNED:.0%} of the {show_rate(rate)} that {slowest.name} has per receiver"
    )


def require_lines(network: Network, stored: StoredPlan, rates: Rates) -> None:
    """Raise PlanError unless the lines of a network carry a plan, as `apply_plan` checks it."""
    try:
        plans = {each.name: make_channel_plan(network, each, stored, 1, rates) for each in _trading(network)}
    except PlanRefused as error:
        raise PlanError(str(error)) from None
    if fault := line_fault(network, plans):
        raise PlanError(f"{fault}; allow more groups or fewer sessions")


def _trading(network: Network) -> list[Stripe]:
    """Return the stripes that have a floor."""
    return [stripe for stripe in network.stripes if any(floor.stripe == stripe.name for floor in network.floors)]


def line_limits(network: Network, sessions: int, groups: int) -> Limits:
    """Return the records/s that a plan may put into a group, so that every line carries it.

    Each record counts as one packet, and each session of a group has watermarks in every stripe.
    """
    rates = [share_of_line(network, group) for group in network.edge.groups if group.rate_bytes is not None]
    if not rates:
        return Limits()
    standing = standing_rate(network.edge.watermark_ns) * ceil(sessions / groups) * len(network.stripes)
    left = min(rates) * PLANNED - standing
    if left <= 0:
        raise PlanError(
            f"a line of {show_rate(min(rates))} has no room for records: watermarks need {show_rate(standing)}; "
            "use fewer sessions, or a longer watermark in [edge]"
        )
    return Limits(group_rate=left / (TRADE.itemsize + LENGTH_SIZE + PACKET_OVERHEAD))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


# -- running plans ----------------------------------------------------------------------------------------


def running_plans(answers: Iterable[Answer]) -> dict[str, dict[str, Any]]:
    """Return the plan of each edge that replied, by its node."""
    return {answer.name: answer.status["edge"]["plan"] for answer in answers if "edge" in answer.status}


def plan_in_force(network: Network, timeout_s: float = 10.0, interface: str = LOOPBACK) -> StoredPlan | None:
    """Return the active plan of a running network, received as a subscriber; None: one session for all.

    Each stripe has its own sessions: they are numbered stripe by stripe.
    """
    traded = {floor.stripe for floor in network.floors}

    async def listen() -> dict[str, ChannelPlan | None]:
        region = network.edge.groups[0].region if network.edge.groups else None
        async with Subscriber(network, region, interface=interface) as tape:
            reading = asyncio.ensure_future(_read_on(tape))
            try:
                while not traded <= tape.channel_plans.keys():
                    await asyncio.sleep(POLL_S / 2)
                return tape.channel_plans
            finally:
                reading.cancel()

    try:
        found = asyncio.run(asyncio.wait_for(listen(), timeout_s))
    except TimeoutError:
        raise NetError(f"the active plan was not received within {timeout_s:g} s; start the receivers first") from None
    plans = {stripe: plan for stripe, plan in found.items() if plan is not None and stripe in traded}
    if not plans:
        return None
    if len(plans) < len(traded):
        raise NetError("only some stripes have a plan; apply one to all stripes first")
    return _stored(SymbolDirectory(network), plans)


async def _read_on(tape: Subscriber) -> None:
    async for _ in tape:
        pass


def _stored(directory: SymbolDirectory, plans: Mapping[str, ChannelPlan]) -> StoredPlan:
    flows: list[str] = []
    sessions: list[int] = []
    groups: list[int] = []
    for plan in plans.values():
        for instrument, session in zip(plan.instruments.tolist(), plan.sessions.tolist(), strict=True):
            flows.append(directory.symbol_of(instrument))
            sessions.append(len(groups) + session)
        groups += plan.groups.tolist()
    ids, group = np.unique(np.array(groups, np.int64), return_inverse=True)
    numbers = {"number": {stripe: plan.number for stripe, plan in plans.items()}}
    names = np.arange(len(groups), dtype=np.int32)
    maps = Plan(np.array(sessions, np.int32), group.astype(np.int32))
    return StoredPlan(maps, arrow().array(flows, arrow().string()), names, ids.astype(np.int32), numbers)


def _edges(network: Network, stripe: Stripe) -> list[Answer]:
    """Return the answers of a stripe's receivers that have an edge."""
    answers = [answer for answer in ask_all(network, timeout_s=_ASK_S) if answer.ok and "edge" in answer.status]
    return [answer for answer in answers if answer.status.get("stripe", stripe.name) == stripe.name]


def apply_plan(
    network: Network, stored: StoredPlan, rates: Rates | None = None, timeout_s: float = 30.0, interface: str = LOOPBACK
) -> Applied:
    """Activate a plan in a running network, and wait until every edge that replies uses it."""
    plans: dict[str, ChannelPlan] = {}
    trading = _trading(network)
    for stripe in trading:
        answers = _edges(network, stripe)
        if not answers:
            raise NetError(f"no receiver of stripe {stripe.name} replies, so its plan is unknown; start them first")
        number = max(plan["number"] for plan in running_plans(answers).values()) + 1
        plans[stripe.name] = make_channel_plan(network, stripe, stored, number, rates)

    if fault := line_fault(network, plans):
        raise PlanRefused(f"the plan is refused: {fault}")

    def send(stripe: Stripe, payloads: Sequence[bytes]) -> None:
        incarnation = next_incarnation(_edges(network, stripe), time.time_ns())
        what = f"the plan sent to stripe {stripe.name}"
        send_records(network, stripe.name, payloads, incarnation, timeout_s, interface, what=what)

    begun = time.monotonic()
    until = begun + timeout_s
    for stripe in trading:
        send(stripe, part_records(plans[stripe.name], stripe.index))
    for stripe in trading:
        _wait(network, stripe, plans[stripe.name], "ready", until)
    ready = time.monotonic()
    for stripe in trading:
        send(stripe, [swap_record(plans[stripe.name], stripe.index)])
    edges = sum(_wait(network, stripe, plans[stripe.name], "active", until) for stripe in trading)
    number = max((plan.number for plan in plans.values()), default=0)
    return Applied(number, edges, ready - begun, time.monotonic() - ready, symbols_left_out(network, stored))


def _wait(network: Network, stripe: Stripe, plan: ChannelPlan, state: str, until: float) -> int:
    """Wait until every edge that replies has a plan in this state; return the number of edges."""
    wanted = plan.digest.hex()
    while True:
        told = running_plans(_edges(network, stripe))
        for name, each in told.items():
            refused = each.get("refused", {})
            if refused.get("digest") == wanted:
                raise PlanRefused(f"{name} refuses plan {plan.number}: {refused['reason']}")
        done = [_is(each, wanted, state) for each in told.values()]
        if done and all(done):
            return len(done)
        if time.monotonic() > until:
            late = [name for name, each in told.items() if not _is(each, wanted, state)]
            raise NetError(f"plan {plan.number} is not {state} in time at {', '.join(late) or 'any receiver'}")
        time.sleep(POLL_S)


def _is(told: Mapping[str, Any], digest: str, state: str) -> bool:
    in_force = told.get("digest") == digest
    return in_force or (state == "ready" and told.get("ready", {}).get("digest") == digest)
