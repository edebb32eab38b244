"""The page about a day: made of the tables alone, complete in itself, without Spark."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from levelcast.pipeline.lake.defaults import LakeError
from levelcast.pipeline.lake.lake import Lake
from levelcast.pipeline.lake.tables import TABLES
from levelcast.pipeline.report.page import write_report
from levelcast.plots import svg

DAY = date(2026, 11, 16)
T0 = 1_794_787_200_000_000_000
MINUTE = 60_000_000_000


pytest.importorskip("deltalake")


def put(lake: Lake, name: str, rows: list[dict[str, Any]]) -> None:
    import deltalake

    lake._ensure(name)
    table = pa.Table.from_pylist(rows, schema=TABLES[name].arrow_schema())
    deltalake.write_deltalake(str(lake.directory / name), table, mode="append")


def bar(symbol: str, start: int, price: int, interval: str = "1m") -> dict[str, Any]:
    return {
        "symbol": symbol,
        "venue": "ALL",
        "interval": interval,
        "start_ns": T0 + start,
        "open": price,
        "high": price + 5,
        "low": price - 5,
        "close": price,
        "volume": 10,
        "vwap": price,
        "trades": 2,
        "variant": "all",
        "day": DAY,
    }


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.create(tmp_path / "lake")
    put(lake, "trades", [{"stripe": 0, "sequence": 1, "ts_recv": T0, "day": DAY}])
    put(lake, "bars", [bar("A<b>", n * MINUTE, 10**9 + n) for n in range(90)] + [bar("A<b>", 0, 10**9, "1d")])
    shares = [("A<b>", "XNYS", 0.75), ("A<b>", "XNAS", 0.25), ("ALL", "XNYS", 0.75), ("ALL", "XNAS", 0.25)]
    put(
        lake,
        "venue_share",
        [
            {"symbol": s, "venue": v, "trades": 5, "volume": 5, "volume_share": part, "day": DAY}
            for s, v, part in shares
        ],
    )
    rated = [("A<b>", 0, 9), ("A<b>", 600, 3), ("B", 300, 1)]
    put(
        lake,
        "rates",
        [
            {"symbol": s, "start_s": at, "seconds": 300, "messages": n, "rate": n / 300, "day": DAY}
            for s, at, n in rated
        ],
    )
    put(
        lake,
        "rate_fit",
        [
            {
                "symbols": 2,
                "messages": 13,
                "scale": 0.1,
                "decay": 0.4,
                "r2": 1.0,
                "top_symbols": 1,
                "top_share": 0.92,
                "day": DAY,
            }
        ],
    )
    put(
        lake,
        "releases",
        [
            {
                "receiver": "ALL",
                "kind": "spread",
                "start_ns": T0,
                "low_ns": 1000,
                "high_ns": 2000,
                "releases": 7,
                "day": DAY,
            },
            {
                "receiver": "a",
                "kind": "delay",
                "start_ns": T0,
                "low_ns": -(2**63),
                "high_ns": 0,
                "releases": 7,
                "day": DAY,
            },
            {
                "receiver": "a",
                "kind": "late",
                "start_ns": T0,
                "low_ns": 10**9,
                "high_ns": 10**9,
                "scheduled_ns": T0 + MINUTE,
                "releases": 1,
                "slot": 4,
                "day": DAY,
            },
        ],
    )
    put(lake, "quarantine", [{"source": "x", "position": 3, "reason": "a trade without a price", "raw": "{}"}])
    return lake


def test_a_page_has_everything_in_it(lake: Lake, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    told = write_report(lake, page)
    assert (told["day"], told["symbols"]) == ("2026-11-16", ["A<b>"])
    html = page.read_text(encoding="utf-8")
    for part in ("Price and volume", "Message rates", "Venue share", "Release", "1 of 8 releases were late",
                 "a trade without a price", "92% of the messages", "A&lt;b&gt;",
                 "By receiver", "messages/s", "UTC"):  # fmt: skip
        assert part in html
    assert "<b>" not in html
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|<script|https?:", html)
    plots = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(plots) == 7
    for plot in plots:
        ElementTree.fromstring(plot)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


def test_what_is_not_there_is_said(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no trades for 1999-01-01; available: 2026-11-16"):
        write_report(lake, tmp_path / "x.html", "1999-01-01")
    with pytest.raises(LakeError, match="no trades of ZZZ on 2026-11-16"):
        write_report(lake, tmp_path / "x.html", symbols=["ZZZ"])
    with pytest.raises(LakeError, match="has no trades"):
        write_report(Lake.create(tmp_path / "empty"), tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_axes_have_round_numbers() -> None:
    assert svg.ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert svg.ticks(0.11, 0.19) == [0.12, 0.14, 0.16, 0.18]
    assert svg.ticks(3, 3) == [3]
    assert [round(10**power) for power in svg.log_ticks(0, 1.5)] == [1, 2, 5, 10, 20]
    assert svg.log_ticks(-0.5, 3.2) == [0, 1, 2, 3]
    assert [svg.clock(at) for at in svg.time_ticks(34_200, 57_600)] == [f"{hour:02}:00" for hour in range(10, 17)]
    assert svg.clock(34_201) == "09:30:01"
    assert [svg.plain(value) for value in (0.5, 1234.5, 25_000, 3e6)] == ["0.5", "1,234.5", "25 k", "3 M"]
