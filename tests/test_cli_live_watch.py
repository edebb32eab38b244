"""`levelcast watch`, as people run it: its rows, its forms, its words and its ends."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from levelcast import records
from levelcast.network import Network, load_network
from levelcast.protocol.history import GENESIS, Frame, make_frame
from levelcast.wire.messages import Packet
from levelcast.wire.packets import seal
from tests.net_edge_parts import Receiver, network_text
from tests.tape_parts import SLOT_NS, T0

HEADER = "seq,ts_event,ts_recv,floor,symbol,price,size,condition"
LIMIT_S = 60.0
WAITING = "levelcast: nothing received from the edge groups of east yet; waiting\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(network_text(), encoding="utf-8")
    return path


@pytest.fixture
def receiver(file: Path, tmp_path: Path) -> Iterator[Receiver]:
    network: Network = load_network(file)
    began_ns = time.monotonic_ns()
    network = replace(network, tape=replace(network.tape, segment_records=50))
    now = lambda: T0 + 10 * (time.monotonic_ns() - began_ns)  # noqa: E731
    made = Receiver(network, "c-1", tmp_path, now, records_per_segment=50)
    yield made
    made.stop()


def some_frames() -> Iterator[Frame]:
    """Each a definition that is passed over, and four trades: XNYS trades IBM, GE and KO, nobody knows floor 9."""
    sequence, chain = 1, GENESIS
    definition = records.instruments(1)
    definition["instrument_id"], definition["publisher_id"], definition["raw_symbol"] = 1, 1, b"IBM"
    for number in count(1):
        batch = records.trades(4)
        batch["instrument_id"], batch["publisher_id"] = [1, 2, 3, 99], [1, 1, 1, 9]
        batch["price"], batch["size"] = np.array([1_250_000_000, -5, records.UNDEF_PRICE, 7_000_000_000]), number
        batch["ts_event"], batch["condition"] = T0 + np.arange(4), 3
        payload = definition.tobytes() + batch.tobytes()
        packet = seal(Packet(1, 1, number, 5, payload), 0)
        frame = make_frame(number, T0 + number * SLOT_NS, sequence, (packet,), chain)
        sequence, chain = sequence + 5, frame.chain
        yield frame


def start(file: Path, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "levelcast", "watch", "--network", str(file), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | more
    return subprocess.Popen(command, **pipes)


def drive(receiver: Receiver, watching: subprocess.Popen[str], until: Callable[[], bool]) -> None:
    """Release a frame now and then, as a ring does, until something has happened."""
    deadline = time.monotonic() + LIMIT_S
    frames = some_frames()
    try:
        while not until():
            assert time.monotonic() < deadline
            receiver.release(next(frames))
            receiver.step()
            time.sleep(0.005)
    except BaseException:
        watching.kill()
        raise


def watched(receiver: Receiver, file: Path, *arguments: str) -> tuple[int, str, str]:
    watching = start(file, "--region", "east", *arguments)
    drive(receiver, watching, lambda: watching.poll() is not None)
    output, words = watching.communicate(timeout=LIMIT_S)
    return watching.returncode, output, words


def test_a_pipe_gets_csv_of_trades_only(receiver: Receiver, file: Path) -> None:
    code, output, words = watched(receiver, file, "--count", "10")
    assert code == 0
    assert output.splitlines()[0] == HEADER
    rows = list(csv.DictReader(io.StringIO(output)))
    assert len(rows) == 10
    for row in rows:
        frame, place = divmod(int(row["seq"]) - 1, 5)
        assert int(row["size"]) == frame + 1
        assert int(row["ts_recv"]) == T0 + (frame + 1) * SLOT_NS
        assert int(row["ts_event"]) == T0 + place - 1
        assert (row["floor"], row["symbol"]) == [("XNYS", "IBM"), ("XNYS", "GE"), ("XNYS", "KO"), ("9", "99")][
            place - 1
        ]
        assert row["price"] == ["1.250000000", "-0.000000005", "", "7.000000000"][place - 1]
        assert row["condition"] == "3"
    assert words.removeprefix(WAITING).startswith("10 trades printed in ")
    assert "session main: next sequence " in words


def test_json_lines_from_a_snapshot_of_one_symbol(receiver: Receiver, file: Path) -> None:
    code, output, _ = watched(receiver, file, "--json", "--count", "5", "--symbol", "GE", "--from", "snapshot")
    rows = [json.loads(line) for line in output.splitlines()]
    assert code == 0
    assert len(rows) == 5
    assert {row["symbol"] for row in rows} == {"GE"}
    assert list(rows[0]) == HEADER.split(",")
    sequences = [row["seq"] for row in rows]
    assert sequences == list(range(sequences[0], sequences[0] + 25, 5)), "the snapshot, and no hole behind it"


@pytest.mark.parametrize("grade", ["best-effort", "latest-only", "latest only"])
def test_a_grade_can_be_chosen(grade: str, receiver: Receiver, file: Path) -> None:
    code, output, _ = watched(receiver, file, "--json", "--count", "3", "--grade", grade)
    assert code == 0
    assert len(output.splitlines()) == 3


def test_merged_rows_are_in_the_order_of_the_tape(receiver: Receiver, file: Path) -> None:
    code, output, _ = watched(receiver, file, "--json", "--count", "30", "--merged")
    assert code == 0
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["seq"] for row in rows] == sorted({row["seq"] for row in rows})
    assert len(rows) == 30


def test_the_summary_has_the_records_that_missed_the_bound(receiver: Receiver, file: Path) -> None:
    code, _, words = watched(receiver, file, "--count", "8", "--together", "20ms")
    assert code == 0
    assert re.search(r"together: [\d,]+ records 20 ms after their release, [\d,]+ late", words)


def test_from_a_sequence_of_the_session(receiver: Receiver, file: Path) -> None:
    code, output, _ = watched(receiver, file, "--json", "--count", "3", "--from", "1")
    assert code == 0
    assert [json.loads(line)["seq"] for line in output.splitlines()] == [2, 3, 4]


def test_what_no_edge_has_any_more_is_said_and_passed_over(receiver: Receiver, file: Path) -> None:
    frames = some_frames()
    for frame in islice(frames, 20):
        receiver.release(frame)
    receiver.edge.server._book()
    receiver.edge.server.feed.retransmitter.forget(b"main      ")
    receiver.tape.retain(T0, max_bytes=1)  # two segments of 50 records
    watching = start(file, "--region", "east", "--json", "--count", "4", "--from", "1")
    deadline = time.monotonic() + LIMIT_S
    while watching.poll() is None:
        assert time.monotonic() < deadline
        receiver.release(next(frames))
        receiver.step()
        time.sleep(0.02)
    output, words = watching.communicate(timeout=LIMIT_S)
    assert watching.returncode == 0
    says = "session main: messages 1 to 100 are missing; no edge has them any more; its tape begins with 101"
    assert says in words
    assert "session main: continuing without 100 messages from sequence 1" in words
    assert json.loads(output.splitlines()[0])["seq"] == 102


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_summary(number: signal.Signals, receiver: Receiver, file: Path) -> None:
    watching = start(file, "--region", "east")
    assert watching.stdout is not None
    os.set_blocking(watching.stdout.fileno(), False)
    seen = bytearray()

    def has_rows() -> bool:
        assert watching.stdout is not None
        with suppress(BlockingIOError):
            seen.extend(os.read(watching.stdout.fileno(), 65_536))
        return seen.count(b"\n") > 5

    drive(receiver, watching, has_rows)
    watching.send_signal(number)
    os.set_blocking(watching.stdout.fileno(), True)
    _, words = watching.communicate(timeout=LIMIT_S)
    assert watching.returncode == 0
    assert "trades printed in" in words
    assert "Traceback" not in words


def test_a_reader_that_goes_away_is_no_news(receiver: Receiver, file: Path) -> None:
    watching = start(file, "--region", "east")
    assert watching.stdout is not None
    assert watching.stderr is not None
    watching.stdout.readline()
    watching.stdout.close()
    drive(receiver, watching, lambda: watching.poll() is not None)
    assert watching.stderr.read() in ("", WAITING)
    watching.stderr.close()


def test_a_terminal_gets_a_table(receiver: Receiver, file: Path) -> None:
    mine, theirs = pty.openpty()
    watching = start(file, "--region", "east", "--count", "4", stdout=theirs)
    os.close(theirs)
    drive(receiver, watching, lambda: watching.poll() is not None)
    shown = os.read(mine, 65_536).decode().splitlines()
    os.close(mine)
    watching.communicate(timeout=LIMIT_S)
    assert shown[0].split() == HEADER.split(",")
    first = shown[1].split()
    assert first[3:6] == ["XNYS", "IBM", "1.25"]
    assert first[1].count(":") == 2
    assert len({len(line) for line in shown[1:5]}) == 1


def test_it_says_that_it_waits_and_ends_in_time(file: Path) -> None:
    watching = start(file, "--region", "west", "--for", "2500ms", "--symbol", "IBM")
    output, words = watching.communicate(timeout=LIMIT_S)
    assert (watching.returncode, output) == (0, HEADER + "\n")
    assert "nothing received from the edge groups of west yet; check that the network runs" in words
    assert "0 trades printed" in words


def test_an_end_of_session_is_said_and_ends_it(receiver: Receiver, file: Path) -> None:
    watching = start(file, "--region", "east")
    deadline = time.monotonic() + LIMIT_S
    receiver.release(next(some_frames()))
    while watching.poll() is None:
        assert time.monotonic() < deadline
        receiver.edge.end_sessions()
        receiver.step()
        time.sleep(0.02)
    _, words = watching.communicate(timeout=LIMIT_S)
    assert watching.returncode == 0
    assert "levelcast: session main: ended before sequence " in words


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--region", "north"], 'region "north" has no edge group in the network file; choose one of east, west'),
        ([], "--region: region not specified; choose one of east, west"),
        (["--region", "east", "--from", "yesterday"], "not now, snapshot or a sequence"),
        (["--region", "east", "--from", "0"], "not now, snapshot or a sequence"),
        (["--region", "east", "--grade", "best"], "is not one of guaranteed, best-effort, latest-only"),
        (["--region", "east", "--for", "long"], "is not a time such as"),
        (["--region", "east", "--together", "25"], 'together "25" is not a time up to 10 s, such as "25ms", nor "off"'),
    ],
)
def test_a_wrong_option_is_one_sentence(arguments: list[str], says: str, file: Path) -> None:
    watching = start(file, *arguments, env={**os.environ, "COLUMNS": "300"})
    output, words = watching.communicate(timeout=LIMIT_S)
    assert watching.returncode == 2
    assert output == ""
    assert says in " ".join(words.split())


def test_an_unknown_symbol_is_one_sentence(receiver: Receiver, file: Path) -> None:
    code, output, words = watched(receiver, file, "--symbol", "IBMM")
    assert code == 2
    says = 'levelcast: no instrument of this network has the symbol "IBMM"; did you mean "IBM"?\n'
    assert words.removeprefix(WAITING) == says
    assert output in ("", HEADER + "\n")
