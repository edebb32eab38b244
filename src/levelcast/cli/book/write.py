"""Write the rows of a replay to Parquet: the book after every event, prices in 1e-9, null where there is no level."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from levelcast.extras import arrow
from levelcast.market.replay_run import SymbolReplay
from levelcast.native.book_codes import UNDEFINED


def write_rows(path: Path, found: list[SymbolReplay], levels: int) -> None:
    """Write one row per event, symbol by symbol."""
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    writer = None
    for each in found:
        rows = each.rows(levels)
        columns = {
            "symbol": pa.array([each.symbol] * len(rows)),
            "ts_event": pa.array(np.array(each.times, np.uint64)),
        }
        for level in range(levels):
            for name in ("ask_px", "ask_sz", "bid_px", "bid_sz"):
                values = rows[:, level][name]
                absent = values == UNDEFINED if name.endswith("px") else np.zeros(len(values), bool)
                columns[f"{name}_{level}"] = pa.array(np.ascontiguousarray(values), mask=absent)
        table = pa.table(columns)
        writer = writer or parquet.ParquetWriter(str(path), table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
