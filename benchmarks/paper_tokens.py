"""MS §2.1 and §5: the event-driven token of the original RMP beside the timed one.

Ten receivers and ten sources, 10 ms from each other, at several loads and losses, in the simulator: the same network
and the same ledger (`levelcast.sim.compare_protocols`) for every protocol.

| name           | is |
|----------------|----|
| rmp            | the original: a token pass for each message |
| rmp, idle pass | the same, and a null acknowledgement after 100 ms without a message (MS §2.1, last paragraph) |
| timed          | the ring of this project: pipelined, τ = 20 ms |
| timed, MS      | the paper's timed token: lockstep, τ = R |
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Cell, Figure, Table
from levelcast.plots.style import BLUE, FAINT, INK, ORANGE, RED, canvas
from levelcast.sim.compare_protocols import Protocol, ProtocolFigures, run_steady, time_to_fault_ns
from levelcast.sim.scenarios.steady import MS
from levelcast.timing.rules import Mode
from levelcast.units import quantile

S = 1_000_000_000
MEMBERS = 10
LOADS = (1.0, 5.0, 20.0, 50.0, 80.0, 150.0)
LOSSES = (0.0, 0.01, 0.05)
SLOT_MS, IDLE_MS = 20, 100
DEATHS, QUICK_DEATHS = 12, 2
DEATH_LOADS = (1.0, 10.0, 50.0)
NAN = float("nan")
HOLDS_MS = (0, 12, 25, 50, 100, 200, 400, 800, 1600)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to pass the token."""

    name: str
    protocol: Protocol
    mode: Mode = "pipelined"
    slot_ns: int | None = SLOT_MS * MS
    idle_ns: int | None = None
    longest_s: float = 60.0
    """Virtual seconds at the lowest load: many where tokens are few."""


VARIANTS = (
    Variant("rmp", "rmp", longest_s=600.0),
    Variant("rmp, idle pass", "rmp", idle_ns=IDLE_MS * MS, longest_s=120.0),
    Variant("timed", "timed"),
    Variant("timed, MS", "timed", "lockstep", None),
)
Work = tuple[Variant, float, float, int]


def all_work(*, quick: bool) -> list[Work]:
    """Variant, loss, load, ns of load: long where packets are few."""
    work: list[Work] = []
    for loss in LOSSES:
        for load in LOADS:
            for variant in VARIANTS:
                seconds = min(variant.longest_s, max(8.0, 600 / load))
                work.append((variant, loss, load, int((seconds / 20 if quick else seconds) * S)))
    return work


def measure(work: Work) -> ProtocolFigures:
    """One run."""
    variant, loss, load, lasting_ns = work
    return run_steady(
        variant.protocol, members=MEMBERS, loss=loss, load=load, lasting_ns=lasting_ns, mode=variant.mode,
        slot_ns=variant.slot_ns, idle_ns=variant.idle_ns,
    )  # fmt: skip


def deaths(work: tuple[Variant, float, int]) -> list[float]:
    """Seconds from a member's death until somebody reports a fault, 1 % loss, one for each seed."""
    variant, load, count = work
    found = []
    for seed in range(1, count + 1):
        took_ns = time_to_fault_ns(
            variant.protocol, members=MEMBERS, load=load, seed=seed, mode=variant.mode, slot_ns=variant.slot_ns,
            idle_ns=variant.idle_ns,
        )  # fmt: skip
        found.append(took_ns / 1e9 if took_ns is not None else float("inf"))
    return sorted(found)


Results = dict[tuple[str, float, float], ProtocolFigures]


def expected_control(variant: Variant, one: ProtocolFigures, load: float) -> str:
    """What the paper says of control messages without loss."""
    if variant.protocol == "rmp":
        return "1" if variant.idle_ns is None else "1 + idle passes"
    return f"{1 / (one.timing.slot_ns / 1e9 * load):.2f}"


def figures(results: Results, found: dict[tuple[str, float], list[float]]) -> list[Figure]:
    loss = LOSSES[1]
    busy, calm = 50.0, 1.0
    rmp, timed = results["rmp", loss, calm], results["timed", loss, calm]
    hold_ns = timed.timing.recovery_ns
    return [
        Figure("control messages per packet, rmp, no loss, 50 packets/s",
               results["rmp", 0.0, busy].control_per_packet, "messages", "MS §2", 1.0),
        Figure("control messages per packet, timed, no loss, 50 packets/s",
               results["timed", 0.0, busy].control_per_packet, "messages", "1 / (τ·load)", 1 / (SLOT_MS / 1e3 * busy)),
        Figure("lost token to request, timed, 1 % loss, 1 packet/s, mean",
               _mean(timed.detect_token_ns) / 1e6, "ms", "δ_N (MS §5.1)", timed.timing.late_ns / 1e6),
        Figure("lost acknowledgement to request, rmp, 1 % loss, 1 packet/s, mean",
               _mean(rmp.detect_token_ns) / 1e6, "ms", "the gap between two packets", 1e3 / calm),
        Figure("not ready after R, rmp, 1 % loss, 1 packet/s", rmp.late_share(hold_ns), "of releases",
               "timed", timed.late_share(hold_ns)),
        Figure("failure of a member to its report, rmp, 1 packet/s, p50", quantile(found["rmp", calm], 0.5), "s",
               "timed", quantile(found["timed", calm], 0.5)),
    ]  # fmt: skip


def _mean(values: list[int]) -> float:
    return sum(values) / max(len(values), 1)


def tables(results: Results, found: dict[tuple[str, float], list[float]]) -> list[Table]:
    return [_control_table(results), _detect_table(results), _fair_table(results), _death_table(found)]


