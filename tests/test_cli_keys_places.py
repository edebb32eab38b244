"""The paths of keys follow from the network file and LEVELCAST_KEYS; times are read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.cli.keys.places import age_s, holder_of, places_of
from levelcast.keys.identity import Identity
from levelcast.keys.secret import KeysError
from levelcast.network import parse_network
from levelcast.network.model import KeyFiles
from tests.test_network import SMALL


def test_paths_are_beside_the_network_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEVELCAST_KEYS", raising=False)
    file = tmp_path / "network.toml"
    file.write_text(SMALL, encoding="utf-8")
    files = KeyFiles("", "signed.json", "private")
    assert places_of(file, files).statement == tmp_path / "signed.json"
    assert places_of(file, files).directory == tmp_path / "private"
    monkeypatch.setenv("LEVELCAST_KEYS", "/elsewhere")
    assert places_of(file, files).directory == Path("/elsewhere")


def test_holders_have_the_roles_and_ids_of_the_network_file() -> None:
    network = parse_network(SMALL)
    for name, id_, role in [
        *((each.name, each.id, "receiver") for each in network.receivers),
        *((each.name, each.id, "reformation") for each in network.reformation),
        *((each.name, each.id, "floor") for each in network.floors),
    ]:
        found = holder_of(network, Identity.new(name).public)
        assert (found.id, found.role) == (id_, role)
    assert holder_of(network, Identity.new("operator").public).id == 0


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("1h", 3_600), ("90d", 7_776_000), ("1.5min", 90)])
def test_times(text: str, seconds: int) -> None:
    assert age_s(text, "--in") == seconds


@pytest.mark.parametrize("text", ["", "5", "0s", "-1s", "0.5s", "99999d", "1 year"])
def test_bad_times(text: str) -> None:
    with pytest.raises(KeysError, match=r"--in: .* is not a time from 1s to 3650d"):
        age_s(text, "--in")
