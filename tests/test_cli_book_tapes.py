"""Books of tapes on the command line and over HTTP: the state at a sequence, snapshots, and one sentence for errors."""

from __future__ import annotations

import json
import re
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from levelcast.cli.book.tapes import book_server, open_service, serve_until
from levelcast.cli.main import app
from levelcast.market.engine import MatchingEngine
from levelcast.market.floor.machine import OPERATOR


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("generated") / "orders"
    result = CliRunner().invoke(app, ["book", "generate", str(directory), "--count", "3000", "--symbols", "2"])
    assert result.exit_code == 0, result.output
    assert "3,000 commands in 2 instruments, sequences 1 to 4,503." in result.stdout
    return directory


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["book", *map(str, words)])


def last_line(*words: object) -> str:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return str(result.stdout.splitlines()[-1])


def test_show_prints_books_and_one_line_of_state(tape: Path) -> None:
    result = run("show", tape, "--levels", "2")
    assert "instrument 1" in result.stdout
    assert "instrument 2" in result.stdout
    line = result.stdout.splitlines()[-1]
    found = re.fullmatch(
        r"Sequence 4,503, 2026-01-02 14:30:00.002 UTC: ([\d,]+) trades, ([\d,]+) live orders, state ([0-9a-f]{16})\.",
        line,
    )
    assert found
    assert int(found[1].replace(",", "")) > 100
    assert last_line("watch", tape) == line


def test_snapshot_and_tape_give_the_state_of_the_tape(tape: Path, tmp_path: Path) -> None:
    saved = tmp_path / "state"
    early = last_line("show", tape, "--at", "2222", "--save", saved)
    assert early.startswith("Sequence 2,203,")
    assert last_line("show", tape, "--snapshot", saved) == last_line("show", tape)
    assert last_line("show", tape, "--snapshot", saved, "--at", "2203") == early
    assert "already exists" in run("show", tape, "--save", saved).stderr


def test_json_has_the_books_and_the_hash(tape: Path) -> None:
    found = json.loads(run("show", tape, "--json", "--symbol", "2", "--levels", "3").stdout)
    assert (found["sequence"], found["commands"]) == (4_503, 4_500)
    (book,) = found["books"]
    assert book["instrument"] == 2
    assert 0 < len(book["bids"]) <= 3
    assert book["bids"][0][0] < book["asks"][0][0]
    assert found["state"][:16] in last_line("show", tape)


def test_errors_are_one_sentence(tape: Path, tmp_path: Path) -> None:
    damaged, foreign = tmp_path / "damaged", tmp_path / "foreign"
    run("show", tape, "--save", damaged)
    damaged.write_bytes(damaged.read_bytes()[:-40])
    foreign.write_text("no snapshot")
    empty = tmp_path / "empty"
    empty.mkdir()
    cases = {
        "is after the end of the tape; the last one is 4,503": ("show", tape, "--at", 9_999),
        "instrument 9 is not defined": ("show", tape, "--symbol", 9),
        "no instrument is defined up to sequence 0": ("show", tape, "--at", 0),
        "the snapshot is damaged: its hash differs": ("show", tape, "--snapshot", damaged),
        "not a snapshot of a matching engine": ("show", tape, "--snapshot", foreign),
        "nothing: no such file or directory": ("show", tape, "--snapshot", tmp_path / "nothing"),
        "directory not found": ("show", tmp_path / "nothing"),
        "not a tape directory, no segment found": ("show", empty),
        "is not an instrument id": ("watch", tape, "--symbol", "ABC"),
        "is not empty; pass a new directory": ("generate", tape),
    }
    for says, words in cases.items():
        result = run(*words)
        assert result.exit_code == 2, result.output
        assert says in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1


def test_service_returns_books_and_snapshots_at_a_sequence(tape: Path) -> None:
    with book_server(open_service(tape, None, OPERATOR), "127.0.0.1", 0) as server:
        ended = Event()
        thread = Thread(target=serve_until, args=(server, ended.is_set), daemon=True)
        thread.start()

        def get(path: str) -> tuple[int, bytes]:
            client = HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
            client.request("GET", path)
            response = client.getresponse()
            return response.status, response.read()

        status, body = get("/book?sequence=3000&instrument=1&levels=2")
        found = json.loads(body)
        assert (status, found["sequence"], [book["instrument"] for book in found["books"]]) == (200, 2_903, [1])
        assert found["state"][:16] in last_line("show", tape, "--at", "3000")
        status, body = get("/snapshot?sequence=3000")
        engine = MatchingEngine.restore(body)
        assert (status, engine.sequence, engine.state_hash().hex()) == (200, 2_903, found["state"])
        assert json.loads(get("/book")[1])["sequence"] == 4_503
        for path, expected, says in (
            ("/book?sequence=99999", 400, "after the end of the tape"),
            ("/book?sequence=-1", 400, "is not a number"),
            ("/nothing", 404, "not found"),
        ):
            status, body = get(path)
            assert (status, says in json.loads(body)["error"]) == (expected, True)
        ended.set()
        thread.join(timeout=20)
        assert not thread.is_alive()


def test_port_in_use_is_one_sentence(tape: Path) -> None:
    with book_server(open_service(tape, None, OPERATOR), "127.0.0.1", 0) as server:
        result = run("serve", tape, "--port", server.server_address[1])
    assert result.exit_code == 2
    assert "choose another --host or --port" in result.stderr
