"""A floor in the test's process: its loop runs in a thread, its clients in the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from levelcast.node.floor.accounts import AccountStore
from levelcast.node.floor.process import DATABASE, FloorOptions, FloorProcess

PASSWORD = "secret"


def add_accounts(directory: Path, *names: str, **settings: Any) -> None:
    """Create the accounts and logins of a floor; the login of ann is ANN."""
    directory.mkdir(parents=True, exist_ok=True)
    store = AccountStore(directory / DATABASE)
    for name in names:
        store.add_account(name)
        store.add_login(name.upper(), PASSWORD, **settings)
        store.grant(name.upper(), name)
    store.close()


def prepare(floor: FloorProcess, *names: str, symbol: str = "IBM", cash: str = "1000000") -> None:
    """Define an instrument, open it, and give each account money and shares."""
    requests: list[dict[str, Any]] = [{"op": "instrument", "symbol": symbol}, {"op": "open"}]
    for name in names:
        requests.append({"op": "deposit", "account": name, "amount": cash, "asset": "USD"})
        requests.append({"op": "deposit", "account": name, "amount": "10000", "asset": symbol})
    for request in requests:
        answer = floor.operate({"by": "test", **request})
        assert answer.get("ok"), answer


@contextmanager
def running(floor: FloorProcess, *, kill: bool = False) -> Iterator[str]:
    """Run the loop of a floor in a thread; yield the address of its gateway. `kill`: stop it as kill -9 does."""
    failed: list[BaseException] = []

    def loop() -> None:
        try:
            while not floor.stopping:
                floor.turn(0.05)
            (floor.abandon if kill else floor.close)()
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{floor.listener.address[1]}"
    finally:
        floor.stop()
        thread.join(timeout=20)
        assert not thread.is_alive()
        assert not failed, failed


def open_floor(directory: Path, **options: Any) -> FloorProcess:
    """Return a floor on a free port, without a public feed unless it is given."""
    settings: dict[str, Any] = {"address": ("127.0.0.1", 0), "feed": None, "tables": False} | options
    return FloorProcess(FloorOptions(directory=directory, **settings))
