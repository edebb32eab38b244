"""Functions that run per record or per datagram: compiled where a compiler was available, else in Python.

`levelcast.native.pure_core` specifies each function, and `_core.c` is the faster version. The same holds for the edge
(`pure_mold`), the planner (`pure_planner`), sealed packets (`pure_seal`) and the matching engine (`pure_book`). No
other code depends on which of the two is used; LEVELCAST_PURE=1 selects the Python versions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from levelcast.native import pure_core, pure_mold

_chosen = pure_core
_chosen_mold = pure_mold
if not TYPE_CHECKING and os.environ.get("LEVELCAST_PURE", "") in ("", "0"):
    with suppress(ImportError):
        from levelcast.native import _core as _chosen
    with suppress(ImportError):
        from levelcast.native import _mold as _chosen_mold

COMPILED = _chosen is not pure_core and _chosen_mold is not pure_mold
"""The compiled modules are in use."""

LastRecords = _chosen_mold.LastRecords
assemble = _chosen.assemble
count = _chosen.count
count_fresh = _chosen.count_fresh
crc32 = _chosen.crc32
stamped = _chosen.stamped
seal_packets = _chosen.seal_packets
ends = _chosen.ends
drain_packets = _chosen.drain_packets
drain = _chosen.drain
drain_molds = _chosen_mold.drain_molds
join_molds = _chosen_mold.join_molds
cut = _chosen.cut
mold_train = _chosen_mold.mold_train
open_data = _chosen.open_data
open_mold = _chosen_mold.open_mold
record_ends = _chosen.record_ends
send_many = _chosen_mold.send_many
stamp = _chosen.stamp
unstamp = _chosen.unstamp
xor_padded = _chosen.xor_padded


_Rows = list[tuple[int, int, int, int]]
_taught: list[_Rows] = []
_pupils: list[Callable[[_Rows], None]] = []


def teach(rows: Iterable[tuple[int, int, int, int]]) -> None:
    """Define the record types for both versions: see `pure_core`."""
    listed = list(rows)
    pure_core.teach(listed)
    _chosen.teach(listed)
    _chosen_mold.teach(listed)
    _taught.append(listed)
    for pupil in _pupils:
        pupil(listed)


def teach_module(pupil: Callable[[_Rows], None]) -> None:
    """Define the record types for another compiled module: those of before and those that follow."""
    _pupils.append(pupil)
    for rows in _taught:
        pupil(rows)
