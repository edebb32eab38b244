"""The real quotes of IBM and BAC cut by time: the pieces, in any order, give what one pass gives. Without Spark."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from levelcast.formats.captures import tasks_of
from levelcast.pipeline.derive import bbo
from levelcast.pipeline.input.files import task_rows
from levelcast.pipeline.lake.schema import NAMES

QUOTES = 585_922
ROWS = 20_000
ORDER = [(name, "ascending") for name in ("day", "symbol", "ts_recv", "stripe", "sequence")]


@pytest.fixture(scope="module")
def day(data_dir: Path) -> Any:
    """All quotes in the order of the pass, each with the number of its chunk."""
    files = sorted((data_dir / "us_equities_tick_20131007").glob("*_quote.csv.gz"))
    tasks = tasks_of(files, "lean", day=date(2013, 10, 7))
    read = pa.Table.from_batches([batch for task in tasks for batch in task_rows(task, NAMES)]).select(list(NAMES))
    rows = read.append_column("is_trade", pa.array(np.zeros(read.num_rows, bool))).sort_by(ORDER)
    units = (rows["ts_recv"].to_numpy() // bbo.UNIT_NS).tolist()
    keys = list(zip(rows["day"].to_pylist(), rows["symbol"].to_pylist(), units, strict=True))
    seen: Counter[Any] = Counter()
    number = {}
    for key, count in sorted(Counter(keys).items()):
        number[key] = seen[key[:2]] // ROWS
        seen[key[:2]] += count
    return rows.append_column(bbo.CHUNK, pa.array([number[key] for key in keys], pa.int32()))


@pytest.mark.parametrize("consolidated", [True, False])
def test_pieces_in_any_order_give_what_the_whole_day_gives(day: Any, consolidated: bool) -> None:
    assert day.num_rows == QUOTES
    rng = np.random.default_rng(1)
    whole = passed(day.drop_columns([bbo.CHUNK]), {}, consolidated)
    shuffled = day.take(pa.array(rng.permutation(QUOTES)))
    tasks = [shuffled.slice(start, 100_000) for start in range(0, QUOTES, 100_000)]
    last = [
        SimpleNamespace(**row)
        for task in tasks
        for batch in bbo.last_quotes(iter(task.combine_chunks().to_batches(20_000)))
        for row in batch.to_pylist()
    ]
    starts = bbo.starts_of(last, consolidated)
    symbols, chunks = day["symbol"].to_numpy(zero_copy_only=False), day[bbo.CHUNK].to_numpy()
    pieces = sorted(set(zip(symbols.tolist(), chunks.tolist(), strict=True)), key=lambda piece: (-piece[1], piece[0]))
    assert len(pieces) > 25
    cut = [
        passed(day.filter(pa.array((symbols == symbol) & (chunks == chunk))), starts, consolidated)
        for symbol, chunk in pieces
    ]
    assert pa.concat_tables(cut).sort_by(ORDER).equals(whole.sort_by(ORDER))


def passed(rows: Any, starts: bbo.Starts, consolidated: bool) -> Any:
    batches = rows.combine_chunks().to_batches(20_000)
    return pa.Table.from_batches(list(bbo.follow(iter(batches), bbo.best_rows, consolidated, starts)))