def _control_table(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for load in LOADS:
        for variant in VARIANTS:
            expected = expected_control(variant, results[variant.name, 0.0, load], load)
            cells = [f"{results[variant.name, loss, load].control_per_packet:.2f}" for loss in LOSSES]
            waits = sorted(results[variant.name, LOSSES[1], load].wait_ns)
            most = results[variant.name, LOSSES[1], load].waiting_most
            wait = [f"{quantile(waits, share) / 1e6:,.0f}" for share in (0.5, 0.99)]
            rows.append((f"{load:g}/s, {variant.name}", expected, *cells, *wait, most))
    columns = ("load, token", "MS, no loss", *(f"{loss:.0%} loss" for loss in LOSSES), "wait p50", "p99 ms", "queue")
    title = "control messages per packet; submit to timestamp, and maximum queue of a source, with 1 % loss"
    return Table(title, columns, rows)


def _detect_table(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for loss in LOSSES[1:]:
        for load in LOADS:
            for variant in VARIANTS:
                one = results[variant.name, loss, load]
                tokens, packets = sorted(one.detect_token_ns), sorted(one.detect_data_ns)
                expected = one.timing.late_ns / 1e6 if variant.protocol == "timed" else 1e3 / load
                cells = [f"{quantile(tokens, share) / 1e6:,.0f}" for share in (0.5, 0.99, 1.0)]
                data = [f"{quantile(packets, share) / 1e6:,.0f}" for share in (0.5, 1.0)]
                mean = f"{_mean(tokens) / 1e6:,.1f}"
                rows.append(
                    (f"{loss:.0%}, {load:g}/s, {variant.name}", len(tokens), f"{expected:,.0f}", mean, *cells, *data)
                )
    columns = ("loss, load, token", "lost", "MS ms", "mean", "p50", "p99", "max", "packets p50", "max ms")
    title = "first transmission to first request, ms: tokens (MS: δ_N, or the next message), packets"
    return Table(title, columns, rows)


def _fair_table(results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for loss in LOSSES[1:]:
        for load in (1.0, 20.0, 80.0):
            for variant in VARIANTS:
                one = results[variant.name, loss, load]
                hold_ns = one.timing.recovery_ns
                late = [f"{one.late_share(hold):.3%}" for hold in (0, one.timing.late_ns, 100 * MS, hold_ns)]
                spread = [f"{max(one.spreads_ns(hold), default=0) / 1e6:,.0f}" for hold in (0, 100 * MS, hold_ns)]
                rows.append((f"{loss:.0%}, {load:g}/s, {variant.name}", len(one.ready_ns), *late, *spread))
    columns = (
        "loss, load, token", "slots", "late at 0", "at δ_N", "at 100 ms", "at R", "spread at 0", "at 100 ms", "at R",
    )  # fmt: skip
    title = "releases that are not ready by timestamp + hold time, and the largest spread of a slot then, ms"
    return Table(title, columns, rows)


def _death_table(found: dict[tuple[str, float], list[float]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for load in DEATH_LOADS:
        for variant in VARIANTS:
            times = found[variant.name, load]
            rows.append(
                (f"{load:g}/s, {variant.name}", len(times), *(f"{quantile(times, at):.2f}" for at in (0.5, 1.0)))
            )
    return Table("failure of a member to its report, 1 % loss", ("load, token", "failures", "p50 s", "max s"), rows)


# The plot

COLOURS = {"rmp": ORANGE, "rmp, idle pass": RED, "timed": BLUE, "timed, MS": FAINT}
LABELS = {"rmp": 1.22, "rmp, idle pass": 0.82, "timed": 1.0, "timed, MS": 1.0}
"""How far above the end of its curve a label stands in the left panel, as a factor."""


def plot(results: Results, path: Path) -> Path:
    """Control messages by load; time to detect by load; share not ready by hold time."""
    with canvas(path, 13.2, 4.2, panels=3) as (figure, (left, middle, right)):
        for variant in VARIANTS:
            colour = COLOURS[variant.name]
            control = [results[variant.name, 0.0, load].control_per_packet for load in LOADS]
            left.plot(LOADS, control, color=colour, linewidth=2, marker="o", markersize=3.5)
            left.text(LOADS[-1] * 1.15, control[-1] * LABELS[variant.name], variant.name, color=colour, va="center")
            detect = [_mean(results[variant.name, LOSSES[1], load].detect_token_ns) / 1e6 or NAN for load in LOADS]
            middle.plot(LOADS, detect, color=colour, linewidth=2, marker="o", markersize=3.5)
            for load, style in ((1.0, "solid"), (20.0, (0, (4, 1.5)))):
                one = results[variant.name, LOSSES[2], load]
                late = [one.late_share(hold * MS) * 100 or NAN for hold in HOLDS_MS]
                right.plot(HOLDS_MS, late, color=colour, linewidth=1.8, linestyle=style, marker="o", markersize=3)
        left.set_title("Control messages per packet, no loss", color=INK)
        left.set_ylabel("messages")
        middle.set_title("Lost token to first request (1 % loss)", color=INK)
        middle.set_ylabel("mean, ms")
        for axes in (left, middle):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("packets/s")
        left.set_xlim(None, LOADS[-1] * 14)
        right.set_title("Releases not ready by the hold time (5 % loss)", color=INK)
        right.set_xlabel("hold time, ms; solid: 1 packet/s, dashed: 20")
        right.set_ylabel("%; a curve ends at 0")
        right.set_yscale("log")
        right.set_xscale("symlog", linthresh=10)
        right.set_xlim(0, HOLDS_MS[-1])
        for axes in (left, middle, right):
            axes.grid(axis="both")
        figure.suptitle(
            "Timed tokens cost a fixed rate and detect losses by time; event-driven tokens wait for the next packet",
            x=0.01, ha="left", fontsize=12.5, fontweight="bold",
        )  # fmt: skip
    return path
