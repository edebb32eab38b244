"""Networks without multicast between sites, each node in a network namespace: nothing is lost, and all tapes are equal.

The interfaces have no multicast, except inside the sites that use it, so that the nodes reach each other by unicast
alone. Delay and loss of the links are those of the driver.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from benchmarks.namespaces import Namespaces, NoNamespaces, address_of
from levelcast.cli.network_file.hold import missing_holds
from levelcast.network import FiveCities, five_cities, load_network, parse_network
from levelcast.node.cluster import Cluster, ClusterRun
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import ClusterVerdict, check_floors, judge
from tests.network_parts import TWO_FLOORS, three_rooms

pytestmark = pytest.mark.campaign
BOUND_S, SETTLED_S = 60.0, 2.0
MORE = "".join(
    f'[[receiver]]\nname = "{site}-{n}"\nid = {number}{n}\nsite = "{site}"\n'
    for number, site in ((11, "a"), (12, "b"))
    for n in (2, 3)
)
"""Two more receivers at two sites."""


@contextmanager
def namespaces(names: Sequence[str]) -> Iterator[Namespaces]:
    try:
        with Namespaces(names) as wires:
            yield wires
    except NoNamespaces as error:
        pytest.skip(str(error))


def hosted(text: str, transport: str) -> str:
    """Return the file with a host for each node, the address of its namespace, and without edge groups."""
    text = re.sub(r"\[\[edge\.group\]\]\n(?:[a-z]+ = .*\n)+", "", text)
    text = text.replace("[core]\n", f'[core]\ntransport = "{transport}"\n')
    for number, name in enumerate(parse_network(text).node_names, 1):
        named = f'name = "{name}"\n'
        assert text.count(named) == 1
        text = text.replace(named, f'{named}host = "{address_of(number)}"\n')
    return text


def perform(
    directory: Path,
    text: str,
    run_s: float | None,
    rate: float,
    prepare: Callable[[Namespaces, list[str]], None],
    victims: Sequence[str] = (),
    meddle: Callable[[Cluster, Namespaces], Iterator[bool]] | None = None,
) -> ClusterVerdict:
    """Run a network in namespaces, and compare the tapes at the end.

    Without `run_s`, `meddle` runs until it yields True; by default it kills victims in turn.
    """
    file, data = directory / "network.toml", directory / "data"
    file.write_text(text, encoding="utf-8")
    network = load_network(file)
    holds = missing_holds(network, quiet=True)
    network = network.with_holds(holds)
    with ExitStack() as stack:
        wires = stack.enter_context(namespaces(network.node_names))
        prepare(wires, list(network.node_names))
        options = NodeOptions(rate=rate, run_ns=None if run_s is None else int(run_s * 1e9), impair=True)
        cluster = Cluster(network, file, data, options, lambda place: wires.launch(place.name), holds=holds)
        run = ClusterRun(cluster, run_s, BOUND_S)
        meddling = kill_in_turn(cluster, victims) if meddle is None else meddle(cluster, wires)
        for _ in run.steps():
            if run_s is None and run.phase == "running":
                run.interrupted = next(meddling, True)
        assert [cluster.members[name].kills for name in set(victims)] == [victims.count(n) for n in set(victims)]
    verdict = judge(data, [member.place.part for member in cluster.releasing], run.problems)
    check_floors(cluster, network.stripes[0].name, verdict)
    for member in cluster.members.values():
        print(
            member.place.part,
            {
                key: member.status.get(key)
                for key in ("state", "datagrams_in", "datagrams_out", "unknown_address", "late", "requests", "detours")
            },
        )
    late = {each.name: f"{each.late} of {each.records} records" for each in verdict.receivers}
    print("hold", network.timing().hold_ns, "late", late, "latency", verdict.latency_ns, "spread", verdict.spread_ns)
    assert verdict.problems == []
    assert len({each.chain for each in verdict.receivers}) == 1
    statuses = [member.status for member in cluster.members.values()]
    assert all(status["unknown_peer"] == status["unknown_address"] == 0 for status in statuses)
    return verdict


def kill_in_turn(cluster: Cluster, victims: Sequence[str]) -> Iterator[bool]:
    """Kill each victim when all receivers are in the ring, and start it a second later; yield False until done."""
    limit_s = cluster.elapsed_s + 60.0 * (len(victims) + 1)
    for victim in (*victims, None):
        ready_s = cluster.elapsed_s + SETTLED_S
        while cluster.elapsed_s < ready_s or any(each.status.get("state") != "ACTIVE" for each in cluster.releasing):
            assert cluster.elapsed_s < limit_s, f"not all receivers are in the ring again, before {victim} is killed"
            yield False
        if victim is not None:
            cluster.kill(victim)
            down_until_s = cluster.elapsed_s + 1.0
            while cluster.elapsed_s < down_until_s:
                yield False
            cluster.start(victim)


def without_multicast(wires: Namespaces, names: list[str]) -> None:
    for number in range(1, len(names) + 1):
        command = ["ip", "-n", f"{wires.tag}-{number}", "link", "set", "eth0", "multicast", "off"]
        subprocess.run(command, check=True)


def with_multicast_route(wires: Namespaces, names: list[str]) -> None:
    for number in range(1, len(names) + 1):
        command = ["ip", "-n", f"{wires.tag}-{number}", "route", "add", "224.0.0.0/4", "dev", "eth0"]
        subprocess.run(command, check=True)


def test_five_cities_by_unicast_alone_lose_nothing_at_5_percent_loss(tmp_path: Path) -> None:
    text = five_cities(FiveCities(loss_ratio=0.05, hold=None, scheduling="100ms"))
    verdict = perform(tmp_path, hosted(text, "unicast"), 60.0, 5_000, without_multicast)
    assert all(each.records > 5_000 * 50 for each in verdict.receivers)


def rooms(transport: str) -> str:
    return hosted(three_rooms(TWO_FLOORS + MORE), transport)


def test_sites_of_three_receivers_multicast_inside(tmp_path: Path) -> None:
    perform(tmp_path, rooms("sites"), 20.0, 1_000, with_multicast_route)


def test_a_forwarder_is_killed_ten_times(tmp_path: Path) -> None:
    perform(tmp_path, rooms("sites"), None, 500, with_multicast_route, ["a-1"] * 10)


def test_every_site_of_the_token_is_killed_twice(tmp_path: Path) -> None:
    names = ["new-york-1", "london-1", "frankfurt-1", "tokyo-1", "sydney-1"]
    text = five_cities(FiveCities(nearer=5.0, hold=None, scheduling="100ms", slot="20ms"))
    perform(tmp_path, hosted(text, "unicast"), None, 500, without_multicast, names * 2)


CUT_S = 15.0
"""Time for which a path is cut: a cut is noticed after 5 s at most."""


def cut_between(one: str, other: str) -> Callable[[Cluster, Namespaces], Iterator[bool]]:
    """Cut the path between two nodes in both directions, once all are in the ring: frames go to no interface."""

    def cut(cluster: Cluster, wires: Namespaces) -> Iterator[bool]:
        numbers = {name: number for number, name in enumerate(cluster.network.node_names, 1)}
        ready_s = cluster.elapsed_s + SETTLED_S
        while cluster.elapsed_s < ready_s or any(each.status.get("state") != "ACTIVE" for each in cluster.releasing):
            assert cluster.elapsed_s < ready_s + 60.0
            yield False
        for here, there in ((one, other), (other, one)):
            nobody = ["lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "eth0"]
            command = ["ip", "-n", f"{wires.tag}-{numbers[here]}", "neigh", "replace", address_of(numbers[there])]
            subprocess.run([*command, *nobody], check=True)
        until_s = cluster.elapsed_s + CUT_S
        while cluster.elapsed_s < until_s:
            yield False
        detours = {each.place.name: each.status["detours"] for each in cluster.releasing}
        print("copies over detours", detours)
        assert sum(detours.values()) > 50
        assert detours[one] == detours[other] == 0

    return cut


def test_a_cut_path_has_a_detour(tmp_path: Path) -> None:
    text = five_cities(FiveCities(nearer=5.0, hold=None, scheduling="100ms", slot="20ms"))
    meddle = cut_between("london-1", "tokyo-1")
    perform(tmp_path, hosted(text, "unicast"), None, 500, without_multicast, meddle=meddle)


ROUTER = """
import socket, struct, sys, time
group, near, far = sys.argv[1], sys.argv[2], sys.argv[3]
router = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
router.setsockopt(socket.IPPROTO_IP, 200, 1)  # MRT_INIT
for vif, own in enumerate(("10.78.1.1", "10.78.2.1")):
    interface = struct.pack("HBBI4s4s", vif, 0, 1, 0, socket.inet_aton(own), bytes(4))
    router.setsockopt(socket.IPPROTO_IP, 202, interface)  # MRT_ADD_VIF
