"""[[receiver]], [[reformation]], [[floor]], [[secondary]] and [instruments]: the nodes, and the floors' symbols."""

from __future__ import annotations

import re
from itertools import count
from math import inf
from typing import NamedTuple

from levelcast.network.fields import Fields, ProblemReport, did_you_mean, show
from levelcast.network.model import Floor, Links, ReceiverNode, ReformationNode, SecondaryNode, Stripe
from levelcast.network.sections.draft import ID_LIMIT, Draft, broken
from levelcast.network.symbols import LARGEST_ID, symbols_of
from levelcast.wire.group_codec import MAX_GROUP

FIRST_SECONDARY = 1001
"""Where the ids begin that secondaries get which give none."""
_MARKET = re.compile(r"[A-Z0-9]{4}", re.ASCII)


class _Node(NamedTuple):
    """What the kinds of nodes have in common, as far as it could be read."""

    fields: Fields
    kind: str
    name: str | None
    site: str | None


def read(root: Fields, draft: Draft) -> None:
    """Read all nodes; names and ids are checked over all kinds."""
    report, network = draft.report, draft.network

    def nodes_of(key: str, kind: str) -> list[_Node]:
        return [_read_node(fields, kind, draft.site_names) for fields in root.tables(key, f"[[{key}]]")]

    receiver_nodes, server_nodes = nodes_of("receiver", "receiver"), nodes_of("reformation", "reformation server")
    floor_nodes, secondary_nodes = nodes_of("floor", "floor"), nodes_of("secondary", "secondary")
    receivers = tuple(ReceiverNode(node.name or "", _read_id(node), node.site or "") for node in receiver_nodes)
    servers = tuple(
        ReformationNode(node.name or "", _read_id(node), node.site or "", rank)
        for rank, node in enumerate(server_nodes)
    )
    floors = tuple(_read_floor(node, network.stripes) for node in floor_nodes)
    ids = [*(each.id for each in receivers), *(each.id for each in servers), *(each.id for each in floors)]
    secondary_ids = _secondary_ids(secondary_nodes, set(ids))
    nodes = [*receiver_nodes, *server_nodes, *floor_nodes, *secondary_nodes]
    _check_nodes(nodes, ids + secondary_ids, report)
    _check_publishers(floor_nodes, floors)
    if not receivers and not broken(root, "receiver"):
        report.add((), "there is no [[receiver]]: a ring needs at least one, and three to survive a failure")
    if not servers and not broken(root, "reformation"):
        report.add((), "there is no [[reformation]] server: without one no ring is ever formed")
    draft.add(
        receivers=receivers,
        reformation=servers,
        floors=floors,
        secondaries=_read_secondaries(secondary_nodes, secondary_ids, receivers, network.links, network.helpers),
        instruments=_read_instruments(root, floors),
    )
    for node in nodes:
        node.fields.finish()


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
        node.fields.problem("id", f"has no id: give it one of 1 to {ID_LIMIT} that no other node has")
        return 0
    return node.fields.whole("id", 1, ID_LIMIT) or 0


def _read_floor(node: _Node, stripes: tuple[Stripe, ...]) -> Floor:
    fields = node.fields
    if "publisher" not in fields:
        fields.problem("publisher", f"has no publisher: give its records a publisher id of 1 to {ID_LIMIT}")
    publisher = fields.whole("publisher", 1, ID_LIMIT) or 0
    stripe = fields.raw("stripe")
    stripe_names = [known.name for known in stripes]
    if stripe is None:
        stripe = stripe_names[0]
    elif stripe not in stripe_names:
        hint = did_you_mean(stripe, stripe_names)
        fields.problem("stripe", f"sends on stripe {show(stripe)}, which [stripes] does not name{hint}")
    source = fields.whole("id", 1, ID_LIMIT) if "id" in fields else publisher
    fields.raw("id")
    symbols = fields.names("symbols", limit=70)
    return Floor(node.name or "", source or 0, publisher, node.site or "", str(stripe), symbols)


def _secondary_ids(nodes: list[_Node], taken: set[int]) -> list[int]:
    """An id of its own for each secondary: the one that it gives, or the lowest free one from `FIRST_SECONDARY` on."""
    given = [node.fields.whole("id", 1, ID_LIMIT) if "id" in node.fields else None for node in nodes]
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


def _check_publishers(nodes: list[_Node], floors: tuple[Floor, ...]) -> None:
    first_of: dict[int, _Node] = {}
    for node, floor in zip(nodes, floors, strict=True):
        first = first_of.setdefault(floor.publisher, node)
        if floor.publisher and first is not node:
            node.fields.problem("publisher", f"has publisher {floor.publisher}; {first.fields.label} has it already")


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
