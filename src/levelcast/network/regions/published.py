"""Convert published measurements of networks to probes: input of the matrix for sites without own nodes.

| file                                                                  | gives                                     |
|-----------------------------------------------------------------------|-------------------------------------------|
| CSV with `from_city`, `to_city`, `min_ms`, `avg_ms`, `max_ms`         | minimum, average, maximum: three probes   |
| CSV with names in the first column, and a column for each of them     | one probe for each pair, row to column    |
| numbers alone, separated by tabs, as many rows as columns             | the same; sites are `host-001` and so on  |

Times are round trips. In a matrix, the diagonal is ignored, and a zero elsewhere means "not measured". Such files
have no losses. The column `checked_utc` has the time of the measurement; otherwise the caller specifies it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from levelcast.network.regions.delays import LARGEST_MS, MeasuredCsv, place_name
from levelcast.network.regions.file import site_names

Row = tuple[str, str, int, int, str]
"""from_site, to_site, at_ns, round_trip_ns and an empty loss."""
Cells = tuple[int, str, list[tuple[str, str]]]
"""Row of a matrix: its line, from_site, and to_site with the text of each cell."""


class MatrixUnit(enum.StrEnum):
    """Unit of the numbers of a matrix."""

    MS = "ms"
    S = "s"


def published_probes(path: Path, at_ns: int | None, unit: MatrixUnit = MatrixUnit.MS) -> list[Row]:
    """Return the probes of a file. Raise NetworkError for invalid contents, OSError if it cannot be read."""
    file = MeasuredCsv(path)
    if not file.lines:
        raise file.problem(1, "the file is empty")
    if "from_city" in file.header or "from" in file.header:
        return _of_pairs(file, at_ns)
    if at_ns is None:
        raise file.problem(1, "a matrix has no time of measurement; pass --at")
    is_bare = len(file.header) == 1 and "\t" in file.header[0]
    scale = 1e6 if unit is MatrixUnit.MS else 1e9
    return [
        (origin, to, at_ns, trip, "")
        for line, origin, cells in (_of_numbers(file) if is_bare else _of_names(file))
        for to, text in cells
        if to != origin and (trip := _nanoseconds(file, line, text, to, scale))
    ]


def _of_pairs(file: MeasuredCsv, at_ns: int | None) -> list[Row]:
    wanted = ("from_city", "to_city", "min_ms", "avg_ms", "max_ms")
    missing = [name for name in wanted if name not in file.header]
    if missing:
        raise file.problem(1, f"the header has no column {missing[0]}")
    at = {name: file.header.index(name) for name in file.header}
    cities = sorted({place_name(row[at[name]]) for _, row in file.rows() for name in wanted[:2]})
    name_of = dict(zip(cities, site_names(cities), strict=True))
    found: list[Row] = []
    for line, row in file.rows():
        one, other = (name_of[place_name(row[at[name]])] for name in wanted[:2])
        when = _when(file, line, row[at["checked_utc"]]) if "checked_utc" in at else at_ns
        if when is None:
            raise file.problem(1, "the header has no column checked_utc; pass --at")
        if one != other:
            found += [
                (one, other, when + place, _nanoseconds(file, line, row[at[name]], name, 1e6), "")
                for place, name in enumerate(wanted[2:])
            ]
    return found


def _of_names(file: MeasuredCsv) -> Iterator[Cells]:
    lines = {row[0].strip(): line for line, row in file.rows(1)}
    missing = [name for name in lines if name not in file.header]
    if missing or not lines:
        first = f'the row of "{missing[0]}" has no column' if missing else "the file has no row"
        raise file.problem(lines[missing[0]] if missing else 1, first)
    sites = dict(zip(lines, site_names(list(lines)), strict=True))
    for line, row in file.rows():
        yield line, sites[row[0].strip()], [(sites[name], row[file.header.index(name)]) for name in lines]


def _of_numbers(file: MeasuredCsv) -> Iterator[Cells]:
    width = len(str(len(file.lines)))
    names = [f"host-{place:0{width}}" for place in range(1, len(file.lines) + 1)]
    for (line, row), origin in zip(file.lines, names, strict=True):
        values = [text for text in row[0].split("\t") if text.strip()]
        if len(values) != len(names):
            what = f"this row has {len(values)} numbers, but the file has {len(names)} rows; a matrix must be square"
            raise file.problem(line, what)
        yield line, origin, list(zip(names, values, strict=True))


def _nanoseconds(file: MeasuredCsv, line: int, text: str, name: str, scale: float) -> int:
    what = f"a time up to {LARGEST_MS:g} ms"
    return round(file.number(line, text, name, LARGEST_MS * 1e6 / scale, what) * scale)


def _when(file: MeasuredCsv, line: int, text: str) -> int:
    try:
        return int(datetime.fromisoformat(text.strip()).replace(tzinfo=UTC).timestamp()) * 1_000_000_000
    except ValueError:
        raise file.problem(line, f'checked_utc is "{text}", not a time') from None
