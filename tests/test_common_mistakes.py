"""Common mistakes, typed on purpose: each full message says what is wrong, where, and what to do."""

from __future__ import annotations

import ast
import os
import re
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from levelcast.cli.main import app
from levelcast.network import load_network
from levelcast.network.example import FiveCities, five_cities
from levelcast.network.placement import place_of
from levelcast.network.stripe_config import ring_config
from levelcast.runtime import sockets
from levelcast.runtime.namesake import claim_name
from levelcast.storage.append_file import lock_directory
from levelcast.storage.tape.reader import TapeReader
from tests.network_parts import free_group, free_port, free_ports
from tests.system.processes import write_network
from tests.tape_parts import make_frames
from tests.test_storage_tape_compare import record

REPOSITORY = Path(__file__).resolve().parents[1]
NETWORK = 10
HEADER = "ts_event,symbol,price,size\n"
ROW = "2013-10-07T13:30:00Z,IBM,{price},100\n"
RECEIVERS = "new-york-1, london-1, frankfurt-1, tokyo-1, sydney-1"
NODES = f"{RECEIVERS}, reform-london, reform-new-york, XNYS, XLON, XETR, XTKS, XASX"
FLOORS = "XNYS, XLON, XETR, XTKS, XASX"
FOUND = "pass the directory of a receiver, such as data/tokyo-1, or of its tape"
NO_ADDRESS = "address not found on this machine; pass --interface with one of `ip -4 address`"


