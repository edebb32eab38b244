"""Convert release logs to rows of `releases`: late releases individually, the others as counts.

A receiver releases one frame per slot, 100 or more per second: the raw log of a day does not scale with receivers. So
each minute of a receiver becomes a histogram of the release delay after the scheduled release time. The spread of a
slot over the receivers, the measure of fair release, is a histogram too, of slots that all of them released on time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from levelcast.extras import arrow
from levelcast.pipeline.lake.tables import RELEASES
from levelcast.records import RecordArray
from levelcast.storage.release_log import (
    RELEASE,
    SUFFIX,
    common_slots,
    is_late,
    lateness_ns,
    read_entries,
    read_together,
    span_of,
    spreads_ns,
    subtract_token_delays,
)

MINUTE_NS = 60_000_000_000
DAY_NS = 86_400_000_000_000
BOUNDS_NS = np.array([0, *(digit * 10**power for power in range(3, 11) for digit in (1, 2, 5))], np.int64)
"""Lower bounds of the bins: below 0, then 1, 2 and 5 of each power of ten from 1 µs on."""
ALL = "ALL"

Ints = npt.NDArray[np.int64]


def find_logs(inputs: Iterable[Path]) -> dict[str, Path]:
    """Return release logs by receiver: next to the tapes of nodes, of a directory of nodes, or of a tape itself."""
    found: dict[str, Path] = {}
    for path in inputs:
        own = path.parent if path.name == "tape" else path
        for node in (path, own, *sorted(path.glob("*")), *sorted(path.glob("*/*"))):
            log = node / "releases"
            if log.is_dir() and any(log.glob("*.releases")):
                found.setdefault(node.resolve().name, log)
    return found


def read_logs(logs: Mapping[str, Path], after: Mapping[str, int]) -> dict[str, RecordArray]:
    """Return each receiver's releases since its last known slot, with the delays of their tokens subtracted."""
    found = {receiver: log[log["slot"] > after.get(receiver, 0)] for receiver, log in read_together(logs).items()}
    return {receiver: log for receiver, log in found.items() if len(log)}


@dataclass(frozen=True, slots=True)
class SlotRange:
    """A range of slots of all logs that one task reads."""

    low: int
    high: int
    files: Mapping[str, tuple[str, ...]]
    """Files of each receiver."""
    after: Mapping[str, int]
    """The last known slot of each receiver."""
    upto: Mapping[str, int]
    """The last slot of each receiver when the ranges were made: a log may grow while it is read."""

    def rows(self) -> Any:
        """Return its rows of `releases`; a minute at its edge is in two ranges, whose counts are to be added."""
        found = {}
        entries = {name: [read_entries(Path(path)) for path in paths] for name, paths in self.files.items()}
        logs = subtract_token_delays({receiver: np.concatenate(parts) for receiver, parts in entries.items()})
        for receiver, log in logs.items():
            low = max(self.low, self.after.get(receiver, 0) + 1)
            found[receiver] = log[(log["slot"] >= low) & (log["slot"] <= min(self.high, self.upto[receiver]))]
        return release_rows({receiver: log for receiver, log in found.items() if len(log)})


