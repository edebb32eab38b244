"""Whether a receiver's memory and its directory stay as they are, over minutes at a steady rate with retention on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.processes import cpu_s
from benchmarks.report import Figure, Options, Result, Table, tell
from benchmarks.way import Case, Way, at_work, busy_seconds
from levelcast.extras import ExtraMissing
from levelcast.network.roles import RECEIVER
from levelcast.plots.style import BLUE, ORANGE, canvas

CASE = Case("soak", 9_000, 9_000, trains=True)
RATE = 200_000.0
KEEP_MB = 400
SAMPLE_S = 5.0


class Sample(NamedTuple):
    """One look at the receivers: the largest of each figure."""

    at_s: float
    rss_mb: float
    directory_mb: float
    journal_mb: float
    records: int
    """That the slowest customer has decoded."""


def rss_mb(pid: int) -> float:
    """What a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def size_mb(directory: Path) -> float:
    """What the files under a directory hold; one that vanishes meanwhile holds nothing."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total / 1e6


def look(way: Way, began: float) -> Sample:
    names = [member.place.name for member in way.cluster.of_role(RECEIVER)]
    pids = way.pids
    return Sample(
        time.monotonic() - began,
        max(rss_mb(pids[name]) for name in names),
        max(size_mb(way.data / name) for name in names),
        max(size_mb(way.data / name / "journal") for name in names),
        min(way.delivered()),
    )


def slope(samples: Sequence[Sample], column: int) -> float:
    """MB a minute, by least squares over the second half: the first fills what is then kept."""
    half = samples[len(samples) // 2 :]
    at = np.array([each.at_s for each in half]) / 60
    return float(np.polyfit(at, np.array([each[column] for each in half]), 1)[0]) if len(half) > 1 else 0.0


def run(options: Options) -> Result:
    """Ten minutes at 200,000 records a second."""
    run_s = 5.0 if options.quick else 600.0
    result = Result("soak")
    samples: list[Sample] = []
    more = f'[tape]\nkeep_bytes = "{KEEP_MB}MB"\n'
    with at_work(CASE, RATE if not options.quick else 20_000.0, more=more) as way:
        began, busy = time.monotonic(), busy_seconds()
        used = {name: cpu_s(pid) for name, pid in way.pids.items()}
        while time.monotonic() - began < run_s:
            samples.append(look(way, began))
            if len(samples) % 12 == 0:
                tell(
                    f"{samples[-1].at_s:.0f} s: {samples[-1].rss_mb:.0f} MB, {samples[-1].directory_mb:.0f} MB on disk"
                )
            time.sleep(SAMPLE_S if not options.quick else 0.5)
        took_s = time.monotonic() - began
        own = sum(cpu_s(pid) - used[name] for name, pid in way.pids.items())
        others = (busy_seconds() - busy - own) / took_s
        way.end()
        lost = sum(int(each.said["gaps"]) for each in way.customers)
    rate = (samples[-1].records - samples[0].records) / (samples[-1].at_s - samples[0].at_s)
    result.figures += [
        Figure("records/s at the slowest subscriber", rate, "records/s", "sent", RATE),
        Figure("a receiver's memory at the end", samples[-1].rss_mb, "MB", "half-time", _half(samples).rss_mb),
        Figure("its directory at the end", samples[-1].directory_mb, "MB", "half-time", _half(samples).directory_mb),
    ]
    rows = [tuple(each) for each in samples[:: max(1, len(samples) // 12)]]
    columns = ("seconds", "memory MB", "directory MB", "journal MB", "records")
    result.tables.append(Table("the largest of three receivers", columns, list(rows)))
    result.notes.append(
        f"over the second half: memory {slope(samples, 1):+.2f} MB/min, directory {slope(samples, 2):+.2f} MB/min; "
        f"retention {KEEP_MB} MB of tape; {lost} gaps at subscribers; {own / took_s:.2f} cores, other "
        f"programs {others:.2f}"
    )
    _plot(samples, options, result)
    return result


def _half(samples: Sequence[Sample]) -> Sample:
    return samples[len(samples) // 2]


def _plot(samples: Sequence[Sample], options: Options, result: Result) -> None:
    path = options.plot_dir / "soak.svg"
    try:
        with canvas(path, 7.5, 3.0) as (_, (axes,)):
            minutes = [each.at_s / 60 for each in samples]
            axes.plot(minutes, [each.directory_mb for each in samples], color=BLUE)
            axes.plot(minutes, [each.rss_mb for each in samples], color=ORANGE)
            axes.annotate("directory", (minutes[-1], samples[-1].directory_mb), color=BLUE)
            axes.annotate("memory", (minutes[-1], samples[-1].rss_mb), color=ORANGE)
            axes.set_xlabel("minutes")
            axes.set_ylabel("MB")
            axes.set_ylim(bottom=0)
            axes.set_title("A receiver at 200,000 records/s, with retention")
    except ExtraMissing as missing:
        result.notes.append(str(missing))
        return
    result.plots.append(str(path))
