"""Authenticate beats with a MAC for each receiver, under a key that only the two nodes have.

A beat is a witness (rule 8), so a receiver must know that its sender made it. The control key does not show that,
because all nodes have it, and a signature per beat would take too much CPU (`python -m benchmarks keys`). The key of a
pair follows from X25519 of their identities and from the control key of the epoch, so no third node can compute it. A
receiver cannot prove to others that it received a beat: beats are never passed on.

    n-s     u64   time of the sender, strictly rising for each process
    n-s+8   for each receiver: id u16, and 8 bytes of BLAKE2b-64 with the key of the pair, person "lc beats v1", over
            the BLAKE2b-256 of the header, the body and the time

The header has seal kind 5. The size of a seal is one byte, so one datagram has MACs for up to 24 receivers; a sender
with more sends the beat once for each 24. Receivers are found by their ids, so nodes with different statements
understand each other. Eight bytes: a forger needs 2^63 datagrams on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct

from levelcast.keys.keyring import EpochKeys, Keyring
from levelcast.keys.replay import ReplayWindows, next_stamp
from levelcast.keys.statement import RECEIVER, SECONDARY, Holder
from levelcast.native.layout import EPOCH_AT, KIND_AT, SEAL_KIND_AT, SEAL_SIZE_AT, SENDER_AT
from levelcast.wire.header import HEADER_SIZE, Reason, reseal
from levelcast.wire.seal import BEAT_KIND
from levelcast.wire.token_codec import KIND_BEAT

PER_DATAGRAM = 24
_PERSON = b"lc beats v1"
_STAMP = Struct("<Q")
_U16 = Struct("<H")
_MAC_SIZE = 8
_ENTRY_SIZE = _U16.size + _MAC_SIZE


class BeatSeal:
    """The seal of a member's beats for some of the receivers, as an object of `levelcast.wire.seal`."""

    kind = BEAT_KIND

    def __init__(self, epoch: int, keyed: Sequence[tuple[int, blake2b]]) -> None:
        self.epoch = epoch
        self.size = _STAMP.size + _ENTRY_SIZE * len(keyed)
        self.stamp_ns = 0
        self._keyed = tuple((_U16.pack(receiver), mac) for receiver, mac in keyed)

    def make(self, head: bytes, body: bytes) -> bytes:
        stamp = _STAMP.pack(self.stamp_ns)
        digest = blake2b(head + body + stamp, digest_size=32).digest()
        parts = [stamp]
        for receiver, keyed in self._keyed:
            mac = keyed.copy()
            mac.update(digest)
            parts += (receiver, mac.digest())
        return b"".join(parts)

    def holds(self, content: bytes, seal: bytes) -> bool:
        raise ValueError("a beat is verified by BeatVerifier, which needs time and keys")


class BeatSender:
    """Authenticate the beats of a member to all receivers of the statement."""

    def __init__(self, keyring: Keyring, keys: EpochKeys) -> None:
        self._last_ns = 0
        self.use(keyring, keys)

    def use(self, keyring: Keyring, keys: EpochKeys) -> None:
        """Use a newer statement, or the keys of another epoch: computes a key for each receiver."""
        others = [each for each in keyring.statement.of_role(RECEIVER, SECONDARY) if each.id != keyring.own.id]
        keyed = [(each.id, _keyed(keyring, keys, keyring.own, each)) for each in others]
        parts = range(0, len(keyed), PER_DATAGRAM)
        self._seals = [BeatSeal(keys.number, keyed[at : at + PER_DATAGRAM]) for at in parts]

    def seal(self, datagram: bytes, now_ns: int) -> list[bytes]:
        """Return a beat with MACs instead of its own seal: a datagram for each `PER_DATAGRAM` receivers."""
        self._last_ns = next_stamp(self._last_ns, now_ns)
        sealed = []
        for each in self._seals:
            each.stamp_ns = self._last_ns
            sealed.append(reseal(datagram, each))
        return sealed


class BeatVerifier:
    """Verify the beats of others at one receiver, sans I/O."""

    def __init__(self, keyring: Keyring, start_ns: int) -> None:
        self._windows = ReplayWindows(start_ns)
        self.use(keyring)

    def use(self, keyring: Keyring) -> None:
        """Use a newer statement: computes a key for each member and epoch."""
        self._keyring = keyring
        self._members = {each.id: each for each in keyring.statement.of_role(RECEIVER)}
        self._revoked = frozenset(each.id for each in keyring.statement.revoked) - set(self._members)
        self._own = _U16.pack(keyring.own.id)
        self._keyed = {
            (number, each.id): _keyed(keyring, keys, each, keyring.own)
            for number, keys in keyring.epochs.items()
            for each in self._members.values()
            if each.id != keyring.own.id
        }

    def check(self, datagram: bytes, now_ns: int) -> Holder | Reason | None:
        """Return the sender of a beat, or why it is refused; None if its MACs are for other receivers."""
        if len(datagram) < HEADER_SIZE or datagram[KIND_AT] != KIND_BEAT or datagram[SEAL_KIND_AT] != BEAT_KIND:
            return Reason.UNKNOWN_SEAL
        macs = len(datagram) - datagram[SEAL_SIZE_AT] + _STAMP.size
        if not HEADER_SIZE + _STAMP.size <= macs <= len(datagram):
            return Reason.UNKNOWN_SEAL
        at = next((at for at in range(macs, len(datagram), _ENTRY_SIZE) if datagram[at : at + 2] == self._own), None)
        if at is None:
            return None
        (sender,), (epoch,) = _U16.unpack_from(datagram, SENDER_AT), _U16.unpack_from(datagram, EPOCH_AT)
        keyed = self._keyed.get((epoch, sender))
        if keyed is None or self._keyring.accepted(epoch, now_ns) is None:
            return Reason.REVOKED if sender in self._revoked else Reason.UNKNOWN_KEY
        mac = keyed.copy()
        mac.update(blake2b(datagram[:macs], digest_size=32).digest())
        if not compare_digest(mac.digest(), datagram[at + 2 : at + _ENTRY_SIZE]):
            return Reason.BROKEN_SEAL
        (sent_ns,) = _STAMP.unpack_from(datagram, macs - _STAMP.size)
        window = self._windows.of(sender)
        if (reason := window.refusal(sent_ns, now_ns)) is not None:
            return reason
        window.add(sent_ns, now_ns)
        return self._members[sender]


def _keyed(keyring: Keyring, keys: EpochKeys, sender: Holder, receiver: Holder) -> blake2b:
    """Return the keyed state of a pair's MAC: each beat continues a copy of it."""
    key = keyring.beat_key(keys, sender, receiver)
    return blake2b(key=key.reveal(), digest_size=_MAC_SIZE, person=_PERSON)
