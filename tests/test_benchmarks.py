"""Each benchmark runs in its quick form and says what it measured, against what, and the ratio.

No test looks at how fast anything was: the machines are shared.
"""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import filtering, liveness, modes, room
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.report import Figure, Options, Result, Stopwatch, Table
from benchmarks.simulator import part_of
from levelcast.extras import ExtraMissing
from levelcast.planner.files import read_weights
from levelcast.planner.model import Curve
from levelcast.plots.style import canvas
from levelcast.runtime.cpu_contention import CpuContention
from levelcast.sim.scenarios.ring import Outcome
from levelcast.sim.scenarios.steady import MS, steady_world
from levelcast.units import quantile

S = 1_000_000_000
PLOTS = {
    "simulator": [],
    "startup": [],
    "modes": ["modes.svg"],
    "hold": ["hold.svg"],
    "copies": ["copies.svg"],
    "beats": [],
    "chain": [],
    "clocks": [],
    "group": ["group.svg"],
    "unicast": [],
    "paper": ["paper-nacks.svg", "paper-tokens.svg"],
    "liveness": ["liveness.svg"],
    "journal": [],
    "keys": [],
    "secured": [],
    "export": [],
    "fix": [],
    "floor": [],
    "fair-entry": ["entry.svg"],
    "engine": [],
    "throughput": [],
    "load": ["load.svg"],
    "evenness": [],
    "together": [],
    "soak": ["soak.svg"],
    "planner": [],
    "planner-grid": [f"planner-{name}.svg" for name in ("figure6", "figure7", "interest", "excess")],
    "planner-scale": [],
    "filtering": ["filtering.svg"],
    "world": ["world-release.svg", "world-customers.svg", "world-nacks.svg"],
    "plans": [],
    "snapshot-joins": [],
}


OWN_TESTS = {
    *("faults", "receivers", "loop", "limits"),
    *("source", "lake", "lake-day", "live", "planjob", "cluster", "skew", "sweep", "publish"),
}
"""Many real processes, or Spark: tests of their own, test_benchmarks_*.py and system/test_loop.py, are for these."""


