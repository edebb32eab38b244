"""The engine of a floor: frames, session calendar, hash chain, snapshots, rules and what the public sees."""

from __future__ import annotations

import blake3
import numpy as np
import pytest

import levelcast.market.engine as engine_module
from levelcast.market.engine import BOOK_EVENT, BookFrame, MatchingEngine, SnapshotError, UnknownRules
from levelcast.market.match_rules import RULES, settings_of
from levelcast.market.public_events import PublicFeed
from levelcast.market.synthetic_orders import USD, order_flow, prepared
from levelcast.native import pure_book_settings
from levelcast.native.book_codes import BookPhase, BookReason, EventKind, InstrumentSetting
from levelcast.native.pure_book import BookKernel as PureBook
from levelcast.records import RecordArray, StatusAction, instruments, orders, statuses, trades
from tests.book_parts import flow

SECOND = 1_000_000_000


def definition(instrument: int = 1, **fields: object) -> bytes:
    made = instruments(1)
    made["instrument_id"], made["currency"], made["min_price_increment"] = instrument, b"USD", 5
    for name, value in fields.items():
        made[name] = value
    return made.tobytes()


def status(action: StatusAction, instrument: int = 1, at_ns: int = 0) -> bytes:
    made = statuses(1)
    made["instrument_id"], made["action"], made["ts_event"] = instrument, int(action), at_ns
    return made.tobytes()


def order(client: int, side: bytes, price: int, size: int, account: int = 7, **fields: object) -> bytes:
    made = orders(1)
    made["instrument_id"], made["account"], made["client_order_id"] = 1, account, client
    made["side"], made["price"], made["size"] = side, price, size
    for name, value in fields.items():
        made[name] = value
    return made.tobytes()


class Tape:
    """Frames with rising sequences and times."""

    def __init__(self, engine: MatchingEngine) -> None:
        self.engine, self.sequence = engine, 0
        self.frames: list[BookFrame] = []

    def frame(self, at_ns: int, *payload: bytes) -> RecordArray:
        self.sequence += len(payload)
        self.frames.append(BookFrame(self.sequence, at_ns, b"".join(payload)))
        return self.engine.frame(self.frames[-1])


def kinds(events: RecordArray) -> str:
    return bytes(events["kind"].tolist()).decode()


def traded(events: RecordArray) -> list[tuple[int, int]]:
    mine = events[events["kind"] == EventKind.TRADE]
    return list(zip(mine["price"].tolist(), mine["size"].tolist(), strict=True))


def test_a_frame_applies_records_in_their_order() -> None:
    tape = Tape(MatchingEngine(accounts=False))
    payload = [definition(), status(StatusAction.TRADING), order(1, b"B", 100, 5), order(2, b"A", 95, 3)]
    events = tape.frame(SECOND, *payload, trades(1).tobytes())
    assert kinds(events) == "PAATF"
    assert traded(events) == [(100, 3)]
    assert events.dtype == BOOK_EVENT


def test_frames_do_not_go_back() -> None:
    tape = Tape(MatchingEngine(accounts=False))
    tape.frame(SECOND, definition())
    with pytest.raises(ValueError, match="is not after"):
        tape.engine.frame(BookFrame(1, SECOND - 1, b""))


def test_calendar_on_the_tape_is_driven_by_the_time_of_frames() -> None:
    tape = Tape(MatchingEngine(accounts=False))
    tape.frame(SECOND, definition(expiration=9 * SECOND), status(StatusAction.PRE_OPEN))
    close, opened = status(StatusAction.CLOSE, 1, 5 * SECOND), status(StatusAction.CROSS, 0, 3 * SECOND)
    assert kinds(tape.frame(2 * SECOND, close, opened, order(1, b"B", 100, 5), order(2, b"A", 95, 5))) == "AAI"
    assert kinds(tape.frame(3 * SECOND - 1)) == ""
    assert kinds(tape.frame(3 * SECOND)) == "POTF"
    tape.frame(
        4 * SECOND, status(StatusAction.TRADING), order(3, b"B", 100, 1), order(4, b"B", 95, 1, time_in_force=b"1")
    )
    assert kinds(tape.frame(6 * SECOND)) == "PE"
    assert kinds(tape.frame(10 * SECOND)) == "PE"


