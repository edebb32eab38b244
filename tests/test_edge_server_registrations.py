"""An address is challenged before it gets packets; number, time and rate are limited; no reply is larger."""

from __future__ import annotations

from levelcast.edge.server.registrations import BURST_NS, PERIOD_NS, Registrations
from levelcast.wire.registration import (
    ACCEPTED,
    CHALLENGE,
    EXPIRY_NS,
    LEAVE,
    NO_COOKIE,
    REFUSED,
    REGISTER,
    Registration,
    decode_registration,
    encode_registration,
)

HERE, THERE = ("192.0.2.1", 4000), ("192.0.2.2", 4000)
START = 1_700_000_000_000_000_000


class Edge:
    """Registrations at one edge, and what they reply."""

    def __init__(self, most: int = 10, rate: int | None = None) -> None:
        self.at = Registrations(b"secret", most, rate)

    def say(
        self, what: int, source: object, now: int = START, cookie: bytes = NO_COOKIE, group: int = 1
    ) -> Registration:
        datagram = encode_registration(Registration(what, group, 0, cookie))
        reply = self.at.hear(datagram, source, now)
        assert reply is not None
        assert len(reply) < len(datagram)
        return decode_registration(reply)

    def register(self, source: object, now: int = START, group: int = 1) -> Registration:
        challenge = self.say(REGISTER, source, now, group=group)
        assert challenge.what == CHALLENGE
        return self.say(REGISTER, source, now, challenge.cookie, group)

    def served(self, now: int = START, group: int = 1, place: int = 0, size: int = 100) -> list[object]:
        return list(self.at.addresses(group, place, 1, size, now))


def test_only_an_address_that_returns_its_own_cookie_gets_packets() -> None:
    edge = Edge()
    challenge = edge.say(REGISTER, HERE)
    assert challenge.what == CHALLENGE
    assert edge.served() == []
    assert edge.say(REGISTER, THERE, cookie=challenge.cookie).what == CHALLENGE
    assert edge.served() == []
    assert edge.say(REGISTER, HERE, cookie=challenge.cookie).what == ACCEPTED
    assert edge.served() == [HERE]
    assert edge.served(group=2) == edge.served(place=1) == []
    assert Registrations(b"other", 10, None).hear(
        encode_registration(Registration(REGISTER, 1, 0, challenge.cookie)), HERE, START
    ) != encode_registration(Registration(ACCEPTED, 1, 0, challenge.cookie))


def test_a_registration_ends_unless_it_is_renewed() -> None:
    edge = Edge()
    accepted = edge.register(HERE)
    edge.say(REGISTER, HERE, START + EXPIRY_NS - 1, accepted.cookie)
    assert edge.served(START + EXPIRY_NS) == [HERE]
    assert edge.served(START + 2 * EXPIRY_NS) == []
    assert edge.at.status(START + 2 * EXPIRY_NS)["registered"] == []


def test_a_cookie_is_valid_for_two_periods_and_the_reply_has_the_next_one() -> None:
    edge = Edge()
    first = edge.register(HERE)
    later = edge.say(REGISTER, HERE, START + PERIOD_NS, first.cookie)
    assert later.what == ACCEPTED
    assert later.cookie != first.cookie
    assert edge.say(REGISTER, HERE, START + 2 * PERIOD_NS, first.cookie).what == CHALLENGE
    assert edge.say(REGISTER, HERE, START + 2 * PERIOD_NS, later.cookie).what == ACCEPTED


def test_leaving_needs_the_cookie_too() -> None:
    edge = Edge()
    accepted = edge.register(HERE)
    assert edge.say(LEAVE, HERE).what == CHALLENGE
    assert edge.served() == [HERE]
    leave = encode_registration(Registration(LEAVE, 1, 0, accepted.cookie))
    assert edge.at.hear(leave, HERE, START) is None
    assert edge.served() == []


def test_the_number_of_registrations_is_limited() -> None:
    edge = Edge(most=2)
    edge.register(HERE)
    edge.register(HERE, group=2)
    challenge = edge.say(REGISTER, THERE)
    assert edge.say(REGISTER, THERE, cookie=challenge.cookie).what == REFUSED
    assert edge.at.refused == 1
    assert edge.register(HERE).what == ACCEPTED
    assert edge.served() == [HERE]


def test_the_rate_of_all_copies_is_limited() -> None:
    edge = Edge(rate=1_000)
    edge.register(HERE)
    edge.register(THERE)
    second = 1_000_000_000
    assert edge.served(size=400) == [HERE]  # 0.4 s at the full rate, beyond the burst of 0.1 s
    assert edge.served(START + 3 * second // 10 - 1) == []
    assert edge.served(START + 4 * second // 10, size=1) == [HERE, THERE]
    assert (edge.at.sent, edge.at.dropped) == (3, 3)
    assert second // 10 == BURST_NS


def test_malformed_registrations_and_replies_are_counted_and_not_answered() -> None:
    edge = Edge()
    assert edge.at.hear(b"LCRG", HERE, START) is None
    assert edge.at.hear(encode_registration(Registration(CHALLENGE, 1, 0)), HERE, START) is None
    assert edge.at.malformed == 2


def test_the_status_lists_the_registrations() -> None:
    edge = Edge()
    edge.register(HERE)
    status = edge.at.status(START)
    assert status["registered"] == [{"address": "192.0.2.1:4000", "group": 1, "place": 0, "left_s": EXPIRY_NS / 1e9}]
