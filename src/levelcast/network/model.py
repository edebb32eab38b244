"""Define the value of a network file: nodes, sites, links, and the derived timing.

Created by `levelcast.network.parse`, which checks everything; the methods here rely on that. Nothing here
opens a socket or reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from ipaddress import IPv4Address
from itertools import combinations, combinations_with_replacement
from math import ceil, inf
from typing import Any, Literal

from levelcast.network.hold_input import follows_from_pairs, hold_bound_ns, underivable
from levelcast.network.include import Included
from levelcast.network.roles import FLOOR, RECEIVER, REFORMATION, ROLES, SECONDARY, RoleKind
from levelcast.timing.copies import Copies
from levelcast.timing.derive import Derived, Explained, Given, Path, Shape, derive
from levelcast.timing.entry import EntryGiven, EntryPath, EntryTiming, derive_entry
from levelcast.timing.lines import primary_line_terms, secondary_line_terms
from levelcast.timing.nack_sets import NackSets, even_sets, tree_sets, tuned_sets
from levelcast.timing.rules import LATE_TARGET, BoundTerm, Mode, Timing, liveness_terms
from levelcast.timing.secondary import secondary_bound_ns

Witness = Literal["majority", "all"] | int
Durable = Literal["process", "power"]
Leap = Literal["stop", "smear"]
Transport = Literal["multicast", "unicast", "sites"]
"""Transport of the core: multicast; unicast to every node; or multicast within a site and unicast between sites."""
Nack = int | tuple[int, ...] | Literal["tree"]
"""Sets of receivers that send requests in turn: their number, their sizes, or the tree (MS §5.2)."""

PORTS_PER_STRIPE = 2
"""Control has priority (rule 17): packets use the port after that of tokens, requests and reformation."""
LOCAL_DELAY_NS = 100_000
"""Between two nodes of one site, if the file has no pair for it: two hosts and a switch."""


@dataclass(frozen=True, slots=True)
class Site:
    """A location of nodes."""

    name: str
    city: str
    region: str


@dataclass(frozen=True, slots=True)
class ReceiverNode:
    """A configured primary. Its index in `Network.receivers` is its position in the ring."""

    name: str
    id: int
    site: str


@dataclass(frozen=True, slots=True)
class SecondaryNode:
    """A receiver below a primary (rule 11). It is not in the ring: a member of the ring serves it."""

    name: str
    id: int
    site: str
    home: str
    """The assigned primary, which serves it unless it fails."""


@dataclass(frozen=True, slots=True)
class ReformationNode:
    """A server that forms rings (rule 12). Servers back off by rank: 0 is first."""

    name: str
    id: int
    site: str
    rank: int


@dataclass(frozen=True, slots=True)
class Floor:
    """A trading floor: a source of the ring. `name` is its market identifier code (ISO 10383)."""

    name: str
    id: int
    """The source id on the ring."""
    publisher: int
    """The `publisher_id` of its records."""
    site: str
    stripe: str
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GatewayNode:
    """A gateway of orders: a source of an order stripe, at the site of a receiver (MS §7.2)."""

    name: str
    id: int
    """The source id on the ring, and the `publisher_id` of its orders."""
    site: str
    stripe: str


AnyNode = ReceiverNode | SecondaryNode | ReformationNode | Floor
AnySource = Floor | GatewayNode


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node is reached, as far as the file has it; `levelcast.network.addresses` has the defaults."""

    host: str | None = None
    """Address or name at which nodes of other sites reach it."""
    bind: str | None = None
    """Its own address, where that differs from `host`; nodes of its site use it."""
    port: int | None = None
    """Its first UDP port."""


@dataclass(frozen=True, slots=True)
class Link:
    """Delay, jitter and loss between two sites, equal in both directions."""

    delay_ns: int
    """Minimum one-way delay of a packet."""
    jitter_ns: int = 0
    """Additional delay after which a packet counts as late."""
    loss_ratio: float = 0.0
    hops: int | None = None
    """Number of routers between the sites; None: not measured."""
    source: str = field(default="", compare=False)
    """The included file that has it; empty for the network file itself."""

    @property
    def quantile_ns(self) -> int:
        """The one-way delay that all but late packets meet."""
        return self.delay_ns + self.jitter_ns


