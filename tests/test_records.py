"""Our records are DBN records: `databento_dbn` reads what we write and we read what it writes.

`databento_dbn` is the independent reader here; nothing of Levelcast uses it at run time.
"""

from __future__ import annotations

import csv
import doctest
import gzip
import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from itertools import islice
from pathlib import Path
from typing import Any

import databento_dbn
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import levelcast.records as records
from levelcast.records import RECORD_TYPES, UNDEF_PRICE, BadRecords, RecordType
from levelcast.wire.channel_plan import Kind, PlanRecord, encode_record
from levelcast.wire.membership import encode_membership
from levelcast.wire.messages import MemberLife, Membership
from levelcast.wire.watermark import Holds, Watermark, encode_watermark
from tests import record_page

dbn: Any = databento_dbn  # its stubs declare enum members as the plain values that they are not

KINDS = {kind.name: kind for kind in RECORD_TYPES}
DBN_CLASSES: dict[str, Any] = {
    "trade": dbn.TradeMsg,
    "quote": dbn.MBP1Msg,
    "order": dbn.MBOMsg,
    "instrument": dbn.InstrumentDefMsg,
    "mapping": dbn.SymbolMappingMsg,
    "status": dbn.StatusMsg,
    "system": dbn.SystemMsg,
}
CONSTRUCTORS = {
    "trade": records.trades,
    "quote": records.quotes,
    "order": records.orders,
    "instrument": records.instruments,
    "mapping": records.mappings,
    "status": records.statuses,
    "system": records.system_messages,
}
every_kind = pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.name)


def letters(enum: Any) -> dict[Any, Any]:
    return {value.value.encode(): value for value in enum.variants()}


def numbers(enum: Any) -> dict[Any, Any]:
    return {value.value: value for value in enum.variants()}


STYPES = {
    records.STYPE_INSTRUMENT_ID: dbn.SType.INSTRUMENT_ID,
    records.STYPE_RAW_SYMBOL: dbn.SType.RAW_SYMBOL,
}
# What the bytes of a field with a closed set of values mean to databento_dbn, by (record, field) or field.
MEANINGS: dict[Any, dict[Any, Any]] = {
    "action": letters(dbn.Action),
    ("status", "action"): numbers(dbn.StatusAction),
    "side": letters(dbn.Side),
    "leg_side": letters(dbn.Side),
    "reason": numbers(dbn.StatusReason),
    "trading_event": numbers(dbn.TradingEvent),
    "is_trading": letters(dbn.TriState),
    "is_quoting": letters(dbn.TriState),
    "is_short_sell_restricted": letters(dbn.TriState),
    "stype_in": STYPES,
    "stype_out": STYPES,
    "code": numbers(dbn.SystemCode),
    "instrument_class": letters(dbn.InstrumentClass),
    "leg_instrument_class": letters(dbn.InstrumentClass),
    "match_algorithm": letters(dbn.MatchAlgorithm),
    "security_update_action": letters(dbn.SecurityUpdateAction),
    "user_defined_instrument": letters(dbn.UserDefinedInstrument),
}
TRI_STATE_READS_AS = {dbn.TriState.NOT_AVAILABLE: None, dbn.TriState.YES: True, dbn.TriState.NO: False}


def dbn_fields(kind: RecordType) -> list[str]:
    """The fields of the DBN part that a floor fills in."""
    fields = kind.dtype.fields
    assert fields is not None
    fixed = {"length", "rtype", "_reserved"}
    return [name for name, place in fields.items() if place[1] < kind.base_size and name not in fixed]


def meaning(kind: RecordType, name: str) -> dict[Any, Any] | None:
    return MEANINGS.get((kind.name, name)) or MEANINGS.get(name)


def field_values(kind: RecordType, name: str) -> st.SearchStrategy[Any]:
    form = kind.dtype[name]
    if known := meaning(kind, name):
        return st.sampled_from(sorted(known))
    if form.kind == "S":
        ascii_text = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=form.itemsize - 1)
        return ascii_text.map(str.encode)
    limits = np.iinfo(form)
    return st.integers(int(limits.min), int(limits.max))


def rows(kind: RecordType) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: field_values(kind, name) for name in dbn_fields(kind)})


