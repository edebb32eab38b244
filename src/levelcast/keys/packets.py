"""Seal and open core packets with AES-256-GCM under keys of a keyring (K4 to K10).

Deviation from K6: keys are derived for at most `MOST_DERIVED` unknown salts per second in all, not ten per source. A
derivation takes 5 µs, so this is 0.5 % of a core. With ten per source, a stranger who sends packets with random salts
would keep out a floor that has just started. A key is kept only after a packet has opened with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from struct import Struct

from levelcast import native
from levelcast.keys.derive import packet_key
from levelcast.keys.keyring import Keyring
from levelcast.keys.secret import KeysError
from levelcast.native.layout import AES_GCM_KIND, DATA_BODY, EPOCH_AT, SEAL_KIND_AT, SENDER_AT
from levelcast.native.pure_seal import OVERHEAD, KeyId
from levelcast.native.seal import Opener, Sealer
from levelcast.wire.header import HEADER_SIZE, Reason, split_domain
from levelcast.wire.messages import Data, Packet
from levelcast.wire.packets import MAX_TOGETHER, check_packet, singles

MOST_SALTS = 8
"""Processes of a source in one epoch whose keys are kept; an older one is derived again when it is needed."""
MOST_DERIVED = 1_000
"""Keys of unknown salts that are derived in a second."""
MOST_PACKETS = 1 << 36
"""Packets of one key (K10)."""
_NS_PER_S = 1_000_000_000
RENEW_AHEAD_NS = 2 * _NS_PER_S
"""A packet whose epoch ends within this time is sealed again before it is resent."""
_U16 = Struct("<H")
_END = Struct("<I")
SMALLEST = HEADER_SIZE + DATA_BODY.size


class SealedSource:
    """Seal the packets of one process of a source. The salt must be random, drawn when the process starts (K5).

    Two objects with the same salt must not exist. `use_epoch` begins with the keys of another epoch; earlier epochs
    cannot be used again. `new_salt` draws a salt for packets that are sealed again. `source` is another source than the
    node itself: a receiver sends timing records as the operator's source (rule W10).
    """

    overhead = OVERHEAD

    def __init__(
        self,
        keyring: Keyring,
        domain: int,
        salt: int,
        epoch: int,
        new_salt: Callable[[], int] | None = None,
        source: int | None = None,
    ) -> None:
        self._keyring, self._domain, self._salt = keyring, domain, salt
        self._new_salt = new_salt
        self._source = keyring.own.id if source is None else source
        self._sealers: dict[int, Sealer] = {}
        self._renewal: tuple[tuple[int, int, int], int, Sealer] | None = None
        """Source, incarnation and epoch of packets that were sealed again, the last number, and their seal."""
        self.epoch = 0
        self.use_epoch(keyring, epoch)

    def use_epoch(self, keyring: Keyring, epoch: int) -> None:
        """Seal from now on with the keys of this epoch. Raise KeysError if the keyring lacks them."""
        if epoch < self.epoch:
            raise KeysError(f"epoch {epoch} is earlier than {self.epoch}, which is in use; load the newest statement")
        if keyring.source_key(epoch, self._source) is None:
            lacking = f"{keyring.own.name}: it has no key of a source in epoch {epoch}"
            raise KeysError(f"{lacking}; load the newest statement")
        if epoch != self.epoch:
            self._sealers.clear()
        self._keyring, self.epoch = keyring, epoch

    def seal(self, packet: Packet) -> Data:
        """Return one packet as its source sends it."""
        source, incarnation, number, records, payload = packet
        check_packet(number, records, len(payload))
        sealed = self._sealer(source, incarnation).seal(number, records, payload)
        return Data(source, incarnation, number, number, sealed)

    def seal_all(
        self, payload: bytes | memoryview, packet_bytes: int, most: int, source: int, incarnation: int, first: int
    ) -> tuple[Data | None, int, int]:
        """Seal records in packets, by the train: see `levelcast.wire.packets.seal_all`."""
        most = min(most, max(1, MAX_TOGETHER // packet_bytes))
        sealer = self._sealer(source, incarnation)
        sealed, packets, records, taken = sealer.seal_packets(payload, packet_bytes, most, first)
        return (Data(source, incarnation, first, first + packets - 1, sealed) if packets else None), records, taken

    def renewed(self, data: Data, now: int) -> Data:
        """Return packets that receivers accept: those with a CRC-32 or of an ended epoch are sealed again (K10).

        They keep their numbers, so they get a salt of their own: no key is used for a number twice (K5).
        """
        places = native.ends(data.sealed)
        last_at = _END.unpack_from(places, len(places) - 2 * _END.size)[0] if len(places) > _END.size else 0
        if self._is_accepted(data.sealed, 0, now) and self._is_accepted(data.sealed, last_at, now):
            return data
        sealer = self._renewer(data)
        opened = SealedPackets(self._keyring, self._domain)
        sealed: list[bytes] = []
        for each in singles(data):
            if self._is_accepted(each.sealed, 0, now):
                sealed.append(each.sealed)
            else:
                _, payload, records = opened.assemble([each])
                sealed.append(sealer.seal(each.first, records, payload))
        return data._replace(sealed=b"".join(sealed))

    def _renewer(self, data: Data) -> Sealer:
        """Return what seals packets again: the same as for the packets before them, as long as their numbers rise."""
        which = data.source, data.incarnation, self.epoch
        renewal = self._renewal
        if renewal is None or renewal[0] != which or renewal[1] >= data.first:
            if self._new_salt is None:
                raise KeysError("packets of an earlier process cannot be sealed again without a new salt")
            renewal = which, 0, self._new_sealer(data.source, data.incarnation, self._new_salt())
        self._renewal = which, data.last, renewal[2]
        return renewal[2]

    def _is_accepted(self, sealed: bytes, at: int, now: int) -> bool:
        """Return whether receivers accept the packet at `at`, and will for a while."""
        (epoch,) = _U16.unpack_from(sealed, at + EPOCH_AT)
        in_force = self._keyring.accepts_packets(epoch, self._source, now + RENEW_AHEAD_NS)
        return sealed[at + SEAL_KIND_AT] == AES_GCM_KIND and in_force

    def _sealer(self, source: int, incarnation: int) -> Sealer:
        made = self._sealers.get(incarnation)
        if made is None:
            made = self._sealers[incarnation] = self._new_sealer(source, incarnation, self._salt)
        return made

    def _new_sealer(self, source: int, incarnation: int, salt: int) -> Sealer:
        base = self._keyring.source_key(self.epoch, source)
        if base is None:
            raise KeysError(f"{self._keyring.own.name}: it has no key of source {source} in epoch {self.epoch}")
        key = packet_key(base, split_domain(self._domain)[1], incarnation, salt)
        return Sealer(key.reveal(), self._domain, source, incarnation, self.epoch, salt)


class SealedPackets:
    """Check packets when they arrive, and open them when they are ordered (K6)."""

    def __init__(self, keyring: Keyring, domain: int, opener: Opener | None = None) -> None:
        self._keyring, self._domain = keyring, domain
        self._opener = opener or Opener()
        self.drain_packets = self._opener.drain_packets
        """Read packets from a socket: `accepts` must be called for each value."""
        self.take_refused = self._opener.take_refused
        self._kept: dict[tuple[int, int], OrderedDict[KeyId, None]] = {}
        self._second = 0
        self._derived = 0

    def use(self, keyring: Keyring) -> None:
        """Use the keys of a newer statement."""
        self._keyring = keyring

    def accepts(self, data: Data, now_ns: int) -> bool:
        """Return whether packets that a drain has opened count: their source is not revoked, nor their epoch over."""
        (epoch,) = _U16.unpack_from(data.sealed, EPOCH_AT)
        return self._keyring.accepts_packets(epoch, data.source, now_ns)

    def check(self, sealed: bytes, now_ns: int, *, named: bool = False) -> Data | Reason:
        """Return the consecutive packets of a value if their source sealed them; else the reason to reject them.

        `named`: a token names them, so that packets of revoked sources and ended epochs count too. The clear text is
        not kept.
        """
        if len(sealed) <= SMALLEST or sealed[SEAL_KIND_AT] != AES_GCM_KIND:
            return Reason.UNKNOWN_SEAL
        (source,), (epoch,) = _U16.unpack_from(sealed, SENDER_AT), _U16.unpack_from(sealed, EPOCH_AT)
        if not named and not self._keyring.accepts_packets(epoch, source, now_ns):
            return Reason.UNKNOWN_KEY
        try:
            found = self._opener.open(sealed, self._domain, Data)
        except KeyError as missing:
            return self._with_new_key(missing.args, sealed, now_ns)
        return Reason.BROKEN_SEAL if found is None else found

    def assemble(self, values: Sequence[Data]) -> tuple[bytes, bytes, int]:
        """Return rows, clear payloads and the number of records of held packets, as `levelcast.native.assemble`."""
        added: list[KeyId] = []
        while True:
            try:
                found = self._opener.assemble(values)
                break
            except KeyError as missing:
                if not self._add(missing.args):
                    raise KeysError(f"the key of a held packet of source {missing.args[0]} is missing") from None
                added.append(missing.args)
        for key in added:
            self._keep(key)
        return found

    def _with_new_key(self, key: KeyId, sealed: bytes, now_ns: int) -> Data | Reason:
        second = now_ns // _NS_PER_S
        if second != self._second:
            self._second, self._derived = second, 0
        if self._derived >= MOST_DERIVED:
            return Reason.UNKNOWN_KEY
        self._derived += 1
        if not self._add(key):
            return Reason.UNKNOWN_KEY
        try:
            found = self._opener.open(sealed, self._domain, Data)
        except KeyError:
            found = None
        if found is None:
            self._opener.remove(*key)
            return Reason.BROKEN_SEAL
        self._keep(key)
        return found

    def _add(self, key: KeyId) -> bool:
        source, epoch, incarnation, salt = key
        base = self._keyring.source_key(epoch, source)
        if base is None:
            return False
        found = packet_key(base, split_domain(self._domain)[1], incarnation, salt)
        self._opener.add(source, epoch, incarnation, salt, found.reveal())
        return True

    def _keep(self, key: KeyId) -> None:
        """Keep a key that has opened a packet, and drop the oldest of its source and epoch."""
        kept = self._kept.setdefault(key[:2], OrderedDict())
        kept[key] = None
        while len(kept) > MOST_SALTS:
            oldest, _ = kept.popitem(last=False)
            self._opener.remove(*oldest)
