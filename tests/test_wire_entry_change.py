"""Records with the rules of order entry: one encoding, and nothing else decodes (E8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.records import count_records
from levelcast.wire.entry_change import (
    MAX_GATEWAYS,
    EntryRules,
    decode_entry_rules,
    encode_entry_rules,
    entry_changes,
)
from levelcast.wire.pace_change import decode_pace_change
from tests.fair_entry_parts import MS, RULES, S, order_records

RULES_OF_NETWORKS = st.builds(
    EntryRules,
    version=st.integers(1, 2**64 - 1),
    from_ns=st.integers(0, 2**62 - 1),
    quantum_ns=st.integers(0, S),
    close_ns=st.integers(S, 60 * S),
    late_cap_ns=st.integers(0, 2**31 - 1),
    ahead_ns=st.integers(0, S),
    epoch_ns=st.integers(MS, S),
    hold_ns=st.integers(2 * S, 60 * S),
    gateways=st.sets(st.integers(1, 65535), min_size=1, max_size=MAX_GATEWAYS).map(lambda ids: tuple(sorted(ids))),
)


@given(RULES_OF_NETWORKS)
def test_rules_survive_encoding_as_one_record(rules: EntryRules) -> None:
    payload = encode_entry_rules(rules)
    assert count_records(payload) == 1
    assert decode_entry_rules(payload) == rules
    assert decode_pace_change(payload) is None


@given(st.data())
def test_changed_bytes_are_another_record(data: st.DataObject) -> None:
    payload = bytearray(encode_entry_rules(RULES))
    payload[data.draw(st.integers(16, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    found = decode_entry_rules(bytes(payload))
    assert found is None or encode_entry_rules(found) == bytes(payload)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"quantum_ns": RULES.close_ns + 1}, "quantum"),
        ({"close_ns": 0, "quantum_ns": 0}, "closing time above 0"),
        ({"late_cap_ns": -1}, "cap"),
        ({"epoch_ns": 1}, "epoch"),
        ({"epoch_ns": RULES.hold_ns // 2 + 1}, "at most half"),
        ({"gateways": ()}, "gateways"),
        ({"gateways": (12, 11)}, "rising"),
        ({"gateways": (11, 11)}, "rising"),
        ({"gateways": (0, 11)}, "gateways"),
        ({"gateways": (65536,)}, "65535"),
        ({"gateways": tuple(range(1, MAX_GATEWAYS + 2))}, "gateways"),
        ({"from_ns": -1}, "range"),
        ({"version": 2**64}, "range"),
    ],
)
def test_rules_that_no_network_can_have_are_refused(change: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        encode_entry_rules(RULES._replace(**change))  # type: ignore[arg-type]


def test_rules_are_found_among_other_records() -> None:
    orders = order_records([]).tobytes()
    payload = orders + encode_entry_rules(RULES) + encode_entry_rules(RULES._replace(version=2))
    assert entry_changes(memoryview(payload)) == [RULES, RULES._replace(version=2)]
    assert entry_changes(orders) == []
