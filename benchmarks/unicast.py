"""Measure a core without multicast: CPU and datagrams of a member with 5 and 21 members, and records/s to 4 sites.

    python -m benchmarks unicast

Every node is a real process on loopback, without added loss or delay; multicast and unicast take turns. The rings are
those of `benchmarks.beats`: two cores cannot run 21 members on schedule, so slots and β of the large ring are
stretched, and its members do the same work less often. The rate is that of one floor with a receiver at its site and
one at each of 4 others, which publishes as fast as the ring witnesses. Packets have the default size of the transport.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import levelcast
from benchmarks.beats import FLOOR_NAME, FORM_S, Cost, member_cost, network_text
from benchmarks.report import Cell, Figure, Options, Result, Table, tell
from benchmarks.roles import Trader
from benchmarks.room import free_ports
from benchmarks.way import wait_for
from levelcast.network import Network, load_network
from levelcast.network.addresses import on_loopback
from levelcast.network.roles import FLOOR, RECEIVER, REFORMATION
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions
from levelcast.runtime.core_sockets import free_loopback_port

RINGS, QUICK_RINGS = ((5, 1), (21, 8)), ((3, 1),)
"""Members, and the factor by which slots and β are longer."""
TRANSPORTS = ("multicast", "unicast")
ROUNDS = 2
RATE = 5_000.0
SITES = 5
RATE_S, QUICK_RATE_S, WARM_S = 5.0, 1.0, 2.0
QUEUE_RECORDS = 100_000


def run(options: Options) -> Result:
    """Measure both transports in turn."""
    rounds = 1 if options.quick else ROUNDS
    result = Result("unicast")
    costs: dict[tuple[int, int, str, str], list[Cost]] = {}
    rates: dict[str, list[float]] = {each: [] for each in TRANSPORTS}
    for _ in range(rounds):
        for members, stretch in QUICK_RINGS if options.quick else RINGS:
            for transport in TRANSPORTS:
                for load, cost in _measure_cost(members, stretch, transport, options).items():
                    costs.setdefault((members, stretch, load, transport), []).append(cost)
                    tell(f"unicast: {members} members, {transport}, {load}: {1e3 * cost.cores:.0f} ms/s")
        for transport in TRANSPORTS:
            rates[transport].append(_measure_rate(transport, options))
            tell(f"unicast: {transport}: {rates[transport][-1]:,.0f} records/s")
    result.tables.append(_table(costs, rounds))
    for (members, stretch, load, transport), runs in costs.items():
        if transport == "unicast":
            by_multicast = costs[members, stretch, load, "multicast"]
            name = f"a member, {members} members, {load}"
            ours, theirs = (1e3 * median(each.cores for each in some) for some in (runs, by_multicast))
            result.figures.append(Figure(f"{name}: CPU", ours, "ms/s", "multicast", theirs))
            ours, theirs = (median(each.sent for each in some) for some in (runs, by_multicast))
            result.figures.append(Figure(f"{name}: datagrams sent", ours, "/s", "multicast", theirs))
    ours, theirs = (median(rates[each]) for each in ("unicast", "multicast"))
    result.figures.append(Figure(f"one floor to {SITES - 1} other sites", ours, "records/s", "multicast", theirs))
    return result


def _table(costs: dict[tuple[int, int, str, str], list[Cost]], rounds: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for (members, stretch, load, transport), runs in sorted(costs.items()):
        cores = f"{1e3 * median(each.cores for each in runs):.1f}"
        datagrams = (f"{median(values):,.0f}" for values in zip(*(each[1:] for each in runs), strict=True))
        rows.append((members, stretch, load, transport, cores, *datagrams))
    columns = ("members", "stretch", "load", "transport", "CPU, ms/s", "datagrams/s sent", "received")
    return Table(f"a member, median of {rounds} run{'s' if rounds > 1 else ''}", columns, rows)


@contextmanager
def ring(members: int, stretch: int, transport: str, rate: float) -> Iterator[tuple[Cluster, Network]]:
    """Start a ring without its floor."""
    with tempfile.TemporaryDirectory(prefix="levelcast-bench-") as temporary, ExitStack() as running:
        file = Path(temporary) / "network.toml"
        text = network_text(members, stretch, free_ports()).replace("[core]\n", f'[core]\ntransport = "{transport}"\n')
        file.write_text(text, encoding="utf-8")
        network = load_network(file)
        port = None
        if transport != "multicast":
            port = free_loopback_port(network)
            network = on_loopback(network, port)
        cluster = Cluster(network, file, Path(temporary) / "data", NodeOptions(rate=rate), loopback_port=port)
        running.callback(cluster.stop)
        cluster.start_all(RECEIVER, REFORMATION)
        receivers = cluster.of_role(RECEIVER)
        wait_for("forming a ring", lambda: all(each.status.get("state") == "ACTIVE" for each in receivers), FORM_S)
        yield cluster, network


def _measure_cost(members: int, stretch: int, transport: str, options: Options) -> dict[str, Cost]:
    with ring(members, stretch, transport, RATE) as (cluster, _):
        receivers = cluster.of_role(RECEIVER)
        costs = {"idle": member_cost(receivers, options)}
        if stretch == 1:
            (floor,) = cluster.of_role(FLOOR)
            cluster.start_all(FLOOR)
            wait_for("starting the floor", lambda: bool(floor.status.get("datagrams_out")), FORM_S)
            costs[f"{RATE:,.0f} records/s"] = member_cost(receivers, options)
        return costs


def _measure_rate(transport: str, options: Options) -> float:
    """Return the records/s that all tapes will have, at the maximum rate of one floor."""
    with ring(3 if options.quick else SITES, 1, transport, RATE) as (_, network):
        floor = levelcast.Publisher(network, FLOOR_NAME, queue_records=QUEUE_RECORDS)
        try:
            trader = Trader(floor, network.carriage.packet_bytes, None)
            _publish_for(floor, trader, WARM_S)
            begun, before = time.monotonic(), floor.witnessed
            _publish_for(floor, trader, QUICK_RATE_S if options.quick else RATE_S)
            return (floor.witnessed - before) / (time.monotonic() - begun)
        finally:
            floor.close()


def _publish_for(floor: levelcast.Publisher, trader: Trader, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        trader.made += floor.publish(trader.due(), timeout=max(0.0, until - time.monotonic()))
