"""Python implementation of the compiled sealing of packets, on `cryptography`: test oracle, and used without libcrypto.

A packet that its source seals with AES-256-GCM has the header of `levelcast.wire.header` with seal kind 2, a seal of 16
bytes (the tag), the key epoch, and in place of the generation the *salt*, drawn when the process of the source started.
The records are encrypted; everything before them is authenticated. The key follows from source, stripe, incarnation and
salt, and the nonce is four zero bytes and the packet's number (K4, K5).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeVar

import cryptography
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.backends.openssl.backend import backend
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from levelcast.native.layout import (
    AES_GCM_KIND,
    AES_GCM_SIZE,
    DATA_BODY,
    EPOCH_AT,
    HEADER,
    KIND_DATA,
    LENGTH_AT,
    MAGIC,
    NETWORK_AT,
    SALT_AT,
    SEAL_KIND_AT,
    SENDER_AT,
    STRIPE_AT,
    STRIPE_BITS,
    STRIPE_MASK,
    VERSION,
)
from levelcast.native.pure_core import (
    LARGEST_DATAGRAM,
    REFUSED,
    Buffer,
    Source,
    count_fresh,
    cut_records,
    datagram_places,
    drain_opened,
)

KEY_SIZE = 32
PAYLOAD_AT = HEADER.size + DATA_BODY.size
OVERHEAD = PAYLOAD_AT + AES_GCM_SIZE
KeyId = tuple[int, int, int, int]
"""Source, epoch, incarnation, salt."""

_T = TypeVar("_T", bound=tuple[Any, ...])
_START = MAGIC + bytes((VERSION, KIND_DATA))
_SEAL = bytes((AES_GCM_KIND, AES_GCM_SIZE))
_U16, _U64 = struct.Struct("<H"), struct.Struct("<Q")
_ROW_END = struct.Struct("<I")


def version() -> str:
    """Return the versions of the package and of the library in it."""
    return f"cryptography {cryptography.__version__}, {backend.openssl_version_text()}"


class Sealer:
    """Seal the packets of one process of a source in one epoch, each number once."""

    def __init__(self, key: bytes, domain: int, source: int, incarnation: int, epoch: int, salt: int, /) -> None:
        self._aead = AESGCM(_checked(key))
        self._domain, self._source, self._epoch = domain, source, epoch
        self._incarnation, self._salt = incarnation, salt
        self._last = 0

    def seal(self, number: int, records: int, payload: Buffer, /) -> bytes:
        """Return the datagram of one packet. Raise ValueError unless its number is above all before."""
        size = len(payload) + OVERHEAD
        if size > LARGEST_DATAGRAM:
            raise ValueError("the records do not fit a datagram")
        if number <= self._last:
            raise ValueError("a packet of this number was sealed before")
        self._last = number
        network, stripe = self._domain >> STRIPE_BITS, self._domain & STRIPE_MASK
        head = HEADER.pack(
            MAGIC, VERSION, KIND_DATA, stripe, self._source, self._salt, size, *_SEAL, self._epoch, network
        ) + DATA_BODY.pack(self._incarnation, number, records)
        return head + self._aead.encrypt(bytes(4) + _U64.pack(number), bytes(payload), head)

    def seal_packets(
        self, payload: Buffer, packet_bytes: int, most: int, number: int, /
    ) -> tuple[bytes, int, int, int]:
        """Seal records in datagrams of at most `packet_bytes`, as `pure_core.seal_packets` does with a CRC-32."""
        if number <= self._last:
            raise ValueError("a packet of this number was sealed before")
        view, taken, total = memoryview(payload), 0, 0
        sealed: list[bytes] = []
        room = min(packet_bytes, LARGEST_DATAGRAM) - OVERHEAD
        while len(sealed) < most:
            end, records = cut_records(view, taken, room)
            if not records:
                break
            sealed.append(self.seal(number + len(sealed), records, view[taken:end]))
            taken, total = end, total + records
        return b"".join(sealed), len(sealed), total, taken


class Opener:
    """Check and open packets with the keys that were added. A packet without its key raises KeyError with a `KeyId`."""

    def __init__(self) -> None:
        self._keys: dict[KeyId, AESGCM] = {}
        self._refused = 0

    def add(self, source: int, epoch: int, incarnation: int, salt: int, key: bytes, /) -> None:
        self._keys[source, epoch, incarnation, salt] = AESGCM(_checked(key))

    def remove(self, source: int, epoch: int, incarnation: int, salt: int, /) -> None:
        self._keys.pop((source, epoch, incarnation, salt), None)

    def open(self, sealed: bytes, domain: int, kind: type[_T], /) -> _T | None:
        """Return consecutive packets of one key as a `kind` (source, incarnation, first, last, sealed).

        None unless every packet opens and all its records are fresh. The clear text is not kept.
        """
        ids: set[KeyId] = set()
        first = packets = 0
        try:
            for at, end in datagram_places(sealed):
                datagram = sealed[at:end]
                number = _U64.unpack_from(datagram, HEADER.size + 8)[0]
                first = first if packets else number
                if not _is_sealed_packet(datagram, domain) or number != first + packets or not number:
                    return None
                ids.add(_id_of(datagram))
                if len(ids) > 1:
                    return None
                records = _u32_at(datagram, HEADER.size + 16)
                if not self._has_records(self._clear(datagram), records):
                    return None
                packets += 1
        except (ValueError, InvalidTag):
            return None
        if not packets:
            return None
        ((source, _, incarnation, _),) = ids
        return tuple.__new__(kind, (source, incarnation, first, first + packets - 1, sealed))

    def assemble(self, values: Sequence[tuple[Any, ...]], /) -> tuple[bytes, bytes, int]:
        """Return rows, clear payloads and the number of records, as `pure_core.assemble`; packets with another seal are
        copied. Raise ValueError if a packet does not open.
        """
        rows: list[bytes] = []
        payloads: list[bytes] = []
        records = 0
        found = [(sealed, tuple(datagram_places(sealed))) for _, _, _, _, sealed in values]
        for sealed, places in found:
            for at, end in places:
                datagram = sealed[at:end]
                if datagram[SEAL_KIND_AT : SEAL_KIND_AT + 2] == _SEAL:
                    try:
                        payload = self._clear(datagram)
                    except InvalidTag:
                        raise ValueError("a held packet does not open") from None
                else:
                    payload = datagram[PAYLOAD_AT : len(datagram) - datagram[SEAL_KIND_AT + 1]]
                body = datagram[HEADER.size : PAYLOAD_AT]
                rows.append(datagram[SENDER_AT : SENDER_AT + 2] + body + _ROW_END.pack(len(payload)))
                payloads.append(payload)
                records += _u32_at(datagram, HEADER.size + 16)
        return b"".join(rows), b"".join(payloads), records

    def drain_packets(
        self, fileno: int, limit: int, own_host: str, own_port: int, domain: int, most: int, kind: type[_T], /
    ) -> list[tuple[_T | bytes, Source, int]]:
        """Drain packets as `pure_core.drain_packets`, those with known keys; a value has packets of one key.

        A datagram that does not open under its key is dropped and counted; one without a known key is returned as it
        is.
        """

        def open_one(datagram: bytes) -> tuple[_T | None, object]:
            if not _is_sealed_packet(datagram, domain):
                return None, None
            try:
                data = self.open(datagram, domain, kind)
            except KeyError:
                return None, None
            self._refused += data is None
            return data, REFUSED if data is None else _id_of(datagram)

        return drain_opened(fileno, limit, own_host, own_port, most, open_one)

    def take_refused(self) -> int:
        """Return the number of datagrams that drains have dropped since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def _has_records(self, clear: bytes, records: int) -> bool:
        """Return whether the clear text has this number of fresh records; the simulator's packets have none."""
        return count_fresh(clear) == records

    def _clear(self, datagram: bytes) -> bytes:
        key = self._keys.get(_id_of(datagram))
        if key is None:
            raise KeyError(*_id_of(datagram))
        nonce = bytes(4) + datagram[HEADER.size + 8 : HEADER.size + 16]
        return key.decrypt(nonce, datagram[PAYLOAD_AT:], datagram[:PAYLOAD_AT])


