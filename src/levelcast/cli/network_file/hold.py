"""`levelcast timing`: derive the hold time of each stripe from the delays of all pairs, explain it, and store it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.markup import escape
from rich.progress import Progress, TaskID
from rich.table import Table

from levelcast.cli.output import counting
from levelcast.network import Network, NetworkError, Problem, parse_network
from levelcast.network.hold_input import hold_input, rule_6_because, underivable
from levelcast.timing.copy_plan import CopyPlan, plan_copies
from levelcast.timing.hold import DerivedHold, Tell, derive_hold
from levelcast.units import show_ns

MS = 1_000_000

_Found = TypeVar("_Found")


def derive_holds(
    network: Network, stripes: Iterable[str], *, quiet: bool = False
) -> tuple[dict[str, DerivedHold], dict[str, str]]:
    """Return the hold time of each stripe by its links and its copies, with progress, and why another has none."""
    return _derive_each(network, stripes, quiet, lambda stripe, tell: derive_hold(hold_input(network, stripe), tell))


def plan_holds(
    network: Network, stripes: Iterable[str], *, quiet: bool = False
) -> tuple[dict[str, CopyPlan], dict[str, str]]:
    """Return the hold time of each stripe with the best copies within its `redundancy`, and why another has none."""

    def plan(stripe: str, tell: Tell) -> CopyPlan:
        return plan_copies(hold_input(network, stripe), network.stripe(stripe).rules.redundancy, tell)

    return _derive_each(network, stripes, quiet, plan)


def _derive_each(
    network: Network, stripes: Iterable[str], quiet: bool, derive: Callable[[str, Tell], _Found]
) -> tuple[dict[str, _Found], dict[str, str]]:
    found: dict[str, _Found] = {}
    reasons: dict[str, str] = {}
    for stripe in stripes:
        reason = _underivable(network, stripe)
        if reason is not None:
            reasons[stripe] = reason
            continue
        with counting(quiet=quiet) as progress:
            task = progress.add_task(f"hold time of {stripe}", total=None)
            try:
                found[stripe] = derive(stripe, partial(_show, progress, task))
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


def copies_table(plan: CopyPlan) -> Table | str:
    """Return what is sent in addition, to whom, and what that gains."""
    if not plan.spent:
        return (
            f"Additional copies: none within redundancy = {plan.redundancy:g} makes the hold time shorter by 1 %, "
            "so none is sent."
        )
    title = (
        f"Additional copies: {plan.cost.total:.2f} times the bytes (redundancy = {plan.redundancy:g}), "
        f"{plan.without.hold_ms} ms -> {plan.hold.hold_ms} ms"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("receiver", no_wrap=True)
    table.add_column("copies")
    for column in ("bytes of packets", "needs without", "needs"):
        table.add_column(column, justify="right")
    for each in plan.spent:
        times = (f"{each.before_ms} ms", f"{each.after_ms} ms")
        table.add_row(escape(each.name), str(each.copies), f"× {each.data_ratio:.2f}", *times)
    return table


def copies_as_json(plan: CopyPlan) -> dict[str, object]:
    return {
        "redundancy": plan.redundancy,
        "cost": plan.cost._asdict(),
        "without_hold_ms": plan.without.hold_ms,
        "receivers": [
            {
                "name": each.name,
                "tokens": each.copies.tokens,
                "parity": each.copies.parity,
                "before_ms": each.before_ms,
                "after_ms": each.after_ms,
            }
            for each in plan.spent
        ],
    }


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


def store_holds(text: str, path: Path, network: Network, plans: dict[str, CopyPlan]) -> str:
    """Return the text of the network file at `path` with these hold times and copies."""
    for stripe, plan in plans.items():
        tables = ["timing", f"stripes.{stripe}"] if len(network.stripes) == 1 else [f"stripes.{stripe}"]
        keys = {"hold": f'"{plan.hold.hold_ms}ms"'}
        rules = network.stripe(stripe).rules
        if rules.copies or plan.spent:
            keys["copies"] = _copies_text(plan)
        texts = (with_keys(text, table, keys) for table in tables)
        stored = next((each for each in texts if _stores(each, path, stripe, plan)), None)
        if stored is None:
            lines = " and ".join(f"{key} = {value}" for key, value in keys.items())
            why = f"the hold time cannot be stored here; write {lines} into [{tables[0]}] yourself"
            raise NetworkError(str(path), [Problem(1, why)])
        text = stored
    return text


def _copies_text(plan: CopyPlan) -> str:
    """Return the value of the key `copies`: each receiver with what it gets."""
    entries = []
    for each in sorted(plan.spent):
        given = {"tokens": each.copies.tokens, "parity": each.copies.parity}
        inside = ", ".join(f"{key} = {number}" for key, number in given.items() if number)
        entries.append(f"{each.name} = {{ {inside} }}")
    return f"{{ {', '.join(entries)} }}" if entries else "{}"


def _stores(text: str, path: Path, stripe: str, plan: CopyPlan) -> bool:
    """Return whether the text has the hold time and the copies of a plan."""
    try:
        rules = parse_network(text, str(path), path.parent).stripe(stripe).rules
    except NetworkError:
        return False
    wanted = {each.name: each.copies for each in plan.spent}
    return rules.hold_ns == plan.hold.hold_ms * MS and dict(rules.copies) == wanted


def with_keys(text: str, table: str, keys: Mapping[str, str]) -> str:
    """Return TOML text in which a table has these keys."""
    for key, value in keys.items():
        text = with_key(text, table, key, value)
    return text


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
