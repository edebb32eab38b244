"""Running nodes measure the network between them, and a network runs on what was measured.

Nothing here depends on how fast the machine is: a slow one makes delays longer, never shorter, and loses nothing.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path

from levelcast.network import load_network
from levelcast.network.stripe_config import ring_config
from levelcast.node.cluster import Cluster, ClusterRun
from levelcast.node.options import NodeOptions
from levelcast.node.probe_report import Gathered
from levelcast.node.status_client import ask_all
from levelcast.node.verdict import judge
from tests.system.processes import LIMIT_S, levelcast, write_network
from tests.system.test_up import RECEIVERS

MS = 1_000_000
LINKS = '[links]\ndelay = "500us"\njitter = "500us"\nloss = 0.01\n'
PAIRS = """\
pairs = [
    { between = ["a", "b"], delay = "20ms", jitter = "1ms", loss = 0.3 },
    { between = ["a", "c"], delay = "5ms", jitter = "1ms" },
    { between = ["b", "c"], delay = "10ms", jitter = "1ms" },
]
"""
PROBE = '[probe]\nevery = "50ms"\n'


def write(path: Path, links: str, more: str = "", head: str = "") -> Path:
    write_network(path, more)
    text = path.read_text(encoding="utf-8")
    assert LINKS in text
    path.write_text(head + text.replace(LINKS, links), encoding="utf-8")
    return path


def _all_measured(answered: dict[tuple[str, str], int]) -> bool:
    """Six directions between three sites, and within the two that have two nodes."""
    return len(answered) == 8 and min(answered.values()) >= 50


def test_what_is_measured_is_what_the_file_adds(tmp_path: Path) -> None:
    file = write(tmp_path / "network.toml", f"[links]\n{PAIRS}", PROBE)
    network = load_network(file)
    cluster = Cluster(network, file, tmp_path / "data", NodeOptions(impair=True), floors=False)
    gathered = Gathered()
    answered: dict[tuple[str, str], int] = {}
    try:
        cluster.start_all()
        deadline = time.monotonic() + LIMIT_S
        lost: set[tuple[str, str]] = set()
        while time.monotonic() < deadline and not (_all_measured(answered) and {("a", "b"), ("b", "a")} <= lost):
            cluster.check()
            for answer in ask_all(network, [*RECEIVERS, "reform-a", "reform-b"], page="/probes"):
                if answer.ok:
                    gathered.take(answer.name, answer.status)
            answered = {}
            for origin, to, _, round_trip_ns, *_ in gathered.rows:
                if round_trip_ns is not None:
                    answered[origin, to] = answered.get((origin, to), 0) + 1
            lost = {(row[0], row[1]) for row in gathered.rows if row[4]}
            time.sleep(0.2)
        status = {answer.name: answer.status for answer in ask_all(network, RECEIVERS)}
    finally:
        cluster.stop()
    between = [pair for pair in answered if pair[0] != pair[1]]
    assert len(between) == 6
    for a, b in between:
        trips = [(row[3], row[5]) for row in gathered.rows if row[:2] == (a, b) and row[3] is not None]
        delay = network.link(a, b).delay_ns
        assert min(trip for trip, _ in trips) >= 2 * delay
        # One machine has one clock, so every answer tells the way there.
        assert min(way for _, way in trips if way is not None) >= delay
        assert all(way is not None for _, way in trips)
    assert {("a", "b"), ("b", "a")} <= lost
    assert status["a-1"]["probes"]["c-1"]["answered"] >= 50
    assert status["a-1"]["probes"]["c-1"]["least_ns"] >= 10 * MS


def test_a_network_runs_on_an_included_file(tmp_path: Path) -> None:
    (tmp_path / "measured.toml").write_text(
        f'[measured]\nnetwork = "three rooms"\n[links]\n{PAIRS.replace("0.3", "0.02")}[helpers]\na = ["b", "c"]\n'
    )
    file = write(tmp_path / "network.toml", "", head='include = ["measured.toml"]\n')
    network = load_network(file)
    assert ring_config(network).nearness[101] == (102, 103)  # c is nearer
    cluster = Cluster(network, file, tmp_path / "data", NodeOptions(rate=500, run_ns=3_000_000_000, impair=True))
    run = ClusterRun(cluster, 3.0, LIMIT_S)
    for _ in run.steps():
        pass
    verdict = judge(tmp_path / "data", RECEIVERS, run.problems)
    assert verdict.problems == []
    assert verdict.receivers[0].records > 500
    assert all(cluster.members[name].status["lost_on_purpose"] > 0 for name in ("a-1", "b-1"))


def test_gathering_says_what_is_missing_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "probes.csv"
    bare = levelcast("probe", "gather", "--network", write_network(tmp_path / "bare.toml"), "--for", "1s", "-o", out)
    assert (bare.returncode, bare.stderr.count("\n")) == (2, 1)
    assert "bare.toml: no [probe] table" in bare.stderr
    silent = levelcast(
        "probe", "gather", "--network", write_network(tmp_path / "n.toml", PROBE), "--for", "1s", "-o", out
    )
    assert (silent.returncode, silent.stderr.count("\n")) == (2, 1)
    assert "no node replied; a-1: not running" in silent.stderr
    assert not out.exists()


def test_what_is_gathered_is_a_table_of_probes(tmp_path: Path) -> None:
    file = write(tmp_path / "network.toml", f"[links]\n{PAIRS}", PROBE)
    cluster = Cluster(load_network(file), file, tmp_path / "data", NodeOptions(impair=True), floors=False)
    try:
        cluster.start_all()
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline and not all(each.ok for each in ask_all(cluster.network, RECEIVERS)):
            time.sleep(0.1)
        done = levelcast("probe", "gather", "--network", file, "--for", "2s", "-o", tmp_path / "probes.csv")
    finally:
        cluster.stop()
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "probes.csv").open()))
    assert {"a", "b", "c"} == {row["from_site"] for row in rows} == {row["to_site"] for row in rows}
    assert all((row["round_trip_ns"] == "") == (row["loss_ratio"] == "1") for row in rows)
