"""Sign and verify control messages: all kinds but Data and Beat (K11 to K16).

    n-98  u64   time of the sender, strictly rising for each process
    n-90  4s    own address of the sender, u16 own port: zeros if it has none
    n-84  u16   newest key epoch that the sender, and the secondaries behind it, hold
    n-82  u16   newest epoch that all members of its ring hold, as far as it knows
    n-80  64s   Ed25519 over "levelcast control v1", a zero byte, and bytes 0 to n-81
    n-16  16s   BLAKE2b-128 with the control key of the epoch, person "lc control v1", over bytes 0 to n-17

The header has seal kind 3, size 98 and the epoch; it also has the network's identifier, so the signature covers that.
The MAC is last and covers the signature, so a stranger is refused after one hash. Addresses are those that were signed,
not those from which datagrams came (K14).

| check, in this order                | refused as             | cost     |
|-------------------------------------|------------------------|----------|
| length, kind of seal, epoch         | unknown seal, key      | < 1 µs   |
| MAC                                 | broken seal            | 1 µs     |
| sender and role by the statement    | revoked, wrong role    | < 1 µs   |
| exact repetition of an authored one | accepted without more  | < 1 µs   |
| window of the sender                | stale, replayed        | < 1 µs   |
| budget of the turn (K16)            | too many to check      | < 1 µs   |
| signature                           | bad signature          | 0.1 ms   |

An authored message may be old: its author repeats it to nodes that missed it. Of those, only `MOST_OLD` are verified in
a turn, because a stranger can repeat old recorded ones. A restart refuses stamps from before it
(`levelcast.keys.replay`), and the sender sends such a message again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple

from levelcast.keys.identity import Identity
from levelcast.keys.keyring import EpochKeys, Keyring
from levelcast.keys.replay import FRESH_NS, ReplayWindows, next_stamp
from levelcast.keys.roles import is_authored, may_send
from levelcast.keys.statement import AUTHORITY, NS_PER_S, Holder
from levelcast.native.layout import EPOCH_AT, KIND_AT, SEAL_KIND_AT, SENDER_AT
from levelcast.wire.header import HEADER_SIZE, Reason, reseal
from levelcast.wire.seal import CONTROL_KIND, CONTROL_SIZE

SIGNATURE_SIZE, MAC_SIZE = 64, 16
MOST_SIGNATURES = 64
"""Signatures that are checked in one turn (K16)."""
MOST_OF_ADDRESS = 8
"""Signatures that are checked in one turn for one address."""
MOST_OLD = 4
"""Of these, at most so many of authored messages that are not recent."""
REVOKED_WITHIN_NS = 10 * NS_PER_S
"""Time that a new statement needs to reach all nodes."""
MOST_KNOWN = 4_096
"""Authored datagrams whose repetitions are recognised."""

_SIGNED = b"levelcast control v1\0"
_PERSON = b"lc control v1"
_CLAIM = Struct("<Q4sHHH")
_U16 = Struct("<H")
_SEAL = bytes((CONTROL_KIND, CONTROL_SIZE))

Address = tuple[str, int]


class Verified(NamedTuple):
    """A control message whose sender is known."""

    sender: Holder
    address: Address | None
    """Address that the sender signed; None without one, and for a repetition."""
    sent_ns: int
    keys: int = 0
    """Newest epoch that it holds."""
    keys_of_all: int = 0
    """Newest epoch that all members of its ring hold."""
    repeated: bool = False
    """An exact repetition of an authored message, which was verified before."""


class ControlSeal:
    """The seal of a node's own control messages, as an object of `levelcast.wire.seal`."""

    kind = CONTROL_KIND
    size = CONTROL_SIZE

    def __init__(self, identity: Identity, keys: EpochKeys, address: Address | None = None) -> None:
        self._identity = identity
        host, port = address or ("0.0.0.0", 0)
        self._address = address_bytes(host), port
        self._now_ns = self.last_ns = 0
        self.keys = self.keys_of_all = keys.number
        """Epochs that the next messages state (K10)."""
        self.use(keys)

    def use(self, keys: EpochKeys) -> None:
        """Use the control key of another epoch from now on."""
        self.epoch = keys.number
        self._mac = _mac_of(keys)

    def sign(self, datagram: bytes, now_ns: int) -> bytes:
        """Return a complete datagram with this seal instead of its own."""
        self._now_ns = now_ns
        return reseal(datagram, self)

    def make(self, head: bytes, body: bytes) -> bytes:
        self.last_ns = next_stamp(self.last_ns, self._now_ns)
        content = head + body + _CLAIM.pack(self.last_ns, *self._address, self.keys, self.keys_of_all)
        signature = self._identity.sign(_SIGNED + content)
        mac = self._mac.copy()
        mac.update(content)
        mac.update(signature)
        return content[len(head) + len(body) :] + signature + mac.digest()

    def holds(self, content: bytes, seal: bytes) -> bool:
        raise ValueError("a control message is verified by ControlVerifier, which needs time and roles")


