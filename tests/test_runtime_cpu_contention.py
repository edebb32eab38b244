"""Stolen CPU time and CPU pressure: read from the kernel's text, and reported only when they matter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from levelcast.runtime import cpu_contention
from levelcast.runtime.cpu_contention import (
    ContentionMeter,
    CpuContention,
    CpuCounters,
    CpuTimes,
    contention,
    explain_contention,
    parse_pressure,
    parse_stat,
)

TICKS = os.sysconf("SC_CLK_TCK")
STAT = "cpu  100 10 50 9000 7 1 2 40 5 5\ncpu0 50 5 25 4500 3 0 1 20 0 0\nintr 1 2 3\n"
PRESSURE = (
    "some avg10=66.77 avg60=61.16 avg300=61.85 total=14450989641\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
)


def test_the_first_line_of_stat_is_the_time_of_all_cores() -> None:
    assert parse_stat(STAT) == CpuTimes(163 / TICKS, 9007 / TICKS, 40 / TICKS)


def test_pressure_is_the_total_of_the_line_some_in_microseconds() -> None:
    assert parse_pressure(PRESSURE) == pytest.approx(14450.989641)


def test_ratios_are_of_all_cpu_time_and_of_the_interval() -> None:
    before = CpuCounters(10.0, CpuTimes(100.0, 50.0, 5.0), 20.0)
    after = CpuCounters(20.0, CpuTimes(110.0, 53.8, 11.2), 23.0)
    assert contention(before, after) == CpuContention(10.0, 0.31, 0.3)


def test_what_the_kernel_does_not_supply_is_unknown() -> None:
    counters = CpuCounters(10.0, None, None)
    found = contention(counters, counters._replace(at_s=11.0))
    assert found == CpuContention(1.0, None, None)
    assert explain_contention(found, "which delays releases") == []


def test_an_empty_interval_has_no_contention() -> None:
    counters = CpuCounters(10.0, CpuTimes(1.0, 1.0, 1.0), 1.0)
    assert contention(counters, counters) == CpuContention(0.0, 0.0, 0.0)


def test_a_meter_measures_from_its_last_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(cpu_contention, "STAT", stat)
    monkeypatch.setattr(cpu_contention, "PRESSURE", tmp_path / "missing")
    stat.write_text("cpu 0 0 0 0 0 0 0 0 0 0\n", encoding="ascii")
    meter = ContentionMeter()
    stat.write_text("cpu 50 0 0 0 0 0 0 50 0 0\n", encoding="ascii")
    assert (meter.measure().stolen_ratio, meter.measure().pressure_ratio) == (0.5, None)
    meter.restart()
    stat.write_text("cpu 125 0 0 0 0 0 0 75 0 0\n", encoding="ascii")
    assert meter.measure().stolen_ratio == 0.25


@pytest.mark.parametrize(
    ("stolen", "pressure", "sentences"),
    [
        (0.02, 0.5, []),
        (
            0.31,
            0.2,
            ["The machine lost 31 % of its CPU time to the hypervisor during this run, which delays releases."],
        ),
        (0.0, 0.67, ["Processes waited for a core during 67 % of this run, which delays releases."]),
    ],
)
def test_only_what_matters_is_reported(stolen: float, pressure: float, sentences: list[str]) -> None:
    assert explain_contention(CpuContention(9.0, stolen, pressure), "which delays releases") == sentences
