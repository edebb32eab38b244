"""`levelcast timing`: derive the hold time of each stripe from the delays of all pairs, explain it, and store it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from rich.markup import escape
from rich.progress import Progress, TaskID
from rich.table import Table

from levelcast.cli.output import counting
from levelcast.network import Network, NetworkError, Problem, parse_network
from levelcast.network.hold_input import hold_input, rule_6_because, underivable
from levelcast.timing.hold import DerivedHold, derive_hold
from levelcast.units import show_ns

MS = 1_000_000


def derive_holds(
    network: Network, stripes: Iterable[str], *, quiet: bool = False
) -> tuple[dict[str, DerivedHold], dict[str, str]]:
    """Return the hold time of each stripe by its links, with progress, and why another stripe has none."""
    found: dict[str, DerivedHold] = {}
    reasons: dict[str, str] = {}
    for stripe in stripes:
        reason = _underivable(network, stripe)
        if reason is not None:
            reasons[stripe] = reason
            continue
        with counting(quiet=quiet) as progress:
            task = progress.add_task(f"hold time of {stripe}", total=None)
            try:
                found[stripe] = derive_hold(hold_input(network, stripe), partial(_show, progress, task))
            except ValueError as error:  # too much loss for any hold time
                reasons[stripe] = str(error)
    return found, reasons


def _underivable(network: Network, stripe: str) -> str | None:
    rule_6 = rule_6_because(network, stripe)
    return underivable(network, stripe) if rule_6 is None else f"{rule_6} it follows from rule 6"


def missing_holds(network: Network, *, quiet: bool = False) -> dict[str, int]:
    """Return the derived hold time, in ns, of each stripe for which the network file has none."""
    stripes = [stripe.name for stripe in network.stripes if stripe.rules.hold_ns is None]
    return {stripe: hold.hold_ms * MS for stripe, hold in derive_holds(network, stripes, quiet=quiet)[0].items()}


def _show(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def hold_table(derived: DerivedHold, hold_ns: int, rule_6_ns: int) -> Table:
    """Return who determines the hold time, and how much of it is delay, repair and claims."""
    title = f"Hold time for at most {derived.late_target:g} late releases: {derived.hold_ms} ms"
    if derived.hold_ms * MS != hold_ns:
        title += f", in use: {show_ns(hold_ns)}"
    table = Table(title=f"{title} (rule 6: {show_ns(rule_6_ns)})", title_justify="left", show_lines=True)
    table.add_column("receiver", no_wrap=True)
    for column in ("needs", "held", "witnessed"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("because")
    for each in derived.receivers:
        reason = str(each).partition(": ")[2]
        cells = (f"{time} ms" for time in (each.hold_ms, each.held_ms, each.witness_ms))
        table.add_row(escape(each.name), *cells, escape(reason))
    added = f"+ {derived.added_ms} ms"
    table.add_row("all", added, "", "", "two clock errors and the time for processes that run late (`scheduling`)")
    return table


def as_json(derived: DerivedHold) -> dict[str, object]:
    return {
        "hold_ms": derived.hold_ms,
        "late_target": derived.late_target,
        "slots": derived.slots,
        "seed": derived.seed,
        "added_ms": derived.added_ms,
        "receivers": [
            {
                "name": each.name,
                "hold_ms": each.hold_ms,
                "held_ms": each.held_ms,
                "witness_ms": each.witness_ms,
                "because": str(each),
            }
            for each in derived.receivers
        ],
    }


def store_holds(text: str, path: Path, network: Network, derived: dict[str, DerivedHold]) -> str:
    """Return the text of the network file at `path` with these hold times."""
    for stripe, hold in derived.items():
        tables = ["timing", f"stripes.{stripe}"] if len(network.stripes) == 1 else [f"stripes.{stripe}"]
        texts = (with_key(text, table, "hold", f'"{hold.hold_ms}ms"') for table in tables)
        stored = next((each for each in texts if _stored_ns(each, path, stripe) == hold.hold_ms * MS), None)
        if stored is None:
            why = f'the hold time cannot be stored here; write hold = "{hold.hold_ms}ms" into [{tables[0]}] yourself'
            raise NetworkError(str(path), [Problem(1, why)])
        text = stored
    return text


def _stored_ns(text: str, path: Path, stripe: str) -> int | None:
    try:
        return parse_network(text, str(path), path.parent).stripe(stripe).rules.hold_ns
    except NetworkError:
        return None


def with_key(text: str, table: str, key: str, value: str) -> str:
    """Return TOML text in which a table has this key; comments and the order of other keys stay as they are.

    >>> with_key('[a]\\nx = 1  # one\\n\\n[b]\\n', "a", "x", "2")
    '[a]\\nx = 2  # one\\n\\n[b]\\n'
    >>> with_key('[a]\\nx = 1\\n\\n[b]\\n', "a", "y", "2")
    '[a]\\nx = 1\\ny = 2\\n\\n[b]\\n'
    """
    lines = text.splitlines(keepends=True)
    begin = next((at for at, line in enumerate(lines) if line.split("#")[0].strip() == f"[{table}]"), None)
    if begin is None:
        return f"{text.rstrip()}\n\n[{table}]\n{key} = {value}\n"
    last = begin
    for at in range(begin + 1, len(lines)):
        if lines[at].lstrip().startswith("["):
            break
        if re.match(rf"\s*{re.escape(key)}\s*=", lines[at]):
            rest = lines[at].partition("#")
            comment = f"  #{rest[2]}" if rest[1] else "\n"
            lines[at] = f"{key} = {value}{comment}"
            return "".join(lines)
        if lines[at].strip() and not lines[at].lstrip().startswith("#"):
            last = at
    lines.insert(last + 1, f"{key} = {value}\n")
    return "".join(lines)