def _checked(key: bytes) -> bytes:
    if type(key) is not bytes or len(key) != KEY_SIZE:
        raise ValueError("a key has 32 bytes")
    return key


def _u32_at(datagram: bytes, at: int) -> int:
    return int(_ROW_END.unpack_from(datagram, at)[0])


def _id_of(datagram: bytes) -> KeyId:
    (source,), (epoch,) = _U16.unpack_from(datagram, SENDER_AT), _U16.unpack_from(datagram, EPOCH_AT)
    (incarnation,), (salt,) = _U64.unpack_from(datagram, HEADER.size), _U64.unpack_from(datagram, SALT_AT)
    return source, epoch, incarnation, salt


def _is_sealed_packet(datagram: bytes, domain: int) -> bool:
    """Return whether a datagram has the form of a sealed packet of the domain."""
    if len(datagram) <= OVERHEAD or _u32_at(datagram, LENGTH_AT) != len(datagram):
        return False
    (stripe,), (network,) = _U16.unpack_from(datagram, STRIPE_AT), _U64.unpack_from(datagram, NETWORK_AT)
    return (
        len(datagram) <= LARGEST_DATAGRAM
        and datagram[:4] == _START
        and _U64.unpack_from(datagram, HEADER.size + 8)[0] != 0
        and datagram[SEAL_KIND_AT : SEAL_KIND_AT + 2] == _SEAL
        and network << STRIPE_BITS | stripe == domain
    )
