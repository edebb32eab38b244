"""Pictures of a world's runs, as SVG: when receivers are ready, when customers have it, and who is asked how often."""

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
    """Write the three pictures of a few runs that differ in loss. Raises `ExtraMissing` without matplotlib."""
    return [
        _plot_release(runs, folder / "world-release.svg"),
        _plot_customers(runs, folder / "world-customers.svg"),
        _plot_nacks(runs, folder / "world-nacks.svg"),
    ]


@contextmanager
def _canvas(path: Path, title: str) -> Iterator[tuple[Any, Any]]:
    """Yield two panels side by side, written to `path` at the end."""
    with canvas(path, 10.5, 4.1, 2) as (figure, (left, right)):
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5, fontweight="bold")
        yield left, right


def _name(run: WorldRun) -> str:
    return f"{run.conditions.loss:.0%} loss"


def _curve(axes: Any, values: npt.NDArray[Any], scale: float, **style: Any) -> None:
    shares = np.concatenate([np.linspace(0, 0.98, 80), np.linspace(0.981, 1, 40)])
    axes.plot(np.quantile(values, shares) / scale, shares * 100, linewidth=2, **style)


def _plot_release(runs: Sequence[WorldRun], path: Path) -> Path:
    late = sum(int(run.core.late.sum()) for run in runs)
    releases = sum(run.core.late.size for run in runs)
    with _canvas(path, f"{late:,} of {releases:,} releases are late") as (left, right):
        left.set_title("When receivers have a slot, and know that a majority has it")
        for run, colour in zip(runs, COLOURS, strict=False):
            _curve(left, run.core.held, 1000, color=colour, linestyle=(0, (4, 1.5)), label=f"held, {_name(run)}")
            _curve(left, run.core.ready, 1000, color=colour, label=f"held and witnessed, {_name(run)}")
        left.set_xlabel("s after the token's timestamp")
        left.set_ylabel("% of slots and receivers")
        left.set_ylim(0, 101)
        left.set_xlim(left=0)
        left.legend(frameon=False, fontsize=9, loc="center", bbox_to_anchor=(0.5, 0.45))
        left.grid(axis="both")
        right.set_title("Hold time by rule 6, and the least that would have done")
        for row, (run, colour) in enumerate(zip(runs, COLOURS, strict=False)):
            hold, instant, ready = (
                each / 1000 for each in (run.hold_ms, float(run.instant_ms.max()), float(run.core.ready.max()))
            )
            for width, fill, alpha in ((hold, GREY, 1.0), (instant, colour, 0.4), (ready, colour, 1.0)):
                right.barh(row, width, height=0.55, color=fill, alpha=alpha)
            text = f"{_name(run)}: all ready {ready:.1f} s; rule 7's instant {instant:.1f} s; Δ_A {hold:.1f} s"
            right.text(0.0, row + 0.4, text, va="center", fontsize=9)
        right.set_yticks([])
        right.set_ylim(-0.6, len(runs) - 0.2)
        right.set_xlabel("s after the token's timestamp")
        right.grid(axis="x")
    return path


def _plot_customers(runs: Sequence[WorldRun], path: Path) -> Path:
    shown = ", ".join(f"{run.edge.quantile_ms(0.99):.0f} ms at {_name(run)}" for run in runs)
    with _canvas(path, f"99 % of the customers have a packet within {shown}") as (left, right):
        left.set_title("Customers who do not have a packet yet")
        right.set_title("Spread within each region, first to last percent")
        for run, colour in zip(runs, COLOURS, strict=False):
            counts = run.edge.arrivals.sum(axis=0)
            missing = 1.0 - np.cumsum(counts) / counts.sum()
            after = EARLIEST_MS + BIN_MS * (np.arange(len(counts)) + 1)
            keep = np.unique(np.searchsorted(-missing, -np.logspace(0, -6, 240)).clip(0, len(counts) - 1))
            left.plot(after[keep], np.maximum(missing[keep], 1e-7) * 100, color=colour, linewidth=2, label=_name(run))
            spread = [
                run.edge.quantile_ms(0.99, region) - run.edge.quantile_ms(0.01, region)
                for region in range(len(run.edge.arrivals))
                if run.edge.arrivals[region].any()
            ]
            right.plot(np.sort(spread), color=colour, linewidth=2, label=_name(run))
        left.set_yscale("log")
        left.set_xscale("symlog", linthresh=10)
        left.set_ylim(1e-4, 100)
        left.set_xlim(left=-2)
        left.set_xlabel("ms after the instant of release")
        left.set_ylabel("% of customers and packets")
        right.set_xlabel("regions, from the closest to the widest")
        right.set_ylabel("ms")
        right.set_ylim(bottom=0)
        for axes in (left, right):
            axes.legend(frameon=False)
            axes.grid(axis="both")
    return path


def _plot_nacks(runs: Sequence[WorldRun], path: Path) -> Path:
    shown = ", ".join(
        f"{run.core.nacks[: run.primaries].max() / max(run.core.packets_counted, 1):.1f} at {_name(run)}"
        for run in runs
    )
    with _canvas(path, f"NACKs per packet at the busiest primary: {shown}") as (left, right):
        left.set_title("Primaries, asked by primaries and their secondaries")
        right.set_title("Retransmit servers, asked by customers")
        for run, colour in zip(runs, COLOURS, strict=False):
            asked = np.sort(run.core.nacks[: run.primaries])[::-1] / max(run.core.packets_counted, 1)
            left.plot(np.arange(1, len(asked) + 1), asked, color=colour, linewidth=2, label=_name(run))
            served = np.sort(run.edge.nacks)[::-1] / run.edge.slots
            at = np.unique(np.geomspace(1, len(served), 160).astype(int)) - 1
            right.plot(at + 1, served[at], color=colour, linewidth=2, label=_name(run))
        left.set_xlabel("primaries, busiest first")
        right.set_xlabel("receivers, busiest first")
        right.set_xscale("log")
        left.set_ylabel("NACKs per packet")
        for axes in (left, right):
            axes.set_ylim(bottom=0)
            axes.legend(frameon=False)
            axes.grid(axis="both")
    return path
