"""The results that `levelcast demo` prints."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from levelcast.cli.demo.processes import print_outcome
from levelcast.node.demo.outcome import DemoOutcome
from levelcast.runtime.cpu_contention import CpuContention


@pytest.mark.parametrize(("stolen", "printed"), [(0.31, True), (0.01, False)])
def test_stolen_cpu_time_is_printed_when_it_matters(stolen: float, printed: bool) -> None:
    show: Any = SimpleNamespace(kills=[])
    outcome = DemoOutcome(problems=["b-1: no tape"], contention=CpuContention(20.0, stolen, 0.2))
    text = io.StringIO()
    print_outcome(Console(file=text), show, outcome, replayed=False)
    line = "The machine lost 31 % of its CPU time to the hypervisor during this run, which delays releases."
    assert (line in text.getvalue()) is printed
