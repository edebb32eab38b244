"""Messages of chain multicast (MR §4): codec of `levelcast.wire.codec`, and the bytes that are signed and hashed.

    kind               sender     generation  body
    32 ChainMessage    its author epoch       header, size u32, content
    33 ChainRequest    sender     epoch       [delivered u64], [citation], [member u16], flags u8: 1 pull
    34 ChainEvidence   sender     epoch       header, header
    35 ChainStatement  sender     epoch       [member u16, seq u64, digest 32 bytes, content digest 32 bytes], signature
    37 ChainSuccession sender     old epoch   record, [member u16, signature]

    header      sender u16, seq u64, slot u64, content digest 32 bytes, [citation], signature
    citation    sender u16, seq u64, digest 32 bytes
    content     [delivered u64], [convicted u16], [size u32, packet], prior epoch u64, prior seq u64, [size u32, proof]
    record      new epoch u64, [member u16, key 32 bytes], [sender outside u16, key 32 bytes]
    signature   64 bytes

Citations, convicted members, the rows of a statement and the votes of a succession are in strictly ascending order, so
that a message has one encoding. In a ChainMessage the header repeats the sender of the datagram, and a decoder compares
them.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from struct import Struct
from typing import Any

from levelcast.wire.chain_messages import (
    DIGEST_SIZE,
    ChainContent,
    ChainEvidence,
    ChainHeader,
    ChainMessage,
    ChainRequest,
    ChainStatement,
    ChainSuccession,
    Citation,
    DeliveredRow,
    EpochKey,
    EpochRecord,
    EpochVote,
    PriorPlace,
)
from levelcast.wire.header import HEADER_SIZE, Malformed, Reason, bad_field, seal_datagram
from levelcast.wire.parts import COUNT, Codec, Packed, PackedNumbers, check_limit, unpack_count

KIND_CHAIN_MESSAGE = 32
KIND_CHAIN_EVIDENCE = 34
SIGNATURE_SIZE = 64
MAX_CHAIN_MEMBERS = 255
MAX_ACKS = 256
"""Maximum number of acknowledgements of a message."""
MAX_ROWS = 256
MAX_CHAIN_PACKETS = 4_096
MAX_PROOFS = 85
"""Maximum number of proofs of a prior message: f + 1 of the largest group."""
MAX_CONTENT = 50_000
"""Maximum size in bytes of a content: with `MAX_ACKS` acknowledgements it fits a Repair."""

_ACKS = Packed(f"<HQ{DIGEST_SIZE}s", Citation, MAX_ACKS)
_ROWS = Packed(f"<HQ{DIGEST_SIZE}s{DIGEST_SIZE}s", DeliveredRow, MAX_ROWS)
_VECTOR = PackedNumbers("Q", MAX_CHAIN_MEMBERS, "delivered")
_MEMBERS = PackedNumbers("H", MAX_CHAIN_MEMBERS, "members")
_FIXED = Struct(f"<HQQ{DIGEST_SIZE}s")
_PULL = 1
_PRIOR = Struct("<QQ")
_EPOCH = Struct("<Q")
_KEYS = Packed(f"<H{DIGEST_SIZE}s", EpochKey, MAX_CHAIN_MEMBERS)
_VOTES = Packed(f"<H{SIGNATURE_SIZE}s", EpochVote, MAX_CHAIN_MEMBERS)


def signed_bytes(header: ChainHeader, domain: int, epoch: int) -> bytes:
    """Return the bytes that a header's signature covers, and whose digest is D(M): all but the signature."""
    return b"levelcast chain message\0" + _context(domain, epoch) + _pack_unsigned(header)


def statement_bytes(statement: ChainStatement, domain: int) -> bytes:
    """Return the bytes that a statement's signature covers."""
    head = b"levelcast chain statement\0" + _context(domain, statement.epoch)
    return head + statement.sender.to_bytes(2, "little") + _ROWS.pack(statement.rows)


def _context(domain: int, epoch: int) -> bytes:
    return domain.to_bytes(12, "little") + epoch.to_bytes(8, "little")


def pack_content(content: ChainContent) -> bytes:
    """Return the encoded payload; raise Malformed if no receiver would accept it."""
    check_limit(content.packets, MAX_CHAIN_PACKETS, "packets")
    _check_members(content.convicted)
    parts = [_VECTOR.pack(content.delivered), _MEMBERS.pack(content.convicted), COUNT.pack(len(content.packets))]
    for packet in content.packets:
        parts += [COUNT.pack(len(packet)), packet]
    check_limit(content.proofs, MAX_PROOFS, "proofs")
    parts += [_PRIOR.pack(*content.prior), COUNT.pack(len(content.proofs))]
    for proof in content.proofs:
        parts += [COUNT.pack(len(proof)), proof]
    packed = b"".join(parts)
    check_limit(packed, MAX_CONTENT, "bytes of content")
    return packed


