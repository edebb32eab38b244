"""The peers that throughput is compared with: the relay runs, the others' files and results are read.

No test looks at how fast anything was: the machines are shared.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.peers import PEERS, Failed, Missing, PeerResult, corosync, relay, zeromq
from benchmarks.peers.__main__ import main
from benchmarks.peers.machine import Load, compiled, cpu_seconds, load_beside, percentiles, records_in
from levelcast.wire import mold
from levelcast.wire.messages import Packet
from levelcast.wire.packets import seal

REPOSITORY = Path(__file__).resolve().parents[1]
BRIEF_S = 0.3
ROLES = ["source", *(f"{part} {i}" for part in ("receiver", "customer") for i in (1, 2, 3)), "ksoftirqd"]


@pytest.fixture(scope="module")
def program(require_tool: Callable[[str], str]) -> Iterator[Path]:
    """The compiled relay."""
    require_tool("cc")
    with relay.build() as built:
        yield built
    assert not built.exists()


def brief(mode: str, program: Path, *, keep: bool = False, **options: int) -> PeerResult:
    try:
        return relay.run(mode, BRIEF_S, program=program, keep=keep, **options)
    except Missing as why:
        pytest.skip(str(why))


# ---------------------------------------------------------------------------------------------------------
# The relay


@pytest.mark.parametrize("mode", sorted(relay.MODES))
def test_relay_loses_nothing_and_counts_everything(mode: str, program: Path) -> None:
    result = brief(mode, program)
    chosen = relay.MODES[mode]
    assert (result.name, result.case, result.notes) == ("relay in C", mode, ())
    assert result.lost == 0
    assert result.delivered == (result.datagrams,) * 3
    assert result.datagrams > chosen.train
    assert result.datagrams % chosen.train == 0
    assert result.bytes == result.datagrams * chosen.packet_bytes
    assert result.records == result.datagrams * records_in(chosen.packet_bytes)
    assert BRIEF_S <= result.seconds < 60
    assert list(result.cpu_seconds) == ROLES
    assert all(result.cpu_seconds[role] > 0 for role in ROLES[:-1])
    assert result.cpu_us_per_datagram > 0
    assert result.other_load >= 0


@pytest.mark.parametrize("mode", sorted(relay.MODES))
@pytest.mark.parametrize("window_bytes", [1, 100_000])
def test_relay_works_with_any_window(mode: str, window_bytes: int, program: Path) -> None:
    result = brief(mode, program, window_bytes=window_bytes)
    assert result.lost == 0
    assert result.datagrams > 0
    assert result.notes == ()


def test_relay_keeps_everything_it_relays(program: Path, tmp_path: Path) -> None:
    numbers = [8_900, 1, 100_000, 30, 1_000_000]
    told = json.loads(subprocess.check_output([program, "plain", *map(str, numbers), tmp_path], timeout=60))
    for site in range(3):
        journal, tape = ((tmp_path / f"{what}-{site}").read_bytes() for what in ("journal", "tape"))
        assert len(journal) == len(tape) >= told["processes"][1 + site]["bytes"] >= 1_000_000
        assert tape[:10] == f"RELAY-{site:<4}".encode() != journal[:10]
        assert tape[10:8_900] == journal[10:8_900]


def test_relay_is_named_by_whether_it_keeps(program: Path) -> None:
    assert brief("large", program, keep=True).case == "large, kept"


def test_relay_ends_after_so_many_bytes(program: Path) -> None:
    result = relay.run("plain", 60, total_bytes=1_000_000, program=program)
    assert 1_000_000 <= result.bytes < 1_200_000
    assert result.lost == 0


def test_relay_takes_other_sizes(program: Path) -> None:
    result = brief("plain", program, packet_bytes=8_900, record_bytes=88)
    assert result.bytes == result.datagrams * 8_900
    assert result.records == result.datagrams * records_in(8_900, 88)


def test_relay_refuses_what_cannot_be(program: Path) -> None:
    with pytest.raises(ValueError, match="at most 600 seconds"):
        relay.run("plain", 0, program=program)
    with pytest.raises(Failed, match="sizes that no datagram can have"):
        relay.run("trains", BRIEF_S, train=60, program=program)
    with pytest.raises(ValueError, match="no record of 64 bytes"):
        relay.run("plain", BRIEF_S, packet_bytes=80, program=program)


def test_relay_ends_when_its_parent_is_killed(program: Path) -> None:
    def running() -> set[int]:
        found = set()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and str(program).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
            except OSError:  # it has just ended
                continue
        return found

    def wait_for(count: int) -> int:
        until = time.monotonic() + 20
        while len(running()) != count and time.monotonic() < until:
            time.sleep(0.02)
        return len(running())

    call = f"relay.run('plain', 60, program=Path({str(program)!r}))"
    code = f"from pathlib import Path; from benchmarks.peers import relay; {call}"
    with subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY) as parent:
        try:
            assert wait_for(8) == 8  # seven that work and the one that started them
        finally:
            parent.send_signal(signal.SIGKILL)
    assert wait_for(0) == 0


def test_relay_reports_losses_gaps_and_stalls() -> None:
    process = {"packets": 10, "bytes": 14_000, "calls": 3, "gaps": 0, "user_s": 0.5, "system_s": 0.25}
    poor = {**process, "packets": 8, "bytes": 11_200, "gaps": 1}
    line = json.dumps({"seconds": 2.0, "stalls": 1, "window": 4, "processes": [*[process] * 5, poor, process]})
    result = relay.result_of(line, "plain", 20, Load(wall_s=2, busy_s=7, own_s=5.25, ksoftirqd_s=0.5, stolen_s=1))
    assert (result.lost, result.records, result.bytes) == (2, 160, 11_200)
    assert result.notes == (
        "the source gave up waiting for an acknowledgement 1 times",
        "customers saw 1 gaps",
    )
    assert result.cpu_of("receiver") == 2.25
    assert result.cpu_s == 7 * 0.75 + 0.5
    assert result.cpu_us_per_datagram == pytest.approx(575_000)
    assert result.cpu_us_per_record == pytest.approx(5.75e6 / 160)
    assert (result.records_per_s, result.mb_per_s) == (80, 0.0056)
    assert (result.other_load, result.stolen_load) == (0.625, 0.5)
    written = json.loads(json.dumps(result.as_json()))
    assert written["lost"] == 2
    assert written["cpu_seconds"]["customer 3"] == 0.75


# ---------------------------------------------------------------------------------------------------------
# The machine


def test_records_in_is_what_levelcast_packs() -> None:
    for size in (1_400, 8_900, 65_507):
        records = records_in(size)
        record = bytes([16]) + bytes(63)
        payload = record * records
        assert len(seal(Packet(1, 1, 1, records, payload), 0).sealed) <= size
        assert len(mold.encode_payload(b"XNYS-1    ", 1, payload, size)) == 1
        assert len(mold.encode_payload(b"XNYS-1    ", 1, payload + record, size)) == 2  # the edge is the tighter one
    assert (records_in(1_400), records_in(8_900)) == (20, 134)


def test_load_counts_this_process_as_its_own() -> None:
    begun = time.process_time()
    with load_beside([os.getppid()]) as load:
        while time.process_time() - begun < 0.2:
            pass
    assert load.own_s >= 0.19  # clocks of different grain
    assert load.wall_s > 0
    assert load.other_s >= 0
    assert cpu_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=0.1)


def test_load_counts_children_that_ended() -> None:
    with load_beside() as load:
        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"], check=True)
    assert load.own_s >= 0.2


def test_cpu_of_nobody() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    with pytest.raises(ProcessLookupError):
        cpu_seconds(ended.pid)


def test_percentiles() -> None:
    assert percentiles([]) is None
    assert percentiles(range(1, 101)) == {"p50": 51, "p99": 100, "max": 100}


def test_without_a_compiler_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(Missing, match=r"no C compiler \(cc\) to build relay.c with: apt-get install gcc"):
        relay.run("plain", BRIEF_S)


def test_what_does_not_compile_names_the_packages(require_tool: Callable[[str], str], tmp_path: Path) -> None:
    require_tool("cc")
    source = tmp_path / "odd.c"
    source.write_text("#include <no/such.h>\n", encoding="utf-8")
    with pytest.raises(Missing, match=r"odd.c does not compile .*no/such.h.*apt-get install some-dev"):
        compiled(source, needs="some-dev").__enter__()


# ---------------------------------------------------------------------------------------------------------
# Corosync


def sections(text: str) -> dict[str, list[str]]:
    """The lines of corosync.conf under the path of their section."""
    found: dict[str, list[str]] = {}
    path: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.endswith("{"):
            path.append(line[:-1].strip())
        elif line == "}":
            path.pop()
        else:
            found.setdefault(".".join(path), []).append(line)
    assert not path
    return found


def test_corosync_over_udp_uses_the_whole_frame(tmp_path: Path) -> None:
    for mtu, burst in ((1_500, 170), (9_000, 28)):
        found = sections(corosync.config(corosync.Setting("udp", mtu), tmp_path, 2))
        assert {"transport: udp", f"netmtu: {mtu}", f"max_messages: {burst}"} <= set(found["totem"])
        assert {"crypto_cipher: none", "crypto_hash: none"} <= set(found["totem"])
        assert "mcastport: 5405" in found["totem.interface"]
        assert [line for line in found["nodelist.node"] if line.startswith("nodeid")] == [
            "nodeid: 1",
            "nodeid: 2",
            "nodeid: 3",
        ]
        assert f"logfile: {tmp_path / 'node2.log'}" in found["logging"]


def test_corosync_over_knet_is_encrypted(tmp_path: Path) -> None:
    setting = corosync.Setting("knet", 9_000, encrypted=True)
    found = sections(corosync.config(setting, tmp_path, 1))
    assert {
        "transport: knet",
        "knet_mtu: 9000",
        "crypto_cipher: aes256",
        "crypto_hash: sha256",
        f"keyfile: {tmp_path / 'authkey'}",
    } <= set(found["totem"])
    assert "totem.interface" not in found
    assert setting.name == "knet encrypted, MTU 9,000"


def test_corosync_packs_as_levelcast_does() -> None:
    assert [setting.packed_records for setting in corosync.SETTINGS] == [20, 134, 20, 134]


def test_corosync_needs_root_and_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Missing, match="needs root"):
        corosync.run()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(Missing, match="corosync is not installed: apt-get install corosync libcpg-dev"):
        corosync.run()


def test_corosync_result_is_made_of_all_nodes() -> None:
    sender: corosync.Told = {
        "messages": 100,
        "total": 100,
        "gaps": 0,
        "begun_ns": 1_000_000_000,
        "ended_ns": 2_900_000_000,
        "cpu_s": 1.0,
        "refused": 7,
        "delays_us": [],
    }
    slow: corosync.Told = {**sender, "messages": 99, "gaps": 1, "ended_ns": 3_000_000_000, "cpu_s": 0.25}
    result = corosync.result_of([sender, sender, slow], "case", 20, 1_280, [0.5, 0.25, 0.25], Load(wall_s=2, busy_s=4))
    assert (result.seconds, result.datagrams, result.lost) == (2.0, 100, 1)
    assert (result.records, result.bytes) == (99 * 20, 99 * 1_280)
    assert (result.cpu_of("daemon"), result.cpu_of("client")) == (1.0, 2.25)
    assert result.notes == ("clients saw 1 gaps",)


# ---------------------------------------------------------------------------------------------------------
# ZeroMQ


def test_without_pyzmq_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(Missing, match="pyzmq is not installed: pip install pyzmq"):
        zeromq.run()


def test_zeromq_result_ends_with_the_slowest_subscriber() -> None:
    publisher = zeromq.Told(50, 1_000_000_000, 1_400_000_000, 0.5)
    subscribers = [zeromq.Told(50, 0, 1_000_000_000 + i * 500_000_000, 0.25) for i in (1, 2, 3)]
    result = zeromq.result_of([publisher, *subscribers], "TCP", 20, 1_280, Load(wall_s=2, busy_s=2, ksoftirqd_s=0.5))
    assert (result.seconds, result.lost, result.records, result.bytes) == (1.5, 0, 1_000, 64_000)
    assert result.cpu_seconds == {
        "publisher": 0.5,
        "subscriber 1": 0.25,
        "subscriber 2": 0.25,
        "subscriber 3": 0.25,
        "ksoftirqd": 0.5,
    }


# ---------------------------------------------------------------------------------------------------------
# The command


@pytest.fixture
def two_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay that has run, and a Corosync that is not here."""

    def not_here(_: float) -> list[PeerResult]:
        raise Missing("corosync is not installed")

    delay = {"p50": 100.0, "p99": 2_000.0, "max": 3_000.0}
    ran = PeerResult("relay", "plain", 2.0, 10, (10, 10, 10), 200, 14_000, {"source": 1.5}, 0.5, delay_us=delay)
    monkeypatch.setitem(PEERS, "relay", lambda _: [ran])
    monkeypatch.setitem(PEERS, "corosync", not_here)


@pytest.mark.usefixtures("two_peers")
def test_command_prints_each_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relay", "corosync"]) == 0
    printed = capsys.readouterr().out
    assert "load average" in printed
    assert "100 / 2,000" in printed
    assert "source 1.50" in printed
    assert "corosync: not measured: corosync is not installed" in printed


@pytest.mark.usefixtures("two_peers")
def test_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relay", "corosync", "--json", "--seconds", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["results"][0]["records_per_s"] == 100
    assert told["not_measured"] == {"corosync": "corosync is not installed"}
    assert told["machine"]["cores"] >= 1


def test_command_fails_when_a_peer_does(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(_: float) -> list[PeerResult]:
        raise Failed("the relay did not end")

    monkeypatch.setitem(PEERS, "relay", fails)
    assert main(["relay"]) == 1
    assert "relay: not measured: the relay did not end" in capsys.readouterr().out


def test_command_names_the_peers_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nats"])
    assert "unknown peer nats; use relay, corosync, zeromq" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["relay", "--seconds", "0"])
