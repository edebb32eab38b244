"""From the text of a network file to a `Network`, or to the list of everything that is wrong with it.

Every problem names its line. All of them are collected: cross-checks run on whatever part of the file is
sound, and the rest could only make their demands larger, so that what they report stays true.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import combinations_with_replacement, count
from math import inf
from os import PathLike
from pathlib import Path
from typing import NamedTuple, cast

from levelcast.errors import UserError
from levelcast.network import include
from levelcast.network.fields import Fields, Problem, ProblemReport, did_you_mean, is_int, show
from levelcast.network.model import (
    MOST_CREDIT,
    PORTS_PER_STRIPE,
    Carriage,
    Durable,
    Edge,
    Floor,
    Keeping,
    Link,
    Links,
    MulticastGroup,
    Nack,
    Network,
    ReceiverNode,
    ReformationNode,
    SecondaryNode,
    Site,
    Status,
    Stripe,
    TimingRules,
    Witness,
)
from levelcast.network.symbols import LARGEST_ID, symbols_of
from levelcast.network.toml_lines import KeyPath, LineNumbers
from levelcast.timing.derive import contradictions
from levelcast.timing.nack_sets import MOST_SETS
from levelcast.timing.rules import LOSS_LIMIT, Mode
from levelcast.units import show_ns
from levelcast.wire.group_codec import MAX_GROUP

DEFAULT_STRIPE = "main"
DEFAULT_CORE = MulticastGroup("core", "239.192.74.1", 30001)
_MARKET = re.compile(r"[A-Z0-9]{4}", re.ASCII)
_SYNTAX_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_ID_LIMIT = 65535
FIRST_SECONDARY = 1001
"""Where the ids begin that secondaries get which give none."""
_MOST_GROUPS = 65_536
_LAST_GROUP = int(IPv4Address("239.255.255.255"))
_LEAST_STORE = 1_000_000
_LEAST_PROBE_NS = 10_000_000
_LEAST_PACKET, _MOST_PACKET = 1_200, 65_000
"""The largest record (1,020 bytes) and all headers fit the one; the other is the largest datagram, with some room."""


class NetworkError(UserError):
    """A network file that cannot be used; its text has one line for each of `problems`."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.name = name
        self.problems = sorted(problems, key=lambda problem: (problem.file, problem.line, problem.message))
        super().__init__("\n".join(f"{file or name}:{line}: {message}" for line, message, file in self.problems))


def load_network(path: str | PathLike[str]) -> Network:
    """Read a network file. Raises NetworkError for what is in it, OSError if it cannot be read."""
    raw = Path(path).read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise NetworkError(str(path), [Problem(line, "this is not UTF-8 text")]) from None
    return parse_network(text, str(path), Path(path).parent)


def parse_network(text: str, name: str = "network.toml", directory: Path | None = None) -> Network:
    """The network that a text describes. Raises NetworkError, and nothing else, for any other text.

    What it includes is looked for below `directory`; without one it may include nothing.
    """
    root, lines = _read_toml(text, name)
    merged, places, included, problems = include.merge(root, lines, directory, _read_toml)
    if problems:
        raise NetworkError(name, problems)
    report = ProblemReport(places)
    network = replace(_read_network(Fields(report, (), merged, "the file"), report), included=included)
    if report.problems:
        raise NetworkError(name, report.problems)
    return network


def _read_toml(text: str, name: str) -> tuple[dict[str, object], LineNumbers]:
    try:
        return tomllib.loads(text), LineNumbers(text.replace("\r\n", "\n"))
    except RecursionError:
        message, line = "arrays or tables are nested too deeply", 1
    except ValueError as error:
        message = str(error)
        found = _SYNTAX_LINE.search(message)
        line = text.count("\n") + 1
        if found is None:
            line = 1
        elif found[1] is not None:
            line = int(found[1])
        message = _SYNTAX_LINE.sub("", message)
    raise NetworkError(name, [Problem(line, f"not valid TOML: {message[:1].lower()}{message[1:]}")])


class _Node(NamedTuple):
    """What the kinds of nodes have in common, as far as it could be read."""

    fields: Fields
    kind: str
    name: str | None
    site: str | None