def test_indicative_price_is_told_before_an_auction() -> None:
    tape = Tape(MatchingEngine(accounts=False))
    events = tape.frame(
        SECOND, definition(), status(StatusAction.PRE_OPEN), order(1, b"B", 100, 5), order(2, b"A", 95, 3)
    )
    last = events[-1]
    assert (int(last["kind"]), int(last["price"])) == (EventKind.INDICATIVE, 100)
    assert (int(last["order_id"]), int(last["trade_id"]), last["side"]) == (3, 2, b"B")


def test_trade_outside_the_band_pauses_and_reopens_by_auction() -> None:
    tape = Tape(MatchingEngine(accounts=False))
    band = settings_of(1, "resting", band=10, pause_ns=SECOND, reference=100).tobytes()
    tape.frame(SECOND, definition(), band, status(StatusAction.TRADING), order(1, b"A", 115, 5))
    events = tape.frame(2 * SECOND, order(2, b"B", 120, 3))
    assert "T" not in kinds(events)
    assert int(events[events["kind"] == EventKind.PHASE]["flags"][0]) == BookPhase.PRE_CROSS
    assert kinds(tape.frame(3 * SECOND - 1)) == ""
    events = tape.frame(3 * SECOND)
    assert (kinds(events), traded(events)) == ("POTF", [(115, 3)])


def random_tape(engine: MatchingEngine, frames: int = 30) -> list[BookFrame]:
    """Run a day of generated orders on an engine whose accounts have been funded."""
    flow = order_flow(frames * 40, 3, seed=4)
    made = []
    for number in range(frames):
        part = flow[number * 40 : number * 40 + 40].tobytes()
        frame = BookFrame((number + 1) * 40, (number + 1) * SECOND, part)
        made.append(frame)
        engine.frame(frame)
    return made


def test_snapshot_and_tape_is_the_tape_from_the_start() -> None:
    first, whole = MatchingEngine(), MatchingEngine()
    for engine in (first, whole):
        prepared(engine.kernel, 3, accounts=True)
    frames = random_tape(whole)
    first.frames(frames[:17])
    copy = MatchingEngine.restore(first.snapshot())
    copy.frames(frames[17:])
    first.frames(frames[17:])
    assert copy.snapshot() == first.snapshot() == whole.snapshot()
    assert copy.state_hash() == whole.state_hash()
    assert copy.chain == whole.chain
    assert whole.kernel.trade_count > 100


def test_snapshot_keeps_the_calendar() -> None:
    tape = Tape(MatchingEngine(accounts=False))
    later = status(StatusAction.TRADING, 1, 5 * SECOND)
    tape.frame(SECOND, definition(), later)
    copy = MatchingEngine.restore(tape.engine.snapshot())
    assert kinds(copy.frame(BookFrame(9, 6 * SECOND, b""))) == "P"


def test_damaged_and_foreign_snapshots_are_one_sentence() -> None:
    engine = MatchingEngine()
    prepared(engine.kernel, 2, accounts=True)
    octets = engine.snapshot()
    for at in range(8, len(octets), 997):
        with pytest.raises(SnapshotError, match="its hash differs"):
            MatchingEngine.restore(octets[:at] + bytes([octets[at] ^ 16]) + octets[at + 1 :])
    with pytest.raises(SnapshotError, match="the snapshot has version 9, not 1"):
        MatchingEngine.restore(octets[:4] + b"\x09" + octets[5:])
    for other in (b"", b"LVSN", b"no snapshot at all" * 9):
        with pytest.raises(SnapshotError, match="not a snapshot of a matching engine"):
            MatchingEngine.restore(other)


def rules_version(version: int) -> bytes:
    return order(0, b"N", version, 0, action=b"N", command=b"P", order_id=0)