def unpack_content(content: bytes) -> ChainContent:
    """Return the payload; raise Malformed, and nothing else, for any other bytes."""
    check_limit(content, MAX_CONTENT, "bytes of content")
    try:
        delivered, at = _VECTOR.unpack(content, 0)
        convicted, at = _MEMBERS.unpack(content, at)
        _check_members(convicted)
        packets, at = _unpack_sized(content, at, MAX_CHAIN_PACKETS)
        prior = PriorPlace(*_PRIOR.unpack_from(content, at))
        proofs, at = _unpack_sized(content, at + _PRIOR.size, MAX_PROOFS)
    except struct.error:
        raise Malformed(Reason.TRUNCATED_BODY) from None
    if at != len(content):
        raise Malformed(Reason.TRAILING_BYTES)
    return ChainContent(delivered, convicted, packets, prior, proofs)


def _unpack_sized(content: bytes, at: int, limit: int) -> tuple[tuple[bytes, ...], int]:
    count, at = unpack_count(content, at, limit)
    found = []
    for _ in range(count):
        (size,) = COUNT.unpack_from(content, at)
        at += COUNT.size + size
        if at > len(content):
            raise Malformed(Reason.TRUNCATED_BODY)
        found.append(content[at - size : at])
    return tuple(found), at


def epoch_bytes(record: EpochRecord, domain: int) -> bytes:
    """Return the bytes that a vote for an epoch record signs."""
    packed = _pack_record(record)
    return b"levelcast chain epoch\0" + _context(domain, record.epoch - 1) + packed


def _pack_record(record: EpochRecord) -> bytes:
    _check_record(record)
    _check_digests(*(each.key for each in (*record.members, *record.outside)))
    return _EPOCH.pack(record.epoch) + _KEYS.pack(record.members) + _KEYS.pack(record.outside)


def _check_record(record: EpochRecord) -> None:
    listed = (*record.members, *record.outside)
    if not record.epoch or not record.members:
        bad_field("an epoch record without a number or without members")
    if len(record.keys) != len(listed) or len(set(record.keys.values())) != len(listed):
        bad_field("an epoch record with a node or a key twice")
    if len(listed) > MAX_CHAIN_MEMBERS:
        bad_field("an epoch record with too many nodes")


def _encode_succession(message: ChainSuccession, domain: int) -> bytes:
    _check_votes(message)
    if any(len(vote.signature) != SIGNATURE_SIZE for vote in message.votes):
        bad_field("size of a signature")
    body = _pack_record(message.record) + _VOTES.pack(message.votes)
    return seal_datagram(37, domain, message.sender, message.epoch, body)


def _check_votes(message: ChainSuccession) -> None:
    if message.record.epoch != message.epoch + 1:
        bad_field("an epoch record that is not of the next epoch")
    _check_members(tuple(vote.member for vote in message.votes))


def _decode_succession(datagram: bytes, _: int, sender: int, epoch: int) -> tuple[ChainSuccession, int]:
    (number,) = _EPOCH.unpack_from(datagram, HEADER_SIZE)
    members, at = _KEYS.unpack(datagram, HEADER_SIZE + _EPOCH.size)
    outside, at = _KEYS.unpack(datagram, at)
    record = EpochRecord(number, members, outside)
    _check_record(record)
    votes, at = _VOTES.unpack(datagram, at)
    message = ChainSuccession(sender, epoch, record, votes)
    _check_votes(message)
    return message, at


def _check_members(members: tuple[int, ...]) -> None:
    if any(late <= early for early, late in pairwise(members)):
        bad_field("members that are not in ascending order")


def _check_rows(rows: tuple[Any, ...]) -> None:
    if rows and (not all(row[1] for row in rows) or any(late <= early for early, late in pairwise(rows))):
        bad_field("messages that are not in ascending order, or number 0")


def _check_digests(*digests: bytes) -> None:
    if any(len(digest) != DIGEST_SIZE for digest in digests):
        bad_field("size of a digest")


def _pack_unsigned(header: ChainHeader) -> bytes:
    fixed = _FIXED.pack(header.sender, header.seq, header.slot, header.content_digest)
    return fixed + _ACKS.pack(header.acks)


def _check_header(header: ChainHeader) -> None:
    if not header.seq:
        bad_field("number 0 of a message")
    _check_rows(header.acks)


