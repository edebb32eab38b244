"""The demo's network file: the five cities, nearer to each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelcast.errors import NetError
from levelcast.network import five_cities, load_network, parse_network
from levelcast.network.warnings import warnings
from levelcast.node.demo.network import SCALE, check_multicast, network_text, set_stage

CITIES = parse_network(five_cities())


def test_delays_are_divided_and_everything_else_follows() -> None:
    network = parse_network(network_text())
    assert network.link("london", "sydney").delay_ns * SCALE == CITIES.link("london", "sydney").delay_ns
    assert network.link("new-york", "sydney").jitter_ns * SCALE == CITIES.link("new-york", "sydney").jitter_ns
    assert network.link("london", "tokyo").loss_ratio == CITIES.link("london", "tokyo").loss_ratio
    assert network.node_names == CITIES.node_names
    assert network.timing().hold_ns < 2_000_000_000
    assert warnings(network) == []
    assert f"divided by {SCALE}" in network.name


def test_two_stages_do_not_disturb_each_other(tmp_path: Path) -> None:
    one, other = (set_stage(tmp_path / name).network for name in ("one", "other"))
    assert (one.core.address, one.core.port) != (other.core.address, other.core.port)
    assert load_network(tmp_path / "one" / "network.toml") == one
    with pytest.raises(NetError, match="is not empty"):
        set_stage(tmp_path / "one")


def test_loss_and_floors_are_those_that_are_asked_for() -> None:
    text = network_text(0.0, {"XNAS": ["AAPL", "MSFT"], "XLON": ["VOD"], "ARCX": ["AAPL"]})
    network = parse_network(text)
    assert network.link("london", "tokyo").loss_ratio == 0.0
    assert [(floor.name, floor.publisher, floor.symbols) for floor in network.floors] == [
        ("XNAS", 1, ("AAPL", "MSFT")),
        ("XLON", 2, ("VOD",)),
        ("ARCX", 3, ("AAPL",)),
    ]
    assert network.floors[1].site == "london"
    with pytest.raises(NetError, match="supports at most"):
        network_text(floors={f"F{i}": ["A"] for i in range(100)})


def test_multicast_over_loopback_is_tried() -> None:
    check_multicast(parse_network(network_text()))
