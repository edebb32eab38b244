"""Seal and open all that one process sends and receives in the core of a stripe (rules K4 to K16), sans I/O.

| message                   | sent                                    | received                                   |
|---------------------------|-----------------------------------------|--------------------------------------------|
| Data                      | sealed by its source (`packets`)        | checked, kept sealed, opened when ordered  |
| Beat                      | a MAC for each receiver (`beat_macs`)   | own MAC, window                            |
| Token, Ring, Group, lines | signed once by its author (`control`)   | MAC, role, signature; repetitions are free |
| Repair                    | signed by its sender, items as they are | each item is checked as above              |
| others                    | signed (`control`)                      | MAC, role, window, signature               |

Addresses are learned from signatures alone, each from a newer message than the one before (K14).

Epochs (K10). A control message states the newest epoch that its sender and the secondaries behind it hold, and the
newest that all members of its ring hold. A source moves to an epoch when it has begun and a token says that all members
hold it, or when the one before is no longer accepted. Messages and beats move `SETTLE_NS` after it has begun: by then
every node must have the statement, also after a revocation.

Deviation from K10: the two epochs are in the seal of every control message, not in the body of tokens. So a network
without keys has the same tokens as before, and protocol classes do not know that keys exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

from levelcast.keys.beat_macs import BeatSender, BeatVerifier
from levelcast.keys.control import Address, ControlSeal, ControlVerifier, Verified
from levelcast.keys.keyring import EpochKeys, Keyring
from levelcast.keys.packets import SealedPackets, SealedSource
from levelcast.keys.replay import FRESH_NS
from levelcast.keys.roles import is_authored
from levelcast.keys.statement import HOLD_SOURCE_KEY, NS_PER_S, RECEIVER, SECONDARY
from levelcast.native.layout import EPOCH_AT, KIND_AT, KIND_DATA, LENGTH_AT, MAGIC, SEAL_SIZE_AT, VERSION
from levelcast.wire.codec import RepairItem, decode, decode_item, encode
from levelcast.wire.header import HEADER_SIZE, Malformed, Reason, domain_in, new_tuple, sender_of, wrong_domain
from levelcast.wire.messages import (
    CONTROL_SOURCE,
    Beat,
    Data,
    Group,
    LineHolders,
    Message,
    Packet,
    Ring,
    Token,
)
from levelcast.wire.seal import CHECKED, checked_beats
from levelcast.wire.token_codec import KIND_BEAT

SETTLE_NS = 10 * NS_PER_S
"""Control messages move to an epoch this long after it has begun."""
HEARD_NS = 10 * NS_PER_S
"""A secondary that was not heard for this long does not hold up a change of epoch."""
REVIEW_NS = NS_PER_S // 10
"""Interval at which the epochs in use are chosen."""

_START = MAGIC + bytes((VERSION,))
_Authored = TypeVar("_Authored", bound=Token | Ring | Group | LineHolders)


class Opened(NamedTuple):
    """A message whose sender is known."""

    domain: int
    message: Message
    address: Address | None
    """Address of the sender, if it is to be learned."""


class HeldEpoch(NamedTuple):
    """Newest epoch that a receiver states to hold, and when it stated it."""

    epoch: int
    sent_ns: int


class CoreSecurity:
    """The keys of one process at work. `new_salt` draws 64 random bits; `address` is that of its own socket."""

    def __init__(
        self,
        keyring: Keyring,
        domain: int,
        now: int,
        new_salt: Callable[[], int],
        address: Address | None = None,
        *,
        settle_ns: int = SETTLE_NS,
        packets: SealedPackets | None = None,
    ) -> None:
        """`packets` opens packets; the simulator's have no records."""
        self.keyring = keyring
        self.domain = domain
        self.node = keyring.own.id
        self.rejected: Counter[str] = Counter()
        """Items of Repairs and datagrams of drains that were refused, by reason, since they were last counted."""
        self.wants: Callable[[RepairItem], bool] = lambda _: True
        """Whether an item of a Repair may be of use: the others cost no signature (K16)."""
        self.ring: Callable[[], Collection[int]] = tuple
        """The members of the ring, at a receiver."""
        self.packets = packets or SealedPackets(keyring, domain)
        self._settle_ns = settle_ns
        self._now = now
        self._new_salt = new_salt
        self._address = address
        keys = self._control_keys(now)
        self._control = ControlVerifier(keyring, now)
        self._seal = ControlSeal(keyring.identity, keys, address)
        receives = keyring.own.role in (RECEIVER, SECONDARY)
        self._beats = BeatVerifier(keyring, now) if receives else None
        self._beat_sender = BeatSender(keyring, keys) if keyring.own.role == RECEIVER else None
        self._held: dict[int, HeldEpoch] = {}
        self._confirmed = HeldEpoch(0, 0)
        """The newest epoch that all members hold, by the last token."""
        self._addressed_ns: dict[int, int] = {}
        self._operator: SealedSource | None = None
        self.sealer: SealedSource | None = None
        """The seal of the own packets, at a source."""
        if keyring.own.role in HOLD_SOURCE_KEY:
            self.sealer = SealedSource(keyring, domain, new_salt(), self._source_epoch(), new_salt)
        self._review_ns = 0

    # -- time and statements --------------------------------------------------------------------------------

    def begin_turn(self, now: int) -> None:
        """Note the time, renew the budget of signatures, and choose the epochs in use now and then."""
        self._now = now
        self._control.begin_turn()
        if refused := self.packets.take_refused():
            self.rejected[Reason.BROKEN_SEAL.value] += refused
        if now >= self._review_ns:
            self._review_ns = now + REVIEW_NS
            self._choose_epochs()

    def use(self, keyring: Keyring) -> None:
        """Use a newer statement."""
        keyring.inherit(self.keyring)
        self.keyring = keyring
        self.packets.use(keyring)
        self._control.use(keyring)
        if self._beats is not None:
            self._beats.use(keyring)
        keys = self._control_keys(self._now)
        self._seal.use(keys)
        if self._beat_sender is not None:
            self._beat_sender.use(keyring, keys)
        self._choose_epochs()

    def _choose_epochs(self) -> None:
        keys = self._control_keys(self._now)
        if keys.number != self._seal.epoch:
            self._seal.use(keys)
            if self._beat_sender is not None:
                self._beat_sender.use(self.keyring, keys)
        self._seal.keys = self._own_keys()
        self._seal.keys_of_all = self._keys_of_all()
        for source in (self.sealer, self._operator):
            if source is not None:
                source.use_epoch(self.keyring, max(source.epoch, self._source_epoch()))

    def _control_keys(self, now: int) -> EpochKeys:
        """Return the keys of the newest epoch that began long enough ago. Raise KeysError if none has begun."""
        current = self.keyring.current(now)
        settled = [each for each in self.keyring.epochs.values() if each.from_ns + self._settle_ns <= now]
        if settled:
            return max(settled, key=lambda each: each.number)
        begun = [each for each in self.keyring.epochs.values() if each.from_ns <= now]
        return min(begun, key=lambda each: each.number, default=current)

    def _own_keys(self) -> int:
        """Return the newest epoch that this node and the secondaries that it hears hold."""
        newest = max(self.keyring.epochs)
        secondaries = {each.id for each in self.keyring.statement.of_role(SECONDARY)}
        heard = (
            held.epoch
            for node, held in self._held.items()
            if node in secondaries and held.sent_ns > self._now - HEARD_NS
        )
        return min((newest, *heard))

    def _keys_of_all(self) -> int:
        """Return the newest epoch that all members hold; nodes that the statement does not list do not count."""
        members = {each.id for each in self.keyring.statement.of_role(RECEIVER)} & set(self.ring()) - {self.node}
        return min((self._own_keys(), *(self._held[each].epoch if each in self._held else 0 for each in members)))

    def _source_epoch(self) -> int:
        """Return the epoch with which a source seals now (K10)."""
        now, source = self._now, self.node if self.keyring.own.role in HOLD_SOURCE_KEY else CONTROL_SOURCE
        begun = sorted(number for number, each in self.keyring.epochs.items() if each.from_ns <= now)
        accepted = [each for each in begun if self.keyring.accepts_packets(each, source, now + NS_PER_S)]
        confirmed = self._keys_of_all() if self.keyring.own.role == RECEIVER else self._confirmed.epoch
        held = [each for each in accepted if each <= confirmed]
        return held[-1] if held else accepted[0] if accepted else self.keyring.current(now).number

    # -- own messages -----------------------------------------------------------------------------------------

    def author(self, message: _Authored, now: int) -> _Authored:
        """Return an own message with the datagram that its node has signed (K15)."""
        signed = self._seal.sign(encode(message, self.domain), now)
        return new_tuple(type(message), (*message[:-1], signed))

    def seal(self, message: Message) -> list[bytes]:
        """Return the datagrams of a message that this node sends; an authored one of others as it is."""
        datagram = encode(message, self.domain)
        if type(message) is Data:
            return [datagram]
        if type(message) is Beat:
            return self._beat_sender.seal(datagram, self._now) if self._beat_sender is not None else []
        if is_authored(datagram[KIND_AT]) and not self._is_outdated(datagram):
            return [datagram]
        return [self._seal.sign(datagram, self._now)]

    def _is_outdated(self, datagram: bytes) -> bool:
        """Return whether an own authored message was signed in an epoch that others no longer accept."""
        epoch = int.from_bytes(datagram[EPOCH_AT : EPOCH_AT + 2], "little")
        return sender_of(datagram) == self.node and self.keyring.accepted(epoch, self._now) is None

    def assemble(self, values: Sequence[Data]) -> tuple[bytes, bytes, int]:
        """Open held packets, when they are ordered (K6)."""
        return self.packets.assemble(values)

    def seal_packet(self, packet: Packet) -> Data:
        """Return a packet of the operator's source: a receiver, which has its key, sends timing records (rule W10)."""
        if self._operator is None:
            salt, epoch = self._new_salt(), self._source_epoch()
            self._operator = SealedSource(self.keyring, self.domain, salt, epoch, self._new_salt, CONTROL_SOURCE)
        return self._operator.seal(packet)

    # -- messages of others -----------------------------------------------------------------------------------

    def accepts(self, data: Data) -> bool:
        """Return whether packets that a drain has opened count; else count them."""
        if self.packets.accepts(data, self._now):
            return True
        self.rejected[Reason.UNKNOWN_KEY.value] += data.last - data.first + 1
        return False

    def open_packet(self, datagram: bytes) -> Data | None:
        """Return a packet that was rebuilt from a parity, if its source sealed it."""
        if len(datagram) < HEADER_SIZE or domain_in(datagram) != self.domain:
            return None
        found = self.packets.check(datagram, self._now)
        return found if isinstance(found, Data) else None

    def open(self, datagram: bytes, source: Address) -> Opened | None:
        """Return the message of a datagram from `source`; None if it is not for this node. Raise `Malformed`."""
        length = int.from_bytes(datagram[LENGTH_AT : LENGTH_AT + 4], "little")
        if len(datagram) < HEADER_SIZE or datagram[: len(_START)] != _START or length != len(datagram):
            decode(datagram, {})
        if reason := wrong_domain(domain_in(datagram), self.domain):
            raise Malformed(reason)
        kind = datagram[KIND_AT]
        if kind == KIND_DATA:
            return Opened(self.domain, _or_raise(self.packets.check(datagram, self._now)), None)
        if kind == KIND_BEAT:
            return self._open_beat(datagram)
        verified = _or_raise(self._control.check(datagram, self._now, source))
        if self._is_own(verified):
            raise Malformed(Reason.REPLAYED)
        self._note(verified, kind)
        message = decode(datagram, CHECKED, self._open_item).message
        return Opened(self.domain, message, self._newest_address(verified))

    def _is_own(self, verified: Verified) -> bool:
        """Return whether a message is this process's own, sent back to it: another process has another address."""
        return verified.sender.id == self.node and (verified.repeated or verified.address == self._address)

    def _open_beat(self, datagram: bytes) -> Opened | None:
        if self._beats is None or (found := self._beats.check(datagram, self._now)) is None:
            return None
        _or_raise(found)
        return Opened(self.domain, decode(datagram, checked_beats(datagram[SEAL_SIZE_AT])).message, None)

    def _open_item(self, item: bytes, domain: int) -> RepairItem | None:
        """Return a message that is passed on, if it is wanted and its author is known. Raise `Malformed`."""
        if item[KIND_AT] == KIND_DATA:
            if domain_in(item) != domain:
                raise Malformed(Reason.BAD_FIELD, "an item of another stripe or network")
            found = self.packets.check(item, self._now, named=True)
            if not isinstance(found, Reason):
                return found
        else:
            message = decode_item(item, domain, CHECKED)
            if not self.wants(message):
                return None
            verified = self._control.check_item(item)
            if not isinstance(verified, Reason):
                return message
            found = verified
        self.rejected[found.value] += 1
        return None

    def _note(self, verified: Verified, kind: int) -> None:
        """Note what the sender states of its keys, if this is newer than what it has stated before."""
        if verified.repeated or not verified.keys:
            return
        sender, stated = verified.sender, HeldEpoch(verified.keys, verified.sent_ns)
        if sender.role in (RECEIVER, SECONDARY) and stated.sent_ns > self._held.get(sender.id, self._confirmed)[1]:
            self._held[sender.id] = stated
        if sender.role == RECEIVER and verified.sent_ns > self._confirmed.sent_ns:
            self._confirmed = HeldEpoch(verified.keys_of_all, verified.sent_ns)

    def _newest_address(self, verified: Verified) -> Address | None:
        """Return the address that a sender has signed, if no newer message of it has stated one (K14)."""
        sender, sent_ns = verified.sender.id, verified.sent_ns
        is_new = sent_ns > self._addressed_ns.get(sender, 0) and abs(sent_ns - self._now) <= FRESH_NS
        if verified.address is None or not is_new:
            return None
        self._addressed_ns[sender] = sent_ns
        return verified.address

    # -- status -----------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the public state of the keys in use."""
        source = {"source_epoch": self.sealer.epoch} if self.sealer is not None else {}
        return {
            "statement": self.keyring.statement.number,
            "expires_s": self.keyring.statement.expires_s,
            "epoch": self._seal.epoch,
            "newest_epoch": max(self.keyring.epochs),
            "epoch_of_all": self._seal.keys_of_all,
            **source,
        }


_Found = TypeVar("_Found")


def _or_raise(found: _Found | Reason) -> _Found:
    if isinstance(found, Reason):
        raise Malformed(found)
    return found
