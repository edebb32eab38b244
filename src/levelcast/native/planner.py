"""The planner's loops: compiled where a compiler was available, else in Python. LEVELCAST_PURE=1 selects Python.

`levelcast.native.pure_planner` specifies each function; `_planner.c` is faster and returns the same bits.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import levelcast.native.pure_planner as pure_planner

_chosen = pure_planner
if not TYPE_CHECKING and os.environ.get("LEVELCAST_PURE", "") in ("", "0"):
    with suppress(ImportError):
        from levelcast.native import _planner as _chosen

COMPILED = _chosen is not pure_planner
"""The compiled module is in use."""

anneal = _chosen.anneal
members = _chosen.members
merge_down = _chosen.merge_down
