"""Figures of a process and all below it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import cpu_s, family, kill_family, memory_bytes, peak_memory, run_watched

INNER = "b = bytearray(2**26); print('here', flush=True); import sys; sys.stdin.read()"
OUTER = f"import subprocess, sys; b = bytearray(2**25); subprocess.run([sys.executable, '-c', {INNER!r}])"


@pytest.fixture
def two() -> Iterator[subprocess.Popen[str]]:
    """A process of 32 MB with one of 64 MB below it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", OUTER], **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        yield process
        process.communicate("")


def test_memory_is_that_of_all_below(two: subprocess.Popen[str]) -> None:
    assert memory_bytes(two.pid) > 2**26 + 2**25
    with peak_memory(two.pid) as peak:
        time.sleep(0.01)
    assert peak.bytes > 2**26 + 2**25


def test_a_family_is_killed_as_a_whole(two: subprocess.Popen[str]) -> None:
    outer, inner = family(two.pid)
    assert outer.pid == two.pid
    kill_family(two.pid)
    inner.wait(10)
    assert two.wait(10) == -9
    two.wait()
    assert family(two.pid) == []
    assert cpu_s(two.pid) == memory_bytes(two.pid) == 0


def test_cpu_time_of_those_that_ended_counts() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}]); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", outer], **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        assert cpu_s(process.pid) >= 0.28
        process.communicate("\n")


def test_a_command_is_watched(tmp_path: Path) -> None:
    code = "b = bytearray(2**26); print('out'); import sys, time; time.sleep(0.6); sys.exit(3)"
    with (tmp_path / "out").open("wb") as out:
        ran = run_watched([sys.executable, "-c", code], out)
    assert (ran.code, (tmp_path / "out").read_text()) == (3, "out\n")
    assert ran.peak_bytes > 2**26
    assert ran.seconds >= 0.6