def _pack_header(header: ChainHeader) -> bytes:
    _check_header(header)
    _check_digests(header.content_digest, *(ack.digest for ack in header.acks))
    if len(header.signature) != SIGNATURE_SIZE:
        bad_field("size of a signature")
    return _pack_unsigned(header) + header.signature


def _unpack_header(datagram: bytes, at: int) -> tuple[ChainHeader, int]:
    sender, seq, slot, content_digest = _FIXED.unpack_from(datagram, at)
    acks, at = _ACKS.unpack(datagram, at + _FIXED.size)
    signature, at = _unpack_signature(datagram, at)
    header = ChainHeader(sender, seq, slot, content_digest, acks, signature)
    _check_header(header)
    return header, at


def _unpack_signature(datagram: bytes, at: int) -> tuple[bytes, int]:
    end = at + SIGNATURE_SIZE
    if end > len(datagram):
        raise Malformed(Reason.TRUNCATED_BODY)
    return datagram[at:end], end


def _encode_message(message: ChainMessage, domain: int) -> bytes:
    check_limit(message.content, MAX_CONTENT, "bytes of content")
    body = _pack_header(message.header) + COUNT.pack(len(message.content)) + message.content
    return seal_datagram(KIND_CHAIN_MESSAGE, domain, message.header.sender, message.epoch, body)


def _decode_message(datagram: bytes, _: int, sender: int, epoch: int) -> tuple[ChainMessage, int]:
    header, at = _unpack_header(datagram, HEADER_SIZE)
    if header.sender != sender:
        bad_field("a message with another author than its datagram")
    size, at = unpack_count(datagram, at, MAX_CONTENT)
    if at + size > len(datagram):
        raise Malformed(Reason.TRUNCATED_BODY)
    return ChainMessage(epoch, header, datagram[at : at + size]), at + size


def _encode_request(message: ChainRequest, domain: int) -> bytes:
    _check_rows(message.wanted)
    _check_members(message.evidence)
    _check_digests(*(each.digest for each in message.wanted))
    parts = [_VECTOR.pack(message.delivered), _ACKS.pack(message.wanted), _MEMBERS.pack(message.evidence)]
    body = b"".join((*parts, bytes((_PULL if message.pull else 0,))))
    return seal_datagram(33, domain, message.sender, message.epoch, body)


def _decode_request(datagram: bytes, _: int, sender: int, epoch: int) -> tuple[ChainRequest, int]:
    delivered, at = _VECTOR.unpack(datagram, HEADER_SIZE)
    wanted, at = _ACKS.unpack(datagram, at)
    evidence, at = _MEMBERS.unpack(datagram, at)
    _check_rows(wanted)
    _check_members(evidence)
    if at >= len(datagram):
        raise Malformed(Reason.TRUNCATED_BODY)
    if datagram[at] > _PULL:
        bad_field("flags")
    return ChainRequest(sender, epoch, delivered, wanted, evidence, bool(datagram[at])), at + 1


def _encode_evidence(message: ChainEvidence, domain: int) -> bytes:
    body = _pack_header(message.first) + _pack_header(message.second)
    return seal_datagram(KIND_CHAIN_EVIDENCE, domain, message.sender, message.epoch, body)


def _decode_evidence(datagram: bytes, _: int, sender: int, epoch: int) -> tuple[ChainEvidence, int]:
    first, at = _unpack_header(datagram, HEADER_SIZE)
    second, at = _unpack_header(datagram, at)
    return ChainEvidence(sender, epoch, first, second), at


def _encode_statement(message: ChainStatement, domain: int) -> bytes:
    _check_rows(message.rows)
    _check_digests(*(digest for row in message.rows for digest in row[2:]))
    if len(message.signature) != SIGNATURE_SIZE:
        bad_field("size of a signature")
    body = _ROWS.pack(message.rows) + message.signature
    return seal_datagram(35, domain, message.sender, message.epoch, body)


def _decode_statement(datagram: bytes, _: int, sender: int, epoch: int) -> tuple[ChainStatement, int]:
    rows, at = _ROWS.unpack(datagram, HEADER_SIZE)
    _check_rows(rows)
    signature, at = _unpack_signature(datagram, at)
    return ChainStatement(sender, epoch, rows, signature), at


CODECS: dict[type[Any], Codec] = {
    ChainMessage: Codec(KIND_CHAIN_MESSAGE, _encode_message, _decode_message),
    ChainRequest: Codec(33, _encode_request, _decode_request),
    ChainEvidence: Codec(KIND_CHAIN_EVIDENCE, _encode_evidence, _decode_evidence),
    ChainSuccession: Codec(37, _encode_succession, _decode_succession),
    ChainStatement: Codec(35, _encode_statement, _decode_statement),
}
