"""What it costs a customer to drop what it did not ask for: α(h) and β(h) of TH (2) and (4), as TH §5.2 measures them.

An edge and a customer as processes over multicast on loopback (`benchmarks.filtering_roles`): packets of two sessions
made by `Feed`, with h trades each and in turn, go to one group. A `levelcast.Subscriber` follows none, one or both of
the sessions, and wants none of the instruments that come in them. Its CPU time is what is measured, for each h:

    CPU a second = c + d·sessions followed + (θ_1 + θ_2)·α(h) + θ_1·β(h)                                        (9)

θ_1 is the rate of what it follows, θ_2 of the rest, in messages. So α(h) is what every message of the group costs, and
all that one of another session costs; β(h) is what one of a followed session costs beside that: to be put in order,
taken apart, and dropped by its instrument. The paper has no c and no d: they are what waking up for every slot costs,
and handing over what a session has in it, however much that is; "medium to high load" hides them. Runs with one packet
of each session in a slot tell them.

- The traffic is the same for all that it may follow, and neighbouring packets are of different sessions, as those of a
  slot are where a group has many. Neighbours of one session would be opened together, which is cheaper.
- α(h) and β(h) are fitted for each h, then α_0, α_1, β_0, β_1: as costs of a packet, h·α(h) = α_1 + α_0·h, because
  packets come at the same rates for every h, so that these are equally well known. None of the four is below 0.
- Only their proportion matters to a plan. The planner's weights are scaled so that α + β = 2 at h = 8, as in the paper.
- Of some rounds through all cases each case's least CPU time counts: noise on a shared machine only adds.
- Not in it is what no customer's process pays: the kernel's way from the card to the socket.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.filtering_roles import SESSIONS, TICK_NS
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.room import free_ports
from benchmarks.way import stop
from levelcast.extras import ExtraMissing
from levelcast.planner.model import Curve
from levelcast.plots.style import BLUE, FAINT, GREY, ORANGE, canvas

AGGREGATION = 8
"""The paper's h: where α + β = 2, and where the planner takes them unless it is told another."""
ATTEMPTS = 5
"""A run in which packets were lost counts for nothing and is made again."""
DRAIN_S = 0.03
LEAST = 0.01
"""The least cost that the plot shows, in µs."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it a run does."""

    aggregations: tuple[int, ...]
    packets: int
    """Of each session in a slot, at the higher of two rates; one at the lower."""
    slots: int
    repeats: int
    trains: tuple[bool, ...]


FULL = Size((1, 2, 5, 10, 20, 50), 150, 50, 3, (False, True))
SMALL = Size((1, 8), 40, 20, 1, (False,))


class Case(NamedTuple):
    """How it is sent, how many sessions are followed, and whether "all" or "none" of what comes in them is wanted."""

    trains: bool
    sessions: int
    wants: str


CHOICES = ((0, "none"), (1, "none"), (2, "none"), (2, "all"))


class Run(NamedTuple):
    """Rates are messages a second, the CPU time is µs a second."""

    sessions: int
    followed: float
    other: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Point:
    """One h: costs in µs a message."""

    h: int
    alpha: float
    beta: float
    delivered: float
    """What a message costs that is wanted and handed over."""
    slot: float
    """c and d, in µs a slot."""
    session: float
    error: float
    """The root of the mean square by which (9) misses, as a share of the most CPU time."""


@dataclass(frozen=True, slots=True)
class Fit:
    """All h of one way to send."""

    trains: bool
    points: list[Point]
    alpha: Curve
    beta: Curve

    @property
    def name(self) -> str:
        return "packets in trains" if self.trains else "single packets"

    def weights(self) -> tuple[str, str]:
        """`--alpha` and `--beta` of the planner."""
        total = self.alpha.at(AGGREGATION) + self.beta.at(AGGREGATION)
        scale = 2 / total if total > 0 else 0.0
        return text(self.alpha, scale), text(self.beta, scale)


def text(curve: Curve, scale: float = 1.0) -> str:
    """As the planner reads it."""
    return f"{curve.fixed * scale:.4f}+{curve.per_packet * scale:.4f}/h"


# -- fits -------------------------------------------------------------------------------------------------


