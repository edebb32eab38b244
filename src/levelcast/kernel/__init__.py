"""The few functions that work per record or per datagram: compiled where there was a compiler, else in Python.

`levelcast.kernel.twin` says what each does; `_native.c` does it faster. Nothing else in the project knows which of the
two it has; LEVELCAST_PURE=1 takes the Python ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from levelcast.kernel import twin

__all__ = [
    "COMPILED",
    "assemble",
    "count",
    "count_fresh",
    "crc32",
    "drain",
    "mold_packets",
    "open_data",
    "open_mold",
    "stamp",
    "teach",
    "unstamp",
]

_chosen = twin
if not TYPE_CHECKING and os.environ.get("LEVELCAST_PURE", "") in ("", "0"):
    with suppress(ImportError):
        from levelcast.kernel import _native as _chosen

COMPILED = _chosen is not twin
"""Whether the compiled module is at work."""

assemble = _chosen.assemble
count = _chosen.count
count_fresh = _chosen.count_fresh
crc32 = _chosen.crc32
drain = _chosen.drain
mold_packets = _chosen.mold_packets
open_data = _chosen.open_data
open_mold = _chosen.open_mold
stamp = _chosen.stamp
unstamp = _chosen.unstamp


def teach(rows: Iterable[tuple[int, int, int, int]]) -> None:
    """The record types that there are, for both of them: see the twin."""
    listed = list(rows)
    twin.teach(listed)
    _chosen.teach(listed)
