"""`levelcast init` and `levelcast timing`: write an example network file, and explain timing values."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from secrets import randbits
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from levelcast.cli.errors import duration_ns
from levelcast.cli.network_file.hold import as_json as hold_json
from levelcast.cli.network_file.hold import copies_as_json, copies_table, hold_table, plan_holds, store_holds
from levelcast.cli.options import NETWORK_FILE, Force, Interface, NetworkFile, option
from levelcast.cli.output import print_json
from levelcast.network import FiveCities, Network, NetworkError, Problem, five_cities, load_network
from levelcast.network.hold_input import follows_from_pairs
from levelcast.network.warnings import included_files, warnings
from levelcast.node.operate.timing_change import apply_timing
from levelcast.protocol.event_text import time_of_day
from levelcast.runtime.sockets import LOOPBACK
from levelcast.timing.copy_plan import CopyPlan
from levelcast.timing.derive import Explained
from levelcast.timing.rules import BoundTerm
from levelcast.units import show_ns

APPLY_LIMIT_S = 30.0


def init(
    out: Annotated[Path, option("File to write.", "--out", "-o", metavar="FILE")] = NETWORK_FILE,
    force: Force = False,
) -> None:
    """Write a commented network file to start from: five cities around the world.

    Examples:

    levelcast init

    levelcast init -o my-network.toml --force
    """
    write_new(out, five_cities(FiveCities.identified(randbits(64))), force=force)
    typer.echo(f"Wrote {out}. To see the resulting timing: levelcast timing --network {out}")


def timing(
    network_file: NetworkFile = NETWORK_FILE,
    stripe: Annotated[str | None, option("Show only this stripe.", "--stripe", unset="all")] = None,
    write: Annotated[bool, option("Store the derived hold time in the network file.", "--write")] = False,
    apply: Annotated[
        bool, option("Change the running ring to the hold time, beats and cut-offs of this file.", "--apply")
    ] = False,
    hold: Annotated[
        str | None, option("With --apply: this hold time.", "--hold", metavar="TIME", unset="derived")
    ] = None,
    interface: Interface = LOOPBACK,
    as_json: Annotated[bool, option("Print only JSON, with durations in nanoseconds.", "--json")] = False,
) -> None:
    """Explain each timing value of a network file by its rule, and the bound on the recovery time.

    The hold time is derived from the links of all pairs by simulation: some seconds for five receivers.

    Examples:

    levelcast timing

    levelcast timing --write

    levelcast timing --apply --hold 500ms

    levelcast timing --network my-network.toml --json
    """
    network = load_network(network_file)
    names = [known.name for known in network.stripes]
    if stripe is not None and stripe not in names:
        known = ", ".join(f'"{name}"' for name in names)
        raise NetworkError(str(network_file), [Problem(1, f'stripe "{stripe}" not found; the file has {known}')])
    chosen = names if stripe is None else [stripe]
    if hold is not None and not apply:
        raise typer.BadParameter("needs --apply; in the network file, edit the key hold", param_hint="--hold")
    if hold is not None:
        _apply(network, dict.fromkeys(chosen, duration_ns(hold, "--hold")), interface)
        return
    automatic = [name for name in chosen if network.stripe(name).rules.hold_auto]
    if write and automatic:
        why = 'hold = "auto": the running ring changes the hold time, so none is stored; remove hold to derive one'
        raise NetworkError(str(network_file), [Problem(1, why)])
    plans, reasons = plan_holds(network, chosen, quiet=as_json)
    holds = {name: plan.hold for name, plan in plans.items()}
    if write:
        if not holds:
            whose = ", ".join(f"{name}: {reason}" for name, reason in reasons.items())
            why = whose if len(names) > 1 else reasons[names[0]]
            raise NetworkError(str(network_file), [Problem(1, f"there is no hold time to store; {why}")])
        text = network_file.read_text(encoding="utf-8-sig")
        write_new(network_file, store_holds(text, network_file, network, plans), force=True)
        network = load_network(network_file)
    if apply:
        if reasons:
            why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            raise NetworkError(str(network_file), [Problem(1, f"no hold time is derived; pass --hold; {why}")])
        _apply(network, {name: each.hold_ms * 1_000_000 for name, each in holds.items()}, interface)
        return
    if as_json:
        report = {
            "network": network.name,
            "included": [asdict(each) for each in network.included],
            "helpers": network.helpers,
            "stripes": [_as_json(network, name, plans.get(name), reasons.get(name)) for name in chosen],
        }
        print_json(report, ensure_ascii=False)
        return
    console = Console()
    for name in chosen:
        _print_stripe(console, network, name, plans.get(name), reasons.get(name))
    for name, plan in plans.items() if write else ():
        stored = f"hold = {plan.hold.hold_ms} ms"
        if plan.spent:
            stored += f" and copies for {_count(len(plan.spent), 'receiver')}"
        console.print(f"Stored {stored} of {escape(name)} in {network_file}.", highlight=False)


def _apply(network: Network, holds: dict[str, int], interface: str) -> None:
    """Change the timing of the running rings, and print from when on it applies."""
    for stripe, hold_ns in holds.items():
        done = apply_timing(network, stripe, hold_ns, APPLY_LIMIT_S, interface)
        typer.echo(
            f"Hold time of {stripe}: {show_ns(done.before_ns)} -> {show_ns(done.hold_ns)} from "
            f"{time_of_day(done.from_ns)} UTC on (timing record {done.version})."
        )


def write_new(path: Path, text: str, *, force: bool) -> None:
    """Write a file completely or not at all; replace an existing one only if `force` is set."""
    if path.exists() and not force:
        raise FileExistsError(0, "already exists; use --force to replace it", str(path))
    if path.is_dir():
        raise IsADirectoryError(0, "is a directory; specify a file in it", str(path))
    if not path.parent.is_dir():
        raise NotADirectoryError(0, "the directory does not exist; create it first", str(path))
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if force:
            part.replace(path)
        else:
            _link(part, path)
    finally:
        part.unlink(missing_ok=True)


def _link(part: Path, path: Path) -> None:
    """Give the finished file its name; fail if another process has created that file meanwhile."""
    try:
        path.hardlink_to(part)
    except FileExistsError:
        raise FileExistsError(0, "already exists; use --force to replace it", str(path)) from None
    except OSError:  # a file system without hard links
        part.replace(path)


def _as_json(network: Network, stripe: str, plan: CopyPlan | None, reason: str | None) -> dict[str, object]:
    hold = plan.hold if plan is not None else None
    derived = network.derived(stripe)
    terms = network.liveness(stripe)
    return {
        "stripe": stripe,
        "homes": {each.name: each.home for each in network.secondaries},
        "timing": {
            **asdict(derived.timing),
            "recovery_ns": derived.timing.recovery_ns,
            "closed_form_ns": derived.closed_form_ns,
            "least_hold_ns": derived.least_hold_ns,
            "witnesses": network.witnesses(stripe),
        },
        "hold_auto": network.stripe(stripe).rules.hold_auto,
        "explained": [number._asdict() for number in derived.explained],
        "entry": _entry_as_json(network, stripe),
        "liveness": _bound_as_json(terms),
        "lines": {layer: _bound_as_json(each) for layer, each in network.line_terms(stripe).items()},
        "derived_hold": hold_json(hold) if hold is not None else None,
        "copies": copies_as_json(plan) if plan is not None and plan.redundancy > 1.0 else None,
        "warnings": warnings(network, stripe) + _hold_warnings(network, stripe, plan, reason),
    }


def _entry_as_json(network: Network, stripe: str) -> dict[str, object] | None:
    if stripe not in network.order_stripes:
        return None
    entry = network.entry_timing(stripe)
    gateways = [each.name for each in network.gateways if each.stripe == stripe]
    return {"gateways": gateways, "explained": [number._asdict() for number in entry.explained]}


def _bound_as_json(terms: list[BoundTerm]) -> dict[str, object]:
    return {"bound_ns": sum(term.ns for term in terms), "terms": [term._asdict() for term in terms]}


def _print_stripe(console: Console, network: Network, stripe: str, plan: CopyPlan | None, reason: str | None) -> None:
    hold = plan.hold if plan is not None else None
    title = network.name or "network"
    if len(network.stripes) > 1:
        title += f", stripe {stripe}"
    parts = [_count(len(network.receivers), "receiver")]
    if network.secondaries:
        parts.append(_count(len(network.secondaries), "secondary", "secondaries"))
    parts += [_count(len(network.reformation), "reformation server"), _count(len(network.floors), "floor")]
    if network.gateways:
        parts.append(_count(len(network.gateways), "gateway"))
    console.print(f"[bold]{escape(title)}[/bold]: {', '.join(parts)}, {network.timing(stripe).mode}")
    for receiver in network.receivers:
        below = ", ".join(each.name for each in network.secondaries_of(receiver.name))
        if below:
            console.print(f"  {escape(receiver.name)} is the assigned primary of {escape(below)}", highlight=False)
    for sentence in included_files(network):
        console.print(f"  {escape(sentence)}", highlight=False, soft_wrap=True)
    console.print(_timing_table(network.explain(stripe)))
    if stripe in network.order_stripes:
        console.print(_timing_table(list(network.entry_timing(stripe).explained), "Fair order entry"))
    if hold is not None:
        derived = network.derived(stripe)
        console.print(hold_table(hold, derived.timing.hold_ns, derived.rule_6_ns))
    if plan is not None and plan.redundancy > 1.0:
        console.print(copies_table(plan), highlight=False)
    if network.stripe(stripe).rules.hold_auto:
        console.print(_automatic(network, stripe), highlight=False, soft_wrap=True)
    console.print(_bound_table("When faults stop, everything sent is released within", network.liveness(stripe)))
    for layer, terms in network.line_terms(stripe).items():
        console.print(_bound_table(f"When a {layer} fails, another receiver sends to its lines within", terms))
    for warning in warnings(network, stripe) + _hold_warnings(network, stripe, plan, reason):
        console.print(f"[yellow]Warning:[/yellow] {escape(warning)}")


def _automatic(network: Network, stripe: str) -> str:
    """Return a sentence about a hold time that follows the measured delays."""
    rules, derived = network.stripe(stripe).rules, network.derived(stripe, bound=False)
    return (
        f'hold = "auto": `levelcast up` starts the ring with the derived hold time. A late share above '
        f"{rules.late_target:g} for {show_ns(rules.lengthen_after_ns)} makes it longer, at most "
        f"{show_ns(derived.rule_6_ns)} (rule 6). If no slot needs more than 80 % of it for "
        f"{show_ns(rules.shorten_after_ns)}, it becomes shorter. `levelcast status` shows the one in force."
    )


def _hold_warnings(network: Network, stripe: str, plan: CopyPlan | None, reason: str | None) -> list[str]:
    """Return a sentence about a hold time that is too short for the late target, or that cannot be derived."""
    if reason is not None and follows_from_pairs(network, stripe):
        return [f"No hold time is derived from the links: {reason}."]
    if plan is None:
        return []
    if {each.name: each.copies for each in plan.spent} != dict(network.stripe(stripe).rules.copies):
        return [
            "The file has other copies than these, and nodes send those of the file; levelcast timing --write stores "
            f"hold = {plan.hold.hold_ms} ms and the copies that it needs."
        ]
    hold, hold_ns = plan.hold, network.timing(stripe).hold_ns
    if hold_ns >= hold.hold_ms * 1_000_000:
        return []
    short = show_ns(hold.hold_ms * 1_000_000 - hold_ns)
    share = hold.late_share(hold_ns // 1_000_000)
    return [
        f"Hold is {show_ns(hold_ns)}, {short} less than {hold.worst.name} needs for a late target of "
        f"{hold.late_target:g}: expect {100 * share:.3g} % of its releases to be late; levelcast timing --write stores "
        f"{hold.hold_ms} ms."
    ]


def _count(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {plural or f'{noun}s'}"


def _timing_table(numbers: list[Explained], title: str = "Timing") -> Table:
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("", no_wrap=True, style="cyan")
    table.add_column("name", no_wrap=True)
    table.add_column("value", no_wrap=True, justify="right", style="bold")
    table.add_column("rule and derivation")
    for number in numbers:
        why = f"{escape(number.rule)}\n[dim]{escape(number.because)}[/dim]"
        table.add_row(number.symbol, number.name, number.text, why)
    return table


def _bound_table(title: str, terms: list[BoundTerm]) -> Table:
    total = show_ns(sum(term.ns for term in terms))
    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("at most", footer=total, no_wrap=True, justify="right", style="bold")
    table.add_column("until", footer="total")
    table.add_column("rule")
    for term in terms:
        table.add_row(show_ns(term.ns), escape(term.term), escape(term.rule))
    return table
