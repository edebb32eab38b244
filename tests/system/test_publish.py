"""Trades of files through a ring of real processes: every tape has each of them exactly once, in the file's order."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from random import SystemRandom
from typing import Any

import numpy as np
import pytest

from levelcast.formats.trade_files import open_trades
from levelcast.network import Network, SymbolDirectory, load_network
from levelcast.node.cluster import Cluster
from levelcast.node.options import NodeOptions
from levelcast.node.verdict import judge
from levelcast.records import RecordArray
from tests.publish_parts import RECEIVERS, batches_of, network_text, trades_on, write_csv

FLOORS = ("XNYS", "XLON", "XTKS")
ROWS_PER_FILE = 5_000


class Stage:
    """Three receivers and two reformation servers; whoever publishes is the floors."""

    def __init__(self, file: Path, data: Path) -> None:
        self.file, self.data = file, data
        self.network: Network = load_network(file)
        self.directory = SymbolDirectory(self.network)
        self.cluster = Cluster(self.network, file, data, NodeOptions(impair=True), floors=False)
        self.cluster.start_all()

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "levelcast", "publish", "--network", self.file, "--data", self.data]
        return subprocess.Popen(
            [*map(str, command), "--impair", "--json", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def publish(self, *arguments: object) -> dict[str, Any]:
        process = self.start(*arguments)
        try:
            output, complaints = process.communicate(timeout=80)
        finally:
            process.kill()
        assert process.returncode == 0, complaints
        found: dict[str, Any] = json.loads(output)
        return found

    def end(self) -> None:
        """Wait until everything is released, end all, and compare the tapes with each other."""
        horizon_ns, deadline = self.cluster.horizon_ns(), time.monotonic() + 40
        while not self.cluster.complete_upto(horizon_ns):
            self.cluster.check()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert self.cluster.stop() == []
        assert judge(self.data, RECEIVERS).problems == []

    def compare(self, expected: RecordArray) -> None:
        """Every venue's trades are on every tape once, byte for byte and in order, behind their definitions."""
        for name in RECEIVERS:
            found = trades_on(self.data / name)
            assert len(found) == len(expected)
            for floor in self.network.floors:
                mine = found[found["publisher_id"] == floor.publisher]
                assert mine.tobytes() == expected[expected["publisher_id"] == floor.publisher].tobytes()
            self._check_definitions(name)

    def _check_definitions(self, name: str) -> None:
        known: set[tuple[int, int]] = set()
        for frame_batch in _all_batches(self.data / name):
            pairs = set(zip(frame_batch["publisher_id"].tolist(), frame_batch["instrument_id"].tolist(), strict=True))
            if "raw_symbol" in (frame_batch.dtype.names or ()):
                known |= pairs
            else:
                assert pairs <= known


def _all_batches(directory: Path) -> Iterator[RecordArray]:
    from levelcast.storage.tape.directory import tape_directory
    from levelcast.storage.tape.reader import TapeReader

    for frame in TapeReader(tape_directory(directory)).frames():
        for batch in frame.batches():
            yield batch.records


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    file = tmp_path / "network.toml"
    floors = getattr(request, "param", FLOORS)
    file.write_text(network_text(floors) if floors else network_text(), encoding="utf-8")
    stage = Stage(file, tmp_path / "data")
    try:
        yield stage
    finally:
        stage.cluster.stop()


def progress_of(stage: Stage) -> int:
    """Something that changes as soon as a floor publishes."""
    return sum(path.stat().st_mtime_ns + path.stat().st_size for path in stage.data.glob("*/progress"))


def read(stage: Stage, *paths: Path, **options: Any) -> RecordArray:
    return np.concatenate(list(open_trades(paths, stage.directory, **options)))


@pytest.mark.parametrize("stage", [()], indirect=True, ids=["thirteen venues"])
def test_real_trades_of_thirteen_venues(stage: Stage, data_dir: Path, tmp_path: Path) -> None:
    """The first 20,000 trades of four symbols on 7 October 2013, as fast as credit allows."""
    folder = tmp_path / "ticks"
    folder.mkdir()
    for path in (data_dir / "us_equities_tick_20131007").glob("*_trade.csv.gz"):
        with gzip.open(path, "rb") as lines:
            head = b"".join(next(lines) for _ in range(ROWS_PER_FILE))
        (folder / path.name).write_bytes(gzip.compress(head))
    outcome = stage.publish("--format", "lean", "--date", "2013-10-07", folder)
    assert outcome["complete"]
    assert outcome["witnessed"] == 4 * ROWS_PER_FILE
    stage.end()
    stage.compare(read(stage, folder, format="lean", day=date(2013, 10, 7)))


@pytest.mark.slow
def test_killed_again_and_again_nothing_is_lost_or_doubled(stage: Stage, tmp_path: Path) -> None:
    chance = SystemRandom()
    path = write_csv(tmp_path / "trades.csv", 24_000, FLOORS, first_ns=1_700_000_000_000_000_000)
    speed = "0.004x"  # 24 ms of trades take six seconds
    kills = 0
    for _ in range(4):
        began = progress_of(stage)
        process = stage.start("--speed", speed, path)
        while process.poll() is None and progress_of(stage) == began:
            time.sleep(0.02)
        time.sleep(0.8 * chance.random())
        kills += process.poll() is None
        process.kill()
        process.communicate()
    outcome = stage.publish(path)
    assert outcome["complete"]
    assert kills > 1
    assert outcome["published_before"] > 0
    again = stage.publish(path)
    assert again["published_before"] == again["records"] == 24_000
    stage.end()
    stage.compare(read(stage, path))
    definitions = sum(len(batch) for batch in batches_of(stage.data / "a-1", "instrument"))
    assert definitions <= 4 * len(FLOORS) * (kills + 1)


def test_interrupted_it_ends_in_order_and_says_how_to_go_on(stage: Stage, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "trades.csv", 10_000, FLOORS)
    process = stage.start("--speed", "0.001x", path)
    while process.poll() is None and not progress_of(stage):
        time.sleep(0.02)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    output, complaints = process.communicate(timeout=20)
    assert process.returncode == 130, complaints
    first = json.loads(output)
    assert 0 < first["published"] < 10_000
    second = stage.publish(path)
    assert second["published_before"] == first["published"]
    stage.end()
    stage.compare(read(stage, path))


def test_up_without_floors_leaves_them_to_publish(tmp_path: Path) -> None:
    file, data = tmp_path / "network.toml", tmp_path / "data"
    file.write_text(network_text(FLOORS), encoding="utf-8")
    path = write_csv(tmp_path / "trades.csv", 2000, FLOORS)
    levelcast = [sys.executable, "-m", "levelcast"]
    place = ["--data", str(data), "--no-floors", "--for", "10s", "--json"]
    up = subprocess.Popen([*levelcast, "up", "--network", str(file), *place], stdout=subprocess.PIPE, text=True)
    try:
        words = ["publish", "--network", str(file), "--data", str(data), "--timeout", "30s", str(path)]
        said = subprocess.run([*levelcast, *words], capture_output=True, text=True, timeout=60, check=False)
        assert said.returncode == 0, said.stderr
        assert "All 2,000 trades of 3 floors are witnessed" in said.stdout
        assert "resuming" not in said.stderr
        output, _ = up.communicate(timeout=60)
    finally:
        up.kill()
    assert up.returncode == 0
    outcome = json.loads(output)
    assert not set(FLOORS) & set(outcome["nodes"])
    assert outcome["contention"]["seconds"] > 10.0
    assert {each["records"] for each in outcome["receivers"]} == {2000 + 4 * len(FLOORS)}
