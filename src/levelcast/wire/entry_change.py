"""The rules of order entry as one record of the sequence (E8): the gateways, quantum, closing time, cap and epoch.

The record is a DBN system message, so every reader of the tape reads or skips it. Its text is human-readable; programs
use only its tail:

    ts_event   the first stamp to which the rules apply
    msg        levelcast entry v3: quantum 5000000 ns, close 1260000000 ns, ..., 20 gateways
    tail       version u64, quantum u64, close u64, cap u32, ahead u64, epoch u64, hold u64, count u16,
               count x gateway u16, zeros up to a 4-byte word

All little-endian, durations in ns. Rules have one encoding: a text that contradicts the tail, and gateways that are
not in rising order, make it another system message. `levelcast.market.fair.eras` has the rules for a record that
counts.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from levelcast.records import record_places
from levelcast.records.system import MAX_SYSTEM_TAIL, encode_system, open_system
from levelcast.wire.messages import CONTROL_SOURCE

ENTRY_TEXT = b"levelcast entry v"
SHORTEST_EPOCH_NS = 1_000_000
_HEAD = struct.Struct("<QQQIQQQH")
_GATEWAY = struct.Struct("<H")
MAX_GATEWAYS = (MAX_SYSTEM_TAIL - _HEAD.size) // _GATEWAY.size - 1
_LONGEST_NS = 2**62
_MOST_CAP_NS = 2**31 - 1


class EntryRules(NamedTuple):
    """One version of the rules of order entry. It applies to stamps of `from_ns` or later."""

    version: int
    from_ns: int
    quantum_ns: int
    """q: length of a bucket (E7); 0: orders are compared by their stamps alone."""
    close_ns: int
    """Θ: a bucket is closed this long after its end at the latest (E4)."""
    late_cap_ns: int
    """Largest correction of a stamp for a late release (E2)."""
    ahead_ns: int
    """A stamp may be later than the timestamp of its token by this (E6)."""
    epoch_ns: int
    """The start of the buckets is drawn again after this time (E5)."""
    hold_ns: int
    """Δ_A for which the epoch was derived."""
    gateways: tuple[int, ...]
    """Source ids of the gateways, in rising order."""


def entry_rules_fault(rules: EntryRules) -> str | None:
    """Return why no record can have these rules, or None."""
    times = (rules.from_ns, rules.close_ns, rules.ahead_ns, rules.epoch_ns, rules.hold_ns)
    if not all(0 <= ns < _LONGEST_NS for ns in times) or not 0 <= rules.version < 2**64:
        return "a number is outside its range"
    if not 0 <= rules.quantum_ns <= rules.close_ns or rules.close_ns == 0:
        return "the quantum must be from 0 to the closing time, and the closing time above 0"
    if not 0 <= rules.late_cap_ns <= _MOST_CAP_NS:
        return f"the cap must be from 0 to {_MOST_CAP_NS} ns"
    if rules.epoch_ns < SHORTEST_EPOCH_NS or 2 * rules.epoch_ns > max(rules.hold_ns, 2 * SHORTEST_EPOCH_NS):
        return f"an epoch must be at least {SHORTEST_EPOCH_NS} ns and at most half of the hold time"
    rising = all(a < b for a, b in zip(rules.gateways, rules.gateways[1:], strict=False))
    if not 1 <= len(rules.gateways) <= MAX_GATEWAYS or not rising or not rules.gateways[0] >= 1:
        return f"1 to {MAX_GATEWAYS} gateways are required, each once and in rising order"
    return None if rules.gateways[-1] < 2**16 else "a gateway id is above 65535"


def encode_entry_rules(rules: EntryRules) -> bytes:
    """Return a payload of one record; ValueError for rules that no network can have."""
    if (fault := entry_rules_fault(rules)) is not None:
        raise ValueError(f"entry rules {rules.version}: {fault}")
    tail = _HEAD.pack(
        rules.version, rules.quantum_ns, rules.close_ns, rules.late_cap_ns, rules.ahead_ns, rules.epoch_ns,
        rules.hold_ns, len(rules.gateways),
    )  # fmt: skip
    tail += b"".join(map(_GATEWAY.pack, rules.gateways))
    return encode_system(_text(rules), tail, source=CONTROL_SOURCE, ts_event=rules.from_ns)


def decode_entry_rules(payload: bytes) -> EntryRules | None:
    """Return the rules in a payload of one record; None for any other bytes."""
    opened = open_system(payload, ENTRY_TEXT, _HEAD)
    if opened is None:
        return None
    from_ns, tail = opened
    version, quantum, close, cap, ahead, epoch, hold, count = _HEAD.unpack_from(tail)
    end = _HEAD.size + count * _GATEWAY.size
    if end > len(tail):
        return None
    gateways = tuple(gateway for (gateway,) in _GATEWAY.iter_unpack(tail[_HEAD.size : end]))
    rules = EntryRules(version, from_ns, quantum, close, cap, ahead, epoch, hold, gateways)
    try:
        return rules if encode_entry_rules(rules) == payload else None
    except ValueError:
        return None


def entry_changes(content: bytes | bytearray | memoryview) -> list[EntryRules]:
    """Return the entry rules among the records of a payload."""
    whole = content if isinstance(content, bytes | bytearray) else bytes(content)
    if whole.find(ENTRY_TEXT) < 0:
        return []
    offsets, sizes = record_places(whole)
    places = zip(offsets.tolist(), sizes.tolist(), strict=True)
    found = (decode_entry_rules(bytes(whole[offset : offset + size])) for offset, size in places)
    return [each for each in found if each is not None]


def _text(rules: EntryRules) -> bytes:
    times = {
        "quantum": rules.quantum_ns, "close": rules.close_ns, "cap": rules.late_cap_ns, "ahead": rules.ahead_ns,
        "epoch": rules.epoch_ns, "hold": rules.hold_ns,
    }  # fmt: skip
    said = ", ".join(f"{name} {ns} ns" for name, ns in times.items())
    return ENTRY_TEXT + f"{rules.version}: {said}, {len(rules.gateways)} gateways".encode()
