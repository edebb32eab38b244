"""A timing record is one DBN record that people can read and nothing else is mistaken for."""

from __future__ import annotations

import databento_dbn as dbn
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast import records
from levelcast.wire.membership import MAX_MEMBERS, decode_membership
from levelcast.wire.messages import UNIT_NS, Cutoff, Pace, PaceChange
from levelcast.wire.pace_change import decode_pace_change, encode_pace_change, pace_changes

TIMES = st.integers(1, 2**32 - 1).map(lambda units: units * UNIT_NS)
CUTOFFS = st.lists(
    st.builds(Cutoff, st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1).map(lambda units: units * UNIT_NS)),
    min_size=1,
    max_size=MAX_MEMBERS,
    unique_by=lambda each: each.member,
).map(tuple)
CHANGES = st.builds(
    PaceChange,
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    TIMES,
    st.builds(Pace, TIMES, st.integers(10, 2**32 - 1).map(lambda units: units * UNIT_NS), CUTOFFS),
)
CHANGE = PaceChange(4, 1_700_000_000 * 10**9, 600_000_000, Pace(417_000_000, 25_000_000, (Cutoff(1, 160_500_000),)))


@given(CHANGES)
def test_there_and_back(change: PaceChange) -> None:
    payload = encode_pace_change(change)
    assert decode_pace_change(payload) == change
    assert records.count_records(payload) == 1
    assert decode_membership(payload) is None


@given(CHANGES, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_stamp_leaves_it_alone(change: PaceChange, sequence: int, ts_ns: int) -> None:
    payload = encode_pace_change(change)
    assert records.stamp(payload, sequence, ts_ns) == payload


def test_people_can_read_it() -> None:
    decoder = dbn.DBNDecoder()
    decoder.write(records.dbn_metadata() + encode_pace_change(CHANGE))
    _, message = decoder.decode()
    assert isinstance(message, dbn.SystemMsg)
    assert message.msg == "levelcast timing v4: hold 0.4170 s, before 0.6000 s, beats 0.0250 s"
    assert message.ts_event == CHANGE.from_ns


@given(CHANGES, st.data())
def test_damage_gives_no_other_text(change: PaceChange, data: st.DataObject) -> None:
    payload = bytearray(encode_pace_change(change))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    found = decode_pace_change(bytes(payload))
    assert found is None or encode_pace_change(found) == bytes(payload)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(CHANGE._replace(pace=CHANGE.pace._replace(cutoffs=())), "1 to 115 members", id="no member"),
        pytest.param(
            CHANGE._replace(pace=CHANGE.pace._replace(cutoffs=CHANGE.pace.cutoffs * 2)), "each once", id="twice"
        ),
        pytest.param(CHANGE._replace(before_ns=0), "above 0", id="no hold time before"),
        pytest.param(CHANGE._replace(pace=CHANGE.pace._replace(beat_ns=0)), "at least 1 ms", id="no beats"),
        pytest.param(CHANGE._replace(before_ns=600_000_001), "multiples of 0.1 ms", id="a fraction of a unit"),
        pytest.param(CHANGE._replace(before_ns=2**32 * UNIT_NS), "outside its range", id="too long"),
    ],
)
def test_what_no_ring_can_have_is_refused(change: PaceChange, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_pace_change(change)


def test_the_changes_among_other_records_are_found() -> None:
    record = encode_pace_change(CHANGE)
    longer = bytearray(record)
    longer[20:30] = b"levelcast "
    assert pace_changes(b"") == pace_changes(records.trades(3).tobytes()) == pace_changes(bytes(longer)) == []
    assert pace_changes(memoryview(records.trades(3).tobytes() + record + records.trades(1).tobytes() + record)) == [
        CHANGE,
        CHANGE,
    ]
