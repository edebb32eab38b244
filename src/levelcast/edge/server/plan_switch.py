"""Determine the active plan of an edge: a function of the tape and the network file, the same at every receiver.

The operator's source sends a plan's parts. When every edge has reported that it is ready, the source sends the record
that activates it (`levelcast.wire.channel_plan`). An edge processes these records in the order of the sequence:

 record                                   | result |
|------------------------------------------|------|
 part 0                                   | discard the parts collected so far and start a new collection |
 the next part of the same plan           | add it; the last part completes the plan, which is then checked |
 a complete plan that passes              | it is ready, and replaces one that was ready before |
 a complete plan that fails               | refuse it with the reason; nothing else changes |
 SWAP of the plan that is ready           | activate it after this frame |
 any other part or SWAP                   | ignore it; a SWAP of a plan that is not ready is refused |

- A plan's number is the number of the active plan plus one. Before the first plan, number 0 applies: one session.
- A plan must list every instrument defined on the tape before the frame that completes it, so they are recorded here.
  With the network file instead, a replay would refuse a plan because of a symbol that was listed after it. The command
  that sends plans does check the file. An instrument that is defined later uses the default session.
- Groups, line rates and symbols are those of the network file, the same at every receiver. Its blocks of groups and its
  rates may grow. If they shrink below a plan that is on a tape, a replay of the tape refuses that plan.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

import numpy as np

from levelcast.edge.plan_parts import Collector
from levelcast.edge.server.packetizer import SessionMap
from levelcast.network import Network, SymbolDirectory
from levelcast.records import NO_INSTRUMENT, RTYPE_INSTRUMENT, WORD_BYTES, record_places, uniform_size
from levelcast.wire import mold
from levelcast.wire.channel_plan import (
    ChannelPlan,
    Kind,
    PlanRecord,
    decode_plan,
    inflate,
    plan_session,
    session_of,
    symbols_crc,
)
from levelcast.wire.header import Malformed, Reason
from levelcast.wire.watermark import WATERMARK_BYTES

PACKET_OVERHEAD = mold.HEADER_SIZE + 28
"""Bytes that a packet adds to its blocks on a line: MoldUDP64, UDP and IPv4 headers."""
_NAMED = 3
"""Maximum number of instruments listed in a message."""


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Limits that a plan must meet, from the network file."""

    symbols: Mapping[int, str] = field(default_factory=dict)
    """The directory against which the plan's symbols are checked; empty: no check."""
    groups: int = 2**16
    """Number of groups in the smallest block."""
    line_rate: int | None = None
    """Rate in bytes/s of the slowest line of a group."""
    watermark_ns: int = 100_000_000

    @classmethod
    def of_network(cls, network: Network) -> PlanLimits:
        """Return the limits of a network file. They are the same at every receiver, in any region."""
        blocks = network.edge.groups
        return cls(
            {number: symbol for symbol, number in SymbolDirectory(network).symbols.items()},
            min((block.count for block in blocks), default=1),
            min((block.rate_bytes for block in blocks if block.rate_bytes is not None), default=None),
            network.edge.watermark_ns,
        )


def standing_rate(watermark_ns: int) -> float:
    """Return the rate in bytes/s on the line of a session without trades: its watermarks, or heartbeats."""
    if not watermark_ns:
        return PACKET_OVERHEAD
    return (WATERMARK_BYTES + mold.LENGTH_SIZE + PACKET_OVERHEAD) * 1e9 / watermark_ns


def plan_fault(plan: ChannelPlan, limits: PlanLimits, stripe: int, needed: Collection[int] = ()) -> str | None:
    """Return the reason why a plan cannot be activated, or None. The plan must list the `needed` instruments."""
    try:
        plan_session(plan.number, stripe)
        session_of(plan.number, stripe, len(plan.groups) - 1)
    except ValueError:
        return f"number {plan.number} is too large for the names of its sessions"
    missing = np.setdiff1d(np.fromiter(needed, np.int64, len(needed)), plan.instruments).tolist()
    if missing:
        return f"it misses {len(missing):,} of the directory's symbols: {_named(missing, limits.symbols)}"
    if limits.symbols:
        pairs = [(number, limits.symbols.get(number, "")) for number in plan.instruments.tolist()]
        unknown = [number for number, symbol in pairs if not symbol]
        if unknown:
            return f"it is for another directory, which has instrument {_named(unknown, {})}"
        if symbols_crc(pairs) != plan.symbols:
            return "it is for another directory, in which instruments have other symbols"
    if (highest := int(plan.groups.max())) >= limits.groups:
        return f"it has group {highest}, and the smallest [[edge.group]] block of the network file has {limits.groups}"
    return _line_fault(plan, limits)


