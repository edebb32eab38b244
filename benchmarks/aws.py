"""The 21 AWS regions of `LEVELCAST_DATA`, each a receiver and a source: half of the round trip one way, 1 % loss."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from levelcast.network.example import toml_table
from levelcast.timing.hold_rules import HoldInput

JITTER_MS, LOSS, PROCESS_MS, CLOCK_ERROR_MS = 6.0, 0.01, 5.0, 1.0
SERVERS_AT = ("eu-central-1", "us-east-1")


def data_directory() -> Path:
    """Return the directory with recorded data, which need not exist."""
    given = os.environ.get("LEVELCAST_DATA")
    return Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"


def table() -> Path | None:
    """Return the file with the round trips, if it is there."""
    return next(iter(sorted((data_directory() / "wan_aws_regions").glob("*.csv"))), None)


def hold_input(path: Path) -> HoldInput:
    """Return the regions as a group for `derive_hold`."""
    _, names, delay = _read(path)
    apart = 1.0 - np.eye(len(delay))
    links = (delay * apart, JITTER_MS * apart, LOSS * apart)
    return HoldInput(*links, *links, process_ms=PROCESS_MS, clock_error_ms=CLOCK_ERROR_MS, names=tuple(names))


def network_text(path: Path, hold_ms: int | None = None) -> str:
    """Return the regions as a network file. A link has the mean of its two directions."""
    hold = "" if hold_ms is None else f'hold = "{hold_ms}ms"\n'
    regions, names, delay = _read(path)
    pairs = ",\n".join(
        f'  {{ between = ["{regions[a]}", "{regions[b]}"], delay = "{(delay[a, b] + delay[b, a]) / 2:g}ms" }}'
        for a in range(len(regions))
        for b in range(a)
    )
    tables = [
        *(toml_table("site", name=region, city=name) for region, name in zip(regions, names, strict=True)),
        *(toml_table("receiver", name=f"{region}-1", id=101 + at, site=region) for at, region in enumerate(regions)),
        *(toml_table("reformation", name=f"reform-{at}", id=201 + at, site=site) for at, site in enumerate(SERVERS_AT)),
        *(toml_table("floor", name=f"X{at:03}", publisher=1 + at, site=site) for at, site in enumerate(regions)),
    ]
    return f"""\
[network]
name = "AWS regions"
[timing]
slot = "50ms"
{hold}process = "{PROCESS_MS:g}ms"
transmit = "1ms"
clock_error = "{CLOCK_ERROR_MS:g}ms"
[core]
address = "239.192.77.1"
port = 30001
[links]
jitter = "{JITTER_MS:g}ms"
loss = {LOSS:g}
pairs = [
{pairs}
]
{"".join(tables)}"""


def _read(path: Path) -> tuple[list[str], list[str], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """Return the regions, their names and the one-way delay in ms from each to each."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    delay = np.array([[float(cell) / 2.0 for cell in row[2:]] for row in rows])
    return [row[0] for row in rows], [row[1] for row in rows], delay
