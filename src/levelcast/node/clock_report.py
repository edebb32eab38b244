"""Report what a receiver knows about its clock, for the status and for Prometheus (C1 to C4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levelcast.overlay.clock_check import ClockCheck


def clock_status(check: ClockCheck, names: Mapping[int, str]) -> dict[str, Any]:
    """Return the error bound, the offset from the members, and the reason if the clock is not trusted."""
    return {
        "checked": check.checked,
        "doubt": str(check.doubt) if check.doubt is not None else None,
        "vouched": check.vouched is not None,
        "source": check.vouched.source if check.vouched is not None else None,
        "error_ns": check.error_ns,
        "group_offset_ns": check.offset_ns,
        "heard": check.heard,
        "needed": check.needed,
        "leap_announced": check.leap.at_ns is not None,
        "members": {names.get(member, str(member)): _member(check, member) for member in check.others},
    }


def _member(check: ClockCheck, member: int) -> dict[str, int | None]:
    """Return the offset from a member, and what it states about its own clock."""
    compared, told = check.compared.get(member), check.told.get(member)
    return {
        "offset_ns": compared.offset_ns if compared is not None else None,
        "error_ns": told.error_us * 1_000 if told is not None and told.error_us is not None else None,
        "median_ns": told.offset_us * 1_000 if told is not None and told.offset_us is not None else None,
    }
