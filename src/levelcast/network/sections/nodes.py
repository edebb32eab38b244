"""[[receiver]], [[reformation]], [[floor]], [[secondary]] and [instruments]: the nodes, and the floors' symbols."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

from levelcast.network.addresses import PORTS_PER_NODE, address_clashes, ports_on_loopback
from levelcast.network.fields import Fields, ProblemReport, did_you_mean, show
from levelcast.network.keys import NONE, FileKey, FileTable
from levelcast.network.model import (
    AnyNode,
    Floor,
    Network,
    NodeAddress,
    ReceiverNode,
    ReformationNode,
    SecondaryNode,
    Stripe,
)
from levelcast.network.packet_routes import packet_routes
from levelcast.network.sections.draft import ID_LIMIT, Draft
from levelcast.network.symbols import LARGEST_ID, symbols_of
from levelcast.timing.packet_tree import NoTreeError
from levelcast.units import show_rate
from levelcast.wire.group_codec import MAX_GROUP
from levelcast.wire.membership import MAX_MEMBERS

FIRST_SECONDARY = 1001
"""First id of secondaries without an id in the file."""
_MARKET = re.compile(r"[A-Z0-9]{4}", re.ASCII)

_NODE = (
    FileKey("name", "its name, unique among all nodes"),
    FileKey("id", "its id, unique among all nodes"),
    FileKey("site", "its location"),
)
_ADDRESS = (
    FileKey("host", "IPv4 address or name at which nodes of other sites reach it ([cloud.md](cloud.md))", "127.0.0.1"),
    FileKey("bind", "its own address, where that differs, as behind address translation", "its `host`"),
    FileKey(
        "port",
        f"first of its {PORTS_PER_NODE} ports: control, packets, packets to forward, edge; each further stripe uses "
        f"the next {PORTS_PER_NODE}",
        "by its position in the file, from `port` of `[core]` on",
        "port",
    ),
)
_UPLINK = FileKey(
    "uplink",
    'capacity for packets of floors, with transport `"unicast"` and `rate` in `[core]`; where it is too small for one '
    "copy to each receiver, packets take a tree ([cloud.md](cloud.md#uplinks))",
    "enough",
    "rate in bit/s",
)
TABLES: tuple[FileTable, ...] = (
    FileTable("[[receiver]]", (*_NODE, *_ADDRESS, _UPLINK), f"a primary; from 1 to {MAX_MEMBERS} of them"),
    FileTable(
        "[[secondary]]",
        (
            _NODE[0],
            FileKey("id", "its id, unique among all nodes", f"lowest free id from {FIRST_SECONDARY}"),
            _NODE[2],
            FileKey(
                "home",
                f"assigned primary; at most {MAX_GROUP} secondaries per primary",
                "nearest by `[links]`; if equal, one at its site, then the first",
                "name of a receiver",
            ),
            *_ADDRESS,
        ),
        "a receiver below a primary (rule 11)",
    ),
    FileTable(
        "[[reformation]]", (*_NODE, *_ADDRESS), "a reformation server; at least one. The first one listed acts first"
    ),
    FileTable(
        "[[floor]]",
        (
            FileKey("name", "market code"),
            FileKey("publisher", "`publisher_id` of its records"),
            FileKey("id", "its id on the ring", "its publisher"),
            _NODE[2],
            FileKey("stripe", "its stripe", "the first", "name of a stripe"),
            FileKey("symbols", "symbols traded there", NONE),
            *_ADDRESS,
            _UPLINK,
        ),
    ),
    FileTable(
        "[instruments]",
        (FileKey("a symbol", "its `instrument_id`", "lowest free id", f"integer from 1 to {LARGEST_ID}"),),
    ),
)

K = TypeVar("K")


class _Node(NamedTuple):
    """Common fields of all kinds of nodes, as far as they could be read."""

    fields: Fields
    kind: str
    name: str | None
    site: str | None
    address: NodeAddress


def read(root: Fields, draft: Draft) -> None:
    """Read all nodes; names and ids are checked over all kinds."""
    sites = draft.site_names
    need_receiver = "[[receiver]] is missing; a ring needs at least one, and three to survive a failure"
    need_server = "[[reformation]] is missing; without a server no ring can be formed"
    market = (_MARKET, 'a market code of four capitals or digits, such as "XNYS"')
    receiver_nodes = [_read_node(fields, "receiver", sites) for fields in root.tables("receiver", need_receiver)]
    if len(receiver_nodes) > MAX_MEMBERS:  # no disk could be replaced: its record lists all receivers
        receiver_nodes[MAX_MEMBERS].fields.problem(
            "name", f"exceeds the maximum of {MAX_MEMBERS} receivers; make it and those after it secondaries"
        )
    server_nodes = [
        _read_node(fields, "reformation server", sites) for fields in root.tables("reformation", need_server)
    ]
    floor_nodes = [_read_node(fields, "floor", sites, *market) for fields in root.tables("floor")]
    secondary_nodes = [_read_node(fields, "secondary", sites) for fields in root.tables("secondary")]
    receivers = tuple(ReceiverNode(node.name or "", _read_id(node), node.site or "") for node in receiver_nodes)
    servers = tuple(
        ReformationNode(node.name or "", _read_id(node), node.site or "", rank)
        for rank, node in enumerate(server_nodes)
    )
    floors = tuple(_read_floor(node, draft.network.stripes) for node in floor_nodes)
    draft.add(receivers=receivers, reformation=servers, floors=floors, instruments=_read_instruments(root, floors))
    named: tuple[AnyNode, ...] = (*receivers, *servers, *floors)
    ids = [each.id for each in named]
    ids += (secondary_ids := _secondary_ids(secondary_nodes, set(ids)))
    nodes = [*receiver_nodes, *server_nodes, *floor_nodes, *secondary_nodes]
    _check_nodes(nodes, ids, draft.report)
    draft.add(addresses={node.name: node.address for node in nodes if node.name and node.address != NodeAddress()})
    uplinks = {node.name: node.fields.bit_rate("uplink") for node in (*receiver_nodes, *floor_nodes)}
    draft.add(uplinks={name: uplink for name, uplink in uplinks.items() if name and uplink})
    draft.check_later(partial(_check_uplinks, draft, {node.name: node.fields for node in nodes if node.name}))
    draft.check_later(partial(_check_addresses, draft, {node.name: node.fields for node in nodes if node.name}))
    for node, first, number in _repeated((floor.publisher for floor in floors), floor_nodes):
        node.fields.problem("publisher", f"has publisher {number}, which {first.fields.label} already has")
    draft.add(secondaries=_read_secondaries(secondary_nodes, secondary_ids, draft.network))


def _read_node(fields: Fields, kind: str, site_names: set[str], *name_rule: Any) -> _Node:
    """Read name and site; `name_rule` is a pattern for the name, and its description."""
    name = fields.own_name(kind, *name_rule)
    site = fields.name("site")
    if site is not None and site not in site_names:
        hint = did_you_mean(site, site_names)
        fields.problem("site", f'is at site "{site}", which is not defined in a [[site]]{hint}')
        site = None
    last_port = ID_LIMIT + 1 - PORTS_PER_NODE
    address = NodeAddress(fields.host("host"), fields.address("bind"), fields.whole("port", 1, last_port))
    return _Node(fields, kind, name, site, address)


def _read_id(node: _Node) -> int:
    """Return the node's id; 0, which is never valid, if it is missing."""
    missing = f"has no id; set a unique id from 1 to {ID_LIMIT}"
    return node.fields.whole("id", 1, ID_LIMIT, missing) or 0


