"""Registrations survive encoding, bad ones are rejected with a reason, and a reply is no packet."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.wire.header import Malformed, Reason
from levelcast.wire.mold import decode
from levelcast.wire.registration import (
    ACCEPTED,
    CHALLENGE,
    COOKIE_BYTES,
    LEAVE,
    REFUSED,
    REGISTER,
    REGISTRATION_BYTES,
    REPLY_BYTES,
    Registration,
    decode_registration,
    encode_registration,
    is_reply,
)

REGISTRATIONS = st.builds(
    Registration,
    st.sampled_from((REGISTER, LEAVE, CHALLENGE, ACCEPTED, REFUSED)),
    st.integers(0, 65_535),
    st.integers(0, 65_535),
    st.binary(min_size=COOKIE_BYTES, max_size=COOKIE_BYTES),
)


@given(REGISTRATIONS)
def test_a_registration_survives_and_a_reply_is_shorter_and_no_packet(registration: Registration) -> None:
    datagram = encode_registration(registration)
    assert decode_registration(datagram) == registration
    assert len(datagram) == (REPLY_BYTES if registration.what >= CHALLENGE else REGISTRATION_BYTES)
    assert is_reply(datagram) is (registration.what >= CHALLENGE)
    assert REPLY_BYTES < REGISTRATION_BYTES
    with pytest.raises(Malformed):
        decode(datagram)


@given(st.binary(max_size=60))
def test_random_bytes_are_rejected_or_decoded(datagram: bytes) -> None:
    with suppress(Malformed):
        assert encode_registration(decode_registration(datagram)) == datagram


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"LCRG", Reason.WRONG_LENGTH),
        (b"LCRX" + bytes(44), Reason.BAD_MAGIC),
        (b"LCRG\x02" + bytes(43), Reason.UNKNOWN_VERSION),
        (b"LCRG\x01\x03" + bytes(42), Reason.BAD_FIELD),
        (b"LCRG\x01\x01" + bytes(41) + b"\x01", Reason.BAD_FIELD),
    ],
)
def test_bad_registrations_have_a_reason(datagram: bytes, reason: Reason) -> None:
    with pytest.raises(Malformed) as error:
        decode_registration(datagram)
    assert error.value.reason is reason
