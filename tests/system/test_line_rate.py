"""One line of 56 kbit/s, four stripes and retransmissions, as processes: no second has more than 1.05 of its rate.

`tests/test_edge_server_line_rate.py` has the same guarantee without a clock. Here the machine may delay a packet.
"""

from __future__ import annotations

import socket
import struct
import time
from itertools import accumulate
from pathlib import Path
from random import SystemRandom

import pytest

from levelcast.extras import arrow
from levelcast.network import load_network
from levelcast.wire import mold
from levelcast.wire.mold import RetransmitRequest
from tests.network_parts import free_port, free_ports
from tests.system.processes import Nodes, levelcast, nodes_of
from tests.system.test_plans import write_plan

STRIPES = ("one", "two", "three", "four")
FLOORS = ("XAA1", "XAA2", "XAA3", "XAA4")
RATE = 7_000
HEADERS = 28
SECOND_NS = 1_000_000_000
MEASURED_S = 5.0
SO_TIMESTAMPNS = 35
NETWORK = """
[network]
name = "one room, four stripes"

[[site]]
name = "room"

[links]
delay = "200us"

[timing]
slot = "50ms"
process = "20ms"
clock_error = "1ms"

{stripes}
[[receiver]]
name = "a-1"
id = 101
site = "room"

[[reformation]]
name = "reform"
id = 201
site = "room"

{floors}
[core]
address = "239.193.{place}.1"
port = {port}

[edge]
watermark = "1s"

[[edge.group]]
name = "slow"
address = "239.193.{place}.16"
port = {port}
line = "a"
rate = "56kbit"

[status]
port = {status}
"""


class Sniffer:
    """Sockets that note when the kernel received each packet, and its size on the line."""

    def __init__(self, address: str, port: int) -> None:
        self.group = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.group.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.group.bind((address, port))
        membership = socket.inet_aton(address) + socket.inet_aton("127.0.0.1")
        self.group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        self.own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.own.bind(("127.0.0.1", 0))
        self.sent: list[tuple[int, int]] = []
        self.edges: dict[bytes, tuple[str, int]] = {}
        self.answers = 0
        for each in (self.group, self.own):
            each.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            each.setblocking(False)

    def read(self) -> None:
        for each in (self.group, self.own):
            while True:
                try:
                    datagram, told, _, source = each.recvmsg(2_048, 64)
                except BlockingIOError:
                    break
                seconds, ns = struct.unpack("qq", told[0][2])
                self.sent.append((seconds * SECOND_NS + ns, len(datagram) + HEADERS))
                self.edges[datagram[: mold.SESSION_SIZE]] = source
                self.answers += each is self.own

    def ask(self) -> None:
        """Request the first messages of every session."""
        for session, edge in self.edges.items():
            self.own.sendto(mold.encode(RetransmitRequest(session, 1, 40)), edge)

    def max_of_a_second(self) -> int:
        sent = sorted(self.sent)
        sums = [0, *accumulate(size for _, size in sent)]
        first, most = 0, 0
        for last, (at_ns, _) in enumerate(sent):
            while sent[first][0] <= at_ns - SECOND_NS:
                first += 1
            most = max(most, sums[last + 1] - sums[first])
        return most

    def close(self) -> None:
        self.group.close()
        self.own.close()


def write_network(tmp_path: Path, rate: str = "56kbit", groups: int = 1) -> Path:
    """Write a network file of four stripes with one symbol each."""
    floors = "".join(
        f'[[floor]]\nname = "XAA{number}"\npublisher = {number}\nsite = "room"\nstripe = "{name}"\n'
        f'symbols = ["S{number}"]\n'
        for number, name in enumerate(STRIPES, 1)
    )
    stripes = "".join(f"[stripes.{name}]\n" for name in STRIPES)
    place = SystemRandom().randint(1, 254)
    text = NETWORK.format(stripes=stripes, floors=floors, place=place, port=free_port(), status=free_ports(64))
    file = tmp_path / "network.toml"
    file.write_text(text.replace('rate = "56kbit"', f'rate = "{rate}"\ncount = {groups}'), encoding="utf-8")
    for stripe in STRIPES:
        (tmp_path / stripe).mkdir()
    return file