def _line_fault(plan: ChannelPlan, limits: PlanLimits) -> str | None:
    if limits.line_rate is None:
        return None
    standing = standing_rate(limits.watermark_ns)
    expected = np.bincount(plan.groups, plan.rates.astype(np.float64))
    sessions = np.bincount(plan.groups)
    total = expected + sessions * standing
    if (plan.rates == 0).any():
        return (
            "the network file has a line rate, but the plan does not specify the expected rate of each session; "
            "use --rates"
        )
    worst = int((total - limits.line_rate).argmax())
    if total[worst] <= limits.line_rate:
        return None
    number = f"{sessions[worst]} session{'s' if sessions[worst] > 1 else ''}"
    return (
        f"group {worst} is expected to have {_kbit(total[worst])}, {_kbit(sessions[worst] * standing)} of it "
        f"watermarks of {number}, and its line carries {_kbit(limits.line_rate)}"
    )


def _kbit(rate: float) -> str:
    return f"{rate * 8 / 1000:,.1f} kbit/s"


def _named(numbers: list[int], symbols: Mapping[int, str]) -> str:
    names = [symbols.get(number, str(number)) for number in numbers[:_NAMED]]
    return ", ".join(names) + (", …" if len(numbers) > _NAMED else "")


def defined_ids(content: mold.Buffer) -> list[int]:
    """Return the instruments that a frame's records define. Frames usually have records of one size, and none."""
    if size := uniform_size(content):
        rtypes = bytes(content[1::size])
        if RTYPE_INSTRUMENT not in rtypes:
            return []
    offsets, _ = record_places(content)
    words = np.frombuffer(content, "<u4")
    heads = offsets // WORD_BYTES
    definitions = heads[(words[heads] >> 8 & 0xFF) == RTYPE_INSTRUMENT]
    return [number for number in words[definitions + 1].tolist() if number != NO_INSTRUMENT]


def _encode_ids(ids: Collection[int]) -> bytes:
    steps = np.diff(np.array(sorted(ids), np.int64), prepend=0)
    return zlib.compress(steps.astype("<u4").tobytes())


def _decode_ids(content: bytes) -> set[int]:
    if not content:
        return set()
    steps = inflate(content, 4 << 20)
    if len(steps) % 4:
        raise Malformed(Reason.WRONG_LENGTH)
    return set(np.frombuffer(steps, "<u4").astype(np.int64).cumsum().tolist())


def session_plan(plan: ChannelPlan, stripe: int) -> SessionMap:
    """Return the plan with the names of its sessions in a stripe, without sessions that have no instrument."""
    used = np.array(plan.used)
    names = [session_of(plan.number, stripe, index) for index in plan.used]
    indices = np.searchsorted(used, plan.sessions)
    return SessionMap.of_arrays(names, plan.instruments, indices, int(np.searchsorted(used, plan.default)))


class Ready(NamedTuple):
    plan: ChannelPlan


class Swapped(NamedTuple):
    plan: ChannelPlan


class PlanRefusal(NamedTuple):
    number: int
    reason: str
    digest: bytes = b""


Happened = Ready | Swapped | PlanRefusal

_STATE = Struct("<IIIHH8sI")
_SIZE = Struct("<I")