def slot_ranges(logs: Mapping[str, Path], after: Mapping[str, int], entries: int) -> list[SlotRange]:
    """Divide the new slots of all logs into ranges of about so many entries, by the first and last slot of files."""
    spans = {
        receiver: [(*span, str(path)) for path in sorted(folder.glob("*" + SUFFIX)) if (span := span_of(path))]
        for receiver, folder in logs.items()
    }
    new = {receiver: [each for each in found if each[1] > after.get(receiver, 0)] for receiver, found in spans.items()}
    known = [each for found in new.values() for each in found]
    if not known:
        return []
    count = max(1, sum(each[2] for each in known) // entries)
    starts = sorted(each[0] for each in known)
    cuts = sorted({starts[at * len(starts) // count] for at in range(1, count)})
    upto = {receiver: max(each[1] for each in found) for receiver, found in new.items() if found}
    ranges = []
    for low, high in pairwise([0, *(cut - 1 for cut in cuts), max(each[1] for each in known)]):
        files = {
            receiver: tuple(path for first, last, _, path in found if first <= high and last > low)
            for receiver, found in new.items()
        }
        ranges.append(SlotRange(low + 1, high, {name: paths for name, paths in files.items() if paths}, after, upto))
    return ranges


def release_rows(logs: Mapping[str, RecordArray]) -> Any:
    """Return rows of `releases` as a pyarrow table."""
    parts = [part for receiver, log in logs.items() for part in (_late(receiver, log), _delays(receiver, log))]
    parts.append(_spreads(list(logs.values())))
    schema = RELEASES.arrow_schema()
    # In one chunk: with several, Spark 4.3 converts only the first ones to rows.
    return arrow().concat_tables([part.cast(schema) for part in parts]).combine_chunks()


def _table(receiver: str, kind: str, **columns: Ints) -> Any:
    pa = arrow()
    schema = RELEASES.arrow_schema()
    count = len(columns["start_ns"])
    made: dict[str, Any] = {
        "receiver": pa.array([receiver] * count, pa.string()),
        "kind": pa.array([kind] * count, pa.string()),
        "day": pa.array((columns["start_ns"] // DAY_NS).astype(np.int32)).view(pa.date32()),
        **{name: pa.array(values) for name, values in columns.items()},
    }
    arrays = [made[name] if name in made else pa.nulls(count, schema.field(name).type) for name in schema.names]
    return pa.Table.from_arrays(arrays, schema=schema)


def _late(receiver: str, log: RecordArray) -> Any:
    late = log[is_late(log)]
    number = {
        name: late[name].astype(np.int64) for name in ("slot", "generation", "scheduled_ns", "released_ns", "records")
    }
    delay = number["released_ns"] - number["scheduled_ns"]
    start = number["scheduled_ns"] // MINUTE_NS * MINUTE_NS
    once = np.ones(len(late), np.int64)
    return _table(receiver, "late", start_ns=start, low_ns=delay, high_ns=delay, releases=once, **number)


def _delays(receiver: str, log: RecordArray) -> Any:
    good = log[~is_late(log)]
    return _histogram(
        receiver, "delay", good["scheduled_ns"].astype(np.int64), lateness_ns(good), good["records"].astype(np.int64)
    )


def _spreads(logs: Sequence[RecordArray]) -> Any:
    """Return the last receiver's release minus the first one's, of every slot that all receivers released on time."""
    rows = common_slots(logs if len(logs) > 1 else [])
    rows = rows[:, ~is_late(rows).any(axis=0)]
    first = rows[0] if len(rows) else np.zeros(0, RELEASE)
    scheduled, records = first["scheduled_ns"].astype(np.int64), first["records"].astype(np.int64)
    return _histogram(ALL, "spread", scheduled, spreads_ns(rows), records)


def _histogram(receiver: str, kind: str, scheduled: Ints, value: Ints, records: Ints) -> Any:
    minute = scheduled // MINUTE_NS
    bin = np.searchsorted(BOUNDS_NS, value, "right")
    keys, place = np.unique(minute * (len(BOUNDS_NS) + 1) + bin, return_inverse=True)
    edges = np.concatenate(([np.iinfo(np.int64).min], BOUNDS_NS, [np.iinfo(np.int64).max]))
    bins = keys % (len(BOUNDS_NS) + 1)
    return _table(
        receiver,
        kind,
        start_ns=keys // (len(BOUNDS_NS) + 1) * MINUTE_NS,
        low_ns=edges[bins],
        high_ns=edges[bins + 1],
        releases=np.bincount(place, minlength=len(keys)).astype(np.int64),
        records=np.bincount(place, weights=records, minlength=len(keys)).astype(np.int64),
    )
