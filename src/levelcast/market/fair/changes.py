"""Make the records that start and change order entry (E8), as `levelcast.protocol.timing_record` does for the timing.

- The version follows that of the last record.
- The rules apply from a time by which every receiver has released the record: now + Δ_A + `MARGIN_NS`, in which it is
  sent, lost, sent again and ordered.
- With several order stripes the numbers are those of the slowest one, and the epoch that of the shortest hold time.

Before the first record there are no gateways, and orders are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from levelcast.network import Network
from levelcast.protocol.timing_record import MARGIN_NS
from levelcast.wire.entry_change import EntryRules

_NUMBERS = frozenset({"quantum_ns", "close_ns", "late_cap_ns", "ahead_ns", "epoch_ns", "hold_ns"})


def first_entry_rules(network: Network, now_ns: int, *, margin_ns: int = MARGIN_NS) -> EntryRules:
    """Return the rules with which order entry starts, from the network file; ValueError if it has no gateways."""
    if not network.gateways:
        raise ValueError("the network file has no [[gateway]]; add the gateways of orders")
    entries = [network.entry_timing(stripe) for stripe in network.order_stripes]
    hold_ns = max(entry.hold_ns for entry in entries)
    return EntryRules(
        version=1,
        from_ns=now_ns + hold_ns + margin_ns,
        quantum_ns=max(entry.quantum_ns for entry in entries),
        close_ns=max(entry.close_ns for entry in entries),
        late_cap_ns=min(entry.late_cap_ns for entry in entries),
        ahead_ns=max(entry.ahead_ns for entry in entries),
        epoch_ns=min(entry.epoch_ns for entry in entries),
        hold_ns=hold_ns,
        gateways=tuple(sorted(gateway.id for gateway in network.gateways)),
    )


def changed_entry_rules(
    last: EntryRules, now_ns: int, *, margin_ns: int = MARGIN_NS, gateways: Iterable[int] | None = None, **numbers: int
) -> EntryRules:
    """Return the rules after `last`: with another set of gateways, or other numbers.

    A new `hold_ns` takes the epoch with it: at most half of it (E5).
    """
    if unknown := sorted(numbers.keys() - _NUMBERS):
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(sorted(_NUMBERS))}")
    values: dict[str, Any] = dict(numbers)
    changed = last._replace(version=last.version + 1, **values)
    if gateways is not None:
        changed = changed._replace(gateways=tuple(sorted(set(gateways))))
    changed = changed._replace(epoch_ns=min(changed.epoch_ns, changed.hold_ns // 2))
    longest_ns = max(last.hold_ns, changed.hold_ns)
    return changed._replace(from_ns=max(now_ns + longest_ns + margin_ns, last.from_ns + 1))