def _read_network(root: Fields, report: ProblemReport) -> Network:
    about = root.table("network", "[network]")
    title = about.text("name") if about is not None else ""
    if about is not None:
        about.finish()
    rules, timing_fields = _read_timing(root)
    stripes, stripe_fields = _read_stripes(root, rules, report)
    sites = _read_sites(root)
    site_names = {site.name for site in sites}

    receiver_nodes = [_read_node(f, "receiver", site_names) for f in root.tables("receiver", "[[receiver]]")]
    server_nodes = [
        _read_node(f, "reformation server", site_names) for f in root.tables("reformation", "[[reformation]]")
    ]
    floor_nodes = [_read_node(f, "floor", site_names) for f in root.tables("floor", "[[floor]]")]
    receivers = tuple(ReceiverNode(node.name or "", _read_id(node), node.site or "") for node in receiver_nodes)
    servers = tuple(
        ReformationNode(node.name or "", _read_id(node), node.site or "", rank)
        for rank, node in enumerate(server_nodes)
    )
    floors = tuple(_read_floor(node, stripes) for node in floor_nodes)
    secondary_nodes = [_read_node(f, "secondary", site_names) for f in root.tables("secondary", "[[secondary]]")]
    nodes = [*receiver_nodes, *server_nodes, *floor_nodes, *secondary_nodes]
    ids = [r.id for r in receivers] + [s.id for s in servers] + [f.id for f in floors]
    ids += _secondary_ids(secondary_nodes, set(ids))
    _check_nodes(nodes, ids, report)
    _check_publishers(floor_nodes, floors, report)
    if not receivers and not _broken(root, "receiver"):
        report.add((), "there is no [[receiver]]: a ring needs at least one, and three to survive a failure")
    if not servers and not _broken(root, "reformation"):
        report.add((), "there is no [[reformation]] server: without one no ring is ever formed")

    links, links_at = _read_links(root, site_names)
    helpers = _read_helpers(root, site_names, {receiver.site for receiver in receivers})
    secondaries = _read_secondaries(secondary_nodes, ids[len(ids) - len(secondary_nodes) :], receivers, links, helpers)
    core, carriage, edge = _read_groups(root, len(stripes), _receiver_regions((*receivers, *secondaries), sites))
    status = _read_status(root, len(nodes) * len(stripes))
    tape = _read_tape(root)
    probe_ns = _read_probe(root)
    instruments = _read_instruments(root, floors)
    root.finish()
    for node in nodes:
        node.fields.finish()

    network = Network(
        title,
        sites,
        receivers,
        servers,
        floors,
        stripes,
        links,
        core,
        edge,
        status=status,
        tape=tape,
        carriage=carriage,
        instruments=instruments,
        secondaries=secondaries,
        helpers=helpers,
        probe_ns=probe_ns,
    )
    _check_links(network, site_names, report)
    if receivers and servers:
        for stripe, fields in zip(stripes, stripe_fields, strict=True):
            _check_timing(network, stripe, fields, timing_fields, links_at, report)
    return network


def _broken(root: Fields, key: str) -> bool:
    """Whether a key is there and was reported as no array of tables: then its absence is no news."""
    value = root.raw(key)
    return value is not None and value != []


# Sites and nodes


def _read_sites(root: Fields) -> tuple[Site, ...]:
    found: dict[str, Site] = {}
    tables = root.tables("site", "[[site]]")
    first_lines: dict[str, int] = {}
    for fields in tables:
        name = fields.name()
        if name is not None:
            fields.label = f'site "{name}"'
        site = Site(name or "", fields.text("city"), fields.text("region"))
        if name in found:
            fields.problem("name", f"is named twice; the first is on line {first_lines[name]}")
        elif name is not None:
            found[name] = site
            first_lines[name] = fields.report.line_of(fields.at("name"))
        fields.finish()
    if not tables and not _broken(root, "site"):
        root.report.add((), "there is no [[site]]: every node stands at one")
    return tuple(found.values())


def _read_node(fields: Fields, kind: str, site_names: set[str]) -> _Node:
    if kind == "floor":
        name = fields.name(pattern=_MARKET, expected='a market code of four capitals or digits, such as "XNYS"')
    else:
        name = fields.name()
    if name is not None:
        fields.label = f'{kind} "{name}"'
    site = fields.name("site")
    if site is not None and site not in site_names:
        hint = did_you_mean(site, site_names)
        fields.problem("site", f'stands at site "{site}", which no [[site]] names{hint}')
        site = None
    return _Node(fields, kind, name, site)


