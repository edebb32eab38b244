"""A process loads its keys from the files of its network, and a newer statement while it runs (K3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from levelcast.cli.keys.create import create_keys
from levelcast.cli.keys.places import places_of
from levelcast.keys.authority import revoke, rotate
from levelcast.keys.loading import DIRECTORY, KeyLocation
from levelcast.keys.secret import KeysError
from levelcast.keys.statement import KeyStatement
from levelcast.network import load_network
from levelcast.protocol.events import Event, KeysChanged, KeysRefused
from levelcast.runtime.key_reload import LOOK_NS, KeyReload, key_status, load_keys, location_of, secure
from tests.network_parts import TWO_FLOORS, three_rooms


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "network.toml"
    path.write_text(three_rooms(TWO_FLOORS), encoding="utf-8")
    return path


def renew(file: Path, change: Callable[[KeyStatement], KeyStatement]) -> KeyStatement:
    where = places_of(file)
    statement = change(where.read(None))
    where.write(statement, where.load_authority())
    return statement


def now_of(file: Path) -> int:
    return places_of(file).read(None).epochs[0].from_ns + 1_000_000_000


def test_a_network_without_keys_has_none(file: Path) -> None:
    assert load_keys(load_network(file), "a-1", 101, "receiver", 0) is None
    assert key_status(None) is None


def test_a_node_loads_its_keys_from_any_directory(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    create_keys(file)
    monkeypatch.chdir("/")
    network, now = load_network(file), now_of(file)
    keys = load_keys(network, "a-1", 101, "receiver", now)
    assert keys is not None
    status = key_status(secure(keys, 0, now))
    assert status is not None
    assert (status["statement"], status["epoch"]) == (1, 1)
    moved = tmp_path / "elsewhere"
    (tmp_path / "keys").rename(moved)
    with pytest.raises(KeysError, match="directory of keys not found"):
        load_keys(network, "a-1", 101, "receiver", now)
    monkeypatch.setenv(DIRECTORY, str(moved))
    found = location_of(network)
    assert isinstance(found, KeyLocation)
    assert found.directory == moved
    assert load_keys(network, "a-1", 101, "receiver", now) is not None


def test_what_is_missing_is_one_sentence(file: Path) -> None:
    create_keys(file)
    network, now = load_network(file), now_of(file)
    for path in (file.parent / "keys").glob("XNYS.*.pem"):
        path.unlink()
    with pytest.raises(KeysError, match=r"XNYS\.ed25519\.pem: private key not found"):
        load_keys(network, "XNYS", 1, "floor", now)
    with pytest.raises(KeysError, match="lists a-1 as receiver 101, but the network file has it as secondary 101"):
        load_keys(network, "a-1", 101, "secondary", now)
    with pytest.raises(KeysError, match=r"the first epoch begins .* after this machine's clock"):
        load_keys(network, "a-1", 101, "receiver", now - 60_000_000_000)
    (file.parent / "network.keys.json").unlink()
    with pytest.raises(KeysError, match="statement of keys not found"):
        load_keys(network, "a-1", 101, "receiver", now)


def test_a_newer_statement_is_used_and_a_bad_one_is_reported_once(file: Path) -> None:
    create_keys(file)
    network, now = load_network(file), now_of(file)
    keys = load_keys(network, "a-1", 101, "receiver", now)
    assert keys is not None
    security, events = secure(keys, 0, now), list[Event]()
    reload = KeyReload(keys, security, now, events.append)
    statement = file.parent / "network.keys.json"

    def look(times: int = 1) -> None:
        nonlocal now
        for _ in range(times):
            now += LOOK_NS
            reload.step((), now)

    look(2)
    assert events == []
    first = statement.read_bytes()
    renew(file, lambda before: rotate(before, now, 1))
    reload.step((), now)
    assert events == [], "it looks once per second"
    look(2)
    assert events == [KeysChanged(0, 2, 2)]
    assert security.keyring.statement.number == 2
    newer = statement.read_bytes()
    statement.write_bytes(first)
    look(3)
    (refused,) = events[1:]
    assert isinstance(refused, KeysRefused)
    assert "is older than 2" in refused.text
    statement.write_bytes(newer.replace(b'"number":2', b'"number":9'))
    look(2)
    assert "signature does not match" in str(events[2])
    statement.write_bytes(newer)
    renew(file, lambda before: revoke(before, "a-1", now))
    look(2)
    assert "a-1 has been revoked" in str(events[3])
    assert security.keyring.statement.number == 2, "the keys in use stay"
    assert len(events) == 4
