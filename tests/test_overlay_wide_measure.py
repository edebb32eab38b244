"""Figures of a group: what they count, worked out by hand."""

from __future__ import annotations

import pytest

from levelcast.overlay.wide.measure import MS, BufferMeter, MessageTimes, figures_of


def test_figures_of_two_messages() -> None:
    first = MessageTimes(1, 0, (2, 3), {2: 10 * MS, 3: 30 * MS}, {1: 60 * MS, 2: 70 * MS, 3: 80 * MS})
    second = MessageTimes(2, 100 * MS, (1,), {1: 120 * MS}, {1: 140 * MS, 2: 160 * MS})
    meter = BufferMeter()
    meter.set(2, 0)
    meter.set(1, 500 * MS)
    meter.set(0, 1_500 * MS)
    found = figures_of([first, second], {"data": 6, "statements": 8, "views": 1}, [meter])
    assert (found.messages, found.delivered_mean_ms, found.last_mean_ms) == (2, 20.0, 25.0)
    assert (found.sender_knows_ms, found.all_know_ms) == (60.0, 70.0)
    assert 29.0 < found.last_p99_ms <= 30.0
    assert (found.data, found.statements, found.datagrams) == (2.0, 3.0, 5.0)
    assert found.kept_s == pytest.approx(1.0)
    assert found.kept_most == 2


def test_a_message_is_known_when_its_source_and_all_destinations_know() -> None:
    times = MessageTimes(1, 0, (2, 3), {2: 1}, {2: 5, 3: 6})
    assert (times.is_delivered, times.is_known) == (False, False)
    times.delivered_ns[3] = 2
    times.known_ns[1] = 4
    assert (times.is_delivered, times.is_known) == (True, True)
