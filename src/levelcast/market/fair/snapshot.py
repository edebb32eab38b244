"""The state of order entry as bytes (M14, E8): canonical, so that equal states have one hash.

A snapshot and the later frames give the same sequence as all frames from the first. The bytes end in their BLAKE3 hash.
"""

from __future__ import annotations

from struct import Struct, error

import blake3
import numpy as np

from levelcast.errors import UserError
from levelcast.market.fair.eras import EntryEra
from levelcast.market.fair.fair_order import FairEntry, GatewayClock, WaitingOrders
from levelcast.records import ORDER
from levelcast.wire.entry_change import decode_entry_rules, encode_entry_rules

MAGIC = b"LVEN"
ENTRY_SNAPSHOT_VERSION = 1
HASH_BYTES = 32
_HEAD = Struct("<4sIQQqqQIIII")
_ERA = Struct("<qI")
_GATEWAY = Struct("<Hq?IqQQQ")
_LOG = Struct("<qB32s")
_WAITING = Struct("<qqQ?")


class EntrySnapshotError(UserError):
    """Bytes are not a snapshot of order entry that this release can load."""


def entry_snapshot(entry: FairEntry) -> bytes:
    """Return the state between two frames."""
    rules = [(era.until_ns, encode_entry_rules(era.rules)) for era in entry.eras]
    waiting = entry.waiting_orders()
    head = _HEAD.pack(
        MAGIC, ENTRY_SNAPSHOT_VERSION, entry.sequence, entry.timestamp_ns, entry.closed_ns, entry.horizon_ns,
        entry.arrivals, len(rules), len(entry.gateways), len(entry.log.times), len(waiting.records),
    )  # fmt: skip
    body = [head]
    body += [_ERA.pack(until_ns, len(payload)) + payload for until_ns, payload in rules]
    for gateway, c in sorted(entry.gateways.items()):
        body.append(
            _GATEWAY.pack(
                gateway, c.passed_ns, c.waited_for, c.failures, c.changed_ns, c.orders, c.late, c.refused
            )
        )  # fmt: skip
    body += [_LOG.pack(at, len(chain), chain) for at, chain in zip(entry.log.times, entry.log.chains, strict=True)]
    columns = (waiting.stamps, waiting.places, waiting.arrivals, waiting.late)
    body += [_WAITING.pack(*row) for row in zip(*(each.tolist() for each in columns), strict=True)]
    octets = b"".join([*body, waiting.records.tobytes()])
    return octets + blake3.blake3(octets).digest()


def restored_entry(octets: bytes) -> FairEntry:
    """Return the state of a snapshot; EntrySnapshotError if it is damaged or of another version."""
    body = octets[:-HASH_BYTES]
    if octets[:4] != MAGIC or len(body) < _HEAD.size:
        raise EntrySnapshotError("not a snapshot of order entry; create one with this release")
    _, version, sequence, timestamp, closed, horizon, arrivals, eras, gateways, frames, orders = _HEAD.unpack_from(body)
    if version != ENTRY_SNAPSHOT_VERSION:
        raise EntrySnapshotError(f"the snapshot has version {version}, not {ENTRY_SNAPSHOT_VERSION}; rebuild it")
    if blake3.blake3(body).digest() != octets[-HASH_BYTES:]:
        raise EntrySnapshotError("the snapshot is damaged: its hash differs; use another copy or rebuild it")
    entry = FairEntry()
    entry.sequence, entry.timestamp_ns, entry.closed_ns = sequence, timestamp, closed
    entry.horizon_ns, entry.arrivals = horizon, arrivals
    at = _HEAD.size
    try:
        for _ in range(eras):
            until_ns, size = _ERA.unpack_from(body, at)
            rules = decode_entry_rules(body[at + _ERA.size : at + _ERA.size + size])
            if rules is None:
                raise EntrySnapshotError("the snapshot has rules that no network can have; rebuild it from the tape")
            entry.eras.append(EntryEra(rules, until_ns))
            at += _ERA.size + size
        for _ in range(gateways):
            gateway, *state = _GATEWAY.unpack_from(body, at)
            entry.gateways[gateway] = GatewayClock(*state)
            at += _GATEWAY.size
        for _ in range(frames):
            time_ns, size, chain = _LOG.unpack_from(body, at)
            entry.log.append(time_ns, chain[:size])
            at += _LOG.size
        if orders:
            rows = list(_WAITING.iter_unpack(body[at : at + orders * _WAITING.size]))
            records = np.frombuffer(body, ORDER, orders, at + orders * _WAITING.size)
            stamps, places, order, late = (np.array(column) for column in zip(*rows, strict=True))
            entry.wait_for(WaitingOrders(records, stamps, places, order, late, int(places.min())))
    except (error, ValueError) as fault:
        raise EntrySnapshotError(f"the snapshot is truncated ({fault}); rebuild it from the tape") from None
    return entry
