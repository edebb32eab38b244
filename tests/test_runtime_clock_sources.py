"""The time sources of a running node: a kernel and a chronyc that say what the test wants."""

from __future__ import annotations

import select
import shutil
import time
from pathlib import Path

import pytest

from levelcast.overlay.clock_check import ClockCheck
from levelcast.overlay.paths import Paths
from levelcast.overlay.probe import Prober
from levelcast.protocol.clock import Vouched
from levelcast.runtime.clock_sources import CHRONY_NS, KERNEL_NS, ChronyReader, ClockSources
from levelcast.runtime.clock_sync import KernelClock
from tests.ring_parts import START, make_config

GOOD = KernelClock(True, 0, 700_000, 10_000)
TRACKING = "A29FC87B,10.0.0.1,3,1763456789.1,-0.00001,0,0,0,0,0,0.0004,0.0001,64.2"
LIMIT_S = 20.0


class Stage:
    """A clock check with its sources, in a time that the test sets."""

    def __init__(self) -> None:
        self.kernel: KernelClock | None = GOOD
        self.monotonic = 1_000 * KERNEL_NS
        config = make_config()
        paths, prober = Paths(1, [2, 3], START), Prober(1, [2, 3], None, START)
        self.check = ClockCheck(1, config, prober, paths, START, self.monotonic)
        self.asked = 0
        self.sources = ClockSources(self.check, self.read, lambda: self.monotonic)

    def read(self) -> KernelClock | None:
        self.asked += 1
        return self.kernel

    def hear_chrony(self) -> None:
        """Wait until chronyc has answered, as the loop does."""
        filenos = list(self.sources.filenos)
        ready, _, _ = select.select(filenos, [], [], LIMIT_S)
        assert ready
        self.sources.step(ready, START)


def chronyc(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "chronyc"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    found = shutil.which("sh")
    assert found is not None
    monkeypatch.setenv("PATH", f"{folder}:{Path(found).parent}")


@pytest.fixture
def without_chronyc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("without_chronyc")
def test_the_kernel_is_asked_once_a_second_and_vouches_while_it_is_synchronised() -> None:
    stage = Stage()
    for _ in range(3):
        stage.sources.step([], START)
    assert stage.asked == 1
    assert stage.check.bound.at(stage.monotonic) == Vouched("kernel", 700_000)
    stage.monotonic += KERNEL_NS
    stage.kernel = GOOD._replace(synchronised=False, max_error_ns=1)
    stage.sources.step([], START)
    assert stage.asked == 2
    assert stage.check.bound.at(stage.monotonic) == Vouched("kernel", 720_000)
    stage.kernel = None
    stage.monotonic += KERNEL_NS
    stage.sources.step([], START)
    assert stage.sources.filenos == []
    stage.sources.close()


@pytest.mark.usefixtures("without_chronyc")
def test_a_leap_second_of_the_kernel_is_announced() -> None:
    stage = Stage()
    stage.kernel = GOOD._replace(leap=True)
    stage.sources.step([], START)
    assert stage.check.leap.at_ns is not None
    stage.kernel = GOOD
    stage.monotonic += KERNEL_NS
    stage.sources.step([], START)
    assert stage.check.leap.at_ns is None


def test_chronyd_is_asked_through_one_shell_and_its_bound_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    chronyc(tmp_path, monkeypatch, f"echo x >> {count}\necho '{TRACKING},Insert second'")
    stage = Stage()
    try:
        stage.kernel = None
        stage.sources.step([], START)
        stage.hear_chrony()
        assert stage.check.bound.at(stage.monotonic) == Vouched("chrony", 310_000)
        assert stage.check.leap.at_ns is not None
        stage.sources.step([], START)
        stage.monotonic += CHRONY_NS
        stage.sources.step([], START)
        stage.hear_chrony()
        assert count.read_text(encoding="utf-8") == "x\nx\n"
    finally:
        stage.sources.close()


@pytest.mark.parametrize("script", ["exit 1", "echo nonsense", f"echo '{TRACKING},Not synchronised'"])
def test_a_chronyd_without_a_source_vouches_for_nothing(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chronyc(tmp_path, monkeypatch, script)
    stage = Stage()
    try:
        stage.kernel = None
        stage.sources.step([], START)
        stage.hear_chrony()
        assert stage.check.bound.at(stage.monotonic) is None
    finally:
        stage.sources.close()


def test_a_chronyc_that_hangs_does_not_block_and_ends_with_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chronyc(tmp_path, monkeypatch, "while read -r _; do :; done < /dev/zero")
    reader = ChronyReader()
    assert reader.filenos
    for _ in range(5):
        reader.ask()
    assert reader.lines() == []
    began = time.monotonic()
    reader.close()
    assert time.monotonic() - began < LIMIT_S
    assert reader.filenos == []
    reader.ask()
    assert reader.lines() == []


def test_a_shell_that_exits_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chronyc(tmp_path, monkeypatch, "kill $PPID")
    reader = ChronyReader()
    reader.ask()
    select.select(list(reader.filenos), [], [], LIMIT_S)
    assert reader.lines() == []
    assert reader.filenos == []
    reader.close()
