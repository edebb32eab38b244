"""Plot runs of a world as SVG: readiness of receivers, arrival at subscribers, and NACKs per node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from levelcast.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, canvas
from levelcast.sim.bulk.edge import BIN_MS, EARLIEST_MS
from levelcast.sim.bulk.run import WorldRun

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)


def plot_world(runs: Sequence[WorldRun], folder: Path) -> list[Path]:
    """Write the three plots of a few runs that differ in loss. Raises `ExtraMissing` without matplotlib."""
    plots = {"world-release.svg": _plot_release, "world-customers.svg": _plot_customers, "world-nacks.svg": _plot_nacks}
    for name, draw in plots.items():
        draw(runs, folder / name)
    return [folder / name for name in plots]


@contextmanager
def _canvas(path: Path, title: str) -> Iterator[tuple[Any, Any]]:
    """Yield two panels side by side, written to `path` at the end."""
    with canvas(path, 10.5, 4.1, 2) as (figure, (left, right)):
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5, fontweight="bold")
        yield left, right


def _label(axes: Any, title: str, x: str, y: str | None = None) -> None:
    axes.set_title(title)
    axes.set_xlabel(x)
    if y is not None:
        axes.set_ylabel(y)


def _name(run: WorldRun) -> str:
    return f"{run.conditions.loss:.0%} loss"


def _curve(axes: Any, values: npt.NDArray[Any], scale: float, **style: Any) -> None:
    shares = np.concatenate([np.linspace(0, 0.98, 80), np.linspace(0.981, 1, 40)])
    axes.plot(np.quantile(values, shares) / scale, shares * 100, linewidth=2, **style)


def _plot_release(runs: Sequence[WorldRun], path: Path) -> None:
    late = sum(int(run.core.late.sum()) for run in runs)
    releases = sum(run.core.late.size for run in runs)
    with _canvas(path, f"{late:,} of {releases:,} releases are late") as (left, right):
        x = "s after the token's timestamp"
        _label(left, "Slots held, and known to be held by a majority", x, "% of slots and receivers")
        _label(right, "Hold time, and the minimum needed", x)
        for run, colour in zip(runs, COLOURS, strict=False):
            _curve(left, run.core.held, 1000, color=colour, linestyle=(0, (4, 1.5)), label=f"held, {_name(run)}")
            _curve(left, run.core.ready, 1000, color=colour, label=f"held and witnessed, {_name(run)}")
        left.set_ylim(0, 101)
        left.set_xlim(left=0)
        left.legend(frameon=False, fontsize=9, loc="center", bbox_to_anchor=(0.5, 0.45))
        left.grid(axis="both")
        for row, (run, colour) in enumerate(zip(runs, COLOURS, strict=False)):
            hold, instant, ready = run.hold_ms / 1e3, run.instant_ms.max() / 1e3, float(run.core.ready.max()) / 1e3
            for width, fill, alpha in ((hold, GREY, 1.0), (instant, colour, 0.4), (ready, colour, 1.0)):
                right.barh(row, width, height=0.55, color=fill, alpha=alpha)
            text = f"{_name(run)}: all ready {ready:.2f} s; rule 7's release time {instant:.2f} s; Δ_A {hold:.2f} s"
            right.text(0.0, row + 0.4, text, va="center", fontsize=9)
        right.set_yticks([])
        right.set_ylim(-0.6, len(runs) - 0.2)
        right.grid(axis="x")


def _plot_customers(runs: Sequence[WorldRun], path: Path) -> None:
    shown = ", ".join(f"{run.edge.quantile_ms(0.99):.0f} ms at {_name(run)}" for run in runs)
    with _canvas(path, f"99 % of the subscribers have a packet within {shown}") as (left, right):
        x = "ms after the scheduled release time"
        _label(left, "Subscribers without a packet", x, "% of subscribers and packets")
        x = "regions, from the closest to the widest"
        _label(right, "Spread within each region, first to last percent", x, "ms")
        for run, colour in zip(runs, COLOURS, strict=False):
            counts = run.edge.arrivals.sum(axis=0)
            missing = 1.0 - np.cumsum(counts) / counts.sum()
            after = EARLIEST_MS + BIN_MS * (np.arange(len(counts)) + 1)
            keep = np.unique(np.searchsorted(-missing, -np.logspace(0, -6, 240)).clip(0, len(counts) - 1))
            left.plot(after[keep], np.maximum(missing[keep], 1e-7) * 100, color=colour, linewidth=2, label=_name(run))
            right.plot(np.sort(run.edge.region_spreads_ms()), color=colour, linewidth=2, label=_name(run))
        left.set_yscale("log")
        left.set_xscale("symlog", linthresh=10)
        left.set_ylim(1e-4, 100)
        left.set_xlim(left=-2)
        right.set_ylim(bottom=0)
        for axes in (left, right):
            axes.legend(frameon=False)
            axes.grid(axis="both")


def _plot_nacks(runs: Sequence[WorldRun], path: Path) -> None:
    asked_of = [run.core.nacks[: run.primaries] / max(run.core.packets_counted, 1) for run in runs]
    shown = ", ".join(f"{asked.max():.1f} at {_name(run)}" for run, asked in zip(runs, asked_of, strict=True))
    with _canvas(path, f"NACKs per packet at the busiest primary: {shown}") as (left, right):
        title = "Primaries: requests of primaries and their secondaries"
        _label(left, title, "primaries, busiest first", "NACKs per packet")
        _label(right, "Retransmit servers: requests of subscribers", "receivers, busiest first")
        for run, asked, colour in zip(runs, asked_of, COLOURS, strict=False):
            left.plot(np.arange(1, len(asked) + 1), np.sort(asked)[::-1], color=colour, linewidth=2, label=_name(run))
            served = np.sort(run.edge.nacks)[::-1] / run.edge.slots
            at = np.unique(np.geomspace(1, len(served), 160).astype(int)) - 1
            right.plot(at + 1, served[at], color=colour, linewidth=2, label=_name(run))
        right.set_xscale("log")
        for axes in (left, right):
            axes.set_ylim(bottom=0)
            axes.legend(frameon=False)
            axes.grid(axis="both")
