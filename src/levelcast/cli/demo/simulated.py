"""Run the demo in virtual time: five cities, or the network of a file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress
from rich.table import Column, Table
from rich.text import Text

from levelcast.cli.errors import loss_ratio
from levelcast.cli.output import print_after, print_json, print_problems, table
from levelcast.network import Network, NetworkError, Problem, five_cities, load_network, parse_network
from levelcast.sim.engine.world import START_NS, SimNode
from levelcast.sim.floors import RehearsalVerdict
from levelcast.sim.rehearsal import Deployment, Rehearsal, with_loss
from levelcast.sim.rehearsal_text import CHAPTERS, RehearsalText, count_word
from levelcast.timing.derive import contradictions
from levelcast.units import quantile, show_ns


def simulate(
    network_file: Path | None,
    publish_ns: int,
    loss: str | None,
    kill: Sequence[str],
    seed: int,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the simulation, print its results and exit."""
    if len(kill) > 1:
        raise typer.BadParameter("a simulation can kill only one site", param_hint="--kill")
    network = _network(network_file, loss)
    deployment = Deployment(network, seed)
    rehearsal = Rehearsal(deployment, publish_ns, _victims(deployment, kill[0] if kill else None))
    console = Console(highlight=False)
    began = time.monotonic()
    if as_json or quiet:
        for _ in rehearsal.steps():
            pass
    else:
        _perform(console, rehearsal, publish_ns)
    verdict = rehearsal.verdict()
    if as_json:
        print_json(_as_json(rehearsal, verdict), ensure_ascii=False)
    else:
        _print_results(console, rehearsal, verdict, time.monotonic() - began)
    raise typer.Exit(0 if verdict.identical else 1)


# -- the options ------------------------------------------------------------------------------------------


def _network(path: Path | None, loss: str | None) -> Network:
    network = parse_network(five_cities(), "five cities") if path is None else load_network(path)
    stripe = network.stripes[0]
    if not any(floor.stripe == stripe.name for floor in network.floors):
        problem = Problem(1, f'no [[floor]] in stripe "{stripe.name}", so nothing would be sent; add one')
        raise NetworkError(str(path), [problem])
    if loss is not None:
        network = with_loss(network, loss_ratio(loss))
        for _, message in contradictions(network.derived(0), network.shape(0)):
            raise typer.BadParameter(f"with {loss}, {message}", param_hint="--loss")
    return network


def _victims(deployment: Deployment, kill: str | None) -> Sequence[SimNode] | None:
    if kill is None:
        return None
    if kill.casefold() == "none":
        return ()
    victims = deployment.receivers_at(kill)
    if not victims:
        known = ", ".join(sorted({receiver.site for receiver in deployment.network.receivers}))
        raise typer.BadParameter(f'no receiver at site "{kill}"; use one of {known}', param_hint="--kill")
    return victims


# -- progress ---------------------------------------------------------------------------------------------


