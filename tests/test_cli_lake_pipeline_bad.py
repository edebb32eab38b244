"""What a person gets from `levelcast pipeline` for bad input: one sentence, no stack, and no half-written table.

The commands run in this process, on the session of the tests; those that need a process of their own get one.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.pipeline import session
from levelcast.pipeline.session import JavaLog, java_log
from tests.spark_parts import spark
from tests.tape_parts import make_frames
from tests.test_cli_lake_pipeline import ROOT, levelcast
from tests.test_pipeline_input_tapes import write

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

__all__ = ["spark"]

runner = CliRunner()
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("spark")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tape") / "node"
    write(place / "tape", make_frames(80, 4)).close()
    return place


@pytest.fixture(scope="module")
def made(node: Path, tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Path:
    lake = tmp_path_factory.mktemp("made") / "lake"
    result = runner.invoke(app, ["pipeline", "run", "--input", str(node), "--lake", str(lake), "--master", "local[1]"])
    assert result.exit_code == 0, result.output
    return lake


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "lake"))


def contents(lake: Path) -> dict[str, bytes]:
    """Every file of a lake but the lock; none of them may be half of something."""
    files = [path for path in sorted(lake.rglob("*")) if path.is_file() and path.name != "lake.lock"]
    return {str(path.relative_to(lake)): path.read_bytes() for path in files}


def tables(lake: Path) -> list[str]:
    return [path.parent.name for path in lake.glob("*/_delta_log")]


def refused(*arguments: object) -> str:
    """The one line on stderr."""
    result = runner.invoke(app, [*map(str, arguments)])
    assert result.exit_code == 2, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("levelcast: ")
    return lines[0]


def run(input: Path, lake: Path, *more: object) -> str:
    return refused("pipeline", "run", "--input", input, "--lake", lake, "--master", "local[1]", *more)


def cut(path: Path, octets: int) -> None:
    path.write_bytes(path.read_bytes()[:-octets])


def patch(path: Path, at: int, octet: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] = octet
    path.write_bytes(data)


def flip(path: Path, at: int) -> None:
    patch(path, at, path.read_bytes()[at] ^ 1)


def segment(tape: Path) -> Path:
    return sorted(tape.glob("*.dbn"))[1]


def index(tape: Path) -> Path:
    return sorted(tape.glob("*.idx"))[1]


def empty(tape: Path) -> None:
    for path in tape.iterdir():
        path.unlink()


TAPES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a truncated segment": (lambda tape: cut(segment(tape), 500), "truncated, its index has records up to byte"),
    "a truncated index": (lambda tape: cut(index(tape), 7), "the file is truncated, or retention has removed it"),
    "a changed byte": (lambda tape: flip(segment(tape), 900), "its records do not match its chain hash"),
    "a changed byte of the last segment": (
        lambda tape: flip(next(tape.glob("*.active")), 900),
        "its records do not match its chain hash",
    ),
    "a changed index": (
        lambda tape: flip(sorted(tape.glob("*.idx"))[-1], 300),
        "the entry at byte",
    ),
    "a foreign file": (lambda tape: (tape / "other.dbn").write_bytes(b"?"), "not a segment of this tape"),
    "a future version": (lambda tape: patch(index(tape), 8, 99), "version 99, but this Levelcast reads version"),
    "an empty tape": (empty, "the tape is empty, nothing has been released to it yet"),
    "no tape": (shutil.rmtree, "no tape found"),
}


@pytest.mark.parametrize("case", TAPES)
def test_a_bad_tape(case: str, node: Path, tmp_path: Path) -> None:
    harm, sentence = TAPES[case]
    copy = Path(shutil.copytree(node, tmp_path / "node"))
    harm(copy / "tape")
    assert sentence in run(copy, tmp_path / "lake")
    assert tables(tmp_path / "lake") == []


def test_a_tape_with_a_changed_byte_is_loaded_from_another_receiver_or_on_request(
    node: Path, lake: Path, tmp_path: Path
) -> None:
    from levelcast.pipeline.lake.lake import Lake

    damaged = Path(shutil.copytree(node, tmp_path / "damaged"))
    flip(segment(damaged / "tape"), 900)
    told = run(damaged, tmp_path / "none")
    assert f"`levelcast tape repair {damaged} --from OTHER`, or load it as it is with --unsound" in told
    both = ["pipeline", "run", "--input", str(damaged), "--input", str(node), "--master", "local[1]"]
    result = runner.invoke(app, [*both, "--lake", str(tmp_path / "both"), "--json"])
    assert result.exit_code == 0, result.output
    rows = {each.name: each.rows for each in Lake(lake).states()}
    assert {each.name: each.rows for each in Lake(tmp_path / "both").states()} == rows
    one = ["pipeline", "run", "--input", str(damaged), "--master", "local[1]", "--unsound"]
    result = runner.invoke(app, [*one, "--lake", str(tmp_path / "one"), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"]["tape"] == rows["tape"]


def test_a_bad_tape_leaves_a_lake_as_it_was(node: Path, lake: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer"
    write(longer / "tape", make_frames(160, 4)).close()
    cut(sorted((longer / "tape").glob("*.dbn"))[-1], 500)
    before = contents(lake)
    assert "truncated" in run(longer, lake)
    assert contents(lake) == before


LOBSTER = "AMZN_2012-06-21_34200000_57600000_message_1.csv.gz"
FILES: dict[str, tuple[str, bytes, str]] = {
    "lean": ("spy_trade.csv.gz", gzip.compress(b"34200000,1000000,100,N,0,0\n" * 5000)[:-20], "cannot be read"),
    "csv": ("trades.csv", b"when,what\n1,2\n", "trades.csv: "),
    "parquet": ("trades.parquet", b"PAR1 and nothing else", "trades.parquet: "),
    "dbn": ("trades.dbn", b"DBN\x01 and nothing else", "trades.dbn: "),
    "itch": ("day.NASDAQ_ITCH50.gz", gzip.compress(bytes(range(256)) * 90)[:-20], "day.NASDAQ_ITCH50.gz: "),
    "iex": ("day.pcap", b"no capture at all, but long enough to be one", "day.pcap: "),
    "lobster": (LOBSTER, gzip.compress(b"1,2\n")[:-6], f"{LOBSTER}: "),
}


@pytest.mark.parametrize("format", FILES)
def test_a_file_that_cannot_be_read(format: str, tmp_path: Path) -> None:
    name, data, sentence = FILES[format]
    (tmp_path / name).write_bytes(data)
    day = ["--date", "2013-10-07"] if format in ("lean", "itch") else []
    assert sentence in run(tmp_path / name, tmp_path / "lake", "--format", format, *day)
    assert tables(tmp_path / "lake") == []


def test_a_row_that_cannot_be_read_is_kept_with_its_number(tmp_path: Path) -> None:
    from levelcast.pipeline.lake.lake import Lake

    file = tmp_path / "trades.csv"
    file.write_text("ts_event,symbol,price,size\n1700000000000000000,A,1.5,7\n1700000000000000001,A,1.5,many\n")
    arguments = ["--input", str(file), "--lake", str(tmp_path / "lake"), "--format", "csv", "--venue", "XNYS"]
    result = runner.invoke(app, ["pipeline", "run", *arguments, "--master", "local[1]"])
    assert result.exit_code == 0, result.output
    assert "Unreadable or inconsistent: 1 rows" in " ".join(result.output.split())
    (row,) = Lake(tmp_path / "lake").arrow("quarantine").to_pylist()
    assert row["source"] == str(file)
    assert row["position"] == 2
    assert "size" in row["reason"]


def test_a_day_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "spy_trade.csv").write_text("34200000,1000000,100,N,0,0\n")
    assert "add it, such as --date 2013-10-07" in run(tmp_path, tmp_path / "lake", "--format", "lean")
    assert not (tmp_path / "lake").exists()


def test_a_lake_of_the_future(node: Path, lake: Path) -> None:
    first = lake / "trades" / "_delta_log" / f"{0:020}.json"
    first.write_text(first.read_text().replace('"levelcast.schema":"1"', '"levelcast.schema":"7"'))
    before = contents(lake)
    assert "has version 7 of the schema, but this Levelcast supports 1; use a newer version" in run(node, lake)
    (lake / "lake.json").write_text(json.dumps({"version": 9}))
    assert "has version 9 of the tables, but this Levelcast supports 1; use a newer version" in run(node, lake)
    assert {**contents(lake), "lake.json": b""} == {**before, "lake.json": b""}


def test_a_lake_that_another_job_writes(node: Path, lake: Path) -> None:
    before = contents(lake)
    with (lake / "lake.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "in use by another job; wait for it, or stop it" in run(node, lake)
    assert contents(lake) == before


def test_a_damaged_file_in_the_lake(node: Path, lake: Path, tmp_path: Path) -> None:
    damaged = next((lake / "trades").glob("day=*/*/*.parquet"))
    damaged.write_bytes(b"nonsense" * 50)
    shutil.rmtree(lake / "bars")
    before = contents(lake)
    told = run(node, lake)
    assert damaged.name in told
    assert contents(lake) == before
    share = next((lake / "venue_share").rglob("*.parquet"))
    share.write_bytes(b"nonsense" * 50)
    assert "venue_share: cannot be read (" in refused("report", "--lake", lake, "-o", tmp_path / "page.html")
    share.unlink()
    assert "venue_share: cannot be read (" in refused("report", "--lake", lake, "-o", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(place)], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk(node: Path, small_disk: Path) -> None:
    assert "disk full, nothing of this batch was committed" in run(node, small_disk / "lake")
    assert tables(small_disk / "lake") == []


def test_no_cluster_there(node: Path, tmp_path: Path) -> None:
    told = refused("pipeline", "run", "--input", node, "--lake", tmp_path / "lake", "--master", "somewhere")
    assert "--master somewhere: not supported; use local[2], spark://HOST:7077" in told
    assert not (tmp_path / "lake").exists()


def test_the_reason_is_taken_from_what_java_says() -> None:
    log = JavaLog()
    log.lines += ["WARNING: Using incubator modules\n", "26/11/16 09:21:46 ERROR Backend: All masters are silent.\n"]
    assert log.reason() == "All masters are silent"
    log.lines += [
        'Exception in thread "main" org.apache.spark.SparkException: No.\n',
        "\tat org.apache.Main.main(M.scala)\n",
    ]
    assert log.reason() == "No"


def alone(*arguments: object, **env: str) -> str:
    """The one line on stderr of a process of its own."""
    result = levelcast(*arguments, env=env)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.strip()


def test_no_place_for_temporary_files(node: Path, tmp_path: Path) -> None:
    told = alone("pipeline", "run", "--input", node, "--lake", tmp_path / "lake", SPARK_LOCAL_DIRS="/dev/null/here")
    assert "Spark does not start (Failed to create a temp directory (under /dev/null/here)" in told
    assert not (tmp_path / "lake").exists()


def test_no_pyspark_and_no_java(node: Path, tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise ImportError('not here')\n")
    command = ("pipeline", "run", "--input", node, "--lake", tmp_path / "lake")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(ROOT)])
    assert "pyspark is not installed; run pip install 'levelcast[spark]'" in alone(*command, PYTHONPATH=path)
    assert "java not found); install Java 17 or newer" in alone(*command, PATH="/nowhere", JAVA_HOME="")
    assert "has no bin/java); install Java 17 or newer" in alone(*command, JAVA_HOME="/nowhere")
    assert not (tmp_path / "lake").exists()


def test_an_interrupt_ends_it_and_the_next_run_goes_on(node: Path, made: Path, tmp_path: Path) -> None:
    """On a terminal, with its bar: the last line is the sentence, and there is nothing else but the bar."""
    lake = tmp_path / "lake"
    command = ["pipeline", "run", "--input", str(node), "--lake", str(lake), "--master", "local[1]"]
    terminal, theirs = pty.openpty()
    said: list[bytes] = []
    with subprocess.Popen([sys.executable, "-m", "levelcast", *command], stderr=theirs, stdin=theirs) as process:
        os.close(theirs)
        reader = threading.Thread(target=read_all, args=(terminal, said))
        reader.start()
        until = time.monotonic() + 300
        while not (lake / "tape" / "_staging").exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    reader.join()
    text = b"".join(said).decode(errors="replace")
    assert process.returncode == 130, text
    assert "starting Spark" in text
    assert "Traceback" not in text
    assert "ERROR" not in text
    assert text.splitlines()[-1].endswith("levelcast: stopped")
    assert tables(lake) == []
    assert not list(lake.rglob("*.parquet"))
    assert runner.invoke(app, command).exit_code == 0
    assert sorted(tables(lake)) == sorted(tables(made))


def test_java_that_goes_before_its_counters_are_heard_is_no_surprise(capfd: pytest.CaptureFixture[str]) -> None:
    """As after ^C: the connection is gone in the middle of a word. It is kept for who asks, not told to everyone.

    On a server of its own: Java holds the only connection that the session's server reads."""
    from pyspark.accumulators import _start_update_server

    server = _start_update_server("secret", False)
    session._quiet_accumulators(SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=server)))
    java_log.lines.clear()
    with socket.create_connection(server.server_address):
        pass
    until = time.monotonic() + 60
    while not any("Traceback" in line for line in java_log.lines):
        assert time.monotonic() < until
        time.sleep(0.05)
    server.shutdown()
    assert "Traceback" not in capfd.readouterr().err


def read_all(terminal: int, said: list[bytes]) -> None:
    with suppress(OSError):  # so a terminal says that nobody is left at the other end
        while octets := os.read(terminal, 65536):
            said.append(octets)
    os.close(terminal)