@dataclass(frozen=True, slots=True)
class Links:
    """The links between sites. A pair that is not listed has the default, if any."""

    pairs: dict[tuple[str, str], Link]
    """Links by the two sites' names in alphabetical order."""
    default: Link | None = None

    def between(self, a: str, b: str) -> Link | None:
        """Return the link between two sites; within one site 100 µs without loss unless the file specifies it."""
        link = self.pairs.get((min(a, b), max(a, b)))
        if link is None and a == b:
            return Link(LOCAL_DELAY_NS)
        return link or self.default


@dataclass(frozen=True, slots=True)
class TimingRules:
    """Inputs of a stripe's timing: values set in the file, and values from which the others are derived."""

    mode: Mode = "pipelined"
    slot_ns: int | None = None
    witness: Witness = "majority"
    late_ns: int | None = None
    request_ns: int | None = None
    attempts: int | None = None
    hold_ns: int | None = None
    hold_auto: bool = False
    """The hold time follows what receivers measure; `hold_ns` is that of the start (rule W10)."""
    lengthen_after_ns: int = 60_000_000_000
    shorten_after_ns: int = 600_000_000_000
    clock_error_ns: int = 1_000_000
    transmit_ns: int = 0
    process_ns: int = 5_000_000
    nack_sets: Nack = 1
    late_target: float = LATE_TARGET
    scheduling_ns: int = 2_000_000
    asymmetry_ns: int = 3_000_000
    leap: Leap = "stop"
    redundancy: float = 1.0
    """Limit of the bytes sent, over those without additional copies (rule W11)."""
    copies: tuple[tuple[str, Copies], ...] = ()
    """Additional copies by receiver."""

    def witnesses(self, receivers: int) -> int:
        """Return w of rule 8 for this number of configured primaries."""
        if self.witness == "majority":
            return receivers // 2 + 1
        if self.witness == "all":
            return receivers
        return self.witness


@dataclass(frozen=True, slots=True)
class Stripe:
    """One ring over the same receivers, with its own order and timing (MS §4)."""

    name: str
    index: int
    rules: TimingRules


@dataclass(frozen=True, slots=True)
class MulticastGroup:
    """A multicast group."""

    name: str
    address: str
    port: int
    region: str | None = None
    """For an edge group: receivers of this region send to it; None: those of all regions."""
    line: str | None = None
    """For an edge group: one receiver at a time sends to it (`line_assignment`); None: all receivers of the region."""
    ttl: int | None = None
    """Number of networks that its packets may cross; None: the value of the edge."""
    count: int = 1
    """For an edge group: number of addresses in the block; a plan's group g has the address + g."""
    rate_bytes: int | None = None
    """For an edge group: capacity of the line to each address of the block in bytes/s; None: unlimited."""

    def at(self, place: int) -> MulticastGroup:
        """Return one group of the block."""
        return replace(self, address=str(IPv4Address(self.address) + place), count=1) if place else self


DEFAULT_CREDIT = 64
MOST_CREDIT = 65_536


@dataclass(frozen=True, slots=True)
class Carriage:
    """Parameters of packets in the core."""

    packet_bytes: int = 1_400
    """Maximum datagram in which a floor sends records."""
    trains: bool = True
    """Send consecutive datagrams together if the kernel supports it (segmentation offload)."""
    credit: int | None = None
    """W: maximum number of unwitnessed packets of a floor (rule 10); None: derived from `rate_bytes`."""
    rate_bytes: int | None = None
    """Rate at which one floor can publish, in bytes/s; None: the rate that `DEFAULT_CREDIT` allows."""

    def window(self, timing: Timing, witnesses: int) -> int:
        """Return W: the packets published at this rate in the time in which a packet is unwitnessed."""
        if self.credit is not None:
            return self.credit
        if self.rate_bytes is None:
            return DEFAULT_CREDIT
        packets = self.rate_bytes * timing.unwitnessed_ns(witnesses) / 1e9 / self.packet_bytes
        return min(MOST_CREDIT, max(DEFAULT_CREDIT, ceil(packets)))