def _read_id(node: _Node) -> int:
    """The node's id; 0, which no node may have, where there is none."""
    if "id" not in node.fields:
        node.fields.raw("id")
        node.fields.problem("id", f"has no id: give it one of 1 to {_ID_LIMIT} that no other node has")
        return 0
    return node.fields.whole("id", 1, _ID_LIMIT) or 0


def _read_floor(node: _Node, stripes: tuple[Stripe, ...]) -> Floor:
    fields = node.fields
    if "publisher" not in fields:
        fields.problem("publisher", f"has no publisher: give its records a publisher id of 1 to {_ID_LIMIT}")
    publisher = fields.whole("publisher", 1, _ID_LIMIT) or 0
    stripe = fields.raw("stripe")
    stripe_names = [known.name for known in stripes]
    if stripe is None:
        stripe = stripe_names[0]
    elif stripe not in stripe_names:
        hint = did_you_mean(stripe, stripe_names)
        fields.problem("stripe", f"sends on stripe {show(stripe)}, which [stripes] does not name{hint}")
    source = fields.whole("id", 1, _ID_LIMIT) if "id" in fields else publisher
    fields.raw("id")
    symbols = fields.names("symbols", limit=70)
    return Floor(node.name or "", source or 0, publisher, node.site or "", str(stripe), symbols)


def _secondary_ids(nodes: list[_Node], taken: set[int]) -> list[int]:
    """An id of its own for each secondary: the one that it gives, or the lowest free one from `FIRST_SECONDARY` on."""
    given = [node.fields.whole("id", 1, _ID_LIMIT) if "id" in node.fields else None for node in nodes]
    taken = taken.union(id_ for id_ in given if id_ is not None)
    free = (id_ for id_ in count(FIRST_SECONDARY) if id_ not in taken)
    ids = []
    for node, id_ in zip(nodes, given, strict=True):
        node.fields.raw("id")
        ids.append(id_ or (0 if "id" in node.fields else next(free)))
    return ids


def _read_secondaries(
    nodes: list[_Node],
    ids: list[int],
    receivers: tuple[ReceiverNode, ...],
    links: Links | None,
    helpers: dict[str, tuple[str, ...]],
) -> tuple[SecondaryNode, ...]:
    names = [receiver.name for receiver in receivers]
    found = []
    for node, id_ in zip(nodes, ids, strict=True):
        home = node.fields.raw("home")
        if home is None:
            home = _nearest_home(node.site, receivers, links, helpers.get(node.site or "", ()))
        elif home not in names:
            hint = did_you_mean(home, names)
            node.fields.problem("home", f"has home {show(home)}, which no [[receiver]] names{hint}")
        found.append(SecondaryNode(node.name or "", id_, node.site or "", str(home)))
    for name in names:
        below = [node for node, each in zip(nodes, found, strict=True) if each.home == name]
        if len(below) > MAX_GROUP:
            below[MAX_GROUP].fields.problem("home", f'is number {MAX_GROUP + 1} below "{name}": it takes {MAX_GROUP}')
    return tuple(found)


def _nearest_home(
    site: str | None, receivers: tuple[ReceiverNode, ...], links: Links | None, helpers: tuple[str, ...]
) -> str:
    """The primary with the least delay; of equal ones one of the same site, then the first of the file.

    Where the site has helpers, one of its own comes first, then theirs in their order.
    """
    order = {name: place for place, name in enumerate((site, *helpers))} if helpers else {}

    def distance(receiver: ReceiverNode) -> tuple[int, float, bool]:
        link = links.between(site or "", receiver.site) if links is not None else None
        delay = 0 if links is None else inf if link is None else link.delay_ns
        return order.get(receiver.site, len(order)), delay, receiver.site != site

    return min(receivers, key=distance).name if receivers else ""


def _check_nodes(nodes: list[_Node], ids: list[int], report: ProblemReport) -> None:
    """Names and ids are each one namespace: `--name tokyo-1` and a datagram's sender must mean one node."""
    by_name: dict[str, _Node] = {}
    by_id: dict[int, _Node] = {}
    for node, id_ in zip(nodes, ids, strict=True):
        if node.name is not None:
            first = by_name.setdefault(node.name, node)
            if first is not node:
                line = report.line_of(first.fields.at("name"))
                node.fields.problem("name", f"has the name of the {first.kind} on line {line}")
        if id_:
            first = by_id.setdefault(id_, node)
            if first is not node:
                key = "id" if "id" in node.fields else "publisher"
                note = "" if key == "id" else ", which is its publisher because it has no id of its own"
                node.fields.problem(key, f"has id {id_}{note}; {first.fields.label} has it already")