def _read_floor(node: _Node, stripes: tuple[Stripe, ...]) -> Floor:
    fields = node.fields
    missing = f"has no publisher; set the publisher id of its records, from 1 to {ID_LIMIT}"
    publisher = fields.whole("publisher", 1, ID_LIMIT, missing) or 0
    stripe = fields.raw("stripe")
    stripe_names = [known.name for known in stripes]
    if stripe is None:
        stripe = stripe_names[0]
    elif stripe not in stripe_names:
        hint = did_you_mean(stripe, stripe_names)
        fields.problem("stripe", f"sends on stripe {show(stripe)}, which is not defined in [stripes]{hint}")
    source = fields.whole("id", 1, ID_LIMIT) or (0 if "id" in fields else publisher)
    symbols = fields.names("symbols", limit=70)
    return Floor(node.name or "", source, publisher, node.site or "", str(stripe), symbols)


def _secondary_ids(nodes: list[_Node], taken: set[int]) -> list[int]:
    """Return a unique id for each secondary: the one in the file, or the lowest free one from `FIRST_SECONDARY` on."""
    given = [node.fields.whole("id", 1, ID_LIMIT) for node in nodes]
    free = (id_ for id_ in count(FIRST_SECONDARY) if id_ not in taken.union(given))
    return [id_ or (0 if "id" in node.fields else next(free)) for node, id_ in zip(nodes, given, strict=True)]


def _read_secondaries(nodes: list[_Node], ids: list[int], network: Network) -> tuple[SecondaryNode, ...]:
    names = [receiver.name for receiver in network.receivers]
    found = []
    for node, id_ in zip(nodes, ids, strict=True):
        home = node.fields.raw("home")
        if home is None:
            home = _nearest_home(node.site or "", network)
        elif home not in names:
            hint = did_you_mean(home, names)
            node.fields.problem("home", f"has `home` {show(home)}, which is not defined in a [[receiver]]{hint}")
        found.append(SecondaryNode(node.name or "", id_, node.site or "", str(home)))
    for name in names:
        below = [node for node, each in zip(nodes, found, strict=True) if each.home == name]
        if len(below) > MAX_GROUP:
            below[MAX_GROUP].fields.problem("home", f'exceeds the maximum of {MAX_GROUP} secondaries of "{name}"')
    return tuple(found)