def fit_rates(runs: Sequence[Run]) -> tuple[float, float, float, float, float]:
    """c, d, α and β of (9), and the root of the mean square by which it misses."""
    sessions, followed, other, cpu = np.array(runs, float).T
    terms = np.stack([np.ones(len(cpu)), sessions, followed + other, followed], axis=1)
    c, d, alpha, beta = np.linalg.lstsq(terms, cpu, rcond=None)[0].tolist()
    return c, d, alpha, beta, float(np.sqrt(np.mean((terms @ (c, d, alpha, beta) - cpu) ** 2)))


def fit_curve(aggregations: Sequence[float], costs: Sequence[float]) -> Curve:
    """(2) and (4): h·cost = per_packet + fixed·h by least squares, with neither below 0."""
    h = np.asarray(aggregations, float)
    of_packet = h * np.asarray(costs, float)
    best, least = Curve(0.0), float(np.sum(of_packet**2))
    for terms in ([h, np.ones(len(h))], [h, np.zeros(len(h))], [np.zeros(len(h)), np.ones(len(h))]):
        columns = np.stack(terms, axis=1)
        fixed, per_packet = np.linalg.lstsq(columns, of_packet, rcond=None)[0].tolist()
        missed = float(np.sum((columns @ (fixed, per_packet) - of_packet) ** 2))
        if fixed >= 0 and per_packet >= 0 and missed < least:
            best, least = Curve(fixed, per_packet), missed
    return best


# -- processes --------------------------------------------------------------------------------------------


class Role:
    """One of the two processes: a line in, a line out."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, **command: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline() or "{}")
        if not answer:
            raise RuntimeError(f"a process of the benchmark exited at the command {command}")
        return answer


@contextmanager
def role(name: str, port: int) -> Iterator[Role]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.filtering_roles", name, "--port", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield Role(process)
        finally:
            stop(process)


@dataclass(slots=True)
class Stage:
    """Both at work."""

    edge: Role
    customer: Role
    size: Size
    again: int = 0
    """Runs that lost packets."""

    def least(self, sent: dict[str, Any]) -> dict[Case, float]:
        """The customer's CPU time for what the edge has prepared, in every case: the least of some rounds of them."""
        cases = [Case(trains, *each) for trains in self.size.trains for each in CHOICES]
        rounds = [[self._once(sent, case) for case in cases] for _ in range(self.size.repeats)]
        return dict(zip(cases, np.min(rounds, axis=0).tolist(), strict=True))

    def _once(self, sent: dict[str, Any], case: Case) -> float:
        followed = sum(sent[name] for name in SESSIONS[: case.sessions])
        for _ in range(ATTEMPTS):
            self.customer.ask(sessions=case.sessions, wants=case.wants)
            self.edge.ask(trains=case.trains)
            time.sleep(DRAIN_S)
            seen = self.customer.ask(stop=True)
            if (seen["packets"], seen["foreign"], seen["gaps"]) == (followed, sum(sent.values()) - followed, 0):
                return float(seen["cpu_s"])
            self.again += 1
        raise RuntimeError(f"the subscriber lost packets {ATTEMPTS} times: the machine is too busy to measure anything")

    def points(self, h: int) -> Iterator[tuple[bool, Point]]:
        """What (9) gives at this h, for each way to send."""
        size = self.size
        micro = 1e6 / (size.slots * TICK_NS / 1e9)
        runs: dict[bool, list[Run]] = {trains: [] for trains in size.trains}
        wanted: dict[bool, float] = {}
        for packets in (1, size.packets):
            sent = self.edge.ask(h=h, packets=packets, slots=size.slots)
            rate = h * packets * 1e9 / TICK_NS
            for case, seconds in self.least(sent).items():
                n, used = case.sessions, seconds * micro
                if case.wants == "all":
                    wanted[case.trains] = used
                else:
                    runs[case.trains].append(Run(n, n * rate, (2 - n) * rate, used))
        for trains, found in runs.items():
            c, d, alpha, beta, error = fit_rates(found)
            delivered = (wanted[trains] - c - 2 * d) / found[-1].followed
            slot, session = c * TICK_NS / 1e9, d * TICK_NS / 1e9
            yield trains, Point(h, alpha, beta, delivered, slot, session, error / max(each.cpu for each in found))


# -- the benchmark ----------------------------------------------------------------------------------------


