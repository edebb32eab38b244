"""Read one-way delay, jitter and loss of every pair of cities from a file of measurements.

Two kinds of CSV are read (plain or .gz, with a header):

- round trips by ping: `from_city, to_city, min_ms, avg_ms`, as WonderNetwork publishes them. The one-way delay is half
  of the minimum round trip. The jitter is chosen so that the mean of a uniform delay is half of the average round trip;
- one way: `from, to, delay_ms` and optionally `jitter_ms`.

Both may have a column `loss` (a ratio); without it every pair has the caller's loss. Both may have a column `hops`, the
number of routers. A pair measured in one direction only has the same values in the other; a pair without measurements
uses the best path over a third city, and has no hops.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from levelcast.network.fields import Problem
from levelcast.network.parse import NetworkError

Matrix = npt.NDArray[np.float64]

LOCAL_MS = 0.5
"""One-way delay and jitter between two machines of one city, which pings between cities do not measure."""
LARGEST_MS = 60_000.0
MOST_HOPS = 254


@dataclass(frozen=True, slots=True)
class Delays:
    """Row: from; column: to. A packet has a delay of `delay_ms` and at most `jitter_ms` more, or is lost."""

    names: tuple[str, ...]
    delay_ms: Matrix
    jitter_ms: Matrix
    loss: Matrix
    hops: Matrix | None = None
    """Number of routers, NaN for a pair without measurements; None: not measured."""

    @property
    def quantile_ms(self) -> Matrix:
        """Return the one-way delay that all but late packets meet, as `Link.quantile_ns`."""
        return self.delay_ms + self.jitter_ms

    def with_loss(self, ratio: float) -> Delays:
        """Return the same delays with a loss of `ratio` for every pair."""
        return replace(self, loss=np.full_like(self.loss, ratio))

    def only(self, places: npt.NDArray[np.intp]) -> Delays:
        """Return the delays of these cities only."""
        pick = np.ix_(places, places)
        names, hops = tuple(self.names[i] for i in places), None if self.hops is None else self.hops[pick]
        return Delays(names, self.delay_ms[pick], self.jitter_ms[pick], self.loss[pick], hops)


class MeasuredCsv:
    """Read a CSV of measurements, plain or compressed: its header, its rows, and its errors."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Read a file. Raise NetworkError for invalid contents, OSError if it cannot be read."""
        self.path = Path(path)
        raw = self.path.read_bytes()
        if self.path.suffix == ".gz":
            try:
                raw = gzip.decompress(raw)
            except (OSError, EOFError):
                raise self.problem(1, "not a gzip file, although its name ends in .gz") from None
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise self.problem(1, "not UTF-8 text") from None
        reader = csv.reader(io.StringIO(text))
        self.lines = [(reader.line_num, row) for row in reader if row]
        """Every row, including the header, with its line."""
        self.header = [name.strip() for name in self.lines[0][1]] if self.lines else []

    def problem(self, line: int, message: str) -> NetworkError:
        """Return the error to raise for one line."""
        return NetworkError(str(self.path), [Problem(line, message)])

    def column(self, *names: str) -> int | None:
        """Return the index of the first of these columns that exists."""
        return next((self.header.index(name) for name in names if name in self.header), None)

    def need(self, name: str, other: str) -> int:
        """Return the index of a required column."""
        at = self.column(name, other)
        if at is None:
            raise self.problem(1, f"the header has no column {name} (or {other})")
        return at

    def rows(self, fields: int | None = None) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows after the header, each with its line; at least the header's fields, or `fields`."""
        for line, row in self.lines[1:]:
            if len(row) < (len(self.header) if fields is None else fields):
                raise self.problem(line, f"this row has {len(row)} fields, the header {len(self.header)}")
            yield line, row

    def number(self, line: int, text: str, name: str, most: float, what: str = "a number from 0 to {:g}") -> float:
        """Return a number from 0 to `most`."""
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= most:
            raise self.problem(line, f'{name} is "{text}", not {what.format(most)}')
        return value


