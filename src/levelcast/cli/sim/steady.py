"""`levelcast sim --scenario steady`: compare the timed token with the original RMP, with no faults except loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import typer
from rich.console import Console

from levelcast.cli.output import print_json, table
from levelcast.sim.compare_protocols import AGAIN, CONTROL, PROTOCOLS, Protocol, ProtocolFigures, run_steady
from levelcast.sim.parameters import STEADY, branches, nack_sets, number_of
from levelcast.timing.nack_sets import NackSets
from levelcast.units import quantile, show_ns

NAME = STEADY


def chosen_protocols(name: str) -> tuple[Protocol, ...]:
    """Return the protocols that `--protocol` specifies."""
    if name == "both":
        return PROTOCOLS
    found = tuple(each for each in PROTOCOLS if each == name)
    if not found:
        raise typer.BadParameter(f'"{name}" is not one of {", ".join(PROTOCOLS)}, both', param_hint="--protocol")
    return found


def chosen_sets(text: str | None, members: int) -> NackSets | None:
    """Return the sets that `--nack-sets` specifies: a number, or "tree"."""
    try:
        return None if text is None else nack_sets(text, members)
    except ValueError as error:
        raise typer.BadParameter(f"--{error}".replace("nack_sets", "nack-sets")) from None


class SteadyOptions(NamedTuple):
    """Parameters of a run."""

    members: int
    loss: float
    load: float
    seconds: float
    branch_loss: float

    def check(self) -> None:
        """Raise BadParameter for a value out of range."""
        for name, value in self._asdict().items():
            if (wrong := number_of(NAME, name).fault(value)) is not None:
                raise typer.BadParameter(f"--{name.replace('_', '-')} {value:g} {wrong}")


def run(
    protocols: Sequence[Protocol], seeds: range, settings: SteadyOptions, nack: NackSets | None, *, as_json: bool
) -> None:
    """Run every protocol with every seed and print the results."""
    measured = [measure(protocol, seeds, settings, nack) for protocol in protocols]
    if as_json:
        report = {"scenario": NAME, "seeds": [seeds[0], seeds[-1]], **settings._asdict()}
        report["nack_sets"] = nack.count if nack is not None else 1
        print_json(report | {"protocols": {one.protocol: _as_json(one) for one in measured}})
        return
    members, loss, load, _, branch_loss = settings
    columns = [_rows(one) for one in measured]
    lost = f"{loss:.1%} loss" + (f" and {branch_loss:.1%} at each branch" if branch_loss else "")
    sets = f", {nack.count} sets" if nack is not None else ""
    title = f"{members} members, {lost}, {load:g} packets/s{sets}, seeds {seeds[0]}..{seeds[-1]}"
    rows = ((what, *(column[what] for column in columns)) for what in columns[0])
    console = Console()
    console.print(table(("what", *(f">{one.protocol}" for one in measured)), rows, title=title))
    timing = measured[0].timing
    console.print(f"δ_N {show_ns(timing.late_ns)}, R {show_ns(timing.recovery_ns)}; timed: one witness; rmp: MS §2.1")


def measure(protocol: Protocol, seeds: range, settings: SteadyOptions, nack: NackSets | None) -> ProtocolFigures:
    """Run all seeds and return the sum of their results."""
    runs = [
        run_steady(
            protocol,
            members=settings.members,
            loss=settings.loss,
            load=settings.load,
            lasting_ns=int(settings.seconds * 1e9),
            seed=seed,
            nack=nack if protocol == "timed" else None,
            branch_of=branches(settings.members),
            branch_loss=settings.branch_loss,
        )
        for seed in seeds
    ]
    for other in runs[1:]:
        runs[0].add(other)
    return runs[0]


def _rows(one: ProtocolFigures) -> dict[str, str]:
    holds = (0, one.timing.late_ns, one.timing.recovery_ns)
    late = " / ".join(f"{one.late_share(hold_ns):.2%}" for hold_ns in holds)
    spread = " / ".join(_rounded(_most(one.spreads_ns(hold_ns))) for hold_ns in holds)
    return {
        "packets": f"{one.packets:,}",
        **{f"sent: {name}": f"{one.sent[name]:,}" for name in (*CONTROL, *AGAIN)},
        "control messages per packet": f"{one.control_per_packet:.2f}",
        "acknowledged after: p50 / max": _spread(one.wait_ns),
        "lost token detected after: p50 / max": _spread(one.detect_token_ns),
        "lost packet detected after: p50 / max": _spread(one.detect_data_ns),
        "not ready after 0 / δ_N / R": late,
        "maximum spread if held for that": spread,
        "faults": f"{one.faults:,}",
    }


def _as_json(one: ProtocolFigures) -> dict[str, object]:
    return {
        "packets": one.packets,
        "sent": {name: one.sent[name] for name in (*CONTROL, *AGAIN)},
        "control_per_packet": round(one.control_per_packet, 4),
        "wait_ns": _halves(one.wait_ns),
        "detect_token_ns": _halves(one.detect_token_ns),
        "detect_data_ns": _halves(one.detect_data_ns),
        "recovery_ns": one.timing.recovery_ns,
        "late_share": {str(hold): one.late_share(hold) for hold in (0, one.timing.late_ns, one.timing.recovery_ns)},
        "faults": one.faults,
    }


def _most(values: Sequence[int]) -> int:
    return max(values, default=0)


def _halves(values: Sequence[int]) -> dict[str, int]:
    return {"p50": quantile(values, 0.5), "max": _most(values), "count": len(values)}


def _spread(values: Sequence[int]) -> str:
    if not values:
        return "none"
    found = _halves(values)
    return f"{_rounded(found['p50'])} / {_rounded(found['max'])}"


def _rounded(ns: int) -> str:
    return show_ns(round(ns, -5)) if ns >= 50_000 else "0"
