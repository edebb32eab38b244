"""Corosync's closed process groups (CPG): total order over three nodes, by the Totem ring that Levelcast resembles.

Three daemons, each in a network namespace of its own, on one bridge; beside each a client (see `corosync.c`). One
client sends, all three deliver. Namespaces, links and the bridge belong to the processes and vanish with them, and
nothing of the machine's own network is touched.

    hub      a network namespace with the bridge
    node i   a network namespace with eth0 on the bridge (10.77.0.i), and its own /dev/shm, /run and /var/lib/corosync,
             where daemon and library leave what would collide

Tuning: frames as large as the interface carries; windows as large as the manual allows. No real-time priority: it
would starve everything else on a small machine, the clients first.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, cast

from benchmarks.peers.machine import (
    KSOFTIRQD,
    RECORD_BYTES,
    Failed,
    Load,
    Missing,
    PeerResult,
    compiled,
    cpu_seconds,
    load_beside,
    percentiles,
    records_in,
    started,
)

SOURCE = Path(__file__).with_name("corosync.c")
PACKAGES = "corosync libcpg-dev libcorosync-common-dev"
NODES = 3
LIGHT_RATE = 500
"""Messages a second for the delay at light load."""
HEAD_BYTES = 24
"""What the client needs of a message for itself: see `corosync.c`."""
_FORM_S = 15.0
_FORM_TRIES = 5
_APART_S = 0.3
"""Between the starts of two daemons, so that one has its ring before the next one comes."""
_TUNNEL_BYTES = 100
"""What Levelcast leaves free of the MTU: 1,400 of 1,500, 8,900 of 9,000."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How the daemons are configured."""

    transport: str = "udp"
    mtu: int = 1_500
    encrypted: bool = False

    @property
    def name(self) -> str:
        return f"{self.transport}{' encrypted' if self.encrypted else ''}, MTU {self.mtu:,}"

    @property
    def packed_records(self) -> int:
        """As many records as Levelcast puts into a datagram at this MTU."""
        return records_in(self.mtu - _TUNNEL_BYTES)


SETTINGS = (
    Setting("udp", 1_500),
    Setting("udp", 9_000),
    Setting("knet", 1_500, encrypted=True),
    Setting("knet", 9_000, encrypted=True),
)


class Told(TypedDict):
    """What a client prints: see `corosync.c`."""

    messages: int
    total: int
    gaps: int
    begun_ns: int
    ended_ns: int
    cpu_s: float
    refused: int
    delays_us: list[int]


def config(setting: Setting, folder: Path, node: int) -> str:
    """The text of corosync.conf for one node."""
    # The manual's largest window, and its limit for one visit of the token, which is there for UDP's kernel buffers.
    burst = 256_000 // (setting.mtu if setting.transport == "udp" else 1_500)
    totem = [
        "version: 2",
        "cluster_name: levelcast-peer",
        f"transport: {setting.transport}",
        "window_size: 300",
        f"max_messages: {burst}",
        f"crypto_cipher: {'aes256' if setting.encrypted else 'none'}",
        f"crypto_hash: {'sha256' if setting.encrypted else 'none'}",
    ]
    if setting.encrypted:
        totem.append(f"keyfile: {folder / 'authkey'}")
    if setting.transport == "udp":
        totem.append(f"netmtu: {setting.mtu}")
        totem.append(
            "interface {\n ringnumber: 0\n bindnetaddr: 10.77.0.0\n mcastaddr: 239.255.77.1\n mcastport: 5405\n}"
        )
    else:
        totem.append(f"knet_mtu: {setting.mtu}")
    nodes = [f"node {{\n ring0_addr: 10.77.0.{i}\n nodeid: {i}\n name: node{i}\n}}" for i in range(1, NODES + 1)]
    logging = ["to_stderr: no", "to_syslog: no", "to_logfile: yes", f"logfile: {folder / f'node{node}.log'}"]
    sections = {
        "totem": totem,
        "nodelist": nodes,
        "logging": logging,
        "system": ["sched_rr: no", "move_to_root_cgroup: no"],
    }
    return "".join(f"{name} {{\n{chr(10).join(lines)}\n}}\n" for name, lines in sections.items())


def check() -> None:
    """Raise `Missing` unless everything is here that a cluster needs."""
    if os.geteuid() != 0:
        raise Missing("Corosync in network namespaces needs root")
    tools = dict.fromkeys(("unshare", "nsenter", "setpriv"), "util-linux")
    for program, package in {"corosync": PACKAGES, "ip": "iproute2", **tools}.items():
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed: apt-get install {package}")


# ---------------------------------------------------------------------------------------------------------
# The cluster


