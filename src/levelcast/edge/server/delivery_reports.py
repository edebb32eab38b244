"""Keep the last report of each subscriber that delivers together, and tell which of them miss the bound.

Anyone can send a report, so it is shown and nothing depends on it. At most `MAX_SUBSCRIBERS` reports are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, NamedTuple

from levelcast.wire.delivery_report import REPORT_EVERY_NS, DeliveryReport

MAX_SUBSCRIBERS = 4_096
KEPT_NS = 3 * REPORT_EVERY_NS
"""A subscriber without a report for so long has stopped, or its market is quiet."""
MAX_SHOWN = 16


class _Kept(NamedTuple):
    at_ns: int
    sender: Hashable
    report: DeliveryReport


class DeliveryReports:
    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        """By subscriber, the oldest report first."""

    def take(self, sender: Hashable, report: DeliveryReport, now: int) -> None:
        """Keep a report, unless it is of a time without records."""
        if not report.records + report.late:
            return
        self._kept[report.subscriber] = _Kept(now, sender, report)
        self._kept.move_to_end(report.subscriber)
        if len(self._kept) > MAX_SUBSCRIBERS:
            self._kept.popitem(last=False)

    def status(self, now: int) -> dict[str, Any] | None:
        """Return the spread between subscribers, and who misses the bound; None without reports.

        The spread is from the smallest median to the largest p99. A subscriber misses the bound if its p99 delay
        exceeds it.
        """
        while self._kept and now - next(iter(self._kept.values())).at_ns > KEPT_NS:
            self._kept.popitem(last=False)
        if not self._kept:
            return None
        reports = [each.report for each in self._kept.values()]
        missing = sorted(
            (each for each in self._kept.values() if each.report.delay_p99_ns > each.report.bound_ns),
            key=lambda each: each.report.delay_p99_ns,
            reverse=True,
        )
        return {
            "subscribers": len(reports),
            "bound_ns": min(each.bound_ns for each in reports),
            "needed_ns": max(each.delay_p99_ns for each in reports),
            "spread_on_arrival_ns": max(each.delay_p99_ns for each in reports)
            - min(each.delay_p50_ns for each in reports),
            "spread_ns": max(each.error_p99_ns for each in reports),
            "records": sum(each.records for each in reports),
            "late": sum(each.late for each in reports),
            "early_ns": max(each.early_ns for each in reports),
            "missing": len(missing),
            "worst": [
                {
                    "address": _address(each.sender),
                    "bound_ns": each.report.bound_ns,
                    "needed_ns": each.report.delay_p99_ns,
                    "late": each.report.late,
                    "records": each.report.records,
                }
                for each in missing[:MAX_SHOWN]
            ],
        }


def _address(sender: Hashable) -> str:
    return f"{sender[0]}:{sender[1]}" if isinstance(sender, tuple) else str(sender)
