"""Additional copies of what is sent to a receiver (wide-area rule W11, TT §4.3), and the bytes that they cost.

Three kinds are known, each per receiver:

- *token copies*: the slot owner sends its token again with further beats, after the copy that every receiver gets.
- *parity*: the XOR of some packets of a train follows the train. A receiver that lacks one of them rebuilds it.
- *second path*: a member near the shortest detour passes on its own copy of each token and packet.

Each sender keeps the factor `redundancy` on its own: a source by the bytes of its packets, a member by those of its
tokens and beats. So the sum of all senders keeps it, whatever the load is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

PACKET_BYTES = 1_232
"""A packet of 1,200 bytes with its header: the weight of packets against tokens where both are added up."""
TOKEN_BYTES = 160
"""A token with two runs and two marks."""
BEAT_BYTES = 110
"""A beat with eight claims."""
MAX_REDUNDANCY = 4.0
MOST_TOKENS = 4
"""Further copies of a token."""
MOST_PARITY = 64
"""Packets of one parity: more of them would hardly ever lack one alone."""


class Copies(NamedTuple):
    """Additional copies for one receiver."""

    tokens: int = 0
    """Further copies of each token, on the beats after that of the second copy."""
    parity: int = 0
    """One parity for so many packets of a train; 0: none."""
    second_path: bool = False

    def __str__(self) -> str:
        parts = [
            f"token {self.tokens + 2} times" if self.tokens else "",
            f"parity for {self.parity} packet{'s' if self.parity > 1 else ''}" if self.parity else "",
            "second path" if self.second_path else "",
        ]
        return ", ".join(filter(None, parts)) or "nothing"

    def data_ratio(self, packets: int) -> float:
        """Return the additional bytes of packets over those of a train of `packets`."""
        return parity_groups(packets, self.parity) / packets + self.second_path

    def token_bytes(self) -> int:
        """Return the additional bytes per slot."""
        return (self.tokens + self.second_path) * TOKEN_BYTES


NOTHING = Copies()


class CopyCost(NamedTuple):
    """Bytes that are sent to all receivers over those without additional copies."""

    data: float
    """Of packets."""
    control: float
    """Of tokens and beats."""
    total: float


def parity_groups(packets: int, each: int) -> int:
    """Return the number of parities of a train, one for `each` packets; 0 if none are sent.

    >>> [parity_groups(packets, 3) for packets in (1, 3, 4, 6)], parity_groups(6, 0)
    ([1, 1, 2, 2], 0)
    """
    return -(-packets // each) if each else 0


def cost_of(copies: Sequence[Copies], members: int, packets: int, slot_ms: float, beat_ms: float) -> CopyCost:
    """Return the cost of the copies of all receivers, with one train of `packets` per slot."""
    receivers = len(copies)
    data = receivers * packets * PACKET_BYTES
    control = receivers * (2.0 * TOKEN_BYTES + (members - 1) * BEAT_BYTES * slot_ms / beat_ms)
    more_data = data / receivers * sum(each.data_ratio(packets) for each in copies)
    more_control = sum(each.token_bytes() for each in copies)
    total = (data + control + more_data + more_control) / (data + control)
    return CopyCost(1.0 + more_data / data, 1.0 + more_control / control, total)
