"""Measurements of this machine: real sockets, timers and files. No test depends on how fast or privileged it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from levelcast.errors import NetError
from levelcast.runtime import measurements
from levelcast.runtime.measurements import (
    BufferSizes,
    free_group,
    granted_buffers,
    multicast_delay_ns,
    sync_times_ns,
    wake_errors,
)
from levelcast.runtime.sockets import LOOPBACK


@pytest.mark.parametrize("core", ["239.192.74.1", "239.192.74.254", "239.192.74.255", "224.0.1.0"])
def test_the_test_group_is_in_the_range_of_the_core_and_not_the_core(core: str) -> None:
    found = free_group(core)
    assert found != core
    assert found.rpartition(".")[0] == core.rpartition(".")[0]


def test_a_datagram_is_sent_and_received() -> None:
    delay_ns = multicast_delay_ns("239.192.74.254", LOOPBACK, 10.0)
    assert delay_ns is not None
    assert delay_ns > 0


def test_without_time_nothing_is_received() -> None:
    assert multicast_delay_ns("239.192.74.254", LOOPBACK, 0.0) is None


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(NetError, match=r"192\.0\.2\.1"):
        multicast_delay_ns("239.192.74.254", "192.0.2.1", 0.1)


def test_granted_buffers_are_at_most_the_wanted_ones() -> None:
    wanted = BufferSizes(64 << 10, 32 << 10)  # small enough for every kernel
    assert granted_buffers(wanted) == wanted
    large = BufferSizes(1 << 30, 1 << 30)
    assert all(0 < got <= asked for got, asked in zip(granted_buffers(large), large, strict=True))


def test_wake_ups_are_late_and_the_priority_ends_with_them() -> None:
    before = os.sched_getscheduler(0)
    found = wake_errors(0.05, 1_000_000)
    assert found.errors_ns
    assert min(found.errors_ns) >= 0
    assert os.sched_getscheduler(0) == before


@pytest.mark.parametrize("granted", [True, False])
def test_the_permission_for_real_time_priority_is_returned(granted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "take_realtime_priority", lambda: granted)
    assert wake_errors(0.01, 1_000_000).realtime is granted


def test_syncs_leave_nothing_behind(tmp_path: Path) -> None:
    assert len(sync_times_ns(tmp_path, 3, 60.0)) == 3
    assert sync_times_ns(tmp_path, 3, 0.0) == []
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        sync_times_ns(tmp_path / "missing", 1, 1.0)