def test_rules_of_a_later_release_are_refused_in_one_sentence() -> None:
    tape = Tape(MatchingEngine())
    assert kinds(tape.frame(SECOND, rules_version(1), rules_version(0))) == "UR"
    says = "the tape is in version 2 of the rules; this release computes version 1: use a later release"
    with pytest.raises(UnknownRules, match=says):
        tape.frame(2 * SECOND, rules_version(2))


def later_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this release one that computes only version 2 of the rules; it starts no new tape with it."""
    for module in (engine_module, pure_book_settings):
        monkeypatch.setattr(module, "OLDEST_RULES", 2)
        monkeypatch.setattr(module, "RULES_VERSION", 2)
    monkeypatch.setattr(engine_module, "BookKernel", PureBook)


def test_later_release_refuses_an_older_tape_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    later_release(monkeypatch)
    tape = Tape(MatchingEngine())
    assert kinds(tape.frame(SECOND, definition(), status(StatusAction.TRADING))) == "P"
    says = "the tape is in version 1 of the rules; this release computes version 2: use an earlier release"
    with pytest.raises(UnknownRules, match=says):
        tape.frame(2 * SECOND, order(1, b"B", 100, 5), rules_version(2))
    newer = Tape(MatchingEngine())
    assert kinds(newer.frame(SECOND, rules_version(2), order(1, b"B", 100, 5))) == "UR"


FIRST_RULES_TAPES = "8488232c2a341f9a01c9879763f334a3659a3bbbbdb20e72f81c9425498500c7"
FIRST_RULES_EVENTS = "ccac66e50a20c040da871885631aaed33886132d7b34098618262b7b77134a94"


def flow_frames(seed: int, accounts: bool) -> list[BookFrame]:
    """Return a random flow with every type of order as frames of one record each, in the first version of the rules."""
    frames: list[BookFrame] = []
    now = SECOND
    for step in flow(seed, 1_500, accounts):
        made = b""
        if step.call == "command" and (step.args[0]["command"][0], int(step.args[0]["order_id"][0])) != (b"P", 0):
            made = step.args[0].tobytes()
        elif step.call == "status" and step.args[1] in list(StatusAction):
            made = status(StatusAction(step.args[1]), step.args[0])
        elif step.call == "define":
            instrument, _, lot, _, largest, _, _, collar, _ = step.args
            collar = 2**63 - 1 if collar < 0 else collar
            made = definition(instrument, min_lot_size_round_lot=lot, max_trade_vol=largest, max_price_variation=collar)
        now = max(now, step.args[0]) if step.call == "advance" else now
        frames.append(BookFrame(len(frames), now, made))
    return frames


def test_events_of_tapes_in_the_first_version_of_the_rules() -> None:
    """Every release computes these events, or refuses the tape: a change of them is a new version of the rules."""
    tapes, chains, trades_made = blake3.blake3(), blake3.blake3(), 0
    for seed in range(8):
        accounts = seed % 4 != 3
        engine, frames = MatchingEngine(accounts=accounts), flow_frames(seed, accounts)
        engine.frames(frames)
        tapes.update(b"".join(frame.payload for frame in frames))
        chains.update(engine.chain)
        trades_made += engine.kernel.trade_count
    assert trades_made > 500
    assert tapes.hexdigest() == FIRST_RULES_TAPES, "the generated tapes are other ones: write both hashes anew"
    assert chains.hexdigest() == FIRST_RULES_EVENTS


# Matching rules by name


def funded(rule: str, **parameters: int) -> Tape:
    tape = Tape(MatchingEngine(accounts=False))
    tape.frame(SECOND, definition(), settings_of(1, rule, **parameters).tobytes())
    return tape


@pytest.mark.parametrize(("rule", "price"), [("resting", 100), ("buyer", 120), ("seller", 100), ("midpoint", 110)])
def test_price_of_continuous_trading(rule: str, price: int) -> None:
    tape = funded(rule)
    events = tape.frame(2 * SECOND, status(StatusAction.TRADING), order(1, b"A", 100, 2), order(2, b"B", 120, 2))
    assert traded(events) == [(price, 2)]


def test_batch_trades_every_interval_of_sequence_time() -> None:
    tape = funded("batch", interval_ns=SECOND // 10)
    events = tape.frame(2 * SECOND, status(StatusAction.TRADING), order(1, b"A", 100, 2), order(2, b"B", 120, 3))
    assert traded(events) == []
    assert traded(tape.frame(2 * SECOND + SECOND // 10 - 1)) == []
    assert traded(tape.frame(2 * SECOND + SECOND // 10)) == [(120, 2)]


def test_sealed_round_pays_the_second_highest_bid() -> None:
    tape = funded("sealed")
    bids = [order(account, b"B", price, 10, account) for account, price in ((2, 120), (3, 150), (4, 135))]
    tape.frame(2 * SECOND, status(StatusAction.PRE_CROSS), order(1, b"A", 100, 10, 1), *bids)
    events = tape.frame(3 * SECOND, status(StatusAction.CROSS))
    assert traded(events) == [(135, 10)]
    assert events[events["kind"] == EventKind.TRADE]["account"].tolist() == [3]


def test_dutch_clock_sells_at_the_price_of_the_stamp_and_the_rest_goes_on() -> None:
    tape = funded("dutch", start_price=200, step=10, interval_ns=SECOND)
    tape.frame(2 * SECOND, status(StatusAction.TRADING), order(1, b"A", 100, 10, 1))
    stamps = {"ts_event": 5 * SECOND + 7}
    events = tape.frame(6 * SECOND, order(1, b"B", 500, 4, 2, **stamps), order(1, b"B", 500, 9, 3, ts_event=6 * SECOND))
    assert traded(events) == [(170, 4), (160, 6)]


def test_unknown_rules_and_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="rule 'lottery' is not one of"):
        settings_of(1, "lottery")
    with pytest.raises(ValueError, match="parameter 'colour' is not one of"):
        settings_of(1, "resting", colour=1)
    with pytest.raises(ValueError, match="needs the parameter 'interval_ns'"):
        settings_of(1, "batch")
    assert set(RULES) == {"resting", "buyer", "seller", "midpoint", "batch", "sealed", "dutch"}


def test_rule_does_not_change_while_there_are_orders() -> None:
    tape = funded("resting")
    tape.frame(2 * SECOND, status(StatusAction.TRADING), order(1, b"A", 100, 2))
    events = tape.frame(3 * SECOND, settings_of(1, "buyer", taker_fee=2).tobytes())
    assert set(events["reason"].tolist()) == {BookReason.SETTING}


# What the public sees


def test_public_events_have_no_owners() -> None:
    tape, feed = funded("resting"), PublicFeed()
    bad = order(3, b"B", 101, 2)
    events = tape.frame(2 * SECOND, status(StatusAction.TRADING), order(1, b"A", 100, 2), order(2, b"B", 120, 3), bad)
    public = feed.take(events)
    assert kinds(public) == "PAATF"
    assert not public["account"].any()
    assert not public["client_order_id"].any()
    assert events["account"].any()


def test_bids_of_a_sealed_round_become_public_when_it_is_over() -> None:
    tape, feed = Tape(MatchingEngine(accounts=False)), PublicFeed()
    feed.take(tape.frame(SECOND, definition(), settings_of(1, "sealed").tobytes()))
    offers = [order(1, b"A", 100, 10, 1), order(1, b"B", 120, 10, 2), order(1, b"B", 150, 10, 3)]
    assert kinds(feed.take(tape.frame(2 * SECOND, status(StatusAction.PRE_CROSS), *offers))) == "P"
    assert kinds(feed.take(tape.frame(3 * SECOND, status(StatusAction.CROSS)))) == "AAAPOTFC"
    assert kinds(feed.take(tape.frame(4 * SECOND, status(StatusAction.PRE_CROSS), *offers[:0]))) == "P"


def test_generated_flow_is_a_function_of_its_seed() -> None:
    one, other = order_flow(500, 4, seed=3), order_flow(500, 4, seed=3)
    assert one.tobytes() == other.tobytes() != order_flow(500, 4, seed=5).tobytes()
    assert int.from_bytes(b"USD\0", "little") == USD
    assert int(InstrumentSetting.RULES) == 0
    assert np.isin(one["action"], [b"A", b"C", b"M"]).all()