def as_theirs(kind: RecordType, name: str, value: Any) -> Any:
    known = meaning(kind, name)
    return known[value] if known else value.decode() if isinstance(value, bytes) else value


def their_record(kind: RecordType, row: dict[str, Any]) -> Any:
    given_values = {name: as_theirs(kind, name, value) for name, value in row.items()}
    if kind.name == "quote":
        level = {name[:-3]: given_values.pop(name) for name in list(given_values) if name.endswith("_00")}
        given_values["levels"] = dbn.BidAskPair(**level)  # not a list, whatever its stub says
    if kind.name == "system":  # databento_dbn gives nobody the choice
        del given_values["publisher_id"], given_values["instrument_id"]
    return DBN_CLASSES[kind.name](**given_values)


def read_by_dbn(payload: bytes) -> list[Any]:
    decoder = dbn.DBNDecoder()
    decoder.write(records.dbn_metadata() + payload)
    decoded: list[Any] = decoder.decode()
    assert isinstance(decoded[0], dbn.Metadata)
    assert decoder.buffer() == b""
    return decoded[1:]


# The two directions


@every_kind
def test_the_layout_is_the_one_that_databento_declares(kind: RecordType) -> None:
    theirs = np.dtype(DBN_CLASSES[kind.name]._dtypes)
    assert kind.base_size == DBN_CLASSES[kind.name].size_hint == theirs.itemsize
    assert kind.dtype.names is not None
    assert theirs.names is not None
    ours = kind.dtype.names[: len(theirs.names)]
    assert ours == theirs.names
    for name in ours:
        assert (kind.dtype[name], kind.dtype.fields[name][1]) == (theirs[name], theirs.fields[name][1])  # type: ignore[index]


@every_kind
@given(data=st.data())
def test_dbn_reads_what_we_write_tail_or_not(kind: RecordType, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(rows(kind), min_size=1, max_size=3))
    ours = CONSTRUCTORS[kind.name](len(drawn))
    for record, row in zip(ours, drawn, strict=True):
        for name, value in row.items():
            record[name] = value
    found = read_by_dbn(ours.tobytes())
    assert [type(record) for record in found] == [DBN_CLASSES[kind.name]] * len(drawn)
    for record, row in zip(found, drawn, strict=True):
        for name, value in row.items():
            expected = as_theirs(kind, name, value)
            if isinstance(expected, dbn.TriState):
                expected = TRI_STATE_READS_AS[expected]
            assert getattr(record, name) == expected, name


@every_kind
@given(data=st.data())
def test_we_read_what_dbn_writes(kind: RecordType, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(rows(kind), min_size=1, max_size=3))
    payload = b"".join(bytes(their_record(kind, row)) for row in drawn)
    assert records.count_records(payload) == len(drawn)
    (batch,) = records.split(payload)
    assert batch.kind is kind
    for record, row in zip(batch.records, drawn, strict=True):
        for name, value in row.items():
            if not (kind.name == "system" and name in {"publisher_id", "instrument_id"}):
                assert record[name] == value, name
    # The records had no tail; a reader finds the blank one.
    for name in set(kind.dtype.names or ()) - set(dbn_fields(kind)):
        assert (batch.records[name] == kind.blank[name]).all()


