"""Additional copies: what sources and members send, what receivers rebuild, and what breaks without each clause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from levelcast.protocol.config import StripeConfig
from levelcast.protocol.effects import GROUP, Effect, Persist, Send
from levelcast.protocol.events import Rejected, RejectReason
from levelcast.protocol.journal_image import JournalImage
from levelcast.protocol.parities import MAX_WAITING, Parities
from levelcast.protocol.seals import CrcSeals
from levelcast.ring.copies import TokenCopies, TrainCopies
from levelcast.ring.source import Source
from levelcast.sim.mutations import MUTATIONS
from levelcast.timing.copies import Copies
from levelcast.wire.codec import encode
from levelcast.wire.messages import Beat, Claim, Data, Packet, Parity, Request, Token
from levelcast.wire.packets import join, seal, singles
from levelcast.wire.parity import parities_of, sent_bytes
from levelcast.wire.token_codec import beat_size
from tests.ring_parts import MS, START, Seat, kept, make_config, make_data, make_ring, make_token, seat_in_ring, sent

ME = 201


def config_of(copies: dict[int, Copies], redundancy: float = 1.4) -> StripeConfig:
    return replace(make_config(), credit=64, redundancy=redundancy, copies=copies)


def train_of(count: int, *, incarnation: int = 1, first: int = 1, size: int = 1_000) -> Data:
    [train] = join(
        make_data(ME, first + at, incarnation=incarnation, payload=bytes([at + 1]) * size) for at in range(count)
    )
    return train


def to_nodes(effects: list[Effect] | list[Send], kind: type) -> list[int]:
    return [each.to for each in effects if isinstance(each, Send) and isinstance(each.message, kind)]


# -- sources


def submit(source: Source, count: int) -> list[Effect]:
    return source.submit_together([(bytes([at + 1]) * 1_000, 1) for at in range(count)], START)


def test_parities_follow_a_train_for_those_that_get_them() -> None:
    source = Source(config_of({2: Copies(0, 3), 3: Copies(0, 6)}), ME, 1, JournalImage(), START)
    effects = submit(source, 6)
    assert [type(effect) for effect in effects[:2]] == [Persist, Send]
    assert to_nodes(effects, Parity) == [2, 2, 3]
    assert [len(parity.numbers) for parity in sent(effects, Parity)] == [3, 3, 6]
    again = submit(source, 6)
    assert {number for parity in sent(again, Parity) for number in parity.numbers} == set(range(7, 13))


def test_parities_for_all_receivers_go_to_the_group() -> None:
    source = Source(config_of(dict.fromkeys((1, 2, 3), Copies(1, 3))), ME, 1, JournalImage(), START)
    assert to_nodes(submit(source, 6), Parity) == [GROUP, GROUP]


@pytest.mark.parametrize("config", [make_config(), config_of({2: Copies(2)}), config_of({2: Copies(0, 3)}, 1.0)])
def test_without_parities_or_without_a_factor_nothing_more_is_sent(config: StripeConfig) -> None:
    source = Source(replace(config, credit=64), ME, 1, JournalImage(), START)
    assert [type(effect) for effect in submit(source, 6)] == [Persist, Send]


def test_a_train_gets_as_many_parities_as_its_bytes_allow() -> None:
    copies = TrainCopies(config_of({2: Copies(0, 1)}, 2.0))
    assert len(copies.after(train_of(3))) == 3, "two receivers get none, so one may get all"
    copies = TrainCopies(config_of(dict.fromkeys((1, 2, 3), Copies(0, 1)), 1.4))
    assert [len(copies.after(train_of(6))) for _ in range(4)] == [2, 2, 2, 3]


# -- members


def beat_of(tick: int) -> Beat:
    return Beat(1, 1, (Claim(tick, tick),), 1, START)


def test_further_tokens_follow_the_beats_for_those_that_get_them() -> None:
    copies = TokenCopies(config_of({1: Copies(4), 2: Copies(1), 3: Copies(2)}, 4.0), 1)
    token = make_token(make_ring(), 1)
    copies.sent(token)
    assert copies.after_beat(beat_of(1), START) == [], "the token itself is not earlier than this beat"
    assert [to_nodes(copies.after_beat(beat_of(at), START + at * MS), Token) for at in (2, 3, 4, 5)] == [
        [GROUP],
        [GROUP],
        [3],
        [],
    ]
    copies.sent(token)
    copies.clear()
    assert copies.after_beat(beat_of(9), START + MS) == []


def test_a_token_is_sent_twice_whatever_the_factor_is() -> None:
    for config in (make_config(), config_of({2: Copies(2)}, 1.0)):
        copies = TokenCopies(config, 1)
        copies.sent(make_token(make_ring(), 1))
        sends = [copies.after_beat(beat_of(at), START + at * MS) for at in (1, 2, 3)]
        assert [to_nodes(each, Token) for each in sends] == [[GROUP], [], []]


def test_the_size_of_a_beat_is_that_of_its_datagram() -> None:
    for count in (1, 3, 8):
        beat = Beat(1, 1, tuple(Claim(tick, tick) for tick in range(count)), 1, START)
        assert beat_size(beat) == len(encode(beat, 0))


# -- receivers


def receiver() -> Seat:
    return seat_in_ring(config_of({1: Copies(0, 3)}))


def datagrams(effects: list[Effect]) -> list[Data]:
    return [single for data in kept(effects, Data) for single in singles(data)]


def test_a_packet_is_rebuilt_without_a_request_and_journaled() -> None:
    seat, train = receiver(), train_of(6)
    packets, parities = singles(train), parities_of(train, 2)
    effects = seat.step(*packets[:3], packets[5], *parities, at=START + MS)
    assert sorted(datagrams(effects)) == sorted(packets)
    later = seat.step(at=START + 100 * MS)
    assert not [request for request in sent(later, Request) if request.packets]


def test_a_parity_waits_for_packets_that_arrive_later() -> None:
    seat, train = receiver(), train_of(3)
    packets, [parity] = singles(train), parities_of(train, 1)
    assert datagrams(seat.step(parity, packets[0], at=START + MS)) == packets[:1]
    assert sorted(datagrams(seat.step(packets[2], at=START + 2 * MS))) == packets[1:]
    assert datagrams(seat.step(parity, at=START + 3 * MS)) == [], "nothing is missing any more"


def test_a_parity_shows_packets_after_which_nothing_has_arrived() -> None:
    seat, train = receiver(), train_of(3)
    seat.step(singles(train)[0], *parities_of(train, 1), at=START + MS)
    wait = seat.receiver._plan.reorder_ns
    asked = sent(seat.step(at=START + MS + wait), Request)
    assert {run[2:] for request in asked for run in request.packets} == {(2, 3)}
    assert len(set(asked)) == 1
    silent = receiver()
    silent.step(singles(train)[0], at=START + MS)
    assert not sent(silent.step(at=START + MS + wait), Request)


def test_parities_beyond_the_credit_and_of_former_incarnations_are_dropped() -> None:
    seat = receiver()
    [far] = parities_of(train_of(3, first=200), 1)
    assert Rejected(0, RejectReason.CREDIT, source=ME, number=202) in seat.step(far, at=START + MS)
    assert not seat.receiver._parities
    waiting = Parities(CrcSeals(0))
    for first in range(1, 2 * MAX_WAITING):
        waiting.add(Parity(ME, 1, first, 1, 1, b"x" * 60))
    assert len(waiting) == MAX_WAITING


# -- clauses


def holds_sealed_packets_only() -> None:
    seat, train = receiver(), train_of(3)
    packets, [parity] = singles(train), parities_of(train, 1)
    wrong = bytearray(parity.content)
    wrong[60] ^= 1
    effects = seat.step(*packets[:2], parity._replace(content=bytes(wrong)), at=START + MS)
    assert datagrams(effects) == packets[:2], "held without a seal"
    assert Rejected(0, RejectReason.PARITY, source=ME, number=3) in effects


def holds_the_missing_packet_only() -> None:
    seat = receiver()
    others = (make_data(ME, 5, incarnation=2), make_data(ME + 1, 5), make_data(ME, 6))
    for other in others:
        effects = seat.step(Parity(ME, 1, 5, 1, 1, other.sealed), at=START + MS)
        assert datagrams(effects) == [], "held a packet that was not missing"
    own = make_data(ME, 5)
    assert datagrams(seat.step(Parity(ME, 1, 5, 1, 1, own.sealed), at=START + MS)) == [own]


def checks_the_records() -> None:
    seat = receiver()
    seat.receiver.refuses = lambda data: data.first == 5  # type: ignore[method-assign]
    for number in (5, 6):
        data = make_data(ME, number)
        effects = seat.step(Parity(ME, 1, number, 1, 1, data.sealed), at=START + MS)
        assert datagrams(effects) == ([data] if number == 6 else []), "held bad records"


def stays_within_the_factor() -> None:
    copies = TrainCopies(config_of({1: Copies(0, 1), 2: Copies(0, 1), 3: Copies(0, 3)}, 1.4))
    needed = spent = 0
    for count in (1, 1, 2, 1, 6, 3, 1, 1, 1, 12):
        train = train_of(count)
        needed += 3 * len(train.sealed)
        spent += sum(sent_bytes(each.message) for each in copies.after(train) if isinstance(each.message, Parity))
        assert needed + spent <= 1.4 * needed, "above the factor"
    assert spent > 0.3 * needed, "and it is used"


CLAUSES: dict[str, tuple[Callable[[], None], str]] = {
    "rebuilt-unsealed": (holds_sealed_packets_only, "held without a seal"),
    "rebuilt-other-packet": (holds_the_missing_packet_only, "held a packet that was not missing"),
    "rebuilt-records-unchecked": (checks_the_records, "held bad records"),
    "copies-beyond-factor": (stays_within_the_factor, "above the factor"),
}


@pytest.mark.parametrize("name", CLAUSES)
def test_a_promise_about_copies_holds_and_breaks_without_its_clause(name: str) -> None:
    promise, broken = CLAUSES[name]
    promise()
    with MUTATIONS[name].applied(), pytest.raises(AssertionError, match=broken):
        promise()


def test_a_packet_of_another_stripe_is_not_rebuilt() -> None:
    seat = receiver()
    elsewhere = seal(Packet(ME, 1, 5, 1, b"x"), 1)
    assert datagrams(seat.step(Parity(ME, 1, 5, 1, 1, elsewhere.sealed), at=START + MS)) == []
