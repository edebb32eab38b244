"""Quantum, closing time and cap follow from the delays, and given numbers are checked against them (E2, E4, E7)."""

from __future__ import annotations

from dataclasses import replace

from levelcast.timing.derive import Path, Shape, derive
from levelcast.timing.entry import EntryGiven, EntryPath, derive_entry, entry_contradictions, entry_warnings

MS = 1_000_000
TIMING = derive(
    Path(delay_ns=70 * MS, loss_ratio=0.01, clock_error_ns=MS, process_ns=5 * MS),
    Shape("pipelined", slot_ns=50 * MS, witnesses=3, members=5, servers=2),
).timing
PATH = EntryPath(30 * MS, "a and b", 5, MS)


def test_the_numbers_follow_their_rules() -> None:
    entry = derive_entry(TIMING, PATH)
    assert entry.quantum_ns == 5 * MS
    assert entry.close_ns == TIMING.late_ns + 2 * TIMING.resend_ns + 5 * 50 * MS
    assert entry.late_cap_ns == MS
    assert entry.epoch_ns == 1_000 * MS
    assert entry.ahead_ns == TIMING.late_ns + 2 * MS
    assert {number.name for number in entry.explained} >= {"quantum", "close", "late_cap", "epoch", "ahead"}


def test_near_sites_lower_the_cap_and_a_short_hold_time_the_epoch() -> None:
    assert derive_entry(TIMING, replace(PATH, shortest_ns=MS)).late_cap_ns == MS // 2
    assert derive_entry(replace(TIMING, hold_ns=500 * MS), PATH).epoch_ns == 250 * MS


def test_a_larger_stamp_error_needs_longer_buckets() -> None:
    assert derive_entry(TIMING, PATH, EntryGiven(stamp_error_ns=200_000)).quantum_ns == 20 * MS


def test_contradictions_name_the_key() -> None:
    def keys(**given: int) -> list[str]:
        chosen = EntryGiven(**given)
        return [field for field, _ in entry_contradictions(derive_entry(TIMING, PATH, chosen), PATH, chosen)]

    assert keys() == []
    assert keys(close_ns=100 * MS) == ["close"]
    assert keys(quantum_ns=2_000 * MS, close_ns=1_000 * MS) == ["quantum"]
    assert keys(late_cap_ns=30 * MS) == ["late_cap"]
    assert keys(quantum_ns=0) == []


def test_a_quantum_below_the_stamp_error_is_a_warning() -> None:
    given = EntryGiven(quantum_ns=MS)
    (warning,) = entry_warnings(derive_entry(TIMING, PATH, given), given)
    assert "0.53" in warning
    assert list(entry_warnings(derive_entry(TIMING, PATH), EntryGiven())) == []
    assert "1.00" in next(iter(entry_warnings(derive_entry(TIMING, PATH, EntryGiven(quantum_ns=0)), EntryGiven())))