@every_kind
def test_a_blank_record_is_what_dbn_makes_of_required_fields_only(kind: RecordType) -> None:
    every_required: dict[str, dict[str, Any]] = {
        "trade": {
            "price": UNDEF_PRICE,
            "size": 0,
            "action": dbn.Action.TRADE,
            "side": dbn.Side.NONE,
            "depth": 0,
        },
        "quote": {
            "price": UNDEF_PRICE,
            "size": 0,
            "action": dbn.Action.NONE,
            "side": dbn.Side.NONE,
            "depth": 0,
        },
        "order": {
            "order_id": 0,
            "price": UNDEF_PRICE,
            "size": 0,
            "action": dbn.Action.ADD,
            "side": dbn.Side.NONE,
        },
        "instrument": {
            "min_price_increment": UNDEF_PRICE,
            "display_factor": UNDEF_PRICE,
            "raw_symbol": "",
            "asset": "",
            "security_type": "",
            "instrument_class": dbn.InstrumentClass.STOCK,
            "security_update_action": dbn.SecurityUpdateAction.ADD,
        },
        "mapping": {
            "stype_in": dbn.SType.RAW_SYMBOL,
            "stype_in_symbol": "",
            "stype_out": dbn.SType.INSTRUMENT_ID,
            "stype_out_symbol": "",
            "start_ts": dbn.UNDEF_TIMESTAMP,
            "end_ts": dbn.UNDEF_TIMESTAMP,
        },
        "status": {},
        "system": {"msg": ""},
    }
    required = every_required[kind.name]
    header = {} if kind.name == "system" else {"publisher_id": 0, "instrument_id": 0}
    received = {} if kind.ts_recv_offset is None else {"ts_recv": 0}
    theirs = DBN_CLASSES[kind.name](ts_event=dbn.UNDEF_TIMESTAMP, **header, **received, **required)
    ours = CONSTRUCTORS[kind.name](1)
    if kind.name == "instrument":
        ours["instrument_class"] = b"K"
    assert int(ours["length"][0]) * 4 == ours.itemsize == kind.dtype.itemsize
    assert ours.tobytes()[1 : kind.base_size] == bytes(theirs)[1:]


@pytest.mark.parametrize(("name", "size"), [("trade", 64), ("quote", 88), ("order", 96), ("instrument", 520)])
def test_sizes_on_the_wire(name: str, size: int) -> None:
    assert KINDS[name].dtype.itemsize == size <= records.MAX_RECORD_BYTES


def test_tails_survive_the_tape() -> None:
    sent = records.orders(2)
    sent["client_order_id"] = [7, 2**64 - 1]
    sent["stop_price"][1] = records.price_from_decimal("-0.5")
    sent["destination"] = 65535
    sent["time_in_force"] = records.TIME_IN_FORCE_FILL_OR_KILL
    (batch,) = records.split(sent.tobytes())
    assert (batch.records == sent).all()


def test_constants_are_those_of_dbn() -> None:
    assert records.DBN_VERSION == dbn.DBN_VERSION
    assert records.UNDEF_PRICE == dbn.UNDEF_PRICE
    assert records.UNDEF_TIMESTAMP == dbn.UNDEF_TIMESTAMP
    assert records.UNDEF_ORDER_SIZE == dbn.UNDEF_ORDER_SIZE
    assert records.SYMBOL_FIELD_BYTES == dbn.SYMBOL_CSTR_LEN
    assert 10**records.PRICE_DECIMALS == dbn.FIXED_PRICE_SCALE
    for name in ("LAST", "TOB", "SNAPSHOT", "MBP", "BAD_TS_RECV", "MAYBE_BAD_BOOK", "PUBLISHER_SPECIFIC"):
        assert getattr(records, f"FLAG_{name}") == getattr(dbn, f"F_{name}")
    for name in ("ADD", "MODIFY", "CANCEL", "TRADE", "FILL", "CLEAR", "NONE"):
        assert getattr(records, f"ACTION_{name}").decode() == getattr(dbn.Action, name).value
    for name in ("ASK", "BID", "NONE"):
        assert getattr(records, f"SIDE_{name}").decode() == getattr(dbn.Side, name).value
    assert {int(action): action.name for action in records.StatusAction} == {
        value: theirs.name for value, theirs in numbers(dbn.StatusAction).items()
    }


def test_the_tape_header_is_the_one_that_dbn_would_write() -> None:
    theirs = dbn.Metadata(
        dataset="LVLCAST",
        start=0,
        stype_in=None,
        stype_out=dbn.SType.INSTRUMENT_ID,
        schema=None,
        version=3,
    )
    assert records.dbn_metadata() == theirs.encode()
    assert read_by_dbn(b"") == []


def test_the_example_at_the_module_head_runs() -> None:
    outcome = doctest.testmod(records)
    assert outcome.attempted > 0
    assert outcome.failed == 0


# Prices


@given(st.integers(-(2**63), UNDEF_PRICE - 1))
def test_price_there_and_back_is_exact(price: int) -> None:
    decimal = records.price_to_decimal(price)
    assert records.price_from_decimal(decimal) == price
    assert records.price_from_decimal(str(decimal)) == price
    assert int(decimal.scaleb(9)) == price


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=9))
def test_decimal_there_and_back_is_exact(decimal: Decimal) -> None:
    assert records.price_to_decimal(records.price_from_decimal(decimal)) == decimal


