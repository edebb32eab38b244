"""The end of an epoch at one member (rules E-4 and E-6 in `epochs.py`): proofs for the next one, and when it rests."""

from __future__ import annotations

from collections.abc import Iterable

from levelcast.byzantine.multicast import ChainMulticast
from levelcast.protocol.effects import ChainDeliver, Effect
from levelcast.wire.chain_codec import unpack_content
from levelcast.wire.chain_messages import ChainMessage


class EpochRest:
    """Notes of a member about an epoch after which the next one has begun."""

    def __init__(self, chain: ChainMulticast) -> None:
        self._chain = chain
        self._closed_ns: int | None = None
        self._last = 0
        self._rested_ns: int | None = None
        self._sent_ns = 0
        self._latest: dict[int, ChainMessage] = {}
        """The last message of each member since the next epoch has begun: they have no packets."""
        self._loaded = dict(zip(chain.config.senders, chain.ledger.vector, strict=True))
        """Per sender, the last number delivered here that has packets."""

    def close(self, now: int, last: int) -> None:
        """Note that the next epoch has begun, and the last own number with packets."""
        self._closed_ns, self._last = now, last

    def heard(self, message: ChainMessage) -> None:
        """Note a message of a member."""
        if self._closed_ns is not None:
            known = self._latest.get(message.header.sender)
            if known is None or known.header.seq < message.header.seq:
                self._latest[message.header.sender] = message

    def sent(self, message: ChainMessage, now: int) -> None:
        """Note an own message."""
        self._sent_ns = now
        self.heard(message)

    def proofs(self, last: int, max_bytes: int) -> tuple[bytes, ...]:
        """E-4: return messages of f + 1 members whose vectors state the delivery of the own message `last`."""
        config = self._chain.config
        at = config.senders.index(self._chain.me)
        found = [
            message.sealed
            for _, message in sorted(self._latest.items())
            if len(message.sealed) <= max_bytes and unpack_content(message.content).delivered[at] >= last
        ]
        return tuple(found[: config.f + 1]) if len(found) > config.f else ()

    # -- E-6 -----------------------------------------------------------------------------------------------

    def note(self, effects: Iterable[Effect], now: int) -> None:
        """Note the deliveries of a step, and whether the epoch rests."""
        for effect in effects:
            if isinstance(effect, ChainDeliver) and effect.packets:
                self._loaded[effect.row.sender] = effect.row.seq
        if self._closed_ns is None or not self._is_resting():
            self._rested_ns = None
        elif self._rested_ns is None:
            self._rested_ns = now

    def _is_resting(self) -> bool:
        """Return whether Q members state the delivery of everything with packets that is delivered here."""
        chain = self._chain
        if chain.ledger.count(chain.me) < self._last:
            return False
        senders = chain.config.senders
        return all(chain.stable(at) >= self._loaded[sender] for at, sender in enumerate(senders))

    def skips(self, now: int) -> bool:
        """Return whether an own slot stays unused: an epoch that rests needs one message per L."""
        return self._rested_ns is not None and now - self._sent_ns < self._chain.config.patience_ns

    def has_rested(self, now: int, linger_ns: int) -> bool:
        """Return whether the epoch has rested for `linger_ns`."""
        return self._rested_ns is not None and now - self._rested_ns >= linger_ns