for vif, origin in enumerate((near, far)):
    ttls = bytes(1 if each == 1 - vif else 0 for each in range(32))
    entry = struct.pack("4s4sH32sIIIi", socket.inet_aton(origin), socket.inet_aton(group), vif, ttls, 0, 0, 0, 0)
    router.setsockopt(socket.IPPROTO_IP, 204, entry)  # MRT_ADD_MFC
print("routing", flush=True)
time.sleep(3600)
"""


@contextmanager
def routed(tag: str, group: str) -> Iterator[dict[str, tuple[str, str]]]:
    """Two namespaces with a router between them that forwards the group; by site: the namespace and its address."""
    here, sites = f"{tag}-r", {"a": (f"{tag}-a", "10.78.1.2"), "b": (f"{tag}-b", "10.78.2.2")}
    commands = [["ip", "netns", "add", here]]
    for number, (space, address) in enumerate(sites.values(), 1):
        gateway = f"10.78.{number}.1"
        wire = ["ip", "link", "add", f"r{number}", "netns", here, "type", "veth"]
        commands += [
            ["ip", "netns", "add", space],
            [*wire, "peer", "name", "eth0", "netns", space],
            ["ip", "-n", here, "address", "add", f"{gateway}/24", "dev", f"r{number}"],
            ["ip", "-n", here, "link", "set", f"r{number}", "up"],
            ["ip", "-n", space, "address", "add", f"{address}/24", "dev", "eth0"],
            ["ip", "-n", space, "link", "set", "lo", "up"],
            ["ip", "-n", space, "link", "set", "eth0", "up"],
            ["ip", "-n", space, "route", "add", "default", "via", gateway],
            ["ip", "-n", space, "route", "add", "224.0.0.0/4", "dev", "eth0"],
        ]
    forward = ["ip", "netns", "exec", here]
    for name in ("ip_forward", "conf.all.mc_forwarding"):
        commands.append([*forward, "sh", "-c", f"echo 1 > /proc/sys/net/ipv4/{name.replace('.', '/')} || true"])
    router = None
    try:
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
        near, far = (address for _, address in sites.values())
        command = [*forward, sys.executable, "-c", ROUTER, group, near, far]
        router = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert router.stdout is not None
        assert router.stdout.readline() == "routing\n"
        yield sites
    finally:
        if router is not None:
            router.kill()
            router.wait()
        for space in (here, *(space for space, _ in sites.values())):
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)


@pytest.mark.parametrize("ttl", [1, 4])
def test_multicast_crosses_a_router_if_ttl_allows_it(ttl: int, tmp_path: Path) -> None:
    text = three_rooms(TWO_FLOORS).replace('site = "c"', 'site = "b"').replace("[core]\n", f"[core]\nttl = {ttl}\n")
    file, data = tmp_path / "network.toml", tmp_path / "data"
    file.write_text(text, encoding="utf-8")
    network = load_network(file)
    with routed(f"lvm{ttl}", network.core.address) as sites:

        def launch(place: object) -> tuple[list[str], list[str]]:
            space, address = sites[place.site]  # type: ignore[attr-defined]
            return ["ip", "netns", "exec", space], ["--interface", address]

        cluster = Cluster(network, file, data, NodeOptions(rate=500, run_ns=8_000_000_000), launch)
        run = ClusterRun(cluster, 8.0, 10.0)
        for _ in run.steps():
            pass
    verdict = judge(data, [member.place.part for member in cluster.releasing], run.problems)
    records = {each.name: each.records for each in verdict.receivers}
    if ttl == 1:
        assert records["a-1"] == 0  # alone, it is no majority
        return
    assert verdict.problems == []
    assert len(set(records.values())) == 1
    assert records["a-1"] > 1_000
