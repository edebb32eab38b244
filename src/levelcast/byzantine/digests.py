"""Digests D(m) and D(M), and the construction of signed messages.

D(M) covers the header *without its signature*: a liar can make any number of valid signatures of one text, and with
MR's digest each would be another message. The whole header is signed, with D(m) in it, where MR signs B alone: so
nobody can put another payload around an honest signature, anybody may pass a message on, and two conflicting headers
prove that their author lies.
"""

from __future__ import annotations

from collections.abc import Iterable

from blake3 import blake3

from levelcast.byzantine.signatures import Signer, Verifier
from levelcast.wire.chain_codec import signed_bytes, statement_bytes
from levelcast.wire.chain_messages import ChainHeader, ChainMessage, ChainStatement, Citation, DeliveredRow
from levelcast.wire.codec import seal_message


def digest(content: bytes) -> bytes:
    """Return the BLAKE3 digest."""
    return blake3(content).digest()


def cite(header: ChainHeader, domain: int, epoch: int) -> Citation:
    """Return the citation of the message with this header: its place and D(M)."""
    return Citation(header.sender, header.seq, digest(signed_bytes(header, domain, epoch)))


def conflict(one: ChainHeader, other: ChainHeader) -> bool:
    """Return whether two headers of one place conflict: an honest sender signs at most one of them.

    MR compares payloads only. Here two versions conflict if the slot or D(m) differs, or if both have a B, and not the
    same. By C-6 an honest sender has at most two versions: with B, and without.
    """
    if (one.slot, one.content_digest) != (other.slot, other.content_digest):
        return True
    return bool(one.acks) and bool(other.acks) and one.acks != other.acks


class Author:
    """Construct signed messages of one member."""

    def __init__(self, member: int, domain: int, epoch: int, signer: Signer) -> None:
        self._member, self._domain, self._epoch, self._signer = member, domain, epoch, signer

    def message(self, seq: int, slot: int, content: bytes, acks: Iterable[Citation]) -> ChainMessage:
        """Return a signed and sealed message."""
        header = ChainHeader(self._member, seq, slot, digest(content), tuple(sorted(acks)), b"")
        signature = self._signer.sign(signed_bytes(header, self._domain, self._epoch))
        message = ChainMessage(self._epoch, header._replace(signature=signature), content)
        return seal_message(message, self._domain)

    def statement(self, rows: Iterable[DeliveredRow]) -> ChainStatement:
        """Return a signed statement about deliveries."""
        unsigned = ChainStatement(self._member, self._epoch, tuple(sorted(rows)), b"")
        return unsigned._replace(signature=self._signer.sign(statement_bytes(unsigned, self._domain)))


def header_holds(header: ChainHeader, domain: int, epoch: int, verifier: Verifier) -> bool:
    """Return whether the signature of a header is its sender's."""
    return verifier.holds(header.sender, signed_bytes(header, domain, epoch), header.signature)


def statement_holds(statement: ChainStatement, domain: int, verifier: Verifier) -> bool:
    """Return whether the signature of a statement is its sender's."""
    return verifier.holds(statement.sender, statement_bytes(statement, domain), statement.signature)
