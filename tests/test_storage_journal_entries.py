"""Entries with keyed seals are read without keys, and their checksum covers all of their bytes (K8)."""

from __future__ import annotations

import pytest

from levelcast import records
from levelcast.native.pure_seal import Sealer
from levelcast.storage.journal.entries import FIRST_OF_WRITE, BadEntry, body_of, head_of, read_entry
from levelcast.wire.codec import decode
from levelcast.wire.header import Malformed, domain_of
from levelcast.wire.messages import Data

DOMAIN, SEGMENT = domain_of(9, 1), 4


def entry_of(data: Data) -> bytes:
    kind, body = body_of(data)
    return head_of(kind, FIRST_OF_WRITE, body, SEGMENT) + body


def sealed() -> Data:
    train, packets, _, _ = Sealer(bytes(32), DOMAIN, 3, 4, 5, 6).seal_packets(records.trades(50).tobytes(), 1_400, 9, 1)
    return Data(3, 4, 1, packets, train)


def test_sealed_packets_are_read_again_without_their_key() -> None:
    data = sealed()
    assert read_entry(entry_of(data), 0, DOMAIN, SEGMENT).entry == data


def test_every_damaged_byte_of_a_sealed_packet_is_found() -> None:
    content = entry_of(sealed())
    for at in range(0, len(content), 11):
        damaged = bytearray(content)
        damaged[at] ^= 4
        with pytest.raises(BadEntry):
            read_entry(bytes(damaged), 0, DOMAIN, SEGMENT)


def test_from_the_network_such_a_packet_is_not_accepted_without_a_key() -> None:
    (packet,) = [sealed().sealed[:1_348]]
    with pytest.raises(Malformed, match="unknown seal"):
        decode(packet)
