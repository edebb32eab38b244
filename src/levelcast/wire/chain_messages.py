"""Messages of chain multicast (MR §4) as values; `levelcast.wire.chain_codec` has their bytes."""

from __future__ import annotations

from typing import NamedTuple

DIGEST_SIZE = 32
"""Size in bytes of a BLAKE3 digest."""


class Citation(NamedTuple):
    """An acknowledgement, an entry of B: the digest of the header of a message, and the place that it claims.

    A citation with a wrong place cites nothing that exists.
    """

    sender: int
    seq: int
    digest: bytes


class ChainHeader(NamedTuple):
    """The signed part of a chain message: ⟨sender, seq, slot, D(m), B⟩ (MR §4.1, formula 1)."""

    sender: int
    seq: int
    """Number of the message, from 1 in each epoch."""
    slot: int
    """Number of the slot or turn in which it is sent."""
    content_digest: bytes
    """D(m)."""
    acks: tuple[Citation, ...]
    """B, in ascending order."""
    signature: bytes


class PriorPlace(NamedTuple):
    """The last message of a sender in an epoch before; number 0: there is none."""

    epoch: int = 0
    seq: int = 0


class ChainContent(NamedTuple):
    """The payload m: the vector {c_i} of its sender, the members it knows to be convicted, and application packets."""

    delivered: tuple[int, ...]
    """Number of the last message delivered from each sender, in the order of the configuration (C-4.2)."""
    convicted: tuple[int, ...]
    packets: tuple[bytes, ...]
    prior: PriorPlace = PriorPlace()
    """Of a first message of an epoch: after which message of its sender it is delivered."""
    proofs: tuple[bytes, ...] = ()
    """Sealed messages of f + 1 members of that epoch whose vectors state that they have delivered `prior`."""


class ChainMessage(NamedTuple):
    """A chain message M. It keeps its datagram (`sealed`), with which others pass it on."""

    epoch: int
    header: ChainHeader
    content: bytes
    """The encoded `ChainContent`."""
    sealed: bytes = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChainMessage) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])


class ChainRequest(NamedTuple):
    """A request for messages: those cited, the evidence against some members, and whatever is above `delivered`."""

    sender: int
    epoch: int
    delivered: tuple[int, ...]
    wanted: tuple[Citation, ...]
    evidence: tuple[int, ...]
    pull: bool
    """The sender lacks deliveries that this receiver claims (C-4.2)."""


class ChainEvidence(NamedTuple):
    """Two signed headers that conflict: they convict their sender (C-8)."""

    sender: int
    epoch: int
    first: ChainHeader
    second: ChainHeader


class DeliveredRow(NamedTuple):
    """One delivery, or one more settled version of a delivered message, as a member states it (C-9)."""

    sender: int
    seq: int
    digest: bytes
    content_digest: bytes


class EpochKey(NamedTuple):
    """A member or sender of an epoch, with its public key."""

    node: int
    key: bytes


class EpochRecord(NamedTuple):
    """The set of one epoch: members in the order of their turns, and senders outside the group."""

    epoch: int
    members: tuple[EpochKey, ...]
    outside: tuple[EpochKey, ...] = ()

    @property
    def keys(self) -> dict[int, bytes]:
        """Public keys by node."""
        return {each.node: each.key for each in (*self.members, *self.outside)}


class EpochVote(NamedTuple):
    """The signature of a member of the epoch before under an epoch record."""

    member: int
    signature: bytes


class ChainSuccession(NamedTuple):
    """An epoch record with signatures of members of the epoch before, which is `epoch`; Q of them put it in force."""

    sender: int
    epoch: int
    record: EpochRecord
    votes: tuple[EpochVote, ...]


class ChainStatement(NamedTuple):
    """A signed statement of a member about what it has delivered (C-9)."""

    sender: int
    epoch: int
    rows: tuple[DeliveredRow, ...]
    signature: bytes
