"""The matching engine against a slow model, and the invariants of M4 to M12 and S1 to S6."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelcast.native import pure_book_ledger as ledgers
from levelcast.native.book import BookKernel
from levelcast.native.book_codes import AccountSetting, BookPhase, BookReason, EventKind, InstrumentSetting
from levelcast.native.pure_book import BookKernel as PureBook
from levelcast.native.pure_book_snapshot import BALANCE, ORDER
from tests.book_compare import against_model, balances, compare
from tests.book_parts import (
    INSTRUMENTS,
    TICK,
    USD,
    Flow,
    Step,
    account_limit,
    command,
    deposit,
    events_of,
    flow,
    run_steps,
    setting,
)

ENGINES = [BookKernel, PureBook]
TRADING, PRE_OPEN, CROSS, HALT = (int(BookPhase[name]) for name in ("TRADING", "PRE_OPEN", "CROSS", "HALT"))


@pytest.mark.parametrize("seed", range(1000, 1016))
@pytest.mark.parametrize("make", ENGINES, ids=["chosen", "python"])
def test_engine_agrees_with_the_model(make: Any, seed: int) -> None:
    accounts = seed % 4 != 3
    assert against_model(make, flow(seed, 400, accounts), accounts) == ""


@pytest.mark.campaign
def test_a_million_random_commands_against_the_model() -> None:
    assert compare("model", 1_000_000, seed=20_000) == ""


ORDERS = st.builds(
    lambda account, side, price, size, kind, tif, policy, stop: {
        "account": account, "side": side, "price": price, "size": size, "order_type": kind, "time_in_force": tif,
        "self_trade_policy": policy, "stop_price": stop,
    },
    st.sampled_from([11, 12]), st.sampled_from([b"A", b"B"]), st.sampled_from([95, 100, 105]), st.integers(1, 4),
    st.sampled_from([b"2", b"1", b"3", b"4"]), st.sampled_from([b"0", b"1", b"3", b"4", b"2", b"7"]),
    st.sampled_from([b"A", b"N", b"O", b"B", b"D"]), st.sampled_from([95, 100, 105]),
)  # fmt: skip
CHANGES = st.builds(
    lambda action, which, price, size: {
        "action": action, "original_client_order_id": which, "price": price, "size": size, "instrument_id": 0,
    },
    st.sampled_from([b"M", b"C"]), st.integers(1, 12), st.sampled_from([95, 100, 105]), st.integers(1, 4),
)  # fmt: skip
STATUSES = st.sampled_from([1, 2, 4, 7, 7, 7, 8, 11, 12])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(ORDERS, CHANGES, STATUSES), max_size=14), st.sampled_from([0, 1, 2, 3]), st.integers(0, 3),
    st.sampled_from([TRADING, PRE_OPEN]), st.sampled_from([0, 5]),
)  # fmt: skip
def test_short_sequences_agree_with_the_model(
    given_steps: list[Any], price_rule: int, match_rule: int, phase: int, band: int
) -> None:
    steps = [Step("define", (1, TICK, 1, 1, 100, 200, 1, 10, USD))]
    steps += [Step("command", (deposit(account, 600),)) for account in (11, 12)]
    steps += [Step("command", (deposit(account, 5, 1),)) for account in (11, 12)]
    values = {"PRICE_RULE": price_rule, "MATCH_RULE": match_rule, "BAND": band, "DUTCH_START": 105, "MAKER_FEE": 1}
    steps += [Step("command", (setting(1, InstrumentSetting[name], value),)) for name, value in values.items()]
    steps.append(Step("status", (1, phase)))
    for number, each in enumerate(given_steps, 1):
        if isinstance(each, int):
            steps.append(Step("status", (1, each)))
        else:
            steps.append(Step("command", (command(**({"account": 11, "client_order_id": number} | each)),)))
        steps.append(Step("finish"))
    for make in ENGINES:
        assert against_model(make, steps, accounts=True) == ""


@pytest.mark.parametrize("seed", range(2000, 2008))
def test_invariants_hold_at_every_step(seed: int) -> None:
    book, made = BookKernel(), Flow(seed)
    steps = [*made.begin(), *(made.step() for _ in range(1200))]
    done: set[int] = set()
    phases: dict[int, int] = {}
    dutch: set[int] = set()
    for step in steps:
        for event in events_of(run_steps(book, [step])):
            kind, instrument = int(event["kind"]), int(event["instrument"])
            if kind == EventKind.PHASE:
                phases[instrument] = int(event["flags"])
            if kind in (EventKind.TRADE, EventKind.FILL, EventKind.CANCELLED, EventKind.EXPIRED):
                assert int(event["order"]) not in done, "an order that has ended does nothing more"
                if not event["left"]:
                    done.add(int(event["order"]))
            if kind == EventKind.SET and event["order"] == InstrumentSetting.MATCH_RULE:
                dutch.discard(instrument) if event["price"] == 0 else dutch.add(instrument)
        check_books(book, {i for i, phase in phases.items() if phase == TRADING} - dutch, done)
        check_balances(book)


def check_books(book: Any, trading: set[int], done: set[int]) -> None:
    for instrument in INSTRUMENTS:
        live = list(ORDER.iter_unpack(book.orders(instrument)))
        resting = [o for o in live if not o[13] and o[9] != ord("1")]
        bids = [o[3] for o in resting if o[8] == ord("B")]
        asks = [o[3] for o in resting if o[8] == ord("A")]
        assert bids == sorted(bids, reverse=True)
        assert asks == sorted(asks)
        if instrument in trading and bids and asks:
            assert bids[0] < asks[0], "the book is crossed while trading"
        assert not {o[0] for o in live} & done, "an order is live and done"
        assert all(o[6] > 0 for o in live)


def check_balances(book: Any) -> None:
    for _, _, short, _, free, reserved in BALANCE.iter_unpack(book.balances()):
        assert int.from_bytes(free, "little", signed=True) >= -short
        assert int.from_bytes(reserved, "little", signed=True) >= 0


def test_what_is_left_without_orders_is_what_was_deposited() -> None:
    for seed in range(3000, 3006):
        book = BookKernel()
        paid: dict[int, int] = defaultdict(int)
        steps = [*flow(seed, 1000), Step("status", (0, 15))]
        for event in events_of(run_steps(book, steps, batch=40)):
            if event["kind"] in (EventKind.DEPOSITED, EventKind.WITHDRAWN):
                sign = 1 if event["kind"] == EventKind.DEPOSITED else -1
                paid[int(event["instrument"])] += sign * int(event["price"])
        found: dict[int, int] = defaultdict(int)
        for (_, asset), (free, reserved) in balances(book).items():
            found[asset] += free
            assert reserved == 0, "no order is left, so nothing is reserved"
        assert {amount for amount in found.values() if amount} == {amount for amount in paid.values() if amount}


# Bad input: each is refused with its reason, and nothing else happens.

LARGE = 5 * 2**59
BAD = {
    BookReason.FUNDS: {"price": 100, "size": 90},
    BookReason.SHARES: {"side": b"A", "size": 52},
    BookReason.UNKNOWN_INSTRUMENT: {"instrument_id": 9},
    BookReason.UNKNOWN_ACCOUNT: {"account": 99},
    BookReason.UNKNOWN_ORDER: {"action": b"C", "original_client_order_id": 77},
    BookReason.TICK: {"price": 101},
    BookReason.NO_PRICE: {"price": 2**63 - 1},
    BookReason.PRICE_LIMITS: {"price": -5},
    BookReason.SIZE: {"size": 0},
    BookReason.LOT: {"size": 3},
    BookReason.SIZE_LIMITS: {"size": 102},
    BookReason.NOTIONAL: {"instrument_id": 2, "price": LARGE, "size": 14},
    BookReason.DUPLICATE_ID: {"client_order_id": 1},
    BookReason.PHASE: {"instrument_id": 3},
    BookReason.ORDER_LIMIT: {"account": 12, "size": 12},
    BookReason.OPEN_LIMIT: {"account": 12, "size": 10, "price": 110},
    BookReason.RATE: {"account": 13, "ts_event": 1_500_000_000},
    BookReason.ACCOUNT_LOCKED: {"account": 14},
    BookReason.NOT_ALLOWED: {"account": 15},
    BookReason.INSTRUCTION: {"exec_inst": b"h"},
    BookReason.POST_ONLY: {"exec_inst": b"6", "price": 120},
    BookReason.FILL_OR_KILL: {"time_in_force": b"4", "price": 95},
    BookReason.NO_COLLAR: {"instrument_id": 2, "order_type": b"1"},
    BookReason.ACTION: {"action": b"T"},
    BookReason.SIDE: {"side": b"N"},
    BookReason.ORDER_TYPE: {"order_type": b"5"},
    BookReason.TIME_IN_FORCE: {"time_in_force": b"6"},
    BookReason.SELF_TRADE_POLICY: {"self_trade_policy": b"Z"},
    BookReason.NOT_TREASURY: {"action": b"N", "command": b"D", "publisher_id": 7},
    BookReason.AMOUNT: {"action": b"N", "command": b"D", "price": 0},
    BookReason.UNKNOWN_TRADE: {"action": b"N", "command": b"B", "order_id": 5},
    BookReason.SETTING: {"action": b"N", "command": b"P", "order_id": 11},
    BookReason.RULES_VERSION: {"action": b"N", "command": b"P", "order_id": 0, "price": 2},
}
MORE_BAD = [
    (BookReason.PRICE_LIMITS, {"price": 205}),
    (BookReason.PRICE_LIMITS, {"instrument_id": 2, "price": 2**62 + 1}),
    (BookReason.SIZE, {"size": 2**32 - 1}),
    (BookReason.UNKNOWN_ORDER, {"action": b"C", "account": 12, "original_client_order_id": 1}),
    (BookReason.UNKNOWN_ORDER, {"action": b"M", "account": 12, "original_client_order_id": 1, "size": 10}),
    *(
        (reason, {"action": b"M", "original_client_order_id": 1} | fields)
        for reason, fields in (
            (BookReason.TICK, {"price": 101}),
            (BookReason.NO_PRICE, {"price": 2**63 - 1}),
            (BookReason.LOT, {"size": 3}),
            (BookReason.PRICE_LIMITS, {"price": 205}),
            (BookReason.SIZE_LIMITS, {"size": 102}),
            (BookReason.FUNDS, {"price": 100, "size": 90}),
            (BookReason.UNKNOWN_INSTRUMENT, {"instrument_id": 2}),
            (BookReason.UNKNOWN_ORDER, {"original_client_order_id": 2}),
            (BookReason.DUPLICATE_ID, {"client_order_id": 1}),
        )
    ),
    (BookReason.UNKNOWN_ACCOUNT, {"account": 0}),
    (BookReason.DUPLICATE_ID, {"client_order_id": 0}),
    (BookReason.FUNDS, {"action": b"N", "command": b"W", "order_id": USD, "price": 8_001, "instrument_id": 0}),
]


def prepared(make: Any) -> Any:
    """Return an engine with an order on both sides and five accounts, each with its limit."""
    book, which = make(), AccountSetting
    steps = [
        Step("define", (1, TICK, 2, 1, 100, 200, 1, 10, USD)),
        Step("define", (2, TICK, 1, 1, 100, 2**63 - 1, 1, -1, USD)),
        Step("define", (3, TICK, 1, 1, 100, 200, 1, 10, USD)),
        Step("status", (0, TRADING)),
        Step("status", (3, HALT)),
    ]
    for account in (11, 12, 13, 14, 15):
        steps += [Step("command", (deposit(account, 8_000),)), Step("command", (deposit(account, 50, 1),))]
    limits = {which.LARGEST_ORDER: (12, 10), which.LARGEST_OPEN: (12, 1_000), which.ORDERS_PER_SECOND: (13, 1)}
    limits |= {which.LOCKED: (14, 1), which.RESTRICTED: (15, 1)}
    steps += [Step("command", (account_limit(account, key, value),)) for key, (account, value) in limits.items()]
    for account, client, side, price in [(11, 1, b"B", 90), (13, 1, b"A", 115)]:
        made = command(account=account, client_order_id=client, side=side, price=price, size=2, ts_event=1_200_000_000)
        steps.append(Step("command", (made,)))
    events = events_of(run_steps(book, steps))
    assert EventKind.REJECTED not in events["kind"]
    return book


@pytest.mark.parametrize("make", ENGINES, ids=["chosen", "python"])
@pytest.mark.parametrize(("reason", "fields"), [*BAD.items(), *MORE_BAD], ids=lambda each: getattr(each, "name", None))
def test_bad_input_is_refused_with_its_reason_and_nothing_else_happens(
    make: Any, reason: BookReason, fields: dict[str, Any]
) -> None:
    book = prepared(make)
    before = book.orders(1), book.orders(2), book.balances(), book.order_count, book.trade_count
    good = {"client_order_id": 5, "side": b"B", "price": 100, "size": 2}
    events = events_of(book.run(command(**(good | fields)).tobytes()))
    assert [(int(e["kind"]), int(e["reason"])) for e in events] == [(EventKind.REJECTED, reason)]
    assert before == (book.orders(1), book.orders(2), book.balances(), book.order_count, book.trade_count)
    assert book.finish() == b""


@pytest.mark.parametrize("make", ENGINES, ids=["chosen", "python"])
def test_replace_to_the_filled_size_ends_the_order(make: Any) -> None:
    book = prepared(make)
    book.run(command(account=12, client_order_id=1, side=b"A", price=90, size=4, instrument_id=1).tobytes())
    events = events_of(
        book.run(command(account=12, action=b"M", client_order_id=2, original_client_order_id=1, size=2).tobytes())
    )
    assert events["reason"].tolist() == [BookReason.REDUCED]
    assert events["left"].tolist() == [0]


@pytest.mark.parametrize("make", ENGINES, ids=["chosen", "python"])
def test_bust_reverses_a_trade_once(make: Any) -> None:
    book = prepared(make)
    before = balances(book)
    assert events_of(book.run(command(account=12, client_order_id=1, side=b"A", price=90, size=2).tobytes()))[
        "trade"
    ].max()
    bust = command(action=b"N", command=b"B", order_id=1).tobytes()
    assert events_of(book.run(bust))["kind"].tolist() == [EventKind.BUSTED]
    after = balances(book)
    assert sum(after[11, 1]) == sum(before[11, 1])
    assert {key: sum(value) for key, value in after.items()} == {key: sum(value) for key, value in before.items()}
    assert events_of(book.run(bust))["reason"].tolist() == [BookReason.ALREADY_BUSTED]


def test_bust_is_refused_when_a_side_lacks_what_it_takes() -> None:
    book = prepared(BookKernel)
    book.run(command(account=12, client_order_id=1, side=b"A", price=90, size=2).tobytes())
    book.run(command(account=12, action=b"N", command=b"W", order_id=USD, price=8_180, instrument_id=0).tobytes())
    events = events_of(book.run(command(action=b"N", command=b"B", order_id=1).tobytes()))
    assert events["reason"].tolist() == [BookReason.BUST_LACKS]


def test_a_ledger_that_does_not_conserve_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ledgers.settle

    def careless(ledger: Any, *args: Any) -> None:
        honest(ledger, *args)
        ledger.held[0] += 1

    monkeypatch.setattr(ledgers, "settle", careless)
    book = prepared(PureBook)
    book.run(command(account=12, client_order_id=1, side=b"A", price=90, size=2).tobytes())
    with pytest.raises(RuntimeError, match="does not conserve"):
        book.finish()
