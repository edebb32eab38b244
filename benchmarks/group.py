"""Compare the protocols of wide-area groups: TT's five sites, 21 AWS regions and 50 cities, at 0.1, 1 and 10 % loss.

    python -m benchmarks.group --only AWS --messages 42     one group, with fewer messages

Each process sends in turn, one message per second to all, in virtual time with 6 ms of jitter. Copies are as many as a
loss of 0.1 % of all copies allows. The cities are the 50 with the largest population of the recorded pings; like the
regions, they need LEVELCAST_DATA.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import aws
from benchmarks.campaign import conduct
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from levelcast.extras import ExtraMissing
from levelcast.network.regions.delays import load_delays, load_weights
from levelcast.overlay.wide.choices import WIDE_PROTOCOLS, Choices, CopiesBy
from levelcast.overlay.wide.config import GroupConfig
from levelcast.overlay.wide.matrix import NEAR_NS, PathMatrix
from levelcast.overlay.wide.measure import GroupFigures
from levelcast.plots.style import BLUE, FAINT, GREEN, INK, ORANGE, canvas
from levelcast.sim.wide.compare import Workload, measure_protocol, recommend
from levelcast.sim.wide.sites import TT_NEAR_NS, tt_matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MS = 1_000_000
LOSSES = (0.001, 0.01, 0.1)
ALLOWED_LOSS = 0.001
EVERY_NS, JITTER_NS, SEED = 1_000 * MS, 6 * MS, 11
CITIES = 50
FORWARDED = " forwarded"
PROTOCOLS: dict[str, Choices] = {
    **WIDE_PROTOCOLS,
    **{name + FORWARDED: WIDE_PROTOCOLS[name]._replace(copies=CopiesBy.FORWARDED) for name in ("MR", "DR")},
}
COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("delivered, mean ms", "delivered_mean_ms", 0),
    ("at the last, mean", "last_mean_ms", 0),
    ("p99", "last_p99_ms", 0),
    ("sender knows", "sender_knows_ms", 0),
    ("all know, mean", "all_know_ms", 0),
    ("p99", "all_know_p99_ms", 0),
    ("data", "data", 2),
    ("other", "statements", 2),
    ("kept, s", "kept_s", 2),
    ("kept, max", "kept_most", 0),
)
COLOURS = (GREEN, BLUE, ORANGE)


@dataclass(frozen=True, slots=True)
class Sites:
    """Processes of a comparison."""

    delays: PathMatrix
    near_ns: int
    messages: int

    def config(self, choices: Choices, loss: float | None) -> GroupConfig:
        """Return the configuration with a loss on all paths; None: with the losses of the sites."""
        matrix = self.delays if loss is None else with_loss(self.delays, loss)
        return GroupConfig(
            choices,
            matrix,
            matrix.processes,
            margin_ns=20 * MS + 2 * JITTER_NS,
            near_ns=self.near_ns,
            allowed_loss=ALLOWED_LOSS,
        )


def with_loss(matrix: PathMatrix, loss: float) -> PathMatrix:
    pairs = [(a, b) for a in matrix.processes for b in matrix.processes if a != b]
    return PathMatrix({pair: matrix.delay_ns(*pair) for pair in pairs}, dict.fromkeys(pairs, loss))


def sites(*, quick: bool = False) -> dict[str, Sites]:
    """Return the groups by name; the regions and cities only with their data."""
    found = {"five sites of TT": Sites(tt_matrix(), TT_NEAR_NS, 40 if quick else 400)}
    if quick:
        return found
    table = aws.table()
    if table is not None:
        found["21 AWS regions"] = Sites(_matrix(aws.hold_input(table).delay_ms), NEAR_NS, 126)
    folder = aws.data_directory() / "wan_wondernetwork_20181110"
    if (folder / "cities.csv").is_file():
        found[f"{CITIES} cities"] = Sites(_largest_cities(folder), NEAR_NS, 100)
    return found


def _matrix(delay_ms: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> PathMatrix:
    count = len(delay_ms)
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    return PathMatrix({(a + 1, b + 1): int(delay_ms[a, b] * MS) for a, b in pairs}, {})


def _largest_cities(folder: Path) -> PathMatrix:
    delays = load_delays(folder / "pings.csv.gz")
    weights = load_weights(folder / "cities.csv", delays.names)
    largest = sorted(np.argsort(-weights, kind="stable")[:CITIES])
    return _matrix(delays.delay_ms[np.ix_(largest, largest)])


def run(options: Options) -> Result:
    """Compare all protocols for all groups and losses."""
    return measure(sites(quick=options.quick), options)


def measure(named: Mapping[str, Sites], options: Options, messages: int = 0) -> Result:
    """Compare all protocols for some groups."""
    result = Result("group")
    found: dict[str, dict[float, dict[str, GroupFigures]]] = {}
    for name, group in named.items():
        found[name] = {}
        work = Workload(messages or group.messages, EVERY_NS, JITTER_NS, SEED)
        for loss in LOSSES:
            figures: dict[str, GroupFigures] = {}
            for protocol, choices in PROTOCOLS.items():
                figures[protocol] = measure_protocol(group.config(choices, loss), work)
            found[name][loss] = figures
            tell(f"group: {name}, {loss:.1%} loss")
            result.tables.append(_table(f"{name}, {loss:.1%} loss, {work.messages} messages; times in ms", figures))
            chosen = recommend({each: figures[each] for each in WIDE_PROTOCOLS})
            result.notes.append(f"{name}, {loss:.1%} loss: {chosen.protocol}: {chosen.reason}")
        best, plain = found[name][LOSSES[-1]], "B"
        soonest = min(WIDE_PROTOCOLS, key=lambda each: best[each].last_p99_ms)
        result.figures.append(
            Figure(
                f"{name}, 10 % loss, last destination p99: {soonest}",
                best[soonest].last_p99_ms,
                "ms",
                plain,
                best[plain].last_p99_ms,
            )
        )
    result.notes.append("data, other: datagrams per message and destination; kept: of all processes together.")
    result.more["found"] = {
        name: {f"{loss:g}": {each: one._asdict() for each, one in figures.items()} for loss, figures in losses.items()}
        for name, losses in found.items()
    }
    try:
        result.plots.append(str(plot(found, options.plot_dir / "group.svg")))
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result


def _table(title: str, figures: Mapping[str, GroupFigures]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (name, *(f"{getattr(one, key):,.{digits}f}" for _, key, digits in COLUMNS)) for name, one in figures.items()
    ]
    return Table(title, ("protocol", *(heading for heading, _, _ in COLUMNS)), rows)


def plot(found: Mapping[str, Mapping[float, Mapping[str, GroupFigures]]], path: Path) -> Path:
    """Draw the time to the last destination and the time until all know, against datagrams."""
    values = (("last_p99_ms", "last destination, 99 % of the messages: ms"), ("all_know_ms", "all know, mean: ms"))
    with canvas(path, 4.6 * len(found), 8.0, panels=len(found), heights=(1, 1)) as (figure, panels):
        for row, (key, heading) in enumerate(values):
            for axes, (name, losses) in zip(panels[row * len(found) :], found.items(), strict=False):
                for colour, (loss, figures) in zip(COLOURS, losses.items(), strict=True):
                    dots = [(one.datagrams, getattr(one, key), each) for each, one in figures.items()]
                    axes.plot(
                        [x for x, _, _ in dots],
                        [y for _, y, _ in dots],
                        "o",
                        color=colour,
                        markersize=4.5,
                        label=f"{100 * loss:g} % loss",
                    )
                    for x, y, each in dots:
                        short = each.replace(FORWARDED, "f")
                        axes.annotate(short, (x, y), (3, 3), textcoords="offset points", fontsize=7.5, color=FAINT)
                _scale(axes)
                axes.set_title(f"{name}\n{heading}", color=INK)
                axes.set_xlabel("datagrams per message and destination")
                axes.grid(axis="y")
                axes.legend(frameon=False, fontsize=8.5)
        figure.suptitle("Protocols of wide-area groups", x=0.01, ha="left", fontsize=12.5, fontweight="bold")
    return path


def _scale(axes: Axes) -> None:
    """Use logarithmic axes with plain numbers."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    for least, most, set_ticks in ((*axes.get_xlim(), axes.set_xticks), (*axes.get_ylim(), axes.set_yticks)):
        ticks = [step * 10**power for power in range(5) for step in (1, 2, 3, 5) if least <= step * 10**power <= most]
        set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it for one group."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group", description="Compare the group protocols.")
    parser.add_argument("--only", metavar="GROUP", help="run the groups whose name contains this, such as AWS")
    parser.add_argument("--messages", type=int, default=0, help="messages of each run (default: 100 to 600)")
    parser.add_argument("--out", type=Path, default=Options().out, help="where the JSON goes (default: %(default)s)")
    parser.add_argument(
        "--plots", type=Path, default=Options().plots, help="where the plot goes (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    options = Options(out=chosen.out, plots=chosen.plots)
    named = sites()
    wanted = {name: one for name, one in named.items() if chosen.only is None or chosen.only in name}
    if not wanted:
        parser.error(f"--only {chosen.only}: group not found; use a part of one of {', '.join(named)}")
    return conduct(lambda: (measure(wanted, options, chosen.messages), True), options)


if __name__ == "__main__":
    sys.exit(main())
