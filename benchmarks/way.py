"""The whole way as processes: a floor that sends, three receivers in a ring, a customer of each; started and watched.

Every process is a real one, over real multicast on loopback. Used by `throughput` and `soak`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks.processes import cpu_s
from benchmarks.room import free_ports
from levelcast.cli.keys.create import create_keys
from levelcast.native.layout import AES_GCM_SIZE, CRC32_SIZE
from levelcast.network import Network, load_network
from levelcast.network.roles import FLOOR, RECEIVER
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions as NodeOptions
from levelcast.records import TRADE
from levelcast.wire.packets import DATA_OVERHEAD

SETTLE_S = 20.0
"""How long a ring may take to form, and to drain at the end."""
NAMES = "abc"
SYMBOLS = tuple(f"S{number:02}" for number in range(1, 51))
"""The instruments of the floor."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    core_bytes: int
    edge_bytes: int
    trains: bool
    keys: bool = False

    @property
    def records(self) -> int:
        """64-byte records in a core packet."""
        overhead = DATA_OVERHEAD + (AES_GCM_SIZE - CRC32_SIZE if self.keys else 0)
        return (self.core_bytes - overhead) // TRADE.itemsize


@dataclass(slots=True)
class Speaker:
    """A process that tells what it does in JSON lines."""

    process: subprocess.Popen[str]
    said: dict[str, Any] = field(default_factory=dict)

    def listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                try:
                    self.said = json.loads(line)
                except ValueError:
                    continue


def listed(symbols: Iterable[str]) -> str:
    """Symbols as an array of the network file."""
    return "[" + ", ".join(f'"{symbol}"' for symbol in symbols) + "]"


def network_text(case: Case, port: int, more: str = "") -> str:
    """Three receivers in three regions of one machine, δ_N and Δ_A by the rules."""
    flag = "true" if case.trains else "false"
    sites = "".join(f'[[site]]\nname = "{name}"\nregion = "{name}"\n' for name in NAMES)
    receivers = "".join(
        f'[[receiver]]\nname = "{name}-1"\nid = {101 + i}\nsite = "{name}"\n' for i, name in enumerate(NAMES)
    )
    groups = "".join(
        f'[[edge.group]]\nname = "{name}"\naddress = "239.192.75.{i + 1}"\nport = {port + 1 + i}\nregion = "{name}"\n'
        for i, name in enumerate(NAMES)
    )
    return f"""\
[network]
name = "throughput"
[timing]
slot = "5ms"
clock_error = "100us"
process = "4ms"
[links]
delay = "200us"
jitter = "2ms"
{sites}{receivers}[[reformation]]
name = "server"
id = 201
site = "a"
[[floor]]
name = "XBEN"
publisher = 1
site = "a"
symbols = {listed(SYMBOLS)}
[core]
address = "239.192.74.1"
port = {port}
packet = {case.core_bytes}
trains = {flag}
rate = "125MB"
[edge]
packet = {case.edge_bytes}
trains = {flag}
{groups}{more}"""


# -- processes --------------------------------------------------------------------------------------------


