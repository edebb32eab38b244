"""`levelcast publish`, as somebody at a terminal meets it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from levelcast.cli import main
from levelcast.cli.live import publish
from levelcast.formats.trade_files import open_trades
from levelcast.network import SymbolDirectory, load_network
from levelcast.records import RecordArray
from tests.publish_parts import OneSocketRing, network_text, write_csv

FLOORS = ("XNYS", "XLON")
runner = CliRunner()


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "network.toml"
    path.write_text(network_text(FLOORS), encoding="utf-8")
    return path


@pytest.fixture
def ring(network: Path) -> Iterator[OneSocketRing]:
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    ring = OneSocketRing(load_network(network))
    yield ring
    ring.close()
    for number, handler in handlers:
        signal.signal(number, handler)


def run(*arguments: object) -> Result:
    return runner.invoke(main.app, ["publish", "--network", "network.toml", *map(str, arguments)])


def as_json(*arguments: object) -> dict[str, Any]:
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def trades_of(path: Path, publisher: int) -> RecordArray:
    (batch,) = open_trades([path], SymbolDirectory(load_network("network.toml")))
    mine: RecordArray = batch[batch["publisher_id"] == publisher]
    return mine


def test_check_only_reads(network: Path, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "trades.csv", 1000, FLOORS)
    result = run("--check", "--data", tmp_path / "data", path)
    assert result.exit_code == 0
    assert "1,000 trades, 0 of them earlier" in result.stdout
    assert not (tmp_path / "data").exists()
    found = as_json("--check", path)
    assert found["floors"] == {"XNYS": 500, "XLON": 500}
    assert sum(found["symbols"].values()) == found["records"] == 1000


def test_everything_is_published_once_however_often_it_is_started(
    network: Path, ring: OneSocketRing, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "trades.csv", 3000, FLOORS)
    result = run("--data", tmp_path / "data", path)
    assert result.exit_code == 0, result.output
    assert "All 3,000 trades of 2 floors are witnessed: 3,000 in " in result.stdout
    again = as_json("--data", tmp_path / "data", path)
    assert (again["complete"], again["published_before"], again["published"]) == (True, 3000, 3000)
    longer = write_csv(tmp_path / "longer.csv", 3100, FLOORS)
    grown = as_json("--data", tmp_path / "data", longer)
    assert (grown["published_before"], grown["records"], grown["witnessed"]) == (3000, 3100, 3100)
    for source in (1, 2):
        assert ring.of(source).tobytes() == trades_of(longer, source).tobytes()


def test_without_a_directory_it_is_published_anew(network: Path, ring: OneSocketRing, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "trades.csv", 200, FLOORS)
    for _ in range(2):
        assert as_json(path)["published_before"] == 0
    assert len(ring.of(1)) == 200


def test_a_bad_row_anywhere_keeps_everything_back(network: Path, ring: OneSocketRing, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "trades.csv", 50_000, FLOORS)
    with path.open("a", encoding="utf-8") as file:
        file.write("1700000000000000000,AAPL,1.5,1,XNYS\n")
    result = run("--data", tmp_path / "data", path)
    assert result.exit_code == 2
    says = "row 50,001 (line 50,002): AAPL is not among the symbols of floor XNYS in network.toml; add it there"
    assert result.stderr == f"levelcast: {path}: {says}\n"
    assert not ring.packets


def test_speed_follows_the_times_of_the_trades(network: Path, ring: OneSocketRing, tmp_path: Path) -> None:
    lines = [f"{1_700_000_000_000_000_000 + i * 10_000_000},IBM,1,1,XNYS" for i in range(100)]  # one second
    path = tmp_path / "trades.csv"
    path.write_text("ts_event,symbol,price,size,floor\n" + "\n".join(lines) + "\n", encoding="utf-8")
    assert as_json("--speed", "2x", path)["seconds"] >= 0.49
    assert as_json("--speed", "1000x", path)["seconds"] < 10
    assert len(ring.packets[1]) > 10  # not all at once


def test_without_a_ring_it_says_so_and_gives_up_when_told_to(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "SILENCE_S", 0.2)
    path = write_csv(tmp_path / "trades.csv", 100, FLOORS)
    result = run("--data", tmp_path / "data", "--timeout", "1s", path)
    assert result.exit_code == 1
    core = load_network(network).core
    assert f"no ring found at {core.address} port {core.port}" in result.stderr
    assert "Timed out, since nothing was witnessed: 100 of 100 trades are published" in result.stdout
    assert "to resume, run again: levelcast" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--speed", "fast"], '"fast" is not a speed'),
        (["--speed", "0x"], '"0x" is not a speed'),
        (["--format", "lean", "--date", "7.10.2013"], '"7.10.2013" is not a day'),
        (["--date", "2013-10-07"], "only LEAN files need a day"),
        (["--timeout", "soon"], '"soon" is not a time'),
        (["--format", "xml"], 'unknown format "xml"'),
        (["--floor", "XTKS"], '"XTKS" is not a floor of network.toml'),
    ],
)
def test_a_wrong_option_is_explained(network: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    result = run(*arguments, write_csv(tmp_path / "trades.csv", 1, FLOORS))
    assert result.exit_code == 2
    assert says in result.output


def test_a_floor_that_another_process_is_already_is_refused(network: Path, tmp_path: Path) -> None:
    from levelcast import Publisher

    path = write_csv(tmp_path / "trades.csv", 10, FLOORS)
    other = Publisher("network.toml", "XLON", data=tmp_path / "data")
    try:
        result = run("--data", tmp_path / "data", path)
    finally:
        other.close()
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "another process is writing this journal" in result.stderr