class ControlVerifier:
    """Verify control messages of others, sans I/O."""

    def __init__(self, keyring: Keyring, start_ns: int) -> None:
        self._windows = ReplayWindows(start_ns)
        self._known: OrderedDict[bytes, Verified] = OrderedDict()
        self._holders: dict[int, Holder] = {}
        self._past: dict[int, tuple[Holder, int]] = {}
        """Holders of earlier statements, and the time until which they may have authored what others pass on."""
        self._signatures = self._old = 0
        self._of_address: Counter[Hashable] = Counter()
        self.use(keyring)

    def use(self, keyring: Keyring) -> None:
        """Use a newer statement. A node that it revokes is refused from now on."""
        self._keyring = keyring
        self._macs = {number: _mac_of(keys) for number, keys in keyring.epochs.items()}
        until_ns = keyring.statement.made_s * NS_PER_S + REVOKED_WITHIN_NS
        self._past |= {known: (holder, until_ns) for known, holder in self._holders.items()}
        self._holders = {each.id: each for each in keyring.statement.holders if each.role != AUTHORITY}
        for known in self._holders:
            self._past.pop(known, None)
        self._revoked = frozenset(each.id for each in keyring.statement.revoked) - set(self._holders)
        self._known.clear()

    def begin_turn(self) -> None:
        """Renew the budget of signatures."""
        self._signatures = self._old = 0
        self._of_address.clear()

    def check(self, datagram: bytes, now_ns: int, source: Hashable = None) -> Verified | Reason:
        """Return the sender of a datagram that came from the address `source`, or why it is refused.

        The domain is not checked here: the body is decoded with `levelcast.wire.seal.CHECKED`, and compared then.
        """
        found = self._check_form(datagram, now_ns)
        if isinstance(found, Reason):
            return found
        kind = datagram[KIND_AT]
        if is_authored(kind) and (known := self._known.get(datagram)) is not None:
            return known._replace(address=None, repeated=True)
        sent_ns, host, port, *epochs = _CLAIM.unpack_from(datagram, len(datagram) - CONTROL_SIZE)
        window = self._windows.of(found.id)
        if not is_authored(kind) and (reason := window.refusal(sent_ns, now_ns)) is not None:
            return reason
        if not self._may_verify(source, is_old=abs(sent_ns - now_ns) > FRESH_NS):
            return Reason.TOO_MANY
        if not _is_signed(datagram, found):
            return Reason.BAD_SIGNATURE
        verified = Verified(found, (address_text(host), port) if port else None, sent_ns, *epochs)
        if is_authored(kind):
            self._remember(datagram, verified)
        else:
            window.add(sent_ns, now_ns)
        return verified

    def check_item(self, datagram: bytes) -> Verified | Reason:
        """Return the author of an item of a Repair: its MAC may be of an old epoch, so only its signature counts.

        What its author signed before it was revoked counts: a slot that it has ordered stays ordered, and the node that
        passes it on has accepted it in time. The caller passes only items that it wants (K16).
        """
        if (known := self._known.get(datagram)) is not None:
            return known._replace(address=None, repeated=True)
        if not _has_form(datagram) or not is_authored(datagram[KIND_AT]):
            return Reason.UNKNOWN_SEAL
        holder = self._author(datagram)
        if isinstance(holder, Reason):
            return holder
        if not self._may_verify(None):
            return Reason.TOO_MANY
        if not _is_signed(datagram, holder):
            return Reason.BAD_SIGNATURE
        verified = Verified(holder, None, _CLAIM.unpack_from(datagram, len(datagram) - CONTROL_SIZE)[0])
        self._remember(datagram, verified)
        return verified

    def _check_form(self, datagram: bytes, now_ns: int) -> Holder | Reason:
        if not _has_form(datagram):
            return Reason.UNKNOWN_SEAL
        (epoch,) = _U16.unpack_from(datagram, EPOCH_AT)
        if self._keyring.accepted(epoch, now_ns) is None:
            return Reason.UNKNOWN_KEY
        mac = self._macs[epoch].copy()
        mac.update(datagram[:-MAC_SIZE])
        if not compare_digest(mac.digest(), datagram[-MAC_SIZE:]):
            return Reason.BROKEN_SEAL
        return self._sender(datagram)

    def _author(self, datagram: bytes) -> Holder | Reason:
        """Return the author of an item; one that was revoked since counts for what it signed before."""
        (sender,) = _U16.unpack_from(datagram, SENDER_AT)
        past, until_ns = self._past.get(sender, (None, 0))
        if past is None or _CLAIM.unpack_from(datagram, len(datagram) - CONTROL_SIZE)[0] > until_ns:
            return self._sender(datagram)
        return past if may_send(datagram[KIND_AT], past.role) else Reason.WRONG_ROLE

    def _sender(self, datagram: bytes) -> Holder | Reason:
        (sender,) = _U16.unpack_from(datagram, SENDER_AT)
        holder = self._holders.get(sender)
        if holder is None:
            return Reason.REVOKED if sender in self._revoked else Reason.WRONG_ROLE
        return holder if may_send(datagram[KIND_AT], holder.role) else Reason.WRONG_ROLE

    def _may_verify(self, source: Hashable, *, is_old: bool = False) -> bool:
        if self._signatures >= MOST_SIGNATURES or self._of_address[source] >= MOST_OF_ADDRESS:
            return False
        if is_old and self._old >= MOST_OLD:
            return False
        self._signatures += 1
        self._old += is_old
        if source is not None:
            self._of_address[source] += 1
        return True

    def _remember(self, datagram: bytes, verified: Verified) -> None:
        self._known[datagram] = verified
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)


def _has_form(datagram: bytes) -> bool:
    return len(datagram) >= HEADER_SIZE + CONTROL_SIZE and datagram[SEAL_KIND_AT : SEAL_KIND_AT + 2] == _SEAL


def _is_signed(datagram: bytes, holder: Holder) -> bool:
    end = len(datagram) - MAC_SIZE
    signature = datagram[end - SIGNATURE_SIZE : end]
    return holder.keys.verifies(signature, _SIGNED + datagram[: end - SIGNATURE_SIZE])


def _mac_of(keys: EpochKeys) -> blake2b:
    """Return the keyed state of the MAC: each message continues a copy of it."""
    return blake2b(key=keys.control.reveal(), digest_size=MAC_SIZE, person=_PERSON)


def address_bytes(host: str) -> bytes:
    """Return the 4 bytes of an IPv4 address."""
    return bytes(map(int, host.split(".")))


def address_text(host: bytes) -> str:
    """Return the text of an IPv4 address."""
    return ".".join(map(str, host))