@contextmanager
def speaking(*arguments: str) -> Iterator[Speaker]:
    """A role of `benchmarks.roles` at work."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.roles", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    speaker = Speaker(process)
    reader = Thread(target=speaker.listen, daemon=True)
    reader.start()
    try:
        yield speaker
    finally:
        stop(process)
        reader.join()


def stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def busy_seconds() -> float:
    """CPU time of the whole machine so far, without idling."""
    fields = [int(each) for each in Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def wait_for(what: str, condition: Callable[[], bool], limit_s: float = SETTLE_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} took more than {limit_s:.0f} s")
        time.sleep(0.02)


# -- all of it --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spent:
    """What a while took: records at the slowest customer, and CPU seconds of all processes of a role."""

    took_s: float
    records: int
    cpu_s: dict[str, float]

    @property
    def records_per_s(self) -> float:
        return self.records / self.took_s


@dataclass(slots=True)
class Way:
    """Everything at work."""

    case: Case
    network: Network
    directory: Path
    cluster: Cluster
    customers: list[Speaker]
    pump: Speaker

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def pids(self) -> dict[str, int]:
        """Of receivers and server by their names, of the floor, of customers by number."""
        pids = {name: member.process.pid for name, member in self.cluster.members.items() if member.process}
        customers = {f"customer {number}": each.process.pid for number, each in enumerate(self.customers)}
        return pids | {"floor": self.pump.process.pid} | customers

    def delivered(self) -> list[int]:
        """Records that each customer has decoded."""
        return [int(each.said.get("records", 0)) for each in self.customers]

    def spend(self, seconds: float, meanwhile: Callable[[], object] | None = None) -> Spent:
        """Let it work for so long, or as long as something takes `meanwhile`."""
        pids, before, began = self.pids, self.delivered(), time.monotonic()
        used = {name: cpu_s(pid) for name, pid in pids.items()}
        if meanwhile is not None:
            meanwhile()
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        records = min(b - a for a, b in zip(before, self.delivered(), strict=True))
        took_s = time.monotonic() - began
        used = {name: cpu_s(pid) - used[name] for name, pid in pids.items()}
        return Spent(
            took_s,
            records,
            {
                "floor": used["floor"],
                "receivers": sum(used[f"{name}-1"] for name in NAMES),
                "customers": sum(seconds for name, seconds in used.items() if name.startswith("customer")),
                "server": used["server"],
            },
        )

    def arrivals(self) -> list[dict[int, int]]:
        """When each slot, by its timestamp, came to each customer that noted it."""
        files = sorted(self.directory.glob("arrivals-*.json"))
        return [{int(slot): at for slot, at in json.loads(file.read_text()).items()} for file in files]

    def end(self) -> None:
        """Stop the floor, let everything through, stop the rest in order."""
        stop(self.pump.process)
        sent = int(self.pump.said["witnessed_records"])
        wait_for("draining", lambda: min(self.delivered()) >= sent)
        for each in self.customers:
            stop(each.process)
        self.cluster.stop()


@contextmanager
def at_work(case: Case, rate: float | None = None, more: str = "", *, arrivals: bool = False) -> Iterator[Way]:
    """The whole way, from when the first records have come through; `more` is added to the network file.

    With `arrivals` the customers note when each slot came, which `Way.arrivals` has after the end.
    """
    with tempfile.TemporaryDirectory(prefix="levelcast-bench-") as temporary, ExitStack() as running:
        directory = Path(temporary)
        file = directory / "network.toml"
        file.write_text(network_text(case, free_ports(), more), encoding="utf-8")
        if case.keys:
            create_keys(file)
        network = load_network(file)
        cluster = Cluster(network, file, directory / "data", NodeOptions())
        for member in cluster.of_role(FLOOR):
            del cluster.members[member.place.name]
        running.callback(cluster.stop)
        cluster.start_all()
        receivers = cluster.of_role(RECEIVER)
        wait_for("forming a ring", lambda: all(each.status.get("state") == "ACTIVE" for each in receivers))
        customers = []
        for number, each in enumerate(network.edge.groups):
            notes = ["--arrivals", str(directory / f"arrivals-{number}.json")] if arrivals else []
            region = each.region or each.name
            speaker = speaking("customer", "--network", str(file), "--region", region, *notes)
            customers.append(running.enter_context(speaker))
        wait_for("starting the subscribers", lambda: all(each.said for each in customers))
        flags = [] if rate is None else ["--rate", str(rate)]
        data = str(directory / "data")
        pump = running.enter_context(speaking("pump", "--network", str(file), "--data", data, *flags))
        wait_for("releasing the first records", lambda: all(each.said.get("records") for each in customers))
        yield Way(case, network, directory, cluster, customers, pump)