def _check_publishers(nodes: list[_Node], floors: tuple[Floor, ...], report: ProblemReport) -> None:
    first_of: dict[int, _Node] = {}
    for node, floor in zip(nodes, floors, strict=True):
        first = first_of.setdefault(floor.publisher, node)
        if floor.publisher and first is not node:
            node.fields.problem("publisher", f"has publisher {floor.publisher}; {first.fields.label} has it already")


# Timing


def _read_timing(root: Fields) -> tuple[TimingRules, Fields | None]:
    fields = root.table("timing", "[timing]")
    if fields is None:
        return TimingRules(), None
    rules = _read_rules(fields, TimingRules())
    fields.finish()
    return rules, fields


def _read_stripes(
    root: Fields, rules: TimingRules, report: ProblemReport
) -> tuple[tuple[Stripe, ...], list[Fields | None]]:
    table = root.table("stripes", "[stripes]")
    named = table.subtables() if table is not None else []
    if not named:
        return (Stripe(DEFAULT_STRIPE, 0, rules),), [None]
    stripes = []
    for index, (name, fields) in enumerate(named):
        stripes.append(Stripe(name, index, _read_rules(fields, rules)))
        fields.finish()
    return tuple(stripes), [fields for _, fields in named]


def _read_rules(fields: Fields, base: TimingRules) -> TimingRules:
    """The keys of [timing], or of a stripe, which has the same ones to differ from [timing] in."""

    def either(value: int | None, otherwise: int) -> int:
        return otherwise if value is None else value

    return replace(
        base,
        mode=cast(Mode, fields.choice("mode", ("pipelined", "lockstep"), base.mode)),
        slot_ns=fields.duration("slot") or base.slot_ns,
        witness=_read_witness(fields, base.witness),
        late_ns=fields.duration("late") or base.late_ns,
        request_ns=fields.duration("request") or base.request_ns,
        attempts=fields.whole("attempts", 1, 1000) or base.attempts,
        hold_ns=fields.duration("hold") or base.hold_ns,
        clock_error_ns=either(fields.duration("clock_error", zero=True), base.clock_error_ns),
        transmit_ns=either(fields.duration("transmit", zero=True), base.transmit_ns),
        process_ns=either(fields.duration("process", zero=True), base.process_ns),
        nack_sets=_read_nack_sets(fields, base.nack_sets),
    )


def _read_nack_sets(fields: Fields, default: Nack) -> Nack:
    value = fields.raw("nack_sets")
    if value is None:
        return default
    if value == "tree":
        return "tree"
    if is_int(value) and 1 <= value <= MOST_SETS:
        return value
    if isinstance(value, list) and 1 <= len(value) <= MOST_SETS and all(is_int(size) and size >= 1 for size in value):
        return tuple(value)
    shown = str(value) if isinstance(value, list) and len(str(value)) <= 60 else show(value)
    fields.problem(
        "nack_sets",
        f"has nack_sets = {shown}: it must be a number of sets from 1 to {MOST_SETS}, the sizes of so many sets "
        f'such as [1, 2, 4], or "tree"{did_you_mean(value, ("tree",))}',
    )
    return default


def _read_witness(fields: Fields, default: Witness) -> Witness:
    value = fields.raw("witness")
    if value is None:
        return default
    if value == "majority":
        return "majority"
    if value == "all":
        return "all"
    if is_int(value) and 1 <= value <= _ID_LIMIT:
        return value
    hint = did_you_mean(value, ("majority", "all"))
    fields.problem(
        "witness", f'has witness = {show(value)}: it must be "majority", "all" or a number of receivers{hint}'
    )
    return default


