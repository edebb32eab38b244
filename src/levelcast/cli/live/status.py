"""`levelcast status`: show the status of the running nodes of a network file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from itertools import accumulate
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from levelcast.cli.errors import duration_ns
from levelcast.cli.options import NETWORK_FILE, NetworkFile, option
from levelcast.cli.output import cell, print_json, table
from levelcast.network import Network, load_network
from levelcast.network.roles import FLOOR, RECEIVER, REFORMATION, SECONDARY, RoleKind
from levelcast.node.status_client import Answer, ask_all, in_one_ring, not_served
from levelcast.units import show_ns, show_rate
from levelcast.wire.header import Reason

REFORMATIONS_SHOWN = 8
_EVERY_S = 1.0
_BEHIND_S = 0.1
"""A line that is further behind is shown."""
_WIDE = 150
"""Width that the table needs; used where the output is not a terminal."""
_COLUMNS = ("state", ">ring", ">slot", ">have", ">gaps", ">requests", ">late", ">delay", "clock", ">rings")
_STYLES = {
    **dict.fromkeys(("ACTIVE", "FOLLOWS", "IDLE"), "green"),
    **dict.fromkeys(("OUTSIDE", "PROMISED", "ALONE", "LOST", "ORPHAN"), "yellow"),
    "SILENT": "bold red",
}

Json = dict[str, Any]


def status(
    network_file: NetworkFile = NETWORK_FILE,
    as_json: Annotated[bool, option("Print one JSON object with the complete status of every node.", "--json")] = False,
    node: Annotated[list[str] | None, option("Query only this node (repeatable).", metavar="NAME", unset="all")] = None,
    watch: Annotated[bool, option("Refresh every second until ^C.", "--watch")] = False,
    timeout: Annotated[str, option("Time limit for the reply of a node.", metavar="TIME")] = "1s",
) -> None:
    """Show the status of the running nodes of a network.

    Exit code 0: all nodes reply, all receivers are in one ring of their stripe, and all secondaries follow it; 1:
    otherwise.

    Examples:

    levelcast status

    levelcast status --node tokyo-1 --json
    """
    network = load_network(network_file)
    timeout_s = duration_ns(timeout, "--timeout") / 1e9
    answers = ask_all(network, node or (), timeout_s)
    if watch:
        answers = _watch(network, answers, node or (), timeout_s, as_json=as_json)
    if as_json:
        print_json(as_object(answers))
    else:
        _console().print(page(network, answers))
    if not any(answer.ok for answer in answers):
        remedy = "start them with `levelcast up` or `levelcast node`"
        typer.echo(f"levelcast: no node of {network_file} replies; {remedy}", err=True)
    raise typer.Exit(0 if is_well(answers) else 1)


def is_well(answers: Sequence[Answer]) -> bool:
    return all(answer.ok for answer in answers) and in_one_ring(answers) and not not_served(answers)


def as_object(answers: Sequence[Answer]) -> Json:
    """Return the complete status as a JSON object."""
    return {
        "well": is_well(answers),
        "one_ring": in_one_ring(answers),
        "not_served": not_served(answers),
        "silent": {answer.name: answer.problem for answer in answers if not answer.ok},
        "nodes": {
            answer.name: answer.status | ({} if answer.lag is None else {"lag": answer.lag})
            for answer in answers
            if answer.ok
        },
    }


def _watch(
    network: Network, answers: list[Answer], names: Sequence[str], timeout_s: float, *, as_json: bool
) -> list[Answer]:
    """Refresh until ^C and return the last replies."""
    live = None if as_json else Live(console=_console(), transient=True, auto_refresh=False)
    with suppress(KeyboardInterrupt), live or nullcontext():
        while True:
            if live is None:
                print_json(as_object(answers), None)
            else:
                live.update(page(network, answers), refresh=True)
            time.sleep(_EVERY_S)
            answers = ask_all(network, names, timeout_s)
    return answers


# -- terminal output --------------------------------------------------------------------------------------


def _console() -> Console:
    console = Console()
    return console if console.is_terminal or console.width >= _WIDE else Console(width=_WIDE)


def page(network: Network, answers: Sequence[Answer]) -> Group:
    """Return the table, the warnings and the last reformations."""
    return Group(_table(network, answers), _keys(answers), *_remarks(answers), *_reformations(answers))


def _keys(answers: Sequence[Answer]) -> Text:
    """Return which keys the nodes use; without keys, what anybody on the network can do."""
    used = {
        (keys["statement"], keys["epoch"]) if (keys := answer.status.get("keys")) is not None else None
        for answer in answers
        if answer.ok
    }
    if not used or used == {None}:
        return Text(
            "No keys: any host that reaches the core can send to it. `levelcast keys init` creates keys.", "dim"
        )
    if len(used) == 1:
        ((statement, epoch),) = (each for each in used if each is not None)
        return Text(f"Keys: statement {statement}, epoch {epoch}.", "dim")
    return Text("The nodes do not use the same keys; `levelcast keys check` lists them.", "bold yellow")


def _table(network: Network, answers: Sequence[Answer]) -> Table:
    made = table(
        ("node", ">id", "role", *_COLUMNS, "does"),
        map(_row, answers),
        no_wrap=True,
        box=box.SIMPLE_HEAD,
        title=network.name or None,
        padding=(0, 1, 0, 0),
    )
    made.columns[-1].no_wrap = False
    return made


def _row(answer: Answer) -> tuple[Text | str, ...]:
    said = answer.status
    if not answer.ok:
        return (
            answer.name,
            "",
            "",
            Text("no reply", "bold red"),
            *[""] * (len(_COLUMNS) - 1),
            Text(answer.problem, "red"),
        )
    does = _SUMMARIES[answer.role](said, answer.lag) if answer.role is not None else ""
    cells = (_cell(said, title.removeprefix(">")) for title in _COLUMNS)
    return answer.name, str(said["id"]), str(said["role"]), *cells, does


def _cell(said: Json, title: str) -> Text | str:
    if title == "state":
        state = str(said.get("state", said.get("phase", "")))
        return Text(state, _STYLES.get(state, ""))
    if title == "clock":
        return _clock(said["clock"])
    if title == "late":
        return f"{said['late']:,} ({said['late_share']:.1%})" if "late" in said else ""
    if title == "delay":
        return _p99(said["scheduling_delay"]) if "scheduling_delay" in said else ""
    if title == "rings":
        return cell(said.get("rings_entered", said.get("rings_formed")))
    return cell(said.get("generation" if title == "ring" else title))


def _p99(delays: Json) -> str:
    """Return the upper bound of the bucket that has the p99 of the scheduling delay."""
    counts, bounds = list(accumulate(delays["counts"])), delays["bounds_s"]
    if not counts[-1]:
        return ""
    at = next(number for number, count in enumerate(counts) if count >= 0.99 * counts[-1])
    return f"≤ {1e3 * bounds[at]:g} ms" if at < len(bounds) else f"> {bounds[-1]:g} s"


def _clock(clock: Json) -> Text:
    if not clock["trusted"]:
        starts = clock.get("doubt") is None and not clock.get("was_set", True)
        return Text("checking", "yellow") if starts else Text("wrong", "bold red")
    if clock.get("vouched"):
        return Text(f"±{clock['error_ns'] / 1e6:.3g} ms", "green")
    kernel = clock["kernel"]
    if kernel is None or not kernel["synchronised"]:
        return Text("unsynced", "yellow")
    return Text(f"±{kernel['estimated_error_ns'] / 1e6:.3g} ms", "green")


def _on_tape(said: Json) -> str:
    since_s = (said["now_ns"] - said["complete_upto_ns"]) / 1e9
    upto = f", complete up to {since_s:,.2f} s ago" if said["complete_upto_ns"] else ""
    timing = said.get("timing", {})
    hold = f", hold time {show_ns(timing['hold_ns'])} (auto)" if timing.get("auto") else ""
    return f"{said['tape_records']:,} records on tape{upto}{hold}"


def _formed(said: Json) -> str:
    last = said["reformations"][-1]["detail"] if said["reformations"] else "nothing yet"
    groups = "; ".join(f"{primary}: {', '.join(members)}" for primary, members in said.get("groups", {}).items())
    return f"formed {last}{f'; groups {groups}' if groups else ''}"


def _published(said: Json) -> str:
    return (
        f"{said['published']:,} records published, {said['waiting']:,} waiting; "
        f"{said['packets_unwitnessed']} of {said['credit']} packets unwitnessed"
    )


def _served(said: Json, lag: int | None) -> str:
    """Describe a secondary: its primary, its lag in slots, and the other members of its group."""
    primary, home = said["primary"], said["home"]
    if primary is None:
        return f"; no primary (assigned: {home})"
    behind = "" if lag is None else f", lag {lag:,} {'slot' if lag == 1 else 'slots'}"
    others = [name for name in said["group"]["members"] if name != said["name"]]
    mates = f", with {', '.join(others)}" if others else ""
    return f"; served by {primary}{'' if primary == home else f' instead of {home}'}{behind}{mates}"


def _covers(said: Json) -> str:
    """Describe a primary: the secondaries that its tokens cover."""
    members = said.get("group", {}).get("members", {})
    counts = [name for name, each in members.items() if each["counts"]]
    without = [name for name, each in members.items() if not each["counts"]]
    return (f"; covers {', '.join(counts)}" if counts else "") + (f"; without {', '.join(without)}" if without else "")


_SUMMARIES: dict[RoleKind, Callable[[Json, int | None], str]] = {
    RECEIVER: lambda said, _: _on_tape(said) + _covers(said),
    SECONDARY: lambda said, lag: _on_tape(said) + _served(said, lag),
    REFORMATION: lambda said, _: _formed(said),
    FLOOR: lambda said, _: _published(said),
}


def _remarks(answers: Sequence[Answer]) -> list[Text]:
    remarks = []
    if not in_one_ring(answers):
        remarks.append(Text("The receivers are not in one ring.", "bold yellow"))
    remarks += [Text(f"The secondary {name} does not follow the ring.", "bold yellow") for name in not_served(answers)]
    for answer in answers:
        said = answer.status
        if said.get("namesakes"):
            remarks.append(Text(f"Another process also runs as {answer.name}; stop one of them.", "bold red"))
        malformed = dict(said.get("malformed", {}))
        if foreign := malformed.pop(Reason.WRONG_NETWORK.value, 0):
            what = f"{answer.name} dropped {foreign:,} datagrams of another network on its multicast group."
            remarks.append(Text(what, "yellow"))
        if unlisted := said.get("unlisted_sources"):
            which = ", ".join(map(str, unlisted))
            what = f"{answer.name} orders sources that its network file does not have: {which}; add their [[floor]]."
            remarks.append(Text(what, "bold yellow"))
        if malformed:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(malformed.items()))
            remarks.append(Text(f"{answer.name} rejected malformed datagrams: {reasons}.", "yellow"))
        if unknown := said.get("unknown_address"):
            what = f"{answer.name} dropped {unknown:,} datagrams from addresses that its network file does not have."
            remarks.append(Text(what, "yellow"))
    return remarks + _clocks(answers) + _lines_behind(answers) + _together(answers) + _registered(answers)


_REGISTERED_SHOWN = 10
_DOUBTS = {
    "bound": "its error may be {error:.3g} ms, above clock_error",
    "offset": "it is {offset:+.3g} ms from the median member",
    "apart": "no majority of the members can agree with it",
    "leap": "a leap second is due",
}


def _clocks(answers: Sequence[Answer]) -> list[Text]:
    """Return a remark for each clock that is not trusted, and one for all that no time source vouches for (C3)."""
    remarks, believed = [], []
    for answer in answers:
        clock = answer.status.get("clock", {})
        if (doubt := clock.get("doubt")) is not None:
            offset_ns = clock["group_offset_ns"] or 0
            why = _DOUBTS.get(doubt, doubt).format(error=clock["error_ns"] / 1e6, offset=offset_ns / 1e6)
            remarks.append(Text(f"{answer.name} does not trust its clock: {why}.", "bold red"))
        if clock.get("vouched") is False:
            believed.append(answer.name)
    if believed:
        what = f"No time source vouches for the clocks of {', '.join(believed)}; the file's clock_error is believed."
        remarks.append(Text(what, "yellow"))
    return remarks


def _lines_behind(answers: Sequence[Answer]) -> list[Text]:
    """Return a remark for each line whose queue needs more than `_BEHIND_S`, over all stripes of its receiver."""
    found: dict[tuple[str, str], tuple[float, int, Json]] = {}
    for answer in answers:
        for address, line in answer.status.get("edge", {}).get("narrow", {}).items():
            where = answer.name.rpartition("/")[2], address
            behind_s, dropped, _ = found.get(where, (0.0, 0, {}))
            found[where] = max(behind_s, line["behind_s"]), dropped + line["dropped"], line
    remarks = []
    for (name, address), (behind_s, dropped, line) in found.items():
        if behind_s > _BEHIND_S or dropped:
            which = f'The line "{line["line"]}" ({address}, {show_rate(line["rate"])}) of {name}'
            lost = f" and has dropped {dropped:,} packets" if dropped else ""
            remarks.append(Text(f"{which} is {behind_s:.1f} s behind{lost}.", "bold yellow"))
    return remarks


def _together(answers: Sequence[Answer]) -> list[Text]:
    """Return a remark for each edge with subscribers that deliver together, and one for each that misses the bound."""
    remarks = []
    for answer in answers:
        found = answer.status.get("edge", {}).get("together")
        if found is None:
            continue
        spread, before = show_ns(found["spread_ns"]), show_ns(found["spread_on_arrival_ns"])
        who = f"{found['subscribers']:,} subscribers of {answer.name} deliver together"
        what = f"{who}: their spread is {spread}, on arrival {before}."
        remarks.append(Text(what))
        for each in found["worst"]:
            late = each["late"] / max(1, each["late"] + each["records"])
            what = (
                f"Subscriber {each['address']} misses the bound of {show_ns(each['bound_ns'])}: its p99 delay is "
                f"{show_ns(each['needed_ns'])}, {late:.1%} of its records were late."
            )
            remarks.append(Text(what, "yellow"))
        if (more := found["missing"] - len(found["worst"])) > 0:
            remarks.append(Text(f"{more:,} other subscribers of {answer.name} miss it, too.", "yellow"))
    return remarks


def _registered(answers: Sequence[Answer]) -> list[Text]:
    """Return a remark for each edge with subscribers without multicast, and one for each that has refused some."""
    remarks = []
    for answer in answers:
        found = answer.status.get("edge", {}).get("unicast")
        if found is None:
            continue
        addresses = ", ".join(each["address"] for each in found["registered"][:_REGISTERED_SHOWN])
        if (count := len(found["registered"])) > _REGISTERED_SHOWN:
            addresses += f" and {count - _REGISTERED_SHOWN:,} more"
        if count:
            remarks.append(Text(f"{answer.name} sends copies without multicast to {addresses}."))
        if found["refused"] or found["dropped"]:
            what = f"{found['refused']:,} registrations and {found['dropped']:,} copies"
            remarks.append(Text(f"{answer.name} has refused {what}, above `unicast` or `unicast_rate`.", "yellow"))
    return remarks


def _reformations(answers: Sequence[Answer]) -> list[Table]:
    """Return the last reformations, as the servers report them, or the receivers if no server replies."""
    servers = [answer for answer in answers if answer.role is not None and answer.role.forms_rings]
    told = [
        (each["at_ns"], answer.name, each)
        for answer in servers or answers
        for each in answer.status.get("reformations", ())
    ]
    if not told:
        return []
    rows = []
    for at_ns, name, each in sorted(told, key=lambda line: line[:2])[-REFORMATIONS_SHOWN:]:
        at = datetime.fromtimestamp(at_ns / 1e9).astimezone()
        rows.append((f"{at:%Y-%m-%d %H:%M:%S}", name, Text(each["cause"]), Text(each["detail"])))
    made = table(("at", "by", "cause", "ring"), rows, box=box.SIMPLE_HEAD, title="Last reformations")
    for column in made.columns[:2]:
        column.no_wrap = True
    return [made]