LONGEST_TOGETHER_NS = 10_000_000_000
"""Limit of `together`: a subscriber keeps the records of this time."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Parameters of the feed to subscribers: groups, and the interval of watermarks (rule 15)."""

    groups: tuple[MulticastGroup, ...] = ()
    watermark_ns: int = 100_000_000
    together_ns: int | None = None
    """Subscribers deliver records this long after their release; None: as they arrive."""
    ttl: int = 1
    """Number of networks that a packet may cross, including the first."""
    packet_bytes: int = 1_400
    trains: bool = False
    """Off by default: a plain listener on the same machine and a capture must receive plain packets."""
    unicast: int = 0
    """Maximum number of registrations of subscribers without multicast, per receiver and stripe; 0: none."""
    unicast_rate_bytes: int = 12_500_000
    """Maximum rate in bytes/s of one receiver's copies for them, per stripe."""
    store_bytes: int = 64 << 20
    """Size of a receiver's store of sent packets for retransmission."""


@dataclass(frozen=True, slots=True)
class Status:
    """Addresses at which nodes serve status over HTTP: the first node at `port`, each further one at the next."""

    port: int
    address: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Keeping:
    """Storage of nodes: limits of the tape, and the durability of writes."""

    keep_bytes: int | None = None
    """Maximum size of a receiver's tape; None: unlimited."""
    keep_age_ns: int | None = None
    """Maximum age of a receiver's tape; None: unlimited."""
    durable: Durable = "process"
    """A write survives a crash of the process, or also a loss of power."""
    segment_records: int = 1_000_000
    """A segment of the tape ends where the sequence passes a multiple of this, equally at every receiver."""


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The authority's public key, and the paths of statement and private keys, relative to the network file."""

    authority: str
    statement: str = "network.keys.json"
    directory: str = "keys"


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Logs of nodes: the size at which a file is renamed, the number of renamed files, and whether JSON is written."""

    bytes: int = 10_000_000
    keep: int = 5
    json: bool = True


@dataclass(frozen=True, slots=True)
class Network:
    """The contents of `network.toml`.

    >>> from levelcast.network import five_cities, parse_network
    >>> network = parse_network(five_cities())
    >>> network.link("new-york", "london").delay_ns, network.witnesses()
    (35600000, 3)
    """

    name: str
    sites: tuple[Site, ...]
    receivers: tuple[ReceiverNode, ...]
    reformation: tuple[ReformationNode, ...]
    floors: tuple[Floor, ...]
    stripes: tuple[Stripe, ...]
    links: Links | None
    core: MulticastGroup
    edge: Edge
    status: Status | None = None
    tape: Keeping = Keeping()
    log: LogFiles = LogFiles()
    keys: KeyFiles | None = None
    """None: the network has no keys."""
    carriage: Carriage = Carriage()
    instruments: dict[str, int] = field(default_factory=dict)
    """Ids of symbols set in the file; `levelcast.network.symbols` has the ids of all symbols."""
    secondaries: tuple[SecondaryNode, ...] = ()
    helpers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Per site, the sites that repair fastest, best first (TT §4.2); sites without helpers use the delay."""
    included: tuple[Included, ...] = ()
    probe_ns: int | None = None
    """Interval at which every node probes the others; None: no probes."""
    given_id: int | None = None
    """Identifier set in the file."""
    transport: Transport = "multicast"
    operator: str | None = None
    """Address from which commands change a running network, with a transport other than multicast."""
    addresses: Mapping[str, NodeAddress] = field(default_factory=dict)
    """Addresses in the file, by node."""
    gateways: tuple[GatewayNode, ...] = ()
    """The first set of gateways of orders; later sets are records of the sequence."""
    entry: EntryGiven = field(default_factory=EntryGiven)
    """Numbers of fair order entry in the file."""
    uplinks: Mapping[str, int] = field(default_factory=dict)
    """Capacity of nodes for packets in bytes/s, without multicast; a node that is not in it has enough."""
    detours: bool = False
    """Packets for a receiver with a long path take a shorter detour, too, with a transport other than multicast."""

    @property
    def id(self) -> int:
        """The network identifier, in every core datagram and journal: nodes drop datagrams of other networks.

        Without one in the file it is a hash of the name and of the ids of receivers and reformation servers.
        """
        if self.given_id is not None:
            return self.given_id
        ids = sorted([*(each.id for each in self.receivers), *(each.id for each in self.reformation)])
        return int.from_bytes(sha256(f"{self.name}\n{ids}".encode()).digest()[:8], "big")

    def nodes_of(self, role: RoleKind) -> tuple[AnyNode, ...]:
        """Return the nodes of a role, in the file's order."""
        nodes: dict[RoleKind, tuple[AnyNode, ...]] = {
            RECEIVER: self.receivers,
            REFORMATION: self.reformation,
            FLOOR: self.floors,
            SECONDARY: self.secondaries,
        }
        return nodes[role]

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of all nodes, role by role, each in the file's order."""
        return tuple(node.name for role in ROLES for node in self.nodes_of(role))

    @property
    def releasing(self) -> tuple[ReceiverNode | SecondaryNode, ...]:
        """The receivers of both layers."""
        return (*self.receivers, *self.secondaries)

    def status_address(self, name: str, stripe: int | str | None = None) -> tuple[str, int] | None:
        """Return the status address of a node's part in a stripe; default: a floor's own stripe, else the first.

        None if the file has no [status]. Raise ValueError for an unknown name. Each stripe has as many ports as the
        file has nodes.
        """
        if self.status is None:
            return None
        names = self.node_names
        place = names.index(name)
        if stripe is None:
            stripe = next((floor.stripe for floor in self.floors if floor.name == name), 0)
        host = self.addresses.get(name, NodeAddress()).host or self.status.address
        return host, self.status.port + self.stripe(stripe).index * len(names) + place

    def status_listen_address(self, name: str, stripe: int | str | None = None) -> tuple[str, int] | None:
        """Return the address at which a node serves its status: its own one, if it has a `host`."""
        address = self.status_address(name, stripe)
        given = self.addresses.get(name, NodeAddress())
        if address is None or self.status is None or given.host is None:
            return address
        own = self.status.address if self.status.address != Status(1).address else given.bind or given.host
        return own, address[1]

    def stripe(self, stripe: int | str = 0) -> Stripe:
        """Return a stripe by its name or index. Raise KeyError if it is unknown."""
        for candidate in self.stripes:
            if stripe in (candidate.name, candidate.index):
                return candidate
        raise KeyError(stripe)

    def core_group(self, stripe: int | str = 0) -> MulticastGroup:
        """Return the multicast group of a stripe's ring: control at its port, packets at the next one."""
        found = self.stripe(stripe)
        port = self.core.port + PORTS_PER_STRIPE * found.index
        return MulticastGroup(found.name, self.core.address, port, ttl=self.core.ttl)

    def region_of(self, receiver: str) -> str:
        """Return the region of a receiver's or secondary's site. Raise KeyError if it is unknown."""
        sites = {site.name: site.region for site in self.sites}
        return {each.name: sites[each.site] for each in self.releasing}[receiver]

    def edge_groups_of(self, receiver: str) -> tuple[MulticastGroup, ...]:
        """Return the groups of a receiver's region; it sends only to lines assigned to it (`line_assignment`)."""
        return self.groups_of_region(self.region_of(receiver))

    def groups_of_region(self, region: str) -> tuple[MulticastGroup, ...]:
        """Return the groups that subscribers of a region may join: the region's own, and those of no region."""
        return tuple(group for group in self.edge.groups if group.region in (None, region))

    def link(self, site_a: str, site_b: str) -> Link:
        """Return the link between two sites; without delay and loss if the file has no links."""
        link = Link(0) if self.links is None else self.links.between(site_a, site_b)
        if link is None:
            raise KeyError((site_a, site_b))
        return link

    def distance_ns(self, site_a: str, site_b: str) -> float:
        """Return the one-way delay by which to sort sites: infinite for a missing link, 0 if the file has no links."""
        link = Link(0) if self.links is None else self.links.between(site_a, site_b)
        return inf if link is None else link.delay_ns

    def witnesses(self, stripe: int | str = 0) -> int:
        """Return w: the number of members that must confirm a slot before its release (rule 8)."""
        return self.stripe(stripe).rules.witnesses(len(self.receivers))

    def shape(self, stripe: int | str = 0) -> Shape:
        """Return the configured shape of the stripe's ring."""
        rules = self.stripe(stripe).rules
        return Shape(
            mode=rules.mode,
            slot_ns=rules.slot_ns,
            witnesses=self.witnesses(stripe),
            members=len(self.receivers),
            servers=len(self.reformation),
            layers=1 if self.secondaries else 0,
            nack_sets=nack.count if (nack := self.nack(stripe)) is not None else 1,
            late_target=rules.late_target,
        )

    @property
    def core_sites(self) -> frozenset[str]:
        """Sites of the nodes that listen to the core group and request missing data."""
        return frozenset(node.site for node in (*self.releasing, *self.reformation))

    def secondaries_of(self, primary: str) -> tuple[SecondaryNode, ...]:
        """Return the secondaries assigned to a primary."""
        return tuple(each for each in self.secondaries if each.home == primary)

    def nack(self, stripe: int | str = 0) -> NackSets | None:
        """Return the sets in which receivers send requests in turn (MS §5.2); None if all send immediately.

        A packet lost on the path to a region is assumed lost for all its receivers; a site without a region is one.
        """
        wanted = self.stripe(stripe).rules.nack_sets
        if wanted == "tree":
            branches = {site.name: site.region or site.name for site in self.sites}
            sets = tree_sets({receiver.id: branches.get(receiver.site, "") for receiver in self.receivers})
        else:
            sets = even_sets(wanted) if isinstance(wanted, int) else tuned_sets(wanted)
        return sets if sets.count > 1 else None

    def path(self, stripe: int | str = 0) -> Path:
        """Return the worst delay and loss of a message in the core.

        The core is receivers, secondaries and reformation servers: a floor far outside it lengthens the floor's own
        resending interval only, so that a ring in one city may serve a floor on the other side of the world.
        """
        rules = self.stripe(stripe).rules
        core = self.core_sites
        worst: dict[str, Any] = dict.fromkeys(("delay_between", "loss_between"), "members (the file has no links)")
        if self.links is not None:
            reach = [(source.site, r.site) for source in self.sources for r in self.receivers]
            worst["reach_ns"] = max((link.quantile_ns for _, link in known_links(self.links, reach)), default=0)
            links = list(known_links(self.links, combinations_with_replacement(sorted(core), 2)))
            if links:
                delay_between, slow = max(links, key=lambda named: named[1].quantile_ns)
                loss_between, lossy = max(links, key=lambda named: named[1].loss_ratio)
                apart = known_links(self.links, combinations(sorted(core), 2))
                if len(core) > 2 and all(link.loss_ratio == lossy.loss_ratio for _, link in apart):
                    loss_between = "any two sites"
                worst |= {"delay_ns": slow.quantile_ns, "delay_between": delay_between}
                worst |= {"loss_ratio": lossy.loss_ratio, "loss_between": loss_between}
        return Path(
            **{"delay_ns": 0, "loss_ratio": 0.0} | worst,
            clock_error_ns=rules.clock_error_ns,
            transmit_ns=rules.transmit_ns,
            process_ns=rules.process_ns,
        )

    def nearness(self, site: str) -> Callable[[str], tuple[float, float]]:
        """Return a key that sorts sites for requests from `site`: its own, the helpers, the others by delay."""
        helpers = self.helpers.get(site, ())
        order = {name: place for place, name in enumerate((site, *helpers))} if helpers else {}
        return lambda other: (order.get(other, len(order)), self.distance_ns(site, other))

    def derived(self, stripe: int | str = 0, *, bound: bool = True) -> Derived:
        """Return the stripe's timing with the rule for each number; without `bound`, rule 6 bounds the hold time.

        The bound takes seconds if there are many receivers.
        """
        rules = self.stripe(stripe).rules
        given = Given(rules.late_ns, rules.request_ns, rules.attempts, rules.hold_ns)
        derived = derive(self.path(stripe), self.shape(stripe), given)
        if not follows_from_pairs(self, stripe):
            return derived
        bound_ns = derived.rule_6_ns
        if bound and underivable(self, stripe) is None:
            bound_ns = hold_bound_ns(self, stripe, bound_ns)
        return derive(self.path(stripe), self.shape(stripe), replace(given, bound_ns=bound_ns))

    def with_holds(self, holds: Mapping[str, int | None]) -> Network:
        """Return the network with these hold times of stripes, in ns; None: it has none, and a bound is used."""
        stripes = tuple(
            replace(each, rules=replace(each.rules, hold_ns=holds[each.name])) if each.name in holds else each
            for each in self.stripes
        )
        return replace(self, stripes=stripes)

    def timing(self, stripe: int | str = 0) -> Timing:
        """Return the stripe's timing."""
        return self.derived(stripe, bound=self.stripe(stripe).rules.hold_ns is None).timing

    def explain(self, stripe: int | str = 0) -> list[Explained]:
        """Return every number of the stripe's timing, with its rule and its reason."""
        return list(self.derived(stripe).explained)

    @property
    def sources(self) -> tuple[AnySource, ...]:
        """Return floors and gateways: the sources of all rings."""
        return (*self.floors, *self.gateways)

    @property
    def order_stripes(self) -> tuple[str, ...]:
        """Return the stripes on which gateways send, in the order of the file."""
        used = {gateway.stripe for gateway in self.gateways}
        return tuple(stripe.name for stripe in self.stripes if stripe.name in used)

    def entry_path(self, stripe: int | str = 0) -> EntryPath:
        """Return the properties of the sites on which fair order entry depends."""
        sites = sorted({node.site for node in (*self.releasing, *self.gateways)})
        pairs = list(known_links(self.links, combinations(sites, 2))) if self.links is not None else []
        between, link = min(pairs, key=lambda named: named[1].delay_ns, default=("two sites", Link(0)))
        clock_error_ns = self.stripe(stripe).rules.clock_error_ns
        return EntryPath(link.delay_ns, between, len(self.receivers), clock_error_ns)

    def entry_timing(self, stripe: int | str = 0, *, bound: bool = True) -> EntryTiming:
        """Return the numbers of fair order entry on a stripe; `bound` as in `derived`."""
        timing = self.timing(stripe) if bound else self.derived(stripe, bound=False).timing
        return derive_entry(timing, self.entry_path(stripe), self.entry)

    def line_terms(self, stripe: int | str = 0) -> dict[str, list[BoundTerm]]:
        """Return the terms of the time until the line of a failed receiver moves, by its layer; {} without lines."""
        if not any(group.line is not None for group in self.edge.groups):
            return {}
        timing, servers = self.timing(stripe), len(self.reformation)
        terms = {"primary": primary_line_terms(timing, len(self.receivers), servers)}
        return terms | ({"secondary": secondary_line_terms(timing, servers)} if self.secondaries else {})

    def liveness(self, stripe: int | str = 0) -> list[BoundTerm]:
        """Return the terms of the bound on the time to release everything once faults stop."""
        timing, servers = self.timing(stripe), len(self.reformation)
        terms = liveness_terms(timing, len(self.receivers), servers)
        if self.secondaries:
            bound_ns = secondary_bound_ns(timing, servers)
            terms.append(BoundTerm("secondaries have a primary and catch up", bound_ns, "groups are formed (rule 11)"))
        return terms


def known_links(links: Links, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Link]]:
    """Yield the existing links between pairs of sites, each with its name in messages."""
    for a, b in pairs:
        if (link := links.between(a, b)) is not None:
            yield name_of_pair(a, b), link


def name_of_pair(a: str, b: str) -> str:
    """Return the name of a pair of sites in messages."""
    return f"nodes of {a}" if a == b else f"{a} and {b}"
