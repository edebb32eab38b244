"""The state of a session is what its journal's entries amount to."""

from __future__ import annotations

from levelcast.market.fix.journal import Expecting, Numbered, Received, Reset, Sent, SessionImage


def test_entries_amount_to_numbers_and_messages() -> None:
    first, second = Sent(2, b"8", b"37=1\x01", 5, 11), Sent(4, b"8", b"37=2\x01", 6, 12)
    image = SessionImage([Reset(3), Expecting(2), Numbered(1), Received(2, b"D"), first, Numbered(3), second])
    assert (image.since_ns, image.next_in, image.next_out, image.cause) == (3, 3, 5, 12)
    assert image.sent == {2: first, 4: second}


def test_reset_starts_the_numbers_again_and_keeps_the_cause() -> None:
    image = SessionImage([Received(1, b"D"), Sent(1, b"8", b"", 5, 11), Reset(9)])
    assert (image.since_ns, image.next_in, image.next_out, image.cause) == (9, 1, 1, 11)
    assert image.sent == {}


def test_entries_of_numbers_may_be_recorded_in_another_order() -> None:
    image = SessionImage([Sent(6, b"8", b"", 5), Numbered(5), Sent(4, b"8", b"", 5)])
    assert image.next_out == 7