class Setup:
    """The working directory of a command, with what its mistake needs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, opened: ExitStack, need: Callable[[str], ModuleType]) -> None:
        self.monkeypatch = monkeypatch
        self.opened = opened
        self.need = need
        self.found: dict[str, object] = {}
        """Values of `{NAME}` in the expected message."""

    def file(self, name: str, text: str) -> None:
        Path(name).write_text(text, encoding="utf-8")

    def network(self, old: str = "", new: str = "") -> None:
        """Write the example network with one change, and status ports that no other program uses."""
        values = FiveCities(
            network_id=NETWORK, core_address=free_group(), core_port=free_port(), status_port=free_ports()
        )
        text = five_cities(values)
        assert old in text
        self.found["core"] = f"{values.core_address} port {values.core_port}"
        self.found["line"] = text[: text.index(old)].count("\n") + 1
        self.file("network.toml", text.replace(old, new, 1))


Prepare = Callable[[Setup], Any]


def nothing(_: Setup) -> None:
    pass


def network(setup: Setup) -> None:
    setup.network()


def directory(_: Setup) -> None:
    Path("notes").mkdir()


def csv(text: str, name: str = "trades.csv") -> Prepare:
    """The example network, and a file of trades."""

    def prepare(setup: Setup) -> None:
        setup.network()
        setup.file(name, text)

    return prepare


def tape(setup: Setup) -> Path:
    return record(Path("data/tokyo-1/tape"), make_frames(24)).parent


def damaged_tape(setup: Setup) -> None:
    """A tape with one flipped bit in the first record of a frame."""
    frame = list(TapeReader(tape(setup) / "tape").frames())[12]
    setup.found |= {"slot": frame.line.slot, "sequence": frame.line.first_sequence, "at": frame.line.at}
    setup.found["file"] = path = frame.segment.data_path
    content = bytearray(path.read_bytes())
    content[frame.line.at + 24] ^= 1
    path.write_bytes(content)


def tape_and_file(setup: Setup) -> None:
    tape(setup)
    setup.file("day.csv", "mine")
    setup.file("day.certificate", "mine")


def port_in_use(setup: Setup) -> None:
    file = write_network(Path("network.toml"))
    address = load_network(file).status_address("a-1")
    assert address is not None
    setup.opened.enter_context(socket.create_server(address))
    setup.found["port"] = address[1]


def journals(setup: Setup) -> None:
    """The journals of all nodes, as after `levelcast disk init`."""
    setup.network()
    assert CliRunner().invoke(app, ["disk", "init", "--all", "--data", "data"]).exit_code == 0


def journal_in_use(setup: Setup) -> None:
    journals(setup)
    setup.opened.callback(os.close, lock_directory(Path("data/tokyo-1/journal"), "journal"))


def running_node(setup: Setup) -> None:
    journals(setup)
    network = load_network("network.toml")
    group, place = network.core_group(), place_of(network, "tokyo-1")
    domain = ring_config(network, place.stripe).domain
    setup.opened.enter_context(claim_name(place.part, place.id, domain, group.address, group.port))


def other_network(setup: Setup) -> None:
    journals(setup)
    setup.network(f'id = "{NETWORK:016x}"', f'id = "{NETWORK + 1:016x}"')


def lost_journal(setup: Setup) -> None:
    journals(setup)
    Path("data/london-1").rename("elsewhere")


def no_multicast(setup: Setup) -> None:
    """A machine whose loopback interface has no multicast."""

    class Socket(socket.socket):
        def setsockopt(self, *arguments: Any) -> None:
            if arguments[1] == socket.IP_MULTICAST_IF:
                raise OSError(19, "No such device")
            super().setsockopt(*arguments)

    setup.monkeypatch.setattr(sockets, "udp", lambda: Socket(socket.AF_INET, socket.SOCK_DGRAM))


def no_java(setup: Setup) -> None:
    setup.monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))
    setup.monkeypatch.delenv("JAVA_HOME", raising=False)
    setup.monkeypatch.setenv("PATH", "nowhere")


def no_pyspark(setup: Setup) -> None:
    setup.monkeypatch.setitem(sys.modules, "pyspark", None)


def no_lake(setup: Setup) -> None:
    setup.need("deltalake")
    Path("notes").mkdir()


class Mistake(NamedTuple):
    command: str
    prepare: Prepare
    message: str
    code: int = 2


MISTAKES = {
    # -- the command itself
    "unknown command": Mistake("statsu", nothing, 'levelcast: unknown command "statsu"; did you mean status?'),
    "unknown subcommand": Mistake(
        "tape print", nothing, 'levelcast tape: unknown command "print"; see `levelcast tape --help`'
    ),
    "unknown option": Mistake(
        "sim --seed 7", nothing, "levelcast sim: unknown option --seed; did you mean --seeds or --seconds?"
    ),
    "missing option": Mistake(
        "disk lost --data data", network, "levelcast disk lost: --name is missing; see `levelcast disk lost --help`"
    ),
    "missing argument": Mistake(
        "tape verify", nothing, "levelcast tape verify: DIR is missing; see `levelcast tape verify --help`"
    ),
    "option without its value": Mistake(
        "up --data", network, "levelcast up: option --data needs a value; see `levelcast up --help`"
    ),
    "value without quotes": Mistake(
        "watch --for 5 sec",
        network,
        'levelcast watch: unexpected argument "sec"; quote values that contain spaces, and see `levelcast watch '
        "--help`",
    ),
    "not a number": Mistake(
        "sim --jobs two", nothing, 'levelcast sim: --jobs: "two" is not a whole number of at least 1'
    ),
    "too many receivers": Mistake(
        "regions pings.csv --receivers 116",
        nothing,
        'levelcast regions: --receivers: "116" is not a whole number from 2 to 115',
    ),
    "wrong choice": Mistake(
        "pipeline run --input data --lake lake --format xml",
        nothing,
        'levelcast pipeline run: --format: "xml" is not one of tape, dbn, csv, parquet, lean, lobster, itch, iex',
    ),
    "wrong duration": Mistake(
        "up --data data --for '5 sec'",
        network,
        'levelcast up: --for: "5 sec" is not a time such as 20s, 500ms or 2min',
    ),
    "wrong seeds": Mistake(
        "sim --seeds 0-99",
        nothing,
        'levelcast sim: --seeds: "0-99" is not a seed or a range of seeds; write 7 or 0..199',
    ),
    "seeds backward": Mistake(
        "sim --seeds 99..0", nothing, "levelcast sim: --seeds: the range 99..0 runs backward; write 0..99"
    ),
    "output exists": Mistake("init", network, "levelcast: network.toml: already exists; use --force to replace it"),
    "export exists": Mistake(
        "tape export data/tokyo-1 --out day.csv",
        tape_and_file,
        "levelcast tape export: day.csv: already exists; use --force to replace it",
    ),
    # -- the network file
    "network file missing": Mistake(
        "timing",
        nothing,
        "levelcast: network.toml: network file not found; write one with `levelcast init --out network.toml`",
    ),
    "network file is a directory": Mistake(
        "up --network notes --data data",
        directory,
        "levelcast: notes: is a directory; pass a network file, such as notes/network.toml",
    ),
    "network file is not TOML": Mistake(
        "timing --network trades.csv",
        csv(HEADER),
        "trades.csv:1: not valid TOML: expected '=' after a key in a key/value pair",
    ),
    "misspelt key": Mistake(
        "timing",
        lambda setup: setup.network('process = "5ms"', 'proces = "5ms"'),
        'network.toml:{line}: unknown key "proces" in [timing]; did you mean "process"?',
    ),
    "wrong type": Mistake(
        "timing",
        lambda setup: setup.network("loss = 0.01", 'loss = "1%"'),
        'network.toml:{line}: [links] has loss = "1%": it must be a ratio from 0 to 1',
    ),
    "node not in the file": Mistake(
        "node --name tokio-1 --data data",
        network,
        'levelcast: node "tokio-1" not found in the network file; did you mean tokyo-1?',
    ),
    "node to kill not in the file": Mistake(
        "up --data data --kill osaka-1@5s",
        network,
        f'levelcast up: --kill: "osaka-1@5s" is not NAME@TIME; NAME is one of {NODES}',
    ),
    "unknown region": Mistake(
        "watch --region mars",
        network,
        'levelcast watch: --region: region "mars" has no edge group in the network file; choose one of americas, '
        "asia-pacific, europe",
    ),
    # -- the machine
    "port in use": Mistake(
        "node --name a-1 --data data --init",
        port_in_use,
        "levelcast: cannot serve status at 127.0.0.1 port {port}: port already in use; stop the other program, or "
        "change the port of [status] in the network file",
    ),
    "node runs already": Mistake(
        "node --name tokyo-1 --data data",
        running_node,
        "levelcast: tokyo-1 is already running on this machine; stop it first",
    ),
    "data directory in use": Mistake(
        "node --name tokyo-1 --data data --status-port 0",
        journal_in_use,
        "levelcast: data/tokyo-1/journal: another process is writing this journal; stop it, or use another directory",
    ),
    "interface of another machine": Mistake(
        "node --name tokyo-1 --data data --init --interface 192.0.2.1",
        network,
        f"levelcast: cannot listen on 192.0.2.1: {NO_ADDRESS}",
    ),
    "interface by its name": Mistake(
        "watch --region europe --interface eth0",
        network,
        'levelcast watch: --interface: "eth0" is not an IPv4 address; `ip -4 address` lists those of this machine',
    ),
    "no multicast": Mistake(
        "demo",
        no_multicast,
        "levelcast: multicast is not available on the loopback interface (No such device); run `ip link set lo up "
        "multicast on`, or use `levelcast demo --simulated`",
    ),
    "no Java": Mistake(
        "pipeline run --input data/tokyo-1 --lake lake",
        no_java,
        "levelcast: Spark does not start (java not found); install Java 17 or newer, or set JAVA_HOME to it",
    ),
    "Spark is not installed": Mistake(
        "pipeline run --input data/tokyo-1 --lake lake",
        no_pyspark,
        "levelcast: pyspark is not installed; run pip install 'levelcast[spark]'",
    ),
    # -- directories
    "data directory is a file": Mistake(
        "up --data trades.csv --for 1s",
        csv(HEADER),
        "levelcast: trades.csv: not a directory; pass a directory with --data",
    ),
    "data directory not writable": Mistake(
        "up --data /proc/levelcast --for 1s",
        network,
        "levelcast: /proc/levelcast: cannot be used as data directory (no such file or directory); pass another one "
        "with --data",
    ),
    "data directory of another network": Mistake(
        "node --name tokyo-1 --data data",
        other_network,
        "levelcast: data/tokyo-1: this journal belongs to the network 000000000000000a, and the network file describes "
        '000000000000000b; pass another --data or, to continue that network, write id = "000000000000000a" below '
        "[network] in the file",
    ),
    "node without a journal": Mistake(
        "node --name tokyo-1 --data data",
        network,
        "levelcast: data/tokyo-1: journal not found; if this node has never run, create one with `levelcast disk "
        "init` (or --init); otherwise its disk is lost: report this to the ring with `levelcast disk lost`",
    ),
    "journal lost": Mistake(
        "node --name london-1 --data data",
        lost_journal,
        "levelcast: data/london-1: its journal is missing (network.json shows that it had one); restore it, or "
        "declare the disk lost with `levelcast disk lost --name london-1 --data data`",
    ),
    "empty directory instead of a tape": Mistake(
        "tape verify notes", directory, f"levelcast: notes: not a tape directory, no segment found; {FOUND}"
    ),
    "no directory of a tape": Mistake(
        "tape info data/kyoto-1", tape, f"levelcast: data/kyoto-1: directory not found; {FOUND}"
    ),
    "damaged tape": Mistake(
        "tape export data/tokyo-1 --out day.csv",
        damaged_tape,
        "levelcast: {file}: damaged at byte {at:,}: its records do not match its chain hash (frame of slot {slot}, "
        "sequence {sequence}); restore it from the directory OTHER of another receiver: `levelcast tape repair "
        "data/tokyo-1 --from OTHER`, or read it as it is with --unsound",
    ),
    "damaged tape, printed": Mistake(
        "tape cat data/tokyo-1",
        damaged_tape,
        "levelcast: {file}: damaged at byte {at:,}: its records do not match its chain hash (frame of slot {slot}, "
        "sequence {sequence}); restore it from the directory OTHER of another receiver: `levelcast tape repair "
        "data/tokyo-1 --from OTHER`, or read it as it is with --unsound",
    ),
    "no audit of this name": Mistake(
        "audit speed data",
        tape,
        'levelcast: unknown audit "speed"; use one of order, fairness, timeliness, entry, or all',
    ),
    "not a certificate": Mistake(
        "certify data/tokyo-1 --check day.certificate",
        tape_and_file,
        "levelcast: day.certificate: not a certificate, because it is not valid JSON (Expecting value: line 1 column 1 "
        "(char 0)); write one with `levelcast certify DIR... --out FILE`",
    ),
    "not a lake": Mistake(
        "pipeline status --lake notes",
        no_lake,
        "levelcast: notes: not a lake; create one with `levelcast pipeline run --input PATH --lake DIR`",
    ),
    "not a plan": Mistake(
        "plan show notes",
        directory,
        "levelcast: notes: not a plan, flow_session.parquet not found; make one with `levelcast plan make --out notes`",
    ),
    # -- trades
    "file of trades missing": Mistake(
        "publish --floor XNYS trades.csv", network, "levelcast: trades.csv: file not found; check the path"
    ),
    "column missing": Mistake(
        "publish --floor XNYS trades.csv",
        csv("ts_event,symbol,size\n"),
        "levelcast: trades.csv: column price not found (columns: ts_event, symbol, size); required columns: ts_event, "
        "symbol, price, size; optional columns: floor, condition, trade_id",
    ),
    "bad price": Mistake(
        "publish --floor XNYS trades.csv",
        csv(HEADER + ROW.format(price="12.5") + ROW.format(price="12x5")),
        'levelcast: trades.csv: row 2 (line 3): price "12x5" is not a decimal number; correct it or remove the row',
    ),
    "unknown floor": Mistake(
        "publish --floor NYSE trades.csv",
        csv(HEADER),
        f'levelcast: "NYSE" is not a floor of network.toml; specify one of {FLOORS}, or add it there',
    ),
    "floor missing": Mistake(
        "publish trades.csv",
        csv(HEADER + ROW.format(price="12.5")),
        "levelcast: trades.csv: column floor not found; add it, or specify the floor with --floor",
    ),
    "unknown symbol": Mistake(
        "publish --floor XLON trades.csv",
        csv(HEADER + ROW.format(price="12.5")),
        "levelcast: trades.csv: row 1 (line 2): IBM is not among the symbols of floor XLON in network.toml; add it "
        "there",
    ),
    "unknown format": Mistake(
        "publish --floor XNYS trades.txt",
        csv(HEADER, "trades.txt"),
        "levelcast: trades.txt: its name does not show the format; pass --format dbn, parquet, csv, lean",
    ),
    # -- no network runs
    "status of no network": Mistake(
        "status",
        network,
        "levelcast: no node of network.toml replies; start them with `levelcast up` or `levelcast node`",
        code=1,
    ),
    "plan of no network": Mistake(
        "plan current",
        network,
        "levelcast: network.toml: no receiver replies; start the network, and check it with `levelcast status`",
    ),
}


@pytest.fixture
def setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require_module: Callable[[str], ModuleType]
) -> Iterator[Setup]:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as opened:
        yield Setup(monkeypatch, opened, require_module)


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_the_message_says_what_is_wrong_where_and_what_to_do(mistake: Mistake, setup: Setup) -> None:
    mistake.prepare(setup)
    result = CliRunner().invoke(app, shlex.split(mistake.command))
    assert (result.stderr, result.exit_code) == (mistake.message.format(**setup.found) + "\n", mistake.code)


def test_a_publication_without_a_network_says_so_and_ends(setup: Setup) -> None:
    setup.network()
    setup.file("trades.csv", HEADER + ROW.format(price="12.5"))
    setup.monkeypatch.setattr("levelcast.cli.live.publish.SILENCE_S", 0.1)
    result = CliRunner().invoke(app, shlex.split("publish --floor XNYS --timeout 500ms trades.csv"))
    assert result.exit_code == 1
    assert result.stderr == (
        f"levelcast: no ring found at {setup.found['core']}; check that its receivers are running and that "
        "--interface is theirs. Waiting\n"
    )
    assert re.sub(r"\d+", "N", result.stdout) == (
        "Timed out, since nothing was witnessed: N of N trades are published, N packets not yet witnessed; check that "
        "the network runs (`levelcast status`); without --data it cannot be resumed\n"
    )


def messages_of(path: Path) -> Iterator[str]:
    """The texts of a module, with "…" for the values in them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def quoted_messages() -> list[str]:
    """The messages in the table of errors of docs/troubleshooting.md."""
    table = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8").partition("## Error messages")[2]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [message for cell in cells for message in re.findall("`([^`]+)`", cell)]


@pytest.fixture(scope="module")
def messages() -> list[str]:
    return [text for path in (REPOSITORY / "src").rglob("*.py") for text in messages_of(path)]


@pytest.mark.parametrize("quoted", quoted_messages())
def test_a_message_in_the_documentation_exists(quoted: str, messages: list[str]) -> None:
    parts = [re.escape(part.strip()) for part in quoted.split("…")]
    wanted = re.compile(".*".join(parts), re.DOTALL)
    assert any(wanted.search(text) for text in messages)
