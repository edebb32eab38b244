"""The programs that set the clock, and what chronyd reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.runtime.clock_sync import ChronyTracking, chrony_tracking, clock_programs, parse_tracking

SYNCHRONISED = (
    "A29FC87B,162.159.200.123,4,1763456789.123456789,-0.000012345,0.000001,0.000020,"
    "-10.2,0.001,0.050,0.012000000,0.000800000,64.2,Normal\n"
)


def test_the_bound_is_offset_half_of_the_delay_and_dispersion() -> None:
    assert parse_tracking(SYNCHRONISED) == ChronyTracking("162.159.200.123", 4, -12_345, 6_812_345)


@pytest.mark.parametrize(
    "text", ["", "506 Cannot talk to daemon\n", SYNCHRONISED.replace("Normal", "Not synchronised")]
)
def test_without_a_source_there_is_no_tracking(text: str) -> None:
    assert parse_tracking(text) is None


@pytest.mark.parametrize(("script", "found"), [(f"echo '{SYNCHRONISED.strip()}'", True), ("exit 1", False)])
def test_chronyd_is_queried(script: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "chronyc"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("levelcast.runtime.clock_sync._CHRONYC_LIMIT_S", 60.0)
    assert (chrony_tracking() is not None) is found


def test_without_chronyc_there_is_no_tracking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chrony_tracking() is None


def test_programs_are_found_by_their_name(tmp_path: Path) -> None:
    for number, name in enumerate(("systemd-timesyn", "python", "chronyd", "chronyd"), 1):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comm").write_text(f"{name}\n", encoding="utf-8")
    (tmp_path / "sys").mkdir()
    assert clock_programs(tmp_path) == ["chronyd", "systemd-timesyncd"]