def _check_timing(
    network: Network,
    stripe: Stripe,
    stripe_fields: Fields | None,
    timing_fields: Fields | None,
    links_at: dict[str, KeyPath],
    report: ProblemReport,
) -> None:
    """Rules 4, 5, 6 and 8: is there a timing, and does what was given agree with it?"""
    prefix = "" if stripe_fields is None else f'stripe "{stripe.name}": '

    def problem(key: str, message: str) -> None:
        where: KeyPath = ("timing", key)
        if stripe_fields is not None and (key in stripe_fields or timing_fields is None):
            where = stripe_fields.at(key)
        report.add(where, prefix + message)

    rules = stripe.rules
    sound = True
    if rules.mode == "pipelined" and rules.slot_ns is None:
        if not _given(("slot",), stripe_fields, timing_fields):
            problem("slot", '[timing] has no slot: a pipelined ring needs one, such as slot = "50ms"')
        sound = False
    if network.links is None and (rules.late_ns is None or rules.attempts is None):
        if not _given(("late", "attempts"), stripe_fields, timing_fields):
            problem(
                "late",
                "there is nothing to derive the timing from: give late and attempts in [timing], or [links]",
            )
        elif rules.late_ns is None and not _given(("late",), stripe_fields, timing_fields):
            problem("late", "[timing] has no late, and there are no [links] to derive it from")
        elif rules.attempts is None and not _given(("attempts",), stripe_fields, timing_fields):
            problem("attempts", "[timing] has no attempts, and there are no [links] to derive it from")
        sound = False
    path = network.path(stripe.name)
    if rules.attempts is None and path.loss_ratio > LOSS_LIMIT:
        report.add(
            links_at.get(path.loss_between, ("links", "loss")),
            f"{prefix}a loss of {path.loss_ratio:g} between {path.loss_between} is more than "
            f"{LOSS_LIMIT:g}: attempts (k_r) cannot be derived from it; give attempts in [timing]",
        )
        sound = False
    if not sound:
        return
    sets = rules.nack_sets
    receivers = len(network.receivers)
    if sets != "tree" and (asked := sets if isinstance(sets, int) else sum(sets)) > receivers:
        what = f"{asked} sets" if isinstance(sets, int) else f"sets of {asked} receivers"
        count = "is one" if receivers == 1 else f"are {receivers}"
        problem("nack_sets", f"nack_sets asks for {what}, and there {count}: each set needs a receiver (MS §5.2)")
    derived = network.derived(stripe.name)
    if derived.timing.request_ns == 0:
        problem("process", "request (τ_r) comes out as nothing: give [links] a delay or [timing] a process time")
    for field, message in contradictions(derived, network.shape(stripe.name)):
        problem(field, message)


def _given(keys: tuple[str, ...], *tables: Fields | None) -> bool:
    """Whether one of the keys stands in one of the tables, even if its value was refused."""
    return any(key in table for table in tables if table is not None for key in keys)


# Links and groups


def _read_links(root: Fields, site_names: set[str]) -> tuple[Links | None, dict[str, KeyPath]]:
    """The links, and where each pair's loss stands, by the pair's name in a message."""
    fields = root.table("links", "[links]")
    if fields is None:
        return None, {}
    delay_ns = fields.duration("delay", zero=True)
    base = Link(delay_ns or 0, fields.duration("jitter", zero=True) or 0, fields.ratio("loss") or 0.0)
    pairs: dict[tuple[str, str], Link] = {}
    loss_at: dict[str, KeyPath] = {}
    for pair in fields.tables("pairs", "[[links.pairs]]"):
        link = _read_link(pair, base, has_default="delay" in fields)
        ends = _read_ends(pair, site_names)
        if ends is not None and ends in pairs:
            pair.problem("between", f'joins "{ends[0]}" and "{ends[1]}", which another pair does already')
        elif ends is not None:
            pairs[ends] = link
            if "loss" in pair:
                between = f"nodes of {ends[0]}" if ends[0] == ends[1] else f"{ends[0]} and {ends[1]}"
                loss_at[between] = pair.at("loss")
        pair.finish()
    fields.finish()
    return Links(pairs, None if delay_ns is None else base), loss_at


def _read_link(pair: Fields, base: Link, *, has_default: bool) -> Link:
    delay_ns = pair.duration("delay", zero=True)
    jitter_ns = pair.duration("jitter", zero=True)
    loss_ratio = pair.ratio("loss")
    if "delay" not in pair and not has_default:
        pair.problem("delay", "has no delay, and [links] has no default delay")
    return Link(
        base.delay_ns if delay_ns is None else delay_ns,
        base.jitter_ns if jitter_ns is None else jitter_ns,
        base.loss_ratio if loss_ratio is None else loss_ratio,
        source=pair.report.file_of(pair.path),
    )