def load_delays(path: str | PathLike[str], loss: float = 0.0) -> Delays:
    """Read a file of measurements. Raise NetworkError for invalid contents, OSError if it cannot be read."""
    file = MeasuredCsv(path)
    origin, to = file.need("from_city", "from"), file.need("to_city", "to")
    pings = "min_ms" in file.header
    times = ("min_ms", "avg_ms") if pings else ("delay_ms", "jitter_ms")
    least = file.need(times[0], "min_ms")
    more, lost = file.column(times[1]), file.column("loss")
    if pings and more is None:
        raise file.problem(1, "the header has min_ms but no avg_ms; the jitter needs both")
    routers = file.column("hops")
    found: dict[tuple[str, str], tuple[float, float, float]] = {}
    hops: dict[tuple[str, str], float] = {}
    for line, row in file.rows():
        low = file.number(line, row[least], times[0], LARGEST_MS)
        high = file.number(line, row[more], times[1], LARGEST_MS) if more is not None else 0.0
        ratio = file.number(line, row[lost], "loss", 1.0) if lost is not None else loss
        delay, jitter = (low / 2, max(high - low, 0.0)) if pings else (low, high)
        pair = place_name(row[origin]), place_name(row[to])
        found[pair] = delay, jitter, ratio
        if routers is not None:
            hops[pair] = file.number(line, row[routers], "hops", MOST_HOPS)
    if not found:
        raise file.problem(1, "the file has no pair of cities")
    delays = _complete(file, found, loss)
    return delays if routers is None else replace(delays, hops=_hops(delays.names, hops))


def load_weights(path: str | PathLike[str], names: tuple[str, ...]) -> Matrix:
    """Read the number of subscribers of each city from a CSV.

    Its columns are `city` (or `site`) and `customers` (or `weight`, `Population`). A city that is not
    in the file gets the median of those in the file; one that is not in `names` is ignored.
    """
    file = MeasuredCsv(path)
    place, count = file.need("city", "site"), file.column("customers", "weight", "Population")
    if count is None:
        raise file.problem(1, "the header has no column `customers`, `weight` or `Population`")
    known = {
        place_name(row[place]): file.number(line, row[count], file.header[count], 1e12)
        for line, row in file.rows(max(place, count) + 1)
    }
    weights = [known[name] for name in names if name in known]
    if not weights or sum(weights) <= 0:
        raise file.problem(1, "no city of the delays has subscribers in this file; check that the names are equal")
    usual = float(np.median(weights))
    return np.array([known.get(name, usual) for name in names])


def place_name(text: str) -> str:
    """Return the name of a city: in these files spaces may be plus signs."""
    return text.strip().replace("+", " ")


def _complete(file: MeasuredCsv, found: dict[tuple[str, str], tuple[float, float, float]], loss: float) -> Delays:
    names = tuple(sorted({name for pair in found for name in pair}))
    index = {name: i for i, name in enumerate(names)}
    known = np.full((3, len(names), len(names)), np.nan)
    for (a, b), values in found.items():
        known[:, index[a], index[b]] = values
    for place in range(len(names)):
        if np.isnan(known[0, place, place]):
            known[:, place, place] = LOCAL_MS, LOCAL_MS, loss
    known = np.where(np.isnan(known), known.transpose(0, 2, 1), known)
    _detour(known)
    apart = np.argwhere(np.isnan(known[0]))
    if len(apart):
        a, b = (names[i] for i in apart[0])
        raise file.problem(1, f"no connection between {a} and {b}, neither as a pair nor over a third city")
    return Delays(names, *known)


def _hops(names: tuple[str, ...], found: dict[tuple[str, str], float]) -> Matrix:
    index = {name: i for i, name in enumerate(names)}
    hops = np.full((len(names), len(names)), np.nan)
    np.fill_diagonal(hops, 0.0)
    for (a, b), value in found.items():
        hops[index[a], index[b]] = value
    known: Matrix = np.where(np.isnan(hops), hops.T, hops)
    return known


def _detour(known: Matrix) -> None:
    """Fill missing pairs with the fastest path over a third city."""
    whole = np.where(np.isnan(known[0]), np.inf, known[0] + known[1])
    for a, b in np.argwhere(np.isnan(known[0])):
        over = whole[a] + whole[:, b]
        third = int(over.argmin())
        if np.isfinite(over[third]):
            known[:2, a, b] = known[:2, a, third] + known[:2, third, b]
            known[2, a, b] = 1.0 - (1.0 - known[2, a, third]) * (1.0 - known[2, third, b])
