"""The report's sections about the network, audits and plans: made of rows alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("deltalake")

from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.report import network
from levelcast.pipeline.report.page import write_report
from levelcast.pipeline.report.sections import audit_section, delivery_section, plan_section, sweep_section
from tests.test_pipeline_report import DAY, T0, put

HOUR = 3_600_000_000_000
MS = 1_000_000


def way(origin: str, to: str, ms: float, loss: float | None, hour: int = 0) -> dict[str, Any]:
    delays = dict.fromkeys(("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"), int(ms * MS))
    return {
        **delays,
        **{"from_site": origin, "to_site": to, "start_ns": T0 + hour * HOUR, "probes": 200, "answered": 190},
        **{"tried": 200, "lost": 10.0, "loss_ratio": loss, "loss_upper": loss, "enough": True, "day": DAY},
    }


def timing(hour: int, hold_s: float | None) -> dict[str, Any]:
    held = (
        {}
        if hold_s is None
        else {"late_ns": 50 * MS, "attempts": 7, "recovery_ns": 10**9, "hold_ns": int(hold_s * 1e9)}
    )
    return {
        **held,
        **{"start_ns": T0 + hour * HOUR, "network": "four", "stripe": "main", "quantile": 0.99, "sites": 3},
        **{"delay_between": "a<b> and c", "loss_between": "a<b> and d", "loss_ratio": 0.07, "day": DAY},
    }


def helper(site: str, rank: int, other: str, trip_ms: float, *, nearest: bool) -> dict[str, Any]:
    return {
        **{"site": site, "start_ns": T0 + HOUR, "rank": rank, "helper": other, "round_trip_ns": int(trip_ms * MS)},
        **{"answers": 0.95, "expected_ns": 45 * MS, "nearest": nearest, "day": DAY},
    }


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.create(tmp_path / "lake")
    rows = [
        way("a<b>", "c", 12.5, 0.002),
        way("c", "a<b>", 13, 0.001),
        way("a<b>", "d", 40, None),
        way("c", "d", 0.4, 0.2),
    ]
    put(lake, "network_matrix", [*rows, way("a<b>", "c", 99, 0.0, hour=1)])
    put(lake, "network_timing", [timing(0, 3.25), timing(1, 4.5), timing(2, None)])
    put(
        lake,
        "network_helpers",
        [helper("c", 1, "a<b>", 25, nearest=False), helper("c", 2, "d", 8, nearest=True)],
    )
    return lake


def test_a_lake_of_probes_alone_has_a_page(lake: Lake, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert write_report(lake, page)["day"] == "2026-11-16"
    html = page.read_text(encoding="utf-8")
    for part in (
        "The network of 2026-11-16",
        "3 sites, 4 directions",
        "Median delay",
        "99th percentile",
        "a&lt;b&gt; to c: 99 ms",
        "loss 20.00%",
        "loss not measured",
        "3.25 s",
        "4.50 s",
        "the network four",
        "a&lt;b&gt; and d (7.00%)",
        "a&lt;b&gt;: 25 ms, 95.0%, 45 ms",
        "For 1 of 1 sites the best is not the nearest",
    ):
        assert part in html, part
    assert "<b>" not in html
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|<script|https?:", html)
    plots = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(plots) == 3
    for plot in plots:
        ElementTree.fromstring(plot)
    with pytest.raises(LakeError, match="no network matrix for 1999-01-01"):
        write_report(lake, page, "1999-01-01")


def test_a_day_without_a_matrix_shows_the_last_one(lake: Lake) -> None:
    assert "of 2026-11-16" in "".join(network.sections(lake, "2030-01-01"))


def test_a_lake_without_a_matrix_has_no_section(tmp_path: Path) -> None:
    assert list(network.sections(Lake.create(tmp_path / "lake"), "2026-11-16")) == []


def test_many_sites_are_shown_in_part(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    put(
        lake,
        "network_matrix",
        [way(f"s{a:03}", f"s{b:03}", 1 + a + b, None) for a in range(60) for b in range(60) if a != b],
    )
    html = "".join(network.sections(lake, "2026-11-16"))
    assert f"show {network.MOST_SITES} of the sites" in html
    assert html.count("<rect") == 2 * network.MOST_SITES * (network.MOST_SITES - 1)


def test_audits_are_told_by_their_last_run() -> None:
    runs = [
        {"run": "1", "audit": "order", "at_ns": T0, "verdict": "found", "sentence": "One tape differs."},
        {"run": "2", "audit": "order", "at_ns": T0 + HOUR, "verdict": "passed", "sentence": "All tapes are <one>."},
        {"run": "2", "audit": "fairness", "at_ns": T0 + HOUR, "verdict": "found", "sentence": "b-1 is early."},
    ]
    findings = [
        {"run": "1", "audit": "order", "number": 1, "subject": "a-1", "kind": "byte", "says": "old"},
        {"run": "2", "audit": "fairness", "number": 1, "subject": "b-1", "kind": "early", "says": "2 ms early"},
    ]
    html = "".join(audit_section(runs, findings))
    assert "1 of 2 found faults." in html
    assert "All tapes are &lt;one&gt;." in html
    assert "2 ms early" in html
    assert "old" not in html
    assert list(audit_section([], [])) == []


def test_a_plan_is_told_beside_what_was_in_force() -> None:
    figures = {"sessions": 8, "groups": 4, "asked": 100.0, "received_before": 900.0, "received": 150.0}
    rows = [{"made_ns": T0, "before": "one session for all", "cost_before": 800.0, "cost": 200.0, **figures}]
    html = "".join(plan_section(rows))
    assert "The last plan costs 75% less than one session for all" in html
    assert "<td>900</td><td>150</td><td>800</td><td>200</td>" in html
    assert list(plan_section([])) == []


def test_a_sweep_is_told_by_what_held_and_drawn_by_what_varied() -> None:
    rows = [
        {
            **{
                "code": "0123456789",
                "scenario": "steady",
                "seed": seed,
                "verdict": "held",
                "broken": None,
                "cpu_s": 1.5,
            },
            **{"parameters": f'{{"loss": {loss}, "members": 3}}', "figures": f'{{"latency_p99_ms": {50 + 9 * seed}}}'},
        }
        for loss in (0.0, 0.01)
        for seed in range(3)
    ]
    html = "".join(sweep_section(rows))
    assert "Every guarantee held in all of them." in html
    assert "<td>steady</td><td>01234567</td><td>6</td><td>6</td><td>2</td><td>9 s</td>" in html
    assert "latency_p99_ms against loss" in html
    assert "against members" not in html
    ElementTree.fromstring(re.findall(r"<svg.*?</svg>", html, re.DOTALL)[0])
    broken = rows[0] | {"verdict": "broken", "broken": "a < b"}
    html = "".join(sweep_section([broken, *rows[1:]]))
    assert "1 did not hold." in html
    assert "<td>0</td><td>broken</td><td>a &lt; b</td>" in html
    silent = [row | {"figures": '{"latency_p99_ms": null}'} for row in rows]
    assert "<svg" not in "".join(sweep_section(silent))
    assert list(sweep_section([])) == []


def test_the_spread_between_subscribers_and_who_misses_the_bound_are_a_section() -> None:
    fine = {"receiver": "a-1", "at_ns": T0, "subscribers": 1_200, "missing": 0, "worst": None, "late": 0, "records": 90}
    fine |= {"spread_on_arrival_ns": 56_000_000, "spread_ns": 400_000, "bound_ns": 60_000_000, "needed_ns": 55_000_000}
    html = "".join(delivery_section([fine]))
    assert "All keep the bound. 0.00% of their records were late." in html
    for cell in ("1,200", "56 ms", "400 µs", "60 ms", "55 ms"):
        assert f"<td>{cell}</td>" in html
    bad = fine | {"receiver": "b-1", "missing": 2, "worst": "10.0.0.7:42", "needed_ns": 70_000_000, "late": 10}
    html = "".join(delivery_section([fine, bad]))
    assert "Up to 2 of an edge miss the bound. 5.26% of their records were late." in html
    assert html.index("b-1") < html.index("a-1")
    assert list(delivery_section([])) == []
