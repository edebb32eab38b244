"""Verdicts of `levelcast doctor` on constructed measurements, each with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.cli.live.machine_checks import (
    OK,
    PROBLEM,
    SPACE_PROBLEM_BYTES,
    SPACE_WARNING_BYTES,
    WARNING,
    CheckVerdict,
    check_buffers,
    check_clock,
    check_cpu,
    check_extras,
    check_java,
    check_multicast,
    check_realtime,
    check_space,
    check_sync,
    check_timers,
)
from levelcast.errors import NetError
from levelcast.network.model import Durable
from levelcast.runtime.clock_sync import ChronyTracking, KernelClock
from levelcast.runtime.cpu_contention import CpuContention
from levelcast.runtime.measurements import BufferSizes, WakeUps

MS = 1_000_000
MIB = 1 << 20
HERE = Path("data")


@pytest.mark.parametrize(
    ("delay", "verdict", "action"),
    [
        (60_000, OK, ""),
        (None, PROBLEM, "check the firewall"),
        (NetError("cannot join group 239.1.1.1; add a route: ip route"), PROBLEM, "add a route: ip route"),
    ],
)
def test_multicast(delay: int | NetError | None, verdict: CheckVerdict, action: str) -> None:
    check = check_multicast("239.1.1.1", "127.0.0.1", delay)
    assert check.verdict is verdict
    assert check.action.startswith(action)
    assert "239.1.1.1" in check.found


def test_small_buffers_name_the_settings() -> None:
    wanted = BufferSizes(4 * MIB, 4 * MIB)
    assert check_buffers(wanted, wanted).verdict is OK
    check = check_buffers(BufferSizes(4 * MIB, MIB), wanted)
    assert (check.verdict, check.action) == (WARNING, "sysctl -w net.core.wmem_max=4194304")
    check = check_buffers(BufferSizes(MIB, MIB), wanted)
    assert check.action == "sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304"


def test_real_time_priority() -> None:
    assert check_realtime(permitted=True).verdict is OK
    check = check_realtime(permitted=False)
    assert (check.verdict, "rtprio 10" in check.action) == (WARNING, True)


@pytest.mark.parametrize(
    ("p99_ns", "realtime", "verdict", "action"),
    [
        (100_000, True, OK, ""),
        (100_001, True, WARNING, "stop other programs, or use one core per receiver"),
        (100_001, False, WARNING, "permit real-time priority"),
        (MS + 1, True, PROBLEM, "stop other programs, or use one core per receiver"),
    ],
)
def test_timers_are_judged_by_p99(p99_ns: int, realtime: bool, verdict: CheckVerdict, action: str) -> None:
    check = check_timers(WakeUps(realtime, [50_000] * 980 + [p99_ns] * 19 + [90 * MS]))
    assert (check.verdict, check.action) == (verdict, action)
    assert check.measured == {"wakeups": 1_000, "p50_ns": 50_000, "p99_ns": p99_ns, "max_ns": 90 * MS}


GOOD = KernelClock(synchronised=True, offset_ns=0, max_error_ns=MS // 2, estimated_error_ns=1_000)
CHRONY = ChronyTracking("10.0.0.1", 2, 1_000, MS // 4)


@pytest.mark.parametrize(
    ("kernel", "programs", "chrony", "one_machine", "verdict", "words"),
    [
        (GOOD, ["chronyd"], None, False, OK, "synchronised by chronyd, error at most 500 µs"),
        (GOOD, ["chronyd"], CHRONY, False, OK, "chronyd, 10.0.0.1, stratum 2, error at most 250 µs"),
        (GOOD, [], None, False, OK, "a program that is not visible here"),
        (GOOD._replace(max_error_ns=3 * MS), ["ntpd"], None, False, WARNING, "3 ms, which is above clock_error = 1 ms"),
        (GOOD._replace(max_error_ns=3 * MS, estimated_error_ns=2 * MS), ["ntpd"], None, False, PROBLEM, "above"),
        (GOOD._replace(max_error_ns=3 * MS, estimated_error_ns=2 * MS), ["ntpd"], None, True, WARNING, "above"),
        (GOOD._replace(synchronised=False), [], None, False, PROBLEM, "not synchronised"),
        (GOOD._replace(synchronised=False), ["ntpd"], None, True, WARNING, "although ntpd runs"),
        (None, [], None, False, WARNING, "does not report"),
    ],
)
def test_clock(
    kernel: KernelClock | None,
    programs: list[str],
    chrony: ChronyTracking | None,
    one_machine: bool,
    verdict: CheckVerdict,
    words: str,
) -> None:
    check = check_clock(kernel, programs, chrony, MS, one_machine=one_machine)
    assert check.verdict is verdict
    assert words in check.found
    assert bool(check.action) is (verdict is not OK)


@pytest.mark.parametrize(
    ("stolen", "pressure", "realtime", "verdict", "action"),
    [
        (0.0, 0.1, False, OK, ""),
        (None, None, False, OK, ""),
        (0.03, 0.0, True, WARNING, "use a machine with dedicated cores"),
        (0.31, 0.9, True, PROBLEM, "use a machine with dedicated cores"),
        (0.0, 0.11, True, WARNING, "stop other programs, or use one core per receiver"),
        (0.0, 0.9, True, WARNING, "stop other programs, or use one core per receiver"),
        (0.0, 0.9, False, PROBLEM, "stop other programs, or use one core per receiver"),
    ],
)
def test_cpu_time(
    stolen: float | None, pressure: float | None, realtime: bool, verdict: CheckVerdict, action: str
) -> None:
    check = check_cpu(CpuContention(2.5, stolen, pressure), 2, 0.5, realtime=realtime)
    assert (check.verdict, check.action) == (verdict, action)
    assert (check.measured["stolen_ratio"], check.measured["pressure_ratio"]) == (stolen, pressure)


@pytest.mark.parametrize(
    ("p99_ns", "durable", "verdict", "action"),
    [
        (5 * MS, "power", OK, ""),
        (6 * MS, "process", WARNING, 'do not set durable = "power" in [tape] with process = 5 ms in [timing]'),
        (6 * MS, "power", PROBLEM, "increase process = 5 ms in [timing] of the network file, or use a faster disk"),
    ],
)
def test_disk_writes(p99_ns: int, durable: Durable, verdict: CheckVerdict, action: str) -> None:
    check = check_sync(HERE, [MS] * 49 + [p99_ns], 5 * MS, durable)
    assert (check.verdict, check.action) == (verdict, action)


def test_a_directory_that_cannot_be_written() -> None:
    check = check_sync(HERE, PermissionError(13, "Permission denied"), 5 * MS, "process")
    assert (check.verdict, check.found) == (PROBLEM, "data: cannot be written (Permission denied)")
    assert "--data" in check.action


@pytest.mark.parametrize(
    ("free", "keep", "verdict"),
    [
        (SPACE_WARNING_BYTES, None, OK),
        (SPACE_WARNING_BYTES - 1, None, WARNING),
        (SPACE_PROBLEM_BYTES - 1, None, PROBLEM),
        (SPACE_PROBLEM_BYTES, 1_000, OK),
        (SPACE_WARNING_BYTES, SPACE_WARNING_BYTES + 1, WARNING),
    ],
)
def test_disk_space(free: int, keep: int | None, verdict: CheckVerdict) -> None:
    check = check_space(HERE, free, keep)
    assert (check.verdict, bool(check.action)) == (verdict, verdict is not OK)


@pytest.mark.parametrize(
    ("version", "spark", "verdict"),
    [(17, True, OK), (21, False, OK), (11, True, WARNING), (None, True, WARNING), (None, False, OK)],
)
def test_java_matters_only_where_spark_is_installed(version: int | None, spark: bool, verdict: CheckVerdict) -> None:
    assert check_java(version, spark=spark).verdict is verdict


def test_missing_extras_are_named_with_the_command() -> None:
    check = check_extras({"a": "1.0", "b": None, "c": None}, {"a": "x", "b": "y", "c": "x"}, compiled=True)
    assert (check.verdict, check.action) == (OK, "pip install 'levelcast[x,y]'")
    assert check.found == "compiled modules installed; a 1.0; not installed: b, c"
    check = check_extras({"a": "1.0"}, {"a": "x"}, compiled=False)
    assert (check.verdict, check.action) == (WARNING, "install a C compiler and install levelcast again")