class Plans:
    """The plans of one stripe's edge."""

    def __init__(self, limits: PlanLimits | None = None, stripe: int = 0) -> None:
        self.limits = limits or PlanLimits()
        self.current: ChannelPlan | None = None
        """None before the first plan."""
        self.ready: ChannelPlan | None = None
        self.refused: PlanRefusal | None = None
        """The last refusal; cleared by the next plan that passes."""
        self._stripe = stripe
        self._collector = Collector()
        self._defined: set[int] = set()
        self._defined_code = b""

    @property
    def number(self) -> int:
        return self.current.number if self.current is not None else 0

    def define(self, content: mold.Buffer) -> None:
        """Record the instruments defined by the records of a frame."""
        ids = defined_ids(content) if content else ()
        if ids and not set(ids).issubset(self._defined):
            self._defined.update(ids)
            self._defined_code = _encode_ids(self._defined)

    def take(self, record: PlanRecord) -> Happened | None:
        """Apply the next record of the operator and return the result."""
        if record.stripe != self._stripe:
            return None
        if record.kind is Kind.SWAP:
            return self._swap(record)
        if record.kind is not Kind.PART or not self._collector.add(record) or not self._collector.complete:
            return None
        found, self._collector = self._collector, Collector()
        if found.number != self.number + 1:
            return self._refuse(found, f"plan {self.number} is active; the next plan has number {self.number + 1}")
        try:
            plan = found.plan()
        except Malformed as error:
            return self._refuse(found, f"its content is damaged ({error})")
        if fault := plan_fault(plan, self.limits, self._stripe, self._defined):
            return self._refuse(found, fault)
        self.ready, self.refused = plan, None
        return Ready(plan)

    def _swap(self, record: PlanRecord) -> Happened:
        plan = self.ready
        if plan is None or (plan.number, plan.digest) != (record.number, record.digest):
            return self._refuse(record, "it was to take effect before it was ready")
        self.current, self.ready, self.refused = plan, None, None
        return Swapped(plan)

    def _refuse(self, which: PlanRecord | Collector, reason: str) -> PlanRefusal:
        self.refused = PlanRefusal(which.number, reason, which.digest)
        return self.refused

    # -- the state ----------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """Return the complete state, for a restart."""
        collector = self._collector
        current, ready = (each.content if each is not None else b"" for each in (self.current, self.ready))
        reason = self.refused.digest + self.refused.reason.encode() if self.refused is not None else b""
        parts = (current, ready, reason, b"".join(collector.found), self._defined_code)
        head = _STATE.pack(
            self.number, self.refused.number if self.refused is not None else 0, collector.number, collector.parts,
            len(collector.found), collector.digest.ljust(8, b"\0"), len(collector.found[0]) if collector.found else 0,
        )  # fmt: skip
        return b"".join((head, *(_SIZE.pack(len(part)) + part for part in parts)))

    def restore(self, content: bytes) -> None:
        """Continue from the content of `state`; raise `Malformed`, and no other error, for any invalid bytes."""
        if len(content) < _STATE.size:
            raise Malformed(Reason.TOO_SHORT)
        number, refused, collecting, parts, count, digest, part_bytes = _STATE.unpack_from(content)
        pieces, at = [], _STATE.size
        for _ in range(5):
            if at + _SIZE.size > len(content):
                raise Malformed(Reason.TRUNCATED_BODY)
            (size,) = _SIZE.unpack_from(content, at)
            pieces.append(content[at + _SIZE.size : at + _SIZE.size + size])
            at += _SIZE.size + size
        if at != len(content) or (count == 0) != (pieces[3] == b"") or (count and not part_bytes):
            raise Malformed(Reason.WRONG_LENGTH)
        current, ready, reason, found, self._defined_code = pieces
        self._defined = _decode_ids(self._defined_code)
        self.current = decode_plan(number, current) if current else None
        self.ready = decode_plan(number + 1, ready) if ready else None
        self.refused = None
        if reason:
            self.refused = PlanRefusal(refused, reason[8:].decode("utf-8", "replace"), reason[:8])
        self._collector = Collector()
        if count:
            self._collector.number, self._collector.digest, self._collector.parts = collecting, digest, parts
            self._collector.found = [found[start : start + part_bytes] for start in range(0, len(found), part_bytes)]
            if len(self._collector.found) != count:
                raise Malformed(Reason.WRONG_LENGTH)
