"""QuickFIX's initiator trades with a floor, which is killed and restarted: no report is lost, none arrives twice."""

# ruff: noqa: N802 - the names of QuickFIX

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from levelcast.market.fix.journal import Received
from tests.entry_link import EntryHistory
from tests.floor_parts import PASSWORD, add_accounts, open_floor, prepare, running
from tests.pcap_parts import tcp_capture

DATA_DICTIONARY = "UseDataDictionary=N"


def settings(quickfix: ModuleType, directory: Path, port: int) -> Any:
    text = f"""[DEFAULT]
ConnectionType=initiator
StartTime=00:00:00
EndTime=00:00:00
HeartBtInt=5
ReconnectInterval=1
SocketConnectHost=127.0.0.1
SocketConnectPort={port}
FileStorePath={directory}
{DATA_DICTIONARY}
[SESSION]
BeginString=FIX.4.4
SenderCompID=ANN
TargetCompID=FLOOR
"""
    path = directory / "initiator.cfg"
    path.write_text(text, encoding="ascii")
    return quickfix.SessionSettings(str(path))


def make_application(quickfix: ModuleType) -> Any:
    class Trading(quickfix.Application):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.reports: list[dict[str, str]] = []
            self.session: Any = None
            self.logons = 0
            self.refused: list[str] = []

        def onCreate(self, session: Any) -> None:
            self.session = session

        def onLogon(self, session: Any) -> None:
            self.logons += 1

        def onLogout(self, session: Any) -> None: ...

        def toAdmin(self, message: Any, session: Any) -> None:
            if message.getHeader().getField(35) == "A":
                message.setField(553, "ANN")
                message.setField(554, PASSWORD)

        def fromAdmin(self, message: Any, session: Any) -> None:
            if message.getHeader().getField(35) == "3":
                self.refused.append(message.toString())

        def toApp(self, message: Any, session: Any) -> None: ...

        def fromApp(self, message: Any, session: Any) -> None:
            fields = dict(part.split("=", 1) for part in message.toString().split("\x01") if part)
            self.reports.append(fields)

        def order(self, number: int, side: str, price: str) -> None:
            message = quickfix.Message()
            message.getHeader().setField(35, "D")
            now = time.strftime("%Y%m%d-%H:%M:%S", time.gmtime())
            fields = {11: f"Q{number}", 38: "100", 40: "2", 44: price, 54: side, 55: "IBM", 60: now}
            for tag, value in fields.items():
                message.setField(tag, value)
            quickfix.Session.sendToTarget(message, self.session)

    return Trading()


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happens"
        time.sleep(0.02)


def test_quickfix_trades_a_day_with_restarts(tmp_path: Path, require_module: Any) -> None:
    quickfix = require_module("quickfix")
    add_accounts(tmp_path / "floor", "ann")
    store = tmp_path / "store"
    store.mkdir()
    floor = open_floor(tmp_path / "floor")
    prepare(floor, "ann")
    port = floor.listener.address[1]
    application = make_application(quickfix)
    initiator: Any = None
    sent = 0
    try:
        for part in range(3):
            with running(floor, kill=part < 2):
                if initiator is None:
                    found = settings(quickfix, store, port)
                    initiator = quickfix.SocketInitiator(application, quickfix.FileStoreFactory(found), found)
                    initiator.start()
                wait_for(lambda part=part: application.logons > part)  # type: ignore[misc]
                for _ in range(10):
                    sent += 1
                    application.order(sent, "12"[sent % 2], "181.52" if sent % 3 else "181.525")
                if part == 2:
                    everything = {f"Q{each}" for each in range(1, sent + 1)}
                    wait_for(lambda wanted=everything: answered(application.reports) >= wanted)  # type: ignore[misc]
            if part < 2:
                application.order(sent + 1, "1", "100.00")  # while nobody listens
                sent += 1
                floor = open_floor(tmp_path / "floor", address=("127.0.0.1", port))
    finally:
        if initiator is not None:
            initiator.stop()
    reports = application.reports
    exec_ids = [each["17"] for each in reports if each["35"] == "8"]
    assert len(exec_ids) == len(set(exec_ids))
    assert not application.refused
    received = [each["11"] for each in reports if each.get("150") == "A"]
    assert sorted(received) == sorted(f"Q{number}" for number in range(1, sent + 1))


def answered(reports: list[dict[str, str]]) -> set[str]:
    """Return the orders with an answer of the engine."""
    return {each["11"] for each in list(reports) if each.get("150") in ("0", "8")}


def test_the_fix_dissector_finds_no_error(tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    tshark = require_tool("tshark")
    history = EntryHistory(1, kills=False)
    history.floor.kill_ratio = 0.0
    history.run()
    messages = [entry.message for entry in history.traders[0].entries if isinstance(entry, Received)]
    assert len(messages) > 20
    capture = tmp_path / "fix.pcap"
    capture.write_bytes(tcp_capture(messages, port=9_878))
    done = subprocess.run(
        [tshark, "-r", str(capture), "-d", "tcp.port==9878,fix", "-T", "fields", "-e", "fix.MsgType",
         "-e", "_ws.expert"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == len(messages)
    assert all(row[0] for row in rows)
    assert not [row for row in rows if len(row) > 1 and row[1]]
