"""Derivations are HKDF-SHA-256 as RFC 5869 defines it, and every field of one changes the key."""

from __future__ import annotations

import hmac
import struct
from hashlib import sha256

from levelcast.keys.derive import beat_key, control_key, packet_key, source_key
from levelcast.keys.secret import Secret

CORE = Secret(bytes(range(32)))
NETWORK = 0x0102030405060708


def extract(salt: bytes, secret: bytes) -> bytes:
    return hmac.new(salt, secret, sha256).digest()


def expand(key: bytes, info: bytes) -> bytes:
    """One block: 32 bytes."""
    return hmac.new(key, info + b"\1", sha256).digest()


def test_keys_are_those_of_the_standard() -> None:
    salt = NETWORK.to_bytes(8, "little")
    source = expand(extract(salt, CORE.reveal()), b"levelcast source" + struct.pack("<H", 7))
    assert source_key(CORE, NETWORK, 7).reveal() == source
    assert control_key(CORE, NETWORK).reveal() == expand(extract(salt, CORE.reveal()), b"levelcast control")
    info = b"levelcast packets" + struct.pack("<HQQ", 3, 4, 5)
    assert packet_key(Secret(source), 3, 4, 5).reveal() == expand(source, info)


def test_every_field_changes_the_key() -> None:
    other = Secret(bytes(32))
    source = source_key(CORE, NETWORK, 7)
    keys = [
        source,
        source_key(other, NETWORK, 7),
        source_key(CORE, NETWORK + 1, 7),
        source_key(CORE, NETWORK, 8),
        control_key(CORE, NETWORK),
        control_key(CORE, NETWORK + 1),
        packet_key(source, 0, 1, 2),
        packet_key(source, 1, 1, 2),
        packet_key(source, 0, 2, 2),
        packet_key(source, 0, 1, 3),
        beat_key(other, CORE, NETWORK, 1, 2),
        beat_key(other, CORE, NETWORK, 2, 1),
        beat_key(CORE, other, NETWORK, 1, 2),
        beat_key(other, CORE, NETWORK + 1, 1, 2),
    ]
    assert len({each.reveal() for each in keys}) == len(keys)
    assert {len(each) for each in keys} == {32}