@pytest.mark.parametrize("name", sorted(set(BENCHMARKS) - OWN_TESTS))
def test_quick_run_prints_and_writes_figures_with_their_comparison(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "QUICK_HISTORIES", 30)
    assert main([name, "--quick", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "python CPython" in printed or "python PyPy" in printed
    assert "load average" in printed
    assert " | ratio " in printed
    assert "s of wall time and" in printed
    written = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert written["quick"] is True
    assert written["machine"]["cores"] >= 1
    assert written["cpu_s"] > 0
    for figure in written["figures"]:
        assert figure["against"]
        assert figure["unit"]
        if figure["against_value"]:
            assert figure["ratio"] == pytest.approx(figure["value"] / figure["against_value"])
    for table in written["tables"]:
        assert table["rows"]
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
    assert [Path(plot).name for plot in written["plots"]] == PLOTS[name]
    for plot in PLOTS[name]:
        ElementTree.parse(tmp_path / plot)  # a quick run leaves docs/plots alone


def test_unknown_benchmark_is_named_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulatr"])
    assert "unknown benchmark simulatr; use simulator, modes, liveness" in capsys.readouterr().err


def test_no_release_is_late_without_faults(tmp_path: Path) -> None:
    """Rule 6: with the derived hold time ordinary loss makes nothing late, in either mode."""
    for mode in ("lockstep", "pipelined"):
        case = modes.Case(mode, None if mode == "lockstep" else 50, "majority", 60)
        measured = modes.measure((case, 7, 60 * S))
        assert measured.late == 0
        assert measured.reformations == 0
        assert len(measured.latency_ns) == 5 * measured.packets > 0
        assert max(measured.ready_ns) <= measured.hold_ns


def test_without_matplotlib_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with (
        pytest.raises(ExtraMissing, match=r"matplotlib is not installed.*levelcast\[plot\]"),
        canvas(tmp_path / "x.svg", 4, 3),
    ):
        pass
    monkeypatch.setattr(liveness, "QUICK_HISTORIES", 4)
    result = liveness.run(Options(quick=True, out=tmp_path))
    assert result.plots == []
    assert any("matplotlib is not installed" in note for note in result.notes)
    assert len(result.figures) == 5


def test_plots_are_the_same_bytes_for_the_same_figures(tmp_path: Path) -> None:
    outcomes = [
        Outcome(seed, liveness_ns=seed, bound_ns=100, mode="lockstep" if seed % 5 == 0 else "pipelined")
        for seed in range(1, 60)
    ]
    first = liveness.plot(outcomes, tmp_path / "a.svg").read_bytes()
    assert first == liveness.plot(outcomes, tmp_path / "b.svg").read_bytes()
    assert len(first) < 60_000


def test_broken_history_is_reported_with_its_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def histories(*_: object, **__: object) -> list[Outcome]:
        return [
            Outcome(1, liveness_ns=1, bound_ns=10, mode="pipelined"),
            Outcome(2, broken="agreement: no", bound_ns=10, mode="pipelined"),
        ]

    monkeypatch.setattr(liveness, "run_seeds", histories)
    result = liveness.run(Options(quick=True, out=tmp_path))
    assert any("--seeds 2..2" in note and "agreement: no" in note for note in result.notes)
    assert result.figures[-1].value == 1


def test_the_steady_world_is_one_history_per_seed() -> None:
    def latencies(seed: int) -> list[int]:
        ring = steady_world(3, 0.05, seed=seed, gap_ns=20 * MS)
        ring.form()
        ring.load(S)
        ring.drain()
        assert ring.samples.late == 0
        return list(ring.samples.latency_ns)

    first = latencies(1)
    assert len(first) > 100
    assert first == latencies(1)
    assert first != latencies(2)


def test_a_table_lines_up_and_a_figure_shows_its_ratio() -> None:
    table = str(Table("t", ("name", "n"), [("a", 12_345), ("long", 0.12345)]))
    assert table.splitlines() == ["t", "  name       n", "  ----  ------", "  a     12,345", "  long   0.123"]
    assert str(Figure("speed", 50, "per s", "limit", 200)).endswith("| ratio 0.25")
    assert str(Result("empty")) == "empty needed 0.0 s of wall time and 0.0 s of CPU"
    assert quantile([], 0.5) == 0
    assert quantile([1, 2, 3, 4], 0.5) == 3
    assert quantile([1, 2, 3, 4], 1.0) == 4


def test_a_result_tells_of_stolen_time_when_it_matters_and_always_has_it_as_json() -> None:
    with Stopwatch() as watch:
        pass
    result = Result("a")
    result.set_times(watch)
    assert set(asdict(watch.contention)) == {"seconds", "stolen_ratio", "pressure_ratio"}
    assert result.as_json()["contention"] == asdict(watch.contention)
    result.contention = CpuContention(60.0, 0.31, 0.1)
    assert str(result).endswith(
        "\nThe machine lost 31 % of its CPU time to the hypervisor during this run, which affects its results."
    )


def test_functions_are_counted_with_their_part() -> None:
    assert part_of(("/x/levelcast/ring/member.py", 1, "step")) == "ring"
    assert part_of(("/x/levelcast/wire/codec.py", 1, "encode")) == "wire codec"
    assert part_of(("/x/levelcast/sim/engine/network.py", 1, "copies")) == "network model"
    assert part_of(("~", 0, "<built-in method _heapq.heappop>")) == "heap"
    assert part_of(("/usr/lib/python3.11/random.py", 1, "choice")) == "Python's library"


def test_what_filtering_costs_is_found_again() -> None:
    """Equations (9), (2) and (4) of TH from what they give, and no cost below 0."""
    runs = [
        filtering.Run(n, n * rate, (2 - n) * rate, 100 + 30 * n + 2 * rate * 0.5 + n * rate * 0.25)
        for n in (0, 1, 2)
        for rate in (200.0, 30_000.0)
    ]
    assert filtering.fit_rates(runs) == pytest.approx((100, 30, 0.5, 0.25, 0), abs=1e-6)
    aggregations = (1, 2, 5, 20)
    found = filtering.fit_curve(aggregations, [0.1 + 3 / h for h in aggregations])
    assert (found.fixed, found.per_packet) == pytest.approx((0.1, 3))
    for slope, packet in ((0.1, -1.0), (-0.1, 2.0), (-0.1, -1.0)):
        found = filtering.fit_curve(aggregations, [slope + packet / h for h in aggregations])
        assert found.fixed >= 0
        assert found.per_packet >= 0
    assert filtering.fit_curve(aggregations, [0.0] * 4) == Curve(0.0)


def test_the_planner_reads_the_weights_that_were_measured(tmp_path: Path) -> None:
    """Scaled to α + β = 2 at h = 8; a curve of 0 stays one."""
    points = [filtering.Point(h, 0.1 + 3 / h, 0.02 + 1 / h, 0, 0, 0, 0) for h in (1, 2, 5, 20)]
    alpha, beta = filtering.fitted(False, points).weights()
    content = {"weights": {"alpha": alpha, "beta": beta, "aggregation": filtering.AGGREGATION}}
    (tmp_path / "filtering.json").write_text(json.dumps(content), encoding="utf-8")
    read = read_weights(tmp_path / "filtering.json")
    assert read.alpha.at(8) + read.beta.at(8) == pytest.approx(2, abs=1e-3)
    assert read.alpha.at(8) / read.beta.at(8) == pytest.approx((0.1 + 3 / 8) / (0.02 + 1 / 8), rel=1e-3)
    assert filtering.text(Curve(0.0)) == "0.0000+0.0000/h"


def test_a_port_on_which_somebody_hears_a_group_is_not_free() -> None:
    """Or two benchmarks that run at the same time would hear each other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("239.192.74.1", room.free_ports()))
        port = listener.getsockname()[1]
        assert not room._is_free(port)
    assert room._is_free(port)