def run(options: Options) -> Result:
    size = SMALL if options.quick else FULL
    result = Result("filtering")
    points: dict[bool, list[Point]] = {trains: [] for trains in size.trains}
    port = free_ports()
    with ExitStack() as running:
        edge, customer = (running.enter_context(role(name, port)) for name in ("edge", "customer"))
        stage = Stage(edge, customer, size)
        for h in size.aggregations:
            for trains, point in stage.points(h):
                points[trains].append(point)
            tell(f"filtering: {h} messages per packet")
    fits = [fitted(trains, found) for trains, found in points.items()]
    for fit in fits:
        _report(fit, result)
    alpha, beta = fits[0].weights()
    result.more["weights"] = {"alpha": alpha, "beta": beta, "aggregation": AGGREGATION}
    result.notes.append(
        f"levelcast plan make ... --weights {options.out / 'filtering.json'} uses the weights of single packets, "
        "which an edge sends unless its network file sets trains."
    )
    if stage.again:
        result.notes.append(f"{stage.again} runs lost packets and were made again.")
    try:
        result.plots.append(str(plot(fits, options.plot_dir / "filtering.svg")))
    except ExtraMissing as missing:
        result.notes.append(str(missing))
    return result


def fitted(trains: bool, points: list[Point]) -> Fit:
    h = [point.h for point in points]
    alpha, beta = (fit_curve(h, costs) for costs in ([p.alpha for p in points], [p.beta for p in points]))
    return Fit(trains, points, alpha, beta)


def _report(fit: Fit, result: Result) -> None:
    at = AGGREGATION
    alpha, beta = fit.alpha.at(at), fit.beta.at(at)
    result.figures += [
        Figure(f"dropped by session, α({at}), {fit.name}", alpha, "µs", "by flow, α + β", alpha + beta),
        Figure(f"β({at}), {fit.name}", beta, "µs", f"α({at})", alpha),
    ]
    rows: list[tuple[Cell, ...]] = [
        (
            str(p.h), _micro(p.alpha), _micro(fit.alpha.at(p.h)), _micro(p.beta), _micro(fit.beta.at(p.h)),
            _micro(p.alpha + p.beta), _micro(p.delivered), f"{p.slot:.0f}", f"{p.session:.0f}", f"{100 * p.error:.1f}",
        )
        for p in fit.points
    ]  # fmt: skip
    columns = ("h", "α", "fit", "β", "fit", "α + β", "delivered", "c per slot", "d per slot", "(9) misses, %")
    result.tables.append(Table(f"{fit.name.capitalize()}: CPU time of the subscriber per message, µs", columns, rows))
    result.notes.append(f"{fit.name.capitalize()}: α(h) = {text(fit.alpha)} µs, β(h) = {text(fit.beta)} µs.")
    one, other = fit.weights()
    result.notes.append(f"{fit.name.capitalize()}: --alpha {one} --beta {other} --aggregation {at}")


def _micro(value: float) -> str:
    return f"{value:.3f}"


def plot(fits: Sequence[Fit], path: Path) -> Path:
    """TH figure 5: the measured points beside the fits."""
    with canvas(path, 4.2 * len(fits) + 0.6, 3.4, len(fits)) as (_, panels):
        for axes, fit in zip(panels, fits, strict=True):
            h = np.array([point.h for point in fit.points], float)
            fine: Floats = np.geomspace(h.min(), h.max(), 100)
            curves = [
                (fit.alpha, [p.alpha for p in fit.points], "α", BLUE),
                (fit.beta, [p.beta for p in fit.points], "β", ORANGE),
            ]
            curves.sort(key=lambda each: each[0].at(h[0]))
            for (curve, costs, name, colour), place in zip(curves, ((-3, -15), (8, -1)), strict=True):
                axes.plot(fine, curve.fixed + curve.per_packet / fine, color=colour, lw=1.2)
                axes.plot(h, costs, "o", color=colour, ms=4)
                axes.annotate(name, (h[1], max(costs[1], LEAST)), place, textcoords="offset points", color=colour)
            axes.plot(h, [p.delivered for p in fit.points], "_", color=FAINT, ms=8)
            axes.axvline(AGGREGATION, color=GREY, lw=0.8)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_ylim(LEAST, 10)
            axes.set_xticks(h, [f"{each:g}" for each in h])
            axes.minorticks_off()
            axes.grid(axis="y")
            axes.set_xlabel("messages per packet, h")
            axes.set_title(f"{fit.name}")
        panels[0].set_ylabel("µs per message (–: delivered)")
    return path
