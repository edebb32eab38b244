"""Parse and format quantities with units, and compute quantiles.

Durations are integers in nanoseconds, sizes are in bytes, rates in bytes per second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

NS_PER_UNIT = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
}
NS_PER_AGE_UNIT = {"s": 10**9, "min": 60 * 10**9, "h": 3_600 * 10**9, "d": 86_400 * 10**9}
BYTES_PER_UNIT = {
    **{"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
}
RATE_PER_UNIT = {"kbit": 125, "Mbit": 125_000, "Gbit": 125_000_000}
PACKET_HEADERS = 28
"""Bytes of UDP and IPv4 headers per packet, which count for the rate of a line."""

_AMOUNT = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(\S+)", re.ASCII)


def parse_amount(text: str, units: Mapping[str, int]) -> Decimal | None:
    """Return a number with one of `units` in the smallest one; None for any other text.

    >>> parse_amount("1.5ms", NS_PER_UNIT)
    Decimal('1500000.0')
    """
    match = _AMOUNT.fullmatch(text.strip())
    return Decimal(match[1]) * units[match[2]] if match is not None and match[2] in units else None


def show_ns(ns: float) -> str:
    """Return a human-readable duration: '35.64 ms', '5.055 s'."""
    for size, unit in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")):
        if abs(ns) >= size:
            return f"{ns / size:.3f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{ns:.0f} ns"


def show_rate(rate: float) -> str:
    """Return a human-readable bit rate of bytes/s: '56 kbit/s', '1.5 Mbit/s'."""
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if rate * 8 >= size:
            return f"{rate * 8 / size:.4g} {unit}"
    return f"{rate * 8 / 1e3:.4g} kbit/s"


def parse_rate(text: str, packet_bytes: int) -> int:
    """Return the bytes/s of a line from a bit rate such as "56kbit".

    Raise ValueError, with a clause about the text, if it is none, or if the line carries less than one packet/s.
    """
    amount = parse_amount(text, RATE_PER_UNIT)
    if amount is None or amount <= 0:
        raise ValueError('is not a rate in bit/s with a unit (kbit, Mbit, Gbit), such as "56kbit"')
    if amount < packet_bytes + PACKET_HEADERS:
        least = show_rate(packet_bytes + PACKET_HEADERS)
        raise ValueError(f"is below one packet of {packet_bytes:,} bytes per second, {least}")
    return int(amount)


def quantiles(values: Sequence[float] | npt.NDArray[Any], shares: Iterable[float]) -> list[Any]:
    """Return, for each fraction, the measured value with that fraction of all values below it; zeros without values.

    Values are not interpolated; 1.0 gives the largest.

    >>> quantiles([4, 1, 3, 2], (0.0, 0.5, 1.0))
    [1, 3, 4]
    """
    if isinstance(values, Sequence):
        ordered: Any = sorted(values)
    else:
        ordered = values.copy()
        ordered.sort()
    last = len(ordered) - 1
    return [ordered[min(int(share * len(ordered)), last)] if last >= 0 else 0 for share in shares]


def quantile(values: Sequence[float] | npt.NDArray[Any], share: float) -> Any:
    """Return a single quantile (see `quantiles`)."""
    return quantiles(values, (share,))[0]
