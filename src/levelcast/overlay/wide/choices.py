"""Protocols of a wide-area group as four choices (TT §4, §5). The names of the paper are combinations.

| name | delivery | confirmation | repair |
|---|---|---|---|
| B | direct | distributed: each destination to all others and to the sender | sender |
| M | direct | distributed | nearest holder |
| N | nested: coordinators, then subgroups | decentralised in a subgroup, distributed between coordinators | nearest |
| D | direct | decentralised: to the sender, which sends the acceptance | sender |
| HD | nested | distributed | nearest |

BR, MR, NR and DR add copies by the sender (h per hop, TT §4.3).

Deviations: §5 gives B a confirmation to the sender only, and lets M do the same with retransmission by destinations.
Without confirmations to all, no destination knows who lacks a message, so both are distributed here. A repair by the
nearest holder needs that knowledge, so it is not available with direct delivery and decentralised confirmation.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class DeliveryPath(StrEnum):
    DIRECT = "direct"
    NESTED = "nested"


class ConfirmationPath(StrEnum):
    DISTRIBUTED = "distributed"
    DECENTRALISED = "decentralised"


class RepairBy(StrEnum):
    SENDER = "sender"
    """The process that sent the message here: its source, or the coordinator in a nested group."""
    NEAREST = "nearest"


class CopiesBy(StrEnum):
    NONE = "none"
    SENDER = "sender"
    FORWARDED = "forwarded"
    """Other destinations forward the message on receipt (TT Figure 6)."""


class Choices(NamedTuple):
    """One protocol."""

    delivery: DeliveryPath
    confirmation: ConfirmationPath
    repair: RepairBy
    copies: CopiesBy = CopiesBy.NONE

    def fault(self) -> str | None:
        """Return why this combination cannot work, or None."""
        central = self.confirmation is ConfirmationPath.DECENTRALISED and self.delivery is DeliveryPath.DIRECT
        if central and self.repair is RepairBy.NEAREST:
            return (
                "with direct delivery and decentralised confirmation only the sender knows which process lacks a "
                "message; use repair by the sender, or distributed confirmation"
            )
        return None


_B = Choices(DeliveryPath.DIRECT, ConfirmationPath.DISTRIBUTED, RepairBy.SENDER)
_M = _B._replace(repair=RepairBy.NEAREST)
_N = Choices(DeliveryPath.NESTED, ConfirmationPath.DECENTRALISED, RepairBy.NEAREST)
_D = Choices(DeliveryPath.DIRECT, ConfirmationPath.DECENTRALISED, RepairBy.SENDER)

WIDE_PROTOCOLS: dict[str, Choices] = {
    "B": _B,
    "M": _M,
    "N": _N,
    "D": _D,
    "BR": _B._replace(copies=CopiesBy.SENDER),
    "MR": _M._replace(copies=CopiesBy.SENDER),
    "NR": _N._replace(copies=CopiesBy.SENDER),
    "DR": _D._replace(copies=CopiesBy.SENDER),
    "HD": _M._replace(delivery=DeliveryPath.NESTED),
}