_NODE = """set -e
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mkdir -p /var/lib/corosync
mount -t tmpfs tmpfs /var/lib/corosync
ip link set lo up
echo here
read -r _
exec corosync -f -c "$1"
"""
_HUB = """set -e
ip link add hub type bridge mcast_snooping 0
ip link set hub mtu "$1" up
echo here
read -r _
"""


class Cluster:
    """Three daemons that have formed a ring; made by `cluster`."""

    def __init__(self, setting: Setting, program: Path, folder: Path, daemons: Sequence[int]) -> None:
        self.setting = setting
        self.daemons = tuple(daemons)
        self._program = program
        self._folder = folder
        self._runs = 0

    def measure(self, records: int = 1, seconds: float = 2.0, record_bytes: int = RECORD_BYTES) -> PeerResult:
        """One client sends messages of so many records as fast as its daemon takes them."""
        size = records * record_bytes
        told, daemon_s, load = self._run(size, seconds, 0)
        case = f"{self.setting.name}, {records} record{'s' if records > 1 else ''} a message"
        return result_of(told, case, records, size, daemon_s, load)

    def delay_us(self, seconds: float = 2.0, rate: float = LIGHT_RATE) -> dict[str, float] | None:
        """From send to delivery, over all nodes, of messages of one record at a light load."""
        told, _, _ = self._run(RECORD_BYTES, seconds, rate)
        return percentiles(delay for each in told for delay in each["delays_us"])

    def form(self) -> None:
        """Wait until a group of clients at all nodes can be made; `Failed` if it takes too long."""
        with ExitStack() as stack:
            self._clients(stack, RECORD_BYTES, 1.0, 0)

    def _clients(self, stack: ExitStack, size: int, seconds: float, rate: float) -> list[subprocess.Popen[str]]:
        """A client at each node, the sender first, in a group of their own that is complete."""
        self._runs += 1
        words = [f"run{self._runs}", *map(str, (NODES, size, seconds, rate))]
        clients = [
            stack.enter_context(started([*_inside(pid), self._program, "receive" if i else "send", *words]))
            for i, pid in enumerate(self.daemons)
        ]
        for client in clients:
            _expect(client, "ready", _FORM_S, self._no_ring)
        return clients

    def _no_ring(self, why: str) -> Failed:
        logs = sorted(self._folder.glob("*.log"))
        lines = [line for log in logs for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
        return Failed(f"the daemons formed no ring: {why}{f' (the log ends: {lines[-1]})' if lines else ''}")

    def _run(self, size: int, seconds: float, rate: float) -> tuple[list[Told], list[float], Load]:
        """What the clients told, the sender first; the CPU seconds of the daemons; the load beside."""
        if size < HEAD_BYTES:
            raise ValueError(f"a message has at least {HEAD_BYTES} bytes, not {size}")
        with ExitStack() as stack:
            clients = self._clients(stack, size, seconds, rate)
            before = [cpu_seconds(pid) for pid in self.daemons]
            with load_beside(self.daemons) as load:
                told = [_told(client, "" if i else "go\n", seconds + 30) for i, client in enumerate(clients)]
            used = [cpu_seconds(pid) - cpu for pid, cpu in zip(self.daemons, before, strict=True)]
        return told, used, load


@contextmanager
def cluster(setting: Setting) -> Iterator[Cluster]:
    """A ring of three daemons; everything is gone after the block."""
    check()
    with compiled(SOURCE, "cpg", "pthread", needs=f"gcc libc6-dev {PACKAGES}") as program:
        for tries_left in reversed(range(_FORM_TRIES)):
            with ExitStack() as stack:
                ring = Cluster(setting, program, *_daemons(setting, stack))
                try:
                    ring.form()
                except Failed:
                    # Now and then a daemon aborts when its first rings merge: corosync issue 371, still open in 3.1.7.
                    if tries_left:
                        continue
                    raise
                yield ring
                return


def _daemons(setting: Setting, stack: ExitStack) -> tuple[Path, list[int]]:
    """The folder with their files and the process ids of the daemons, which last as long as `stack`."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="levelcast-corosync-")))
    _write_key(folder / "authkey")
    hub = stack.enter_context(started([*_apart("--net"), _HUB, "sh", str(setting.mtu)]))
    _expect(hub, "here", 10, _no_namespaces)
    pids = []
    for i in range(1, NODES + 1):
        file = folder / f"node{i}.conf"
        file.write_text(config(setting, folder, i), encoding="utf-8")
        node = stack.enter_context(started([*_apart("--net", "--mount"), _NODE, "sh", file]))
        _expect(node, "here", 10, _no_namespaces)
        _link(hub.pid, node.pid, i, setting.mtu)
        assert node.stdin is not None
        node.stdin.write("go\n")  # the shell becomes the daemon, with the same process id
        node.stdin.flush()
        time.sleep(_APART_S)
        pids.append(node.pid)
    return folder, pids


def run(
    setting: Setting = SETTINGS[0], seconds: float = 2.0, records: int | None = None, *, delay: bool = True
) -> PeerResult:
    """A fresh cluster, one run: packed messages unless `records` a message are named, and the delay at light load."""
    with cluster(setting) as ring:
        delay_us = ring.delay_us(seconds) if delay else None
        return replace(ring.measure(records or setting.packed_records, seconds), delay_us=delay_us)


def run_all(seconds: float = 2.0, settings: Iterable[Setting] = SETTINGS) -> Iterator[PeerResult]:
    """Every setting: one record a message, as people use it, and packed as Levelcast packs."""
    for setting in settings:
        with cluster(setting) as ring:
            delay_us = ring.delay_us(seconds)
            for records in (1, setting.packed_records):
                yield replace(ring.measure(records, seconds), delay_us=delay_us)


def result_of(
    told: Sequence[Told], case: str, records_per_message: int, size: int, daemon_s: Sequence[float], load: Load
) -> PeerResult:
    """The result that the clients' lines tell, the sender's first."""
    delivered = tuple(each["messages"] for each in told)
    begun_ns, ended_ns = told[0]["begun_ns"], max(each["ended_ns"] for each in told)
    cpu = {f"daemon {i}": used for i, used in enumerate(daemon_s, 1)}
    cpu |= {f"client {i}": each["cpu_s"] for i, each in enumerate(told, 1)}
    gaps = sum(each["gaps"] for each in told)
    return PeerResult(
        name="Corosync",
        case=case,
        seconds=(ended_ns - begun_ns) / 1e9,
        datagrams=told[0]["total"],
        delivered=delivered,
        records=min(delivered) * records_per_message,
        bytes=min(delivered) * size,
        cpu_seconds={**cpu, KSOFTIRQD: load.ksoftirqd_s},
        other_load=load.other_load,
        stolen_load=load.stolen_load,
        notes=(f"clients saw {gaps} gaps",) if gaps else (),
    )


# ---------------------------------------------------------------------------------------------------------
# Processes and namespaces


def _apart(*spaces: str) -> list[str]:
    """A shell in namespaces of its own that dies with this process; the script and its arguments follow."""
    return ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "sh", "-c"]


def _inside(pid: int) -> list[str]:
    """A program in the namespaces of a node."""
    return ["setpriv", "--pdeathsig", "KILL", "nsenter", "--target", str(pid), "--net", "--mount"]


def _link(hub: int, node: int, number: int, mtu: int) -> None:
    """eth0 of a node, on the hub's bridge."""
    port = f"node{number}"
    in_hub, in_node = ["nsenter", "--target", str(hub), "--net"], ["nsenter", "--target", str(node), "--net"]
    for command in (
        [*in_hub, "ip", "link", "add", port, "mtu", str(mtu), "type", "veth", "peer", "eth0", "netns", str(node)],
        [*in_hub, "ip", "link", "set", port, "master", "hub", "up"],
        [*in_node, "ip", "link", "set", "eth0", "mtu", str(mtu), "up"],
        [*in_node, "ip", "address", "add", f"10.77.0.{number}/24", "dev", "eth0"],
        [*in_node, "ip", "route", "add", "224.0.0.0/4", "dev", "eth0"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        if done.returncode:
            raise _no_namespaces(done.stderr.strip())


def _write_key(file: Path) -> None:
    file.touch(mode=0o400)
    file.write_bytes(secrets.token_bytes(256))


def _expect(process: subprocess.Popen[str], word: str, patience_s: float, wrong: Callable[[str], Exception]) -> None:
    """Wait for a line; if another comes or none, raise what `wrong` makes of the process's last words."""
    assert process.stdout is not None
    assert process.stderr is not None
    ready, _, _ = select.select([process.stdout], [], [], patience_s)
    if ready and process.stdout.readline().strip() == word:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    raise wrong(process.stderr.read().strip() or f"nothing happened within {patience_s:.0f} s")


def _no_namespaces(why: str) -> Missing:
    return Missing(f"no network of namespaces can be made here: {why}")


def _told(client: subprocess.Popen[str], say: str, patience_s: float) -> Told:
    try:
        out, errors = client.communicate(say, timeout=patience_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"a client of Corosync did not end within {patience_s:.0f} s") from None
    if client.returncode:
        raise Failed(f"a client of Corosync failed: {errors.strip() or client.returncode}")
    return cast(Told, json.loads(out))