def _perform(console: Console, rehearsal: Rehearsal, publish_ns: int) -> None:
    """Run the simulation; print a line for each important event, and a progress bar below."""
    _print_heading(console, rehearsal.deployment)
    on_tape = "[dim]{task.fields[tape]:,} trades on every tape[/dim]"
    columns = ("[dim]{task.fields[clock]:>8}[/dim] ", BarColumn(bar_width=40), on_tape)
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    def tell(at_ns: int, sentence: str, style: str) -> None:
        clock, text = Text(f"{_clock(at_ns):>8}", "dim"), Text(sentence, style)
        if not console.is_terminal:
            console.print(Text.assemble(clock, "  ", text), soft_wrap=True)
            return
        line = Table.grid(Column(no_wrap=True), "", padding=(0, 2))
        line.add_row(clock, text)
        bar.console.print(line)

    rehearsal.audience = RehearsalText(rehearsal, publish_ns // CHAPTERS, tell)
    with bar:
        task = bar.add_task("", total=1.0, clock="", tape=0)
        for share in rehearsal.steps():
            tape = min(figures.records for figures in rehearsal.ledger.of.values())
            bar.update(task, completed=share, clock=_clock(rehearsal.deployment.world.now), tape=tape)


def _print_heading(console: Console, deployment: Deployment) -> None:
    network, timing = deployment.network, deployment.config.timing
    losses = {link.loss_ratio for (a, b), link in network.links.pairs.items() if a != b} if network.links else {0.0}
    if network.links is not None and network.links.default is not None:
        losses.add(network.links.default.loss_ratio)
    print_after(
        console,
        network.name or "network",
        f": {len(deployment.receivers)} receivers, {len(deployment.servers)} reformation servers, "
        f"{len(deployment.feeds)} floors. A token every {show_ns(timing.slot_ns)}, "
        f"release {show_ns(timing.hold_ns)} after it, {100 * max(losses):g} % loss, seed {deployment.seed}.",
    )


def _clock(at_ns: int) -> str:
    return f"{(at_ns - START_NS) / 1e9:.3f} s"


# -- results ----------------------------------------------------------------------------------------------


def _print_results(console: Console, rehearsal: Rehearsal, verdict: RehearsalVerdict, wall_s: float) -> None:
    ledger, world = rehearsal.ledger, rehearsal.deployment.world
    columns = ["\nreceiver", ">trades\nreleased", ">\nlate", ">re-\nquests", ">re-\npaired"]
    columns += [">latency, s\np50 / p99", ">lag, ms\np50 / max", ">\nrings"]
    rows = []
    for node in rehearsal.deployment.receivers:
        figures, behind_ns = ledger.of[node.id], ledger.behind_ns(node.id)
        latency = f"{figures.latency_ns(0.5) / 1e9:.2f} / {figures.latency_ns(0.99) / 1e9:5.2f}"
        behind = f"{quantile(behind_ns, 0.5) / 1e6:.2f} / {max(behind_ns, default=0) / 1e6:.2f}"
        counts = (figures.records, figures.late, figures.requests, figures.repaired)
        rows.append((node.name, *counts, latency, behind, figures.rings))
    spreads = ledger.spreads_ns()
    settings = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}
    console.print(table(columns, rows, no_wrap=True, **settings))
    for note in (
        "late: after the scheduled release time, because of a reformation or downtime",
        "latency: from the trade on its floor to its release, in true time",
        "lag: after the first receiver that released the slot, if on time",
        "rings: number of rings that the receiver has entered",
        "",
        f"Spread of a slot over all receivers, if on time: {quantile(spreads, 0.5) / 1e6:.2f} ms (median), "
        f"{max(spreads, default=0) / 1e6:.2f} ms (largest).",
        f"{(world.now - START_NS) / 1e9:.1f} s of virtual time ran in {wall_s:.1f} s: {world.events:,} events, "
        f"{world.network.lost:,} of {world.network.sent:,} packets lost.",
    ):
        console.print(note, style="dim", soft_wrap=not console.is_terminal)
    console.print()
    _print_verdict(console, rehearsal, verdict)


def _print_verdict(console: Console, rehearsal: Rehearsal, verdict: RehearsalVerdict) -> None:
    count = count_word(len(verdict.prints))
    first = verdict.prints[0]
    if verdict.identical:
        sizes = f"{first.records:,} trades in {first.frames:,} frames, {first.size:,} bytes"
        once = "every trade exactly once, each floor's in order."
        print_after(console, f"The {count} tapes are identical", f": {sizes}; {once}", "bold green")
        console.print(f"SHA-256 {first.sha256}", style="green", soft_wrap=True)
        return
    print_problems(console, f"The {count} tapes", verdict.problems)
    for tape in verdict.prints:
        line = f"{tape.sha256}  {tape.name}, {tape.frames:,} frames, {tape.records:,} trades"
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"To repeat the run: --seed {rehearsal.deployment.seed} with the same options.")


def _as_json(rehearsal: Rehearsal, verdict: RehearsalVerdict) -> dict[str, object]:
    """Return all results except the wall time, so that the same seed prints the same text."""
    deployment, ledger = rehearsal.deployment, rehearsal.ledger
    world, spreads = deployment.world, ledger.spreads_ns()
    rows = []
    for node, tape in zip(deployment.receivers, verdict.prints, strict=True):
        figures, behind = ledger.of[node.id], ledger.behind_ns(node.id)
        rows.append(
            {
                "receiver": node.id,
                "name": node.name,
                "released": figures.records,
                "late": figures.late,
                "requests": figures.requests,
                "repaired": figures.repaired,
                "rings": figures.rings,
                "latency_ns": {"p50": figures.latency_ns(0.5), "p99": figures.latency_ns(0.99)},
                "behind_first_ns": {"p50": quantile(behind, 0.5), "max": max(behind, default=0)},
                "tape": {"frames": tape.frames, "bytes": tape.size, "sha256": tape.sha256},
            }
        )
    return {
        "network": deployment.network.name,
        "seed": deployment.seed,
        "virtual_ns": world.now - START_NS,
        "events": world.events,
        "packets": {"sent": world.network.sent, "lost": world.network.lost},
        "trades": sum(feed.trading.made for feed in deployment.feeds),
        "hold_ns": deployment.config.timing.hold_ns,
        "receivers": rows,
        "spread_ns": {"p50": quantile(spreads, 0.5), "max": max(spreads, default=0)},
        "verdict": {"identical": verdict.identical, "problems": verdict.problems},
    }