def start(nodes: Nodes, tmp_path: Path, rate: int) -> None:
    """Start every node; each floor publishes `rate` records/s."""
    for stripe in STRIPES:
        nodes.start(f"{stripe}/reform", tmp_path / "data", "--init")
        nodes.start(f"{stripe}/a-1", tmp_path / "data", "--init")
    for floor in FLOORS:
        nodes.start(floor, tmp_path / "data", "--init", "--rate", rate)


@pytest.mark.campaign
@pytest.mark.timeout(300)
def test_four_stripes_and_retransmissions_share_the_rate_of_their_line(tmp_path: Path) -> None:
    file = write_network(tmp_path)
    group = load_network(file).edge.groups[0]
    sniffer = Sniffer(group.address, group.port)
    with nodes_of(file, tmp_path) as nodes:
        start(nodes, tmp_path, 20)
        deadline = time.monotonic() + 60
        while len(sniffer.edges) < len(STRIPES):
            assert time.monotonic() < deadline, "every stripe sends"
            sniffer.read()
            time.sleep(0.01)
        nodes.wait_for(lambda said: said["one/a-1"]["edge"]["narrow"][group.address]["behind_s"] > 0.2)
        until = time.monotonic() + MEASURED_S
        while time.monotonic() < until:
            sniffer.read()
            sniffer.ask()
            time.sleep(0.02)
        table = levelcast("status", "--network", file).stdout
        for floor in FLOORS:  # without releases, the answers have the line
            nodes.end(floor)
        deadline = time.monotonic() + 120
        while not sniffer.answers:
            assert time.monotonic() < deadline, "requests are answered"
            sniffer.read()
            sniffer.ask()
            time.sleep(0.02)
    sniffer.close()
    found = sniffer.max_of_a_second() / RATE
    print(f"maximum of any second: {found:.3f} of the rate")
    assert found <= 1.05
    assert sum(size for _, size in sniffer.sent) > 0.5 * RATE * MEASURED_S, "the line is used"
    assert f'The line "slow" ({group.address}, 56 kbit/s) of a-1 is ' in table, table


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_watch_prints_the_symbols_that_its_line_carries_and_names_the_others(tmp_path: Path) -> None:
    """A plan with each stripe in its own group; a line with room for two of the four."""
    file = write_network(tmp_path, "256kbit", 4)
    plan = write_plan(tmp_path / "plan", [("S1",), ("S2",), ("S3",), ("S4",)], [0, 1, 2, 3])
    with nodes_of(file, tmp_path) as nodes:
        start(nodes, tmp_path, 20)
        nodes.wait_for(lambda said: all(said[f"{name}/a-1"]["state"] == "ACTIVE" for name in STRIPES))
        refused = levelcast("plan", "apply", "--network", file, plan)
        assert refused.returncode == 1
        assert "does not specify the expected rate of each session; use --rates" in refused.stderr
        table = arrow().table({"flow": ["S1", "S2", "S3", "S4"], "rate": [20.0] * 4})
        arrow("pyarrow.parquet").write_table(table, str(plan / "rates.parquet"))
        applied = levelcast("plan", "apply", "--network", file, plan)
        assert applied.returncode == 0, applied.stderr
        watched = levelcast("watch", "--network", file, "--line", "512kbit", "--count", 150, "--for", "50s")
    assert watched.returncode == 0, watched.stderr
    printed = {row.split(",")[4] for row in watched.stdout.splitlines()[1:]}
    named = [line.split(": ") for line in watched.stderr.splitlines() if "the line does not carry" in line]
    assert len(named) == 2, watched.stderr
    for _, stripe, text, symbol in named:
        assert text == "the line does not carry 1 symbols"
        assert stripe == f"stripe {STRIPES[int(symbol[1:]) - 1]}"
    assert printed == {"S1", "S2", "S3", "S4"} - {each[3] for each in named}
