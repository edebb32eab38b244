"""What lies between places: one-way delay, jitter and loss of every pair, from a file of measurements.

Two kinds of CSV are read (plain or .gz, with a header):

- round trips by ping: `from_city, to_city, min_ms, avg_ms`, as WonderNetwork publishes them. The one-way delay is half
  of the least round trip. The jitter is as wide as makes the mean of a uniform delay half of the average round trip;
- one way: `from, to, delay_ms` and perhaps `jitter_ms`.

Both may have a column `loss` (a ratio); without it every pair loses what the caller says. A pair that is measured in
one direction only is the same in the other; one that is not measured at all is the best way over a third place.
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
"""One way and jitter between two machines of one city, which no ping between cities tells."""
LARGEST_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Delays:
    """Row: from; column: to. A packet takes `delay_ms` and at most `jitter_ms` more, or is lost."""

    names: tuple[str, ...]
    delay_ms: Matrix
    jitter_ms: Matrix
    loss: Matrix

    @property
    def quantile_ms(self) -> Matrix:
        """The one-way delay that all but late packets keep, as `Link.quantile_ns`."""
        return self.delay_ms + self.jitter_ms

    def with_loss(self, ratio: float) -> Delays:
        """The same places, every pair losing `ratio`."""
        return replace(self, loss=np.full_like(self.loss, ratio))

    def only(self, places: npt.NDArray[np.intp]) -> Delays:
        """These places alone."""
        pick = np.ix_(places, places)
        return Delays(tuple(self.names[i] for i in places), self.delay_ms[pick], self.jitter_ms[pick], self.loss[pick])


class MeasuredCsv:
    """A CSV of measurements, plain or packed: its header, its rows, and what is wrong with it."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Read a file. Raises NetworkError for what is in it, OSError if it cannot be read."""
        self.path = Path(path)
        raw = self.path.read_bytes()
        if self.path.suffix == ".gz":
            try:
                raw = gzip.decompress(raw)
            except (OSError, EOFError):
                raise self.problem(1, "this is not a gzip file, although its name ends so") from None
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise self.problem(1, "this is not UTF-8 text") from None
        reader = csv.reader(io.StringIO(text))
        self.lines = [(reader.line_num, row) for row in reader if row]
        """Every row, the header included, with its line."""
        self.header = [name.strip() for name in self.lines[0][1]] if self.lines else []

    def problem(self, line: int, message: str) -> NetworkError:
        """The error to raise for one line."""
        return NetworkError(str(self.path), [Problem(line, message)])

    def column(self, *names: str) -> int | None:
        """The place of the first of these columns that there is."""
        return next((self.header.index(name) for name in names if name in self.header), None)

    def need(self, name: str, other: str) -> int:
        """The place of a column that there must be."""
        at = self.column(name, other)
        if at is None:
            raise self.problem(1, f"the header has no column {name} (or {other})")
        return at

    def rows(self, fields: int | None = None) -> Iterator[tuple[int, list[str]]]:
        """The rows after the header, each with its line; they must have as many fields as the header, or `fields`."""
        for line, row in self.lines[1:]:
            if len(row) < (len(self.header) if fields is None else fields):
                raise self.problem(line, f"this row has {len(row)} fields, the header {len(self.header)}")
            yield line, row

    def number(self, line: int, text: str, name: str, most: float, what: str = "a number from 0 to {:g}") -> float:
        """A number from 0 to `most`."""
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= most:
            raise self.problem(line, f'{name} is "{text}", not {what.format(most)}')
        return value


def load_delays(path: str | PathLike[str], loss: float = 0.0) -> Delays:
    """Read a file of measurements. Raises NetworkError for what is in it, OSError if it cannot be read."""
    file = MeasuredCsv(path)
    origin, to = file.need("from_city", "from"), file.need("to_city", "to")
    pings = "min_ms" in file.header
    times = ("min_ms", "avg_ms") if pings else ("delay_ms", "jitter_ms")
    least = file.need(times[0], "min_ms")
    more, lost = file.column(times[1]), file.column("loss")
    if pings and more is None:
        raise file.problem(1, "there is min_ms but no avg_ms: the jitter comes from both")
    found: dict[tuple[str, str], tuple[float, float, float]] = {}
    for line, row in file.rows():
        low = file.number(line, row[least], times[0], LARGEST_MS)
        high = file.number(line, row[more], times[1], LARGEST_MS) if more is not None else 0.0
        ratio = file.number(line, row[lost], "loss", 1.0) if lost is not None else loss
        delay, jitter = (low / 2, max(high - low, 0.0)) if pings else (low, high)
        found[place_name(row[origin]), place_name(row[to])] = delay, jitter, ratio
    if not found:
        raise file.problem(1, "there is no pair of places in this file")
    return _complete(file, found, loss)


def load_weights(path: str | PathLike[str], names: tuple[str, ...]) -> Matrix:
    """How many customers each place has, by a CSV with `city` (or `site`) and `customers` (or `weight`, `Population`).

    A place that the file does not name gets the median of those that it names; one that it names and `names` lacks is
    left out.
    """
    file = MeasuredCsv(path)
    place, count = file.need("city", "site"), file.column("customers", "weight", "Population")
    if count is None:
        raise file.problem(1, "there is no column customers, weight or Population")
    known = {
        place_name(row[place]): file.number(line, row[count], file.header[count], 1e12)
        for line, row in file.rows(max(place, count) + 1)
    }
    weights = [known[name] for name in names if name in known]
    if not weights or sum(weights) <= 0:
        raise file.problem(1, "no place of the delays has customers here; are the names the same?")
    usual = float(np.median(weights))
    return np.array([known.get(name, usual) for name in names])


def place_name(text: str) -> str:
    """A city as these files write it: blanks may be plus signs."""
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
        raise file.problem(1, f"nothing connects {a} and {b}: no pair, and no third place")
    return Delays(names, *known)


def _detour(known: Matrix) -> None:
    """Fill what was not measured with the quickest way over a third place."""
    whole = np.where(np.isnan(known[0]), np.inf, known[0] + known[1])
    for a, b in np.argwhere(np.isnan(known[0])):
        over = whole[a] + whole[:, b]
        third = int(over.argmin())
        if np.isfinite(over[third]):
            known[:2, a, b] = known[:2, a, third] + known[:2, third, b]
            known[2, a, b] = 1.0 - (1.0 - known[2, a, third]) * (1.0 - known[2, third, b])
