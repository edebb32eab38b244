"""Deliveries of one epoch: the vector {c_i}, and the digests of everything that is settled (C-10).

C-10: content leaves memory once its message is delivered here and Q members state the same of themselves. MR waits for
*all* members, so one liar that never states it fills every memory. The digests of settled versions stay, 32 bytes each,
so that an old citation means the same everywhere: without them a citation of a discarded digest is a shadow at members
that have discarded it and delivered at others, and a message that cites it cannot be acknowledged (history B8). The
digest of the payload stays with it, so that a second version that arrives later is still recognised (history B10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from levelcast.wire.chain_messages import DIGEST_SIZE, Citation, DeliveredRow


class ChainLedger:
    """Deliveries by sender, in order of their numbers."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self._versions = {member: bytearray() for member in members}
        self._contents = {member: bytearray() for member in members}
        self.counts = dict.fromkeys(members, 0)
        """c_i by sender."""
        self._more: dict[tuple[int, int], list[bytes]] = {}
        """Digests of other settled versions of a delivered message."""
        self._fresh: list[DeliveredRow] = []

    def count(self, member: int) -> int:
        """Return c_i: the number of the last message delivered from a member."""
        return self.counts[member]

    @property
    def vector(self) -> tuple[int, ...]:
        return tuple(self.counts.values())

    def deliver(self, row: DeliveredRow) -> None:
        """Note the delivery of the next message of a sender. Its version is not settled by that."""
        if row.seq != self.count(row.sender) + 1:
            raise ValueError(f"delivery {row.seq} of member {row.sender} after {self.count(row.sender)}")
        self.counts[row.sender] += 1
        self._versions[row.sender] += bytes(DIGEST_SIZE)
        self._contents[row.sender] += row.content_digest

    def settle(self, ref: Citation) -> bool:
        """Note that a version of a delivered message is settled; return False if that was known."""
        if self.is_settled(ref):
            return False
        at = (ref.seq - 1) * DIGEST_SIZE
        if self._versions[ref.sender][at : at + DIGEST_SIZE] == _NONE:
            self._versions[ref.sender][at : at + DIGEST_SIZE] = ref.digest
        else:
            self._more.setdefault((ref.sender, ref.seq), []).append(ref.digest)
        self._fresh.append(DeliveredRow(*ref, self.content_digest(ref.sender, ref.seq) or _NONE))
        return True

    def take_fresh(self) -> list[DeliveredRow]:
        """Return the versions settled since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def content_digest(self, sender: int, seq: int) -> bytes | None:
        """Return D(m) of a delivered message, None before its delivery."""
        found = self._contents.get(sender, b"")[(seq - 1) * DIGEST_SIZE : seq * DIGEST_SIZE]
        return bytes(found) or None

    def is_settled(self, ref: Citation) -> bool:
        at = (ref.seq - 1) * DIGEST_SIZE
        if self._versions.get(ref.sender, b"")[at : at + DIGEST_SIZE] == ref.digest:
            return True
        return ref.digest in self._more.get((ref.sender, ref.seq), ())

    def rows(self, sender: int, seq: int) -> Iterator[DeliveredRow]:
        """Yield the settled versions of a delivered message, `NO_DIGEST` if there is none."""
        content = self.content_digest(sender, seq)
        if content is None:
            return
        first = bytes(self._versions[sender][(seq - 1) * DIGEST_SIZE : seq * DIGEST_SIZE])
        for digest in (first, *self._more.get((sender, seq), ())):
            yield DeliveredRow(sender, seq, digest, content)

    def restore(self, rows: Iterable[DeliveredRow], settled: Iterable[DeliveredRow]) -> None:
        """Add deliveries in their order, and settled versions, as a journal has them."""
        for row in rows:
            self.deliver(row)
        for row in settled:
            self.settle(Citation(*row[:3]))
        self._fresh.clear()

    @property
    def digest_bytes(self) -> int:
        """Size in bytes of all digests, the part of memory that grows until the next epoch."""
        rows = sum(map(len, self._versions.values())) + sum(map(len, self._contents.values()))
        return rows + DIGEST_SIZE * sum(map(len, self._more.values()))


_NONE = bytes(DIGEST_SIZE)
NO_DIGEST = _NONE
"""The digest in a row of a delivered message of which no version is settled."""
