"""Published measurements of networks as probes: what the matrix is made from where nobody of ours stands.

| file                                                                  | gives                                     |
|-----------------------------------------------------------------------|-------------------------------------------|
| CSV with `from_city`, `to_city`, `min_ms`, `avg_ms`, `max_ms`         | least, average and longest: three probes  |
| CSV whose first column are names, with a column for each of them      | one probe for each pair, row to column    |
| numbers alone, separated by tabs, as many rows as columns             | the same; sites are `host-001` and so on  |

Times are round trips. A zero off the diagonal of a matrix is no measurement; the diagonal is left out. Nobody publishes
losses, so there are none. A line of `checked_utc` says when it was measured; otherwise the caller does.
"""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from pathlib import Path

from levelcast.network.fields import Problem
from levelcast.network.parse import NetworkError
from levelcast.network.regions.delays import LARGEST_MS, read_rows
from levelcast.network.regions.file import site_names

Row = tuple[str, str, int, int, str]
"""from_site, to_site, at_ns, round_trip_ns and an empty loss."""


class MatrixUnit(enum.StrEnum):
    """Of the numbers of a matrix."""

    MS = "ms"
    S = "s"


def published_probes(path: Path, at_ns: int | None, unit: MatrixUnit = MatrixUnit.MS) -> list[Row]:
    """The probes of a file. Raises NetworkError for what is in it, OSError if it cannot be read."""
    rows = list(read_rows(path))
    if not rows:
        raise NetworkError(str(path), [Problem(1, "there is nothing in this file")])
    header = [name.strip() for name in rows[0][1]]
    if "from_city" in header or "from" in header:
        return _of_pairs(path, header, rows[1:], at_ns)
    if at_ns is None:
        raise NetworkError(str(path), [Problem(1, "a matrix does not say when it was measured: give --at")])
    if len(header) == 1 and "\t" in header[0]:
        return _of_numbers(path, [(line, row[0].split("\t")) for line, row in rows], at_ns, unit)
    return _of_names(path, header, rows[1:], at_ns, unit)


def _of_pairs(path: Path, header: list[str], rows: list[tuple[int, list[str]]], at_ns: int | None) -> list[Row]:
    wanted = ("from_city", "to_city", "min_ms", "avg_ms", "max_ms")
    missing = [name for name in wanted if name not in header]
    if missing:
        raise NetworkError(str(path), [Problem(1, f"the header has no column {missing[0]}")])
    at = {name: header.index(name) for name in header}
    cities = sorted({row[at[name]].strip().replace("+", " ") for _, row in rows for name in wanted[:2]})
    name_of = dict(zip(cities, site_names(cities), strict=True))
    found: list[Row] = []
    for line, row in rows:
        if len(row) < len(header):
            raise NetworkError(str(path), [Problem(line, f"this row has {len(row)} fields, the header {len(header)}")])
        one, other = (name_of[row[at[name]].strip().replace("+", " ")] for name in wanted[:2])
        when = _when(path, line, row[at["checked_utc"]]) if "checked_utc" in at else at_ns
        if when is None:
            raise NetworkError(str(path), [Problem(1, "there is no column checked_utc: give --at")])
        if one != other:
            found += [
                (one, other, when + place, _number(path, line, row[at[name]], name, 1e6), "")
                for place, name in enumerate(wanted[2:])
            ]
    return found


def _of_names(
    path: Path, header: list[str], rows: list[tuple[int, list[str]]], at_ns: int, unit: MatrixUnit
) -> list[Row]:
    names = [row[0].strip() for _, row in rows]
    missing = [name for name in names if name not in header]
    if missing or not names:
        first = f'the row of "{missing[0]}" has no column' if missing else "there is no row"
        raise NetworkError(str(path), [Problem(rows[names.index(missing[0])][0] if missing else 1, first)])
    sites = dict(zip(names, site_names(names), strict=True))
    cells = [(line, row, names[place]) for place, (line, row) in enumerate(rows)]
    found: list[Row] = []
    for line, row, origin in cells:
        if len(row) < len(header):
            raise NetworkError(str(path), [Problem(line, f"this row has {len(row)} fields, the header {len(header)}")])
        found += _row(
            path, line, sites[origin], [(sites[name], row[header.index(name)]) for name in names], at_ns, unit
        )
    return found


def _of_numbers(path: Path, rows: list[tuple[int, list[str]]], at_ns: int, unit: MatrixUnit) -> list[Row]:
    width = len(str(len(rows)))
    names = [f"host-{place:0{width}}" for place in range(1, len(rows) + 1)]
    found: list[Row] = []
    for (line, row), origin in zip(rows, names, strict=True):
        values = [text for text in row if text.strip()]
        if len(values) != len(names):
            problem = f"this row has {len(values)} numbers, and there are {len(names)} rows: a matrix is square"
            raise NetworkError(str(path), [Problem(line, problem)])
        found += _row(path, line, origin, list(zip(names, values, strict=True)), at_ns, unit)
    return found


def _row(path: Path, line: int, origin: str, values: list[tuple[str, str]], at_ns: int, unit: MatrixUnit) -> list[Row]:
    scale = 1e6 if unit is MatrixUnit.MS else 1e9
    found: list[Row] = []
    for to, text in values:
        if to != origin and (trip := _number(path, line, text, to, scale)):
            found.append((origin, to, at_ns, trip, ""))
    return found


def _number(path: Path, line: int, text: str, name: str, scale: float) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value * scale <= LARGEST_MS * 1e6:
        raise NetworkError(str(path), [Problem(line, f'{name} is "{text}", not a time up to {LARGEST_MS:g} ms')])
    return round(value * scale)


def _when(path: Path, line: int, text: str) -> int:
    try:
        return int(datetime.fromisoformat(text.strip()).replace(tzinfo=UTC).timestamp()) * 1_000_000_000
    except ValueError:
        raise NetworkError(str(path), [Problem(line, f'checked_utc is "{text}", not a time')]) from None