@given(st.decimals() | st.text() | st.from_regex(r"-?[0-9]{1,12}(\.[0-9]{0,12})?(E-?[0-9]{1,9})?", fullmatch=True))
@example("1E999999999")
@example("1E-999999999")
@example("0E-999999999")
@example("0." + "0" * 6000 + "1")
@example("9" * 6000)
@example("9223372036.854775807")
def test_a_price_is_exact_or_a_value_error(price: str | Decimal) -> None:
    try:
        scaled = records.price_from_decimal(price)
    except ValueError:
        return
    assert -(2**63) <= scaled < UNDEF_PRICE
    assert records.price_to_decimal(scaled) == Decimal(price)


def test_a_coarse_decimal_context_does_not_round_prices() -> None:
    with localcontext() as context:
        context.prec = 3
        assert records.price_from_decimal("4799.123456789") == 4_799_123_456_789
        assert str(records.price_to_decimal(4_799_123_456_789)) == "4799.123456789"


@pytest.mark.parametrize(
    ("price", "says"),
    [
        ("0.0000000001", "price 0.0000000001 has more than 9 decimals"),
        ("9223372036.854775807", "price 9223372036.854775807 does not fit into 64 bits of 1e-9"),
        ("NaN", "price NaN is not a finite number"),
        ("ten", 'price "ten" is not a decimal number'),
    ],
)
def test_a_bad_price_is_told_in_one_sentence(price: str, says: str) -> None:
    with pytest.raises(ValueError) as refused:
        records.price_from_decimal(price)
    assert str(refused.value) == says


def test_zeros_beyond_the_ninth_decimal_are_harmless() -> None:
    assert records.price_from_decimal("1.50000000000000") == 1_500_000_000


def test_an_undefined_price_has_no_decimal() -> None:
    with pytest.raises(ValueError, match="undefined"):
        records.price_to_decimal(UNDEF_PRICE)


# Payloads