def _read_helpers(root: Fields, site_names: set[str], with_receivers: set[str]) -> dict[str, tuple[str, ...]]:
    """Per site, whom to ask for what is missing, best first."""
    fields = root.table("helpers", "[helpers]")
    if fields is None:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for site in fields.names_of_keys():
        if site not in site_names:
            fields.problem(site, f"is for site {show(site)}, which no [[site]] names{did_you_mean(site, site_names)}")
        named = fields.names(site, limit=64)
        for helper in named:
            if helper == site:
                fields.problem(site, f"names {show(site)} as its own helper: its own receivers come first anyway")
            elif helper not in with_receivers:
                hint = did_you_mean(helper, with_receivers)
                fields.problem(site, f"gives {show(site)} the helper {show(helper)}, where no receiver stands{hint}")
        found[site] = named
    fields.finish()
    return found


def _read_ends(pair: Fields, site_names: set[str]) -> tuple[str, str] | None:
    value = pair.raw("between")
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(end, str) for end in value):
        pair.problem("between", 'must have between = ["one site", "another"]')
        return None
    sound = True
    for end in value:
        if end not in site_names:
            hint = did_you_mean(end, site_names)
            pair.problem("between", f"joins site {show(end)}, which no [[site]] names{hint}")
            sound = False
    return (min(value), max(value)) if sound else None


def _check_links(network: Network, site_names: set[str], report: ProblemReport) -> None:
    """Every two sites whose nodes speak to each other need a link: in the core, and from floors to it."""
    if network.links is None or network.links.default is not None:
        return
    core = network.core_sites & site_names
    floors = {floor.site for floor in network.floors} & site_names
    wanted = set(combinations_with_replacement(sorted(core), 2))
    wanted |= {(min(a, b), max(a, b)) for a in floors for b in core}
    missing = [(a, b) for a, b in sorted(wanted) if network.links.between(a, b) is None]
    for a, b in missing:
        report.add(("links",), f'there is no link between "{a}" and "{b}": add a pair to [links], or a default delay')


def _receiver_regions(receivers: tuple[ReceiverNode | SecondaryNode, ...], sites: tuple[Site, ...]) -> set[str] | None:
    """The regions in which receivers stand; None while that is not known of each of them."""
    region_of = {site.name: site.region for site in sites}
    if any(receiver.site not in region_of for receiver in receivers):
        return None
    return {region_of[receiver.site] for receiver in receivers}


def _read_groups(root: Fields, stripes: int, regions: set[str] | None) -> tuple[MulticastGroup, Carriage, Edge]:
    core, carriage = DEFAULT_CORE, Carriage()
    core_fields = root.table("core", "[core]")
    if core_fields is not None:
        core = MulticastGroup(
            "core",
            core_fields.multicast("address") or core.address,
            core_fields.whole("port", 1, _ID_LIMIT + 1 - PORTS_PER_STRIPE * stripes) or core.port,
        )
        carriage = Carriage(
            core_fields.whole("packet", _LEAST_PACKET, _MOST_PACKET) or carriage.packet_bytes,
            core_fields.flag("trains", carriage.trains),
            core_fields.whole("credit", 1, MOST_CREDIT),
            core_fields.size("rate"),
        )
        core_fields.finish()
    edge_fields = root.table("edge", "[edge]")
    if edge_fields is None:
        return core, carriage, Edge()
    taken = {(core.address, core.port + index): "the core" for index in range(PORTS_PER_STRIPE * stripes)}
    names: set[str] = set()
    groups: list[MulticastGroup] = []
    for fields in edge_fields.tables("group", "[[edge.group]]"):
        group = _read_group(fields, regions)
        if group is not None:
            for address in (group.at(place).address for place in range(group.count)):
                if (address, group.port) in taken:
                    fields.problem("port", f"has the address and port of {taken[address, group.port]}")
                    break
                taken[address, group.port] = fields.label
            if group.name in names:
                fields.problem("name", "has the name of another group")
            names.add(group.name)
            twins = [
                each.name for each in groups if group.line and (each.region, each.line) == (group.region, group.line)
            ]
            if twins:
                fields.problem("line", f'is line "{group.line}" of its region, and so is edge group "{twins[0]}"')
            groups.append(group)
        fields.finish()
    watermark_ns = edge_fields.duration("watermark")
    ttl = edge_fields.whole("ttl", 1, 255)
    packet_bytes = edge_fields.whole("packet", _LEAST_PACKET, _MOST_PACKET)
    trains = edge_fields.flag("trains", Edge().trains)
    store_bytes = edge_fields.size("store")
    if store_bytes is not None and store_bytes < _LEAST_STORE:
        edge_fields.problem("store", f"keeps {store_bytes:,} bytes for customers who ask: 1MB is the least")
    edge_fields.finish()
    edge = Edge(
        tuple(groups),
        watermark_ns or Edge().watermark_ns,
        ttl or Edge().ttl,
        packet_bytes or Edge().packet_bytes,
        trains,
        store_bytes or Edge().store_bytes,
    )
    return core, carriage, edge


