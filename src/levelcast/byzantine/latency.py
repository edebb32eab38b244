"""Delivery latencies of MR §5, from S (to sign), U (to verify) and T (to transmit)."""

from __future__ import annotations


def quorum(n: int) -> int:
    """Return ⌈(2n + 1) / 3⌉."""
    return (2 * n + 3) // 3


def chained_ns(n: int, sign_ns: int, verify_ns: int, transmit_ns: int) -> int:
    """Return T + Q·(S + U + T): the signatures follow one another, without flow control."""
    return transmit_ns + quorum(n) * (sign_ns + verify_ns + transmit_ns)


def flow_controlled_ns(n: int, sign_ns: int, verify_ns: int, transmit_ns: int) -> int:
    """Return T + S + Q·(U + T): signatures are made while others transmit."""
    return transmit_ns + sign_ns + quorum(n) * (verify_ns + transmit_ns)
