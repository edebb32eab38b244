"""An edge keeps the last report of each subscriber, and tells which of them miss the bound."""

from __future__ import annotations

from levelcast.edge.server.delivery_reports import KEPT_NS, MAX_SHOWN, MAX_SUBSCRIBERS, DeliveryReports
from levelcast.wire.delivery_report import DeliveryReport

MS = 1_000_000


def report(subscriber: int, p50_ms: int, p99_ms: int, late: int = 0, bound_ms: int = 25) -> DeliveryReport:
    return DeliveryReport(
        subscriber, bound_ms * MS, 100 - late, late, p50_ms * MS, p99_ms * MS, p99_ms * MS, MS // 2, 0
    )


def test_the_status_has_the_spread_and_who_misses_the_bound() -> None:
    reports = DeliveryReports()
    for number, (p50_ms, p99_ms, late) in enumerate([(1, 3, 0), (9, 12, 0), (24, 31, 40)]):
        reports.take(("10.0.0.1", 5_000 + number), report(number, p50_ms, p99_ms, late), 0)
    found = reports.status(0)
    assert found is not None
    assert (found["subscribers"], found["missing"], found["records"], found["late"]) == (3, 1, 260, 40)
    assert (found["needed_ns"], found["spread_on_arrival_ns"], found["spread_ns"]) == (31 * MS, 30 * MS, MS // 2)
    (worst,) = found["worst"]
    assert (worst["address"], worst["needed_ns"], worst["late"]) == ("10.0.0.1:5002", 31 * MS, 40)


def test_only_the_last_report_of_a_subscriber_counts() -> None:
    reports = DeliveryReports()
    reports.take("a", report(1, 1, 40, 90), 0)
    reports.take("a", report(1, 1, 4), 1)
    found = reports.status(1)
    assert found is not None
    assert (found["subscribers"], found["missing"], found["late"]) == (1, 0, 0)


def test_a_subscriber_that_stopped_is_not_shown() -> None:
    reports = DeliveryReports()
    reports.take("a", report(1, 1, 4), 0)
    reports.take("b", report(2, 1, 4), KEPT_NS)
    found = reports.status(KEPT_NS)
    assert found is not None
    assert found["subscribers"] == 2
    found = reports.status(KEPT_NS + 1)
    assert found is not None
    assert found["subscribers"] == 1
    assert reports.status(3 * KEPT_NS) is None


def test_many_subscribers_are_bounded() -> None:
    reports = DeliveryReports()
    for number in range(MAX_SUBSCRIBERS + 5):
        reports.take("a", report(number, 1, 40, 90), number)
    found = reports.status(MAX_SUBSCRIBERS)
    assert found is not None
    assert (found["subscribers"], found["missing"]) == (MAX_SUBSCRIBERS, MAX_SUBSCRIBERS)
    assert len(found["worst"]) == MAX_SHOWN


def test_a_report_without_records_is_not_shown() -> None:
    reports = DeliveryReports()
    reports.take("a", DeliveryReport(1, 25 * MS, 0, 0, 0, 0, 0, 0, 0), 0)
    assert reports.status(0) is None
