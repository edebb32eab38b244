"""The planner's loops: compiled where there was a compiler, else in Python. LEVELCAST_PURE=1 takes the Python ones.

`levelcast.kernel.plan_twin` says what each does; `_plan.c` does it faster, with the same answers to the last bit.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import levelcast.kernel.plan_twin as plan_twin

__all__ = ["COMPILED", "anneal", "members", "merge_down"]

_chosen = plan_twin
if not TYPE_CHECKING and os.environ.get("LEVELCAST_PURE", "") in ("", "0"):
    with suppress(ImportError):
        from levelcast.kernel import _plan as _chosen

COMPILED = _chosen is not plan_twin
"""Whether the compiled module is at work."""

anneal = _chosen.anneal
members = _chosen.members
merge_down = _chosen.merge_down
