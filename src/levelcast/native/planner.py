"""The planner's loops: compiled where there was a compiler, else in Python. LEVELCAST_PURE=1 takes the Python ones.

`levelcast.native.pure_planner` says what each does; `_planner.c` does it faster, with the same answers to the last bit.
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
"""Whether the compiled module is at work."""

anneal = _chosen.anneal
members = _chosen.members
merge_down = _chosen.merge_down