def noise(kind: RecordType, extra_words: int, seed: int) -> bytes:
    """A record of that type with anything in its fields, `extra_words` longer than the bare DBN record."""
    size = kind.base_size + 4 * extra_words
    return bytes([size // 4, kind.rtype]) + random.Random(seed).randbytes(size - 2)


seeds = st.integers(0, 2**32)
extra_words = st.integers(0, 14)
some_kind = st.sampled_from(RECORD_TYPES)
noise_records = st.builds(noise, some_kind, extra_words, seeds)
mixed_payloads = st.lists(noise_records, max_size=12).map(b"".join)


@st.composite
def uniform_payloads(draw: st.DrawFn) -> bytes:
    kind, extra, seed = draw(some_kind), draw(extra_words), draw(seeds)
    return b"".join(noise(kind, extra, seed + i) for i in range(draw(st.integers(1, 12))))


@st.composite
def mutated_payloads(draw: st.DrawFn) -> bytes:
    payload = bytearray(draw(mixed_payloads | uniform_payloads()))
    for _ in range(draw(st.integers(0, 3))):
        if payload:
            payload[draw(st.integers(0, len(payload) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, len(payload)))
    return bytes(payload[:cut] if draw(st.booleans()) else payload)


sequences = st.integers(0, 2**64 - 1)
times_ns = st.integers(0, 2**64 - 1)


def outcome(work: Callable[[], Any]) -> Any:
    """The result, or what BadRecords said; any other exception is the test's failure."""
    try:
        return work()
    except BadRecords as bad:
        return bad.reason, bad.offset


@given(st.binary(max_size=200) | mutated_payloads(), sequences, times_ns)
def test_any_bytes_are_counted_or_refused_by_all_alike(payload: bytes, sequence: int, ts_ns: int) -> None:
    counted = outcome(lambda: records.count_records(payload))
    buffer = bytearray(payload)
    stamped = outcome(lambda: records.stamp_into(buffer, sequence, ts_ns))
    batches = outcome(lambda: records.split(payload))
    assert stamped == counted
    if isinstance(counted, int):
        assert sum(len(batch.records) for batch in batches) == counted
        assert records.stamp(payload, sequence, ts_ns) == buffer
    else:
        assert batches == counted
        assert buffer == payload
        assert 0 <= counted[1] < len(payload)


@given(mixed_payloads | uniform_payloads())
def test_all_walks_find_the_same_records(payload: bytes) -> None:
    each = list(records.each_record(payload))
    offsets, sizes = records.record_places(payload)
    assert b"".join(each) == payload
    assert [payload[at : at + size] for at, size in zip(offsets, sizes, strict=True)] == each
    assert [record for run in records.runs(payload) for record in [(run.size, run.rtype)] * run.records] == [
        (len(record), record[1]) for record in each
    ]
    assert payload[records.last_record(payload) :] == b"".join(each[-1:])
    grouped = {
        number: record
        for kind, numbers, batch in records.group_by_type(payload)
        for number, record in zip(numbers.tolist(), batch, strict=True)
    }
    split = [record for batch in records.split(payload) for record in batch.records]
    assert [grouped[number] for number in range(len(each))] == split


@given(st.binary(max_size=200) | mutated_payloads())
def test_a_walk_ends_where_the_first_incomplete_record_starts(payload: bytes) -> None:
    ends = records.record_ends(payload)
    end = int(ends[-1]) if len(ends) else 0
    places = outcome(lambda: records.record_places(payload))
    if end == len(payload):
        assert places[0].tolist() == [0, *ends[:-1].tolist()][: len(ends)]
    else:
        assert places[1] == end
        assert payload[end] * 4 > len(payload) - end or payload[end] == 0


@given(mutated_payloads())
def test_what_is_counted_a_dbn_reader_reads(payload: bytes) -> None:
    counted = outcome(lambda: records.count_records(payload))
    if isinstance(counted, int):
        assert len(read_by_dbn(payload)) == counted


@given(mixed_payloads | uniform_payloads(), sequences, times_ns)
def test_a_stamp_numbers_every_record_and_changes_nothing_else(payload: bytes, sequence: int, ts_ns: int) -> None:
    stamped = records.stamp(payload, sequence, ts_ns)
    for batch in records.split(stamped):
        if batch.kind.sequence_offset is not None:
            expected = [(sequence + batch.first + i) % 2**32 for i in range(len(batch.records))]
            assert batch.records["sequence"].tolist() == expected
        if batch.kind.ts_recv_offset is not None:
            assert (batch.records["ts_recv"] == np.uint64(ts_ns)).all()
    for before, after in zip(records.split(payload), records.split(stamped), strict=True):
        for name in set(before.kind.dtype.names or ()) - {"sequence", "ts_recv"}:
            assert (before.records[name] == after.records[name]).all()
    assert records.stamp(stamped, 0, 0) == records.stamp(payload, 0, 0)


@given(mixed_payloads)
def test_split_keeps_order_and_types(payload: bytes) -> None:
    batches = records.split(payload)
    expected_first = 0
    for batch in batches:
        assert batch.first == expected_first
        assert batch.records.dtype.names == batch.kind.dtype.names
        assert (batch.records["rtype"] == batch.kind.rtype).all()
        assert int(batch.records["length"][0]) * 4 == batch.records.dtype.itemsize
        expected_first += len(batch.records)
    assert expected_first == records.count_records(payload) == len(read_by_dbn(payload))


def test_split_copies_nothing_that_has_its_tail() -> None:
    payload = records.trades(3).tobytes() + records.quotes(2).tobytes() + records.trades(1).tobytes()
    batches = records.split(payload)
    assert [(batch.kind.name, batch.first, len(batch.records)) for batch in batches] == [
        ("trade", 0, 3),
        ("quote", 3, 2),
        ("trade", 5, 1),
    ]
    whole = np.frombuffer(payload, np.uint8)
    assert all(np.shares_memory(batch.records, whole) for batch in batches)


def test_split_hides_a_longer_tail() -> None:
    later = bytearray(records.trades(1).tobytes() + b"tail of a later version.")
    later[0] = len(later) // 4
    (batch,) = records.split(bytes(later) * 2)
    assert batch.records.dtype.names == records.TRADE.names
    assert batch.records.tobytes() == bytes(later) * 2
    assert (batch.records["price"] == UNDEF_PRICE).all()


TRADE_BYTES = records.trades(1).tobytes()


@pytest.mark.parametrize(
    ("payload", "reason", "offset"),
    [
        (bytes(64), "record of length zero", 0),
        (TRADE_BYTES + bytes(4), "record of length zero", 64),
        (TRADE_BYTES[:-1], "record of 64 bytes runs past the end", 0),
        (TRADE_BYTES + b"\x10", "record of 64 bytes runs past the end", 64),
        (b"\x10\xff" + TRADE_BYTES[2:], "unknown rtype 0xff", 0),
        (TRADE_BYTES + b"\x01\x00\x00\x00", "trade record of 4 bytes is shorter than 48", 64),
    ],
)
def test_bad_records_say_what_and_where(payload: bytes, reason: str, offset: int) -> None:
    with pytest.raises(BadRecords) as refused:
        records.count_records(payload)
    assert (refused.value.reason, refused.value.offset) == (reason, offset)
    assert str(refused.value) == f"{reason} at byte {offset}"


def test_an_empty_payload_has_no_records() -> None:
    assert records.count_records(b"") == 0
    assert records.stamp(b"", 1, 1) == b""
    assert records.split(b"") == []


# Recorded data


def test_recorded_orders_read_as_their_csv(data_dir: Path) -> None:
    folder = data_dir / "cme_es_mbo_20231225"
    dbn_files, csv_files = sorted(folder.glob("*.dbn.zst")), sorted(folder.glob("*.csv.gz"))
    if not dbn_files or not csv_files:
        pytest.skip("needs cme_es_mbo_20231225 in the recorded market data")
    decoder = dbn.DBNDecoder(compression=dbn.Compression.ZSTD)
    decoder.write(dbn_files[0].read_bytes())
    recorded = [record for record in decoder.decode() if isinstance(record, dbn.MBOMsg)]
    payload = b"".join(map(bytes, recorded))
    (batch,) = records.split(payload)
    ours = batch.records
    assert batch.kind.name == "order"
    with gzip.open(csv_files[0], "rt", newline="") as lines:
        rows_in_csv = list(csv.DictReader(lines))
    assert len(rows_in_csv) == len(ours) == records.count_records(payload)
    for record, row in islice(zip(ours, rows_in_csv, strict=True), 0, None, 7):
        for name, text in row.items():
            if name == "price":
                assert int(record["price"]) == (records.price_from_decimal(text) if text else UNDEF_PRICE)
            elif name in {"action", "side"}:
                assert record[name] == text.encode()
            else:
                assert int(record[name]) == int(text), name


def test_the_documented_layouts_are_those_of_the_code() -> None:
    text = record_page.PAGE.read_text(encoding="utf-8")
    assert record_page.in_page(text, record_page.layouts()) == text, "run python -m tests.record_page --write"
    by_hand = text.split(record_page.BEGIN)[0]
    assert len(by_hand.split()) <= 400


def test_the_documented_tails_of_system_messages_are_where_the_page_says() -> None:
    written = {
        "membership": (encode_membership(Membership(4, (MemberLife(1, 7), MemberLife(2, 7)))), (4, 2)),
        "channel plan": (
            encode_record(PlanRecord(Kind.SWAP, 5, 9, b"12345678", 3, 2, next_sequence=77)),
            (Kind.SWAP, 0, 2, 5, 3, 9, 77, b"12345678", 0, 0),
        ),
        "watermark": (
            encode_watermark(Watermark(10**18, 2**40, 3, Holds(417_000_000, 600_000_000, 10**18))),
            (2**40, 3, 0, 417_000, 600_000, 10**18),
        ),
    }
    for name, text, layout, names, _ in record_page.SYSTEM_TAILS:
        record, values = written[name]
        assert record[16:].startswith(text)
        for (offset, kind, _, _), value in zip(record_page.tail_rows(320, layout, names), values, strict=True):
            found = record[offset : offset + (8 if kind == "char[8]" else int(kind[1:]) // 8)]
            assert (found if isinstance(value, bytes) else int.from_bytes(found, "little")) == value