def _nearest_home(site: str, network: Network) -> str:
    """Return the primary with the minimum delay; of equal ones, one of the same site, then the first of the file.

    If the site has helpers, a primary of the site itself is first, then those of the helpers in their order.
    """
    nearness = network.nearness(site)
    homes = sorted(network.receivers, key=lambda each: (*nearness(each.site), each.site != site))
    return homes[0].name if homes else ""


def _repeated(keys: Iterable[K], nodes: list[_Node]) -> Iterator[tuple[_Node, _Node, K]]:
    """Yield each node with the key of an earlier node, that earlier node, and the key."""
    first_of: dict[K, _Node] = {}
    for key, node in zip(keys, nodes, strict=True):
        if key and (first := first_of.setdefault(key, node)) is not node:
            yield node, first, key


def _check_nodes(nodes: list[_Node], ids: list[int], report: ProblemReport) -> None:
    """Check that names and ids are unique: `--name tokyo-1` and a datagram's sender must identify one node."""
    for node, first, _ in _repeated((node.name for node in nodes), nodes):
        line = report.line_of(first.fields.at("name"))
        node.fields.problem("name", f"has the same name as the {first.kind} on line {line}")
    for node, first, id_ in _repeated(ids, nodes):
        key = "id" if "id" in node.fields else "publisher"
        note = "" if key == "id" else " (its publisher, because it has no id of its own)"
        node.fields.problem(key, f"has id {id_}{note}, which {first.fields.label} already has")


def _check_addresses(draft: Draft, fields_of: Mapping[str, Fields]) -> None:
    """Check that all nodes have a host if one has, that no two have one address, and that all ports exist."""
    network = draft.network
    if draft.report.problems or (network.transport == "multicast" and not network.edge.unicast):
        return
    hosted = next((name for name, each in network.addresses.items() if each.host), None)
    for name, fields in fields_of.items():
        if hosted is not None and network.addresses.get(name, NodeAddress()).host is None:
            fields.problem("host", f'has no host, but "{hosted}" has one; set the host at which other nodes reach it')
    for clash in address_clashes(network):
        fields = fields_of[clash.second]
        where, first = f"{clash.host} port {clash.port}", fields_of[clash.first].label
        key = "port" if "port" in fields else "host"
        fields.problem(key, f"uses {where}, which {first} uses too; give each node a host or ports of its own")
    if network.core.port + ports_on_loopback(network) > ID_LIMIT + 1:
        need = ports_on_loopback(network)
        draft.report.add(("core", "port"), f"[core] port must leave {need} ports for all nodes, up to {ID_LIMIT}")


def _check_uplinks(draft: Draft, fields_of: Mapping[str, Fields]) -> None:
    """Check that packets can be sent within the uplinks."""
    network = draft.network
    first = next(iter(network.uplinks), None)
    if draft.report.problems or first is None:
        return
    if network.transport != "unicast":
        fields_of[first].problem("uplink", f'needs transport = "unicast" in [core], not "{network.transport}"')
        return
    rate = network.carriage.rate_bytes
    if rate is None:
        fields_of[first].problem("uplink", "needs `rate` in [core]: the maximum rate of one floor per second")
        return
    try:
        packet_routes(network)
    except NoTreeError as error:
        floor = next(each for each in network.floors if each.id == error.root)
        copies = f"{error.needed} copies of {show_rate(rate)}"
        fields_of[floor.name].problem(
            "uplink",
            f"has packets for which the uplinks fit no tree: they need {copies}, and there is room for {error.room}; "
            "raise an uplink, or lower `rate` in [core]",
        )


def _read_instruments(root: Fields, floors: tuple[Floor, ...]) -> dict[str, int]:
    """Return the symbols with ids in the file; `levelcast.network.symbols` assigns the other ids."""
    fields = root.table("instruments")
    traded = {symbol for floor in floors for symbol in symbols_of(floor)}
    by_id: dict[int, str] = {}
    for symbol in fields.names_of_keys():
        number = fields.whole(symbol, 1, LARGEST_ID)
        if symbol not in traded:
            fields.problem(symbol, f"has an id for {show(symbol)}, which no floor trades{did_you_mean(symbol, traded)}")
        elif number is not None and by_id.setdefault(number, symbol) != symbol:
            fields.problem(symbol, f"has the id {number} for {show(symbol)}, which {show(by_id[number])} already has")
    return {symbol: number for number, symbol in by_id.items()}
