"""Gateways and numbers of order entry in the network file (E1, E8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from levelcast.cli import main
from levelcast.market.fair.changes import changed_entry_rules, first_entry_rules
from levelcast.network import Network, NetworkError, five_cities, parse_network
from levelcast.network.stripe_config import ring_config
from levelcast.network.warnings import warnings
from levelcast.wire.entry_change import decode_entry_rules, encode_entry_rules

CITIES = ("new-york", "london", "tokyo")
MS = 1_000_000


def gateways(*cities: str, first: int = 400) -> str:
    named = enumerate(cities, first)
    return "".join(f'\n[[gateway]]\nname = "{city}-orders"\nid = {id_}\nsite = "{city}"\n' for id_, city in named)


def parsed(more: str) -> Network:
    return parse_network(five_cities() + more)


def problems(more: str) -> list[str]:
    with pytest.raises(NetworkError) as caught:
        parsed(more)
    return [problem.message for problem in caught.value.problems]


def test_gateways_are_sources_of_their_stripe() -> None:
    network = parsed(gateways(*CITIES))
    assert [each.name for each in network.gateways] == ["new-york-orders", "london-orders", "tokyo-orders"]
    assert network.order_stripes == (network.stripes[0].name,)
    config = ring_config(network)
    assert config.sources is not None
    assert {400, 401, 402} <= config.sources
    london = network.receivers[1]
    assert config.delays[400, london.id] == network.link("new-york", london.site).quantile_ns
    assert parse_network(five_cities()).order_stripes == ()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ('\n[[gateway]]\nname = "g"\nsite = "london"\n', "has no id"),
        ('\n[[gateway]]\nname = "g"\nid = 400\nsite = "lodnon"\n', 'did you mean "london"'),
        (gateways("london") + gateways("tokyo"), "has id 400, which"),
        (gateways("london") + gateways("london", first=401), "has the name"),
        ('\n[[gateway]]\nname = "g"\nid = 400\nsite = "london"\nstripe = "orders"\n', "not defined in [stripes]"),
        ('\n[[site]]\nname = "perth"\n' + gateways("perth"), "has no receiver"),
        ("\n[entry]\nquantum = '5ms'\n", "no [[gateway]]"),
        (gateways("london") + "\n[entry]\nclose = '10ms'\n", "below δ_N + 2·resend + m·τ"),
        (gateways("london") + "\n[entry]\nquantum = '10s'\n", "close"),
        (gateways("london") + "\n[entry]\nquantum = '10s'\nclose = '5s'\n", "above close"),
        (gateways("london") + "\n[entry]\nlate_cap = '500ms'\n", "late site"),
        (gateways("london") + "\n[entry]\nquantum = 5\n", "a number needs its unit"),
    ],
)
def test_a_wrong_gateway_or_number_is_one_clear_message(more: str, expected: str) -> None:
    if "quantum = '10s'\n" in more and "close = " not in more:
        assert parsed(more).entry_timing().close_ns >= 10_000 * MS, "the closing time covers a longer quantum"
        return
    found = problems(more)
    assert len(found) == 1
    assert expected in found[0]


def test_an_id_that_a_floor_uses_as_publisher_is_refused() -> None:
    publisher = parse_network(five_cities()).floors[0].publisher
    (found,) = problems(gateways("london", first=publisher))
    assert "already has" in found or "publisher of" in found


def test_the_first_rules_follow_from_the_file_and_survive_the_sequence() -> None:
    network = parsed(gateways(*CITIES))
    rules = first_entry_rules(network, 10**18)
    assert decode_entry_rules(encode_entry_rules(rules)) == rules
    assert rules.gateways == (400, 401, 402)
    assert rules.quantum_ns == 5 * MS
    assert rules.from_ns > 10**18 + network.timing().hold_ns
    with pytest.raises(ValueError, match="no \\[\\[gateway\\]\\]"):
        first_entry_rules(parse_network(five_cities()), 0)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1_000 * MS, 20_000 * MS), st.sets(st.integers(1, 65535), min_size=1, max_size=9))
def test_changed_rules_are_valid_and_follow(hold_ns: int, ids: set[int]) -> None:
    last = first_entry_rules(NETWORK, 10**18)
    changed = changed_entry_rules(last, last.from_ns + 5, gateways=ids, hold_ns=hold_ns)
    assert decode_entry_rules(encode_entry_rules(changed)) == changed
    assert changed.version == 2
    assert changed.from_ns > last.from_ns + 5 + max(last.hold_ns, hold_ns)
    assert 2 * changed.epoch_ns <= hold_ns


NETWORK = parsed(gateways(*CITIES))


def test_cities_without_a_gateway_are_a_warning() -> None:
    found = [each for each in warnings(NETWORK) if "without a gateway" in each]
    assert len(found) == 1
    assert "sydney" in found[0]


def test_timing_explains_order_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "network.toml"
    path.write_text(five_cities() + gateways(*CITIES), encoding="utf-8")
    result = CliRunner().invoke(main.app, ["timing", "--network", str(path)])
    assert result.exit_code == 0
    assert "Fair order entry" in result.output
    assert "3 gateways" in result.output
    for number in NETWORK.entry_timing().explained:
        assert number.name in result.output