def _read_group(fields: Fields, regions: set[str] | None) -> MulticastGroup | None:
    name = fields.name()
    if name is not None:
        fields.label = f'edge group "{name}"'
    for key in ("address", "port"):
        if key not in fields:
            fields.problem(key, f"has no {key}")
    address, port = fields.multicast("address"), fields.whole("port", 1, _ID_LIMIT)
    region = fields.text("region") or None
    if region is not None and regions is not None and region not in regions:
        hint = did_you_mean(region, regions)
        fields.problem("region", f"is for region {show(region)}, where no receiver stands{hint}")
    line = fields.name("line") if "line" in fields else None
    ttl = fields.whole("ttl", 1, 255)
    block, rate_bytes = fields.whole("count", 1, _MOST_GROUPS) or 1, fields.bit_rate("rate")
    if address is not None and int(IPv4Address(address)) + block - 1 > _LAST_GROUP:
        fields.problem("count", f"has {block} groups from {address} on, and 239.255.255.255 is the last there is")
        block = 1
    if name is None or address is None or port is None:
        return None
    return MulticastGroup(name, address, port, region, line, ttl, block, rate_bytes)


# What a node tells, and what it keeps


def _read_status(root: Fields, nodes: int) -> Status | None:
    """TCP ports, one a node and stripe from the first on: they share nothing with the UDP ports of core and edge."""
    fields = root.table("status", "[status]")
    if fields is None:
        return None
    if "port" not in fields:
        fields.problem("port", "has no port: give the first node one, such as 32000, and the others take the next ones")
    port = fields.whole("port", 1, _ID_LIMIT + 1 - max(1, nodes))
    address = fields.address("address")
    fields.finish()
    return Status(port or 0, address or "127.0.0.1")


def _read_probe(root: Fields) -> int | None:
    fields = root.table("probe", "[probe]")
    if fields is None:
        return None
    every_ns = fields.duration("every")
    if "every" not in fields:
        fields.problem("every", 'has no every: say how often each node probes the others, such as every = "1s"')
    elif every_ns is not None and every_ns < _LEAST_PROBE_NS:
        fields.problem("every", f"probes every {show_ns(every_ns)}: {show_ns(_LEAST_PROBE_NS)} is the least")
    fields.finish()
    return every_ns


def _read_tape(root: Fields) -> Keeping:
    fields = root.table("tape", "[tape]")
    if fields is None:
        return Keeping()
    durable = cast(Durable, fields.choice("durable", ("process", "power"), Keeping().durable))
    segment = fields.whole("segment", 1_000, 1_000_000_000) or Keeping().segment_records
    keeping = Keeping(fields.size("keep_bytes"), fields.age("keep_age"), durable, segment)
    fields.finish()
    return keeping


# Instruments


def _read_instruments(root: Fields, floors: tuple[Floor, ...]) -> dict[str, int]:
    """Symbols with ids of their own; `levelcast.network.symbols` gives the others theirs."""
    fields = root.table("instruments", "[instruments]")
    if fields is None:
        return {}
    traded = {symbol for floor in floors for symbol in symbols_of(floor)}
    by_id: dict[int, str] = {}
    for symbol in fields.names_of_keys():
        number = fields.whole(symbol, 1, LARGEST_ID)
        if symbol not in traded:
            fields.problem(symbol, f"gives {show(symbol)} an id, and no floor trades it{did_you_mean(symbol, traded)}")
        elif number is not None and by_id.setdefault(number, symbol) != symbol:
            fields.problem(symbol, f"gives {show(symbol)} the id {number}; {show(by_id[number])} has it already")
    return {symbol: number for number, symbol in by_id.items()}
