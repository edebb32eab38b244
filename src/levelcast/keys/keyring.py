"""The keys that a node holds: its identity, and what the envelopes of a statement contain for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from levelcast.keys.derive import KEY_SIZE, beat_key, control_key, source_key
from levelcast.keys.identity import Identity
from levelcast.keys.secret import KeysError, Secret
from levelcast.keys.statement import (
    ACCEPTED_AFTER_NS,
    HOLD_CORE_SECRET,
    HOLD_SOURCE_KEY,
    Epoch,
    Holder,
    KeyStatement,
    purpose_of,
)


@dataclass(frozen=True, slots=True)
class EpochKeys:
    """The keys of one epoch, as far as the role of the node has them."""

    number: int
    from_ns: int
    until_ns: int | None
    """End of the time in which the epoch is accepted; None: there is no newer one."""
    packets_until_ns: int | None
    """The same for packets: earlier if the revocation of a receiver ended the epoch."""
    control: Secret
    core: Secret | None = None
    own_source: Secret | None = None


@dataclass(slots=True, repr=False)
class Keyring:
    """A node's identity and its keys of every epoch of a statement."""

    identity: Identity
    statement: KeyStatement
    own: Holder
    epochs: dict[int, EpochKeys]
    _sources: dict[tuple[int, int], Secret] = field(default_factory=dict)
    _agreed: dict[bytes, Secret] = field(default_factory=dict)
    """Secrets shared with other nodes, by their public keys: X25519 is slow."""
    _active: frozenset[int] = field(init=False)
    _past: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self._active = frozenset(each.id for each in self.statement.holders if each.role in HOLD_SOURCE_KEY)
        self._past = frozenset(each.id for each in self.statement.revoked if each.role in HOLD_SOURCE_KEY)

    def __repr__(self) -> str:
        return f"<keys of {self.own.name}, epochs {sorted(self.epochs)}>"

    @property
    def network(self) -> int:
        return self.statement.network

    def inherit(self, before: Keyring) -> None:
        """Take over what this node has computed with an earlier statement."""
        if before.identity.public == self.identity.public:
            self._agreed.update(before._agreed)

    def current(self, now_ns: int) -> EpochKeys:
        """Return the keys of the epoch that has begun. Raise KeysError if none has."""
        return self.epochs[self.statement.epoch_at(now_ns).number]

    def accepted(self, epoch: int, now_ns: int) -> EpochKeys | None:
        """Return the keys of an epoch if messages of it are accepted now: not long after its end (K10).

        An epoch that has not begun is accepted too: the clocks of its senders may be ahead.
        """
        found = self.epochs.get(epoch)
        return found if found is not None and (found.until_ns is None or now_ns < found.until_ns) else None

    def accepts_packets(self, epoch: int, source: int, now_ns: int) -> bool:
        """Return whether new packets of a source are accepted: its key is not revoked, and its epoch has not ended."""
        found = self.epochs.get(epoch)
        if found is None or (found.packets_until_ns is not None and now_ns >= found.packets_until_ns):
            return False
        return source in self._active

    def source_key(self, epoch: int, source: int) -> Secret | None:
        """Return the key of a source of the statement, revoked ones included: tokens may name packets of these.

        None if this node does not have it.
        """
        keys = self.epochs.get(epoch)
        if keys is None:
            return None
        if source == self.own.id and keys.own_source is not None:
            return keys.own_source
        if keys.core is None or (source not in self._active and source not in self._past):
            return None
        found = self._sources.get((epoch, source))
        if found is None:
            found = self._sources[epoch, source] = source_key(keys.core, self.network, source)
        return found

    def beat_key(self, keys: EpochKeys, sender: Holder, receiver: Holder) -> Secret:
        """Return the key of the beats from one holder to another, one of which is this node."""
        other = receiver if sender.id == self.own.id else sender
        agreed = self._agreed.get(other.keys.open)
        if agreed is None:
            agreed = self._agreed[other.keys.open] = self.identity.agree(other.keys)
        return beat_key(agreed, keys.control, self.network, sender.id, receiver.id)


def open_keyring(identity: Identity, statement: KeyStatement) -> Keyring:
    """Open the envelopes of a node. Raise KeysError if the statement is not for it."""
    own = statement.holder(identity.name)
    if own is None:
        revoked = any(each.name == identity.name for each in statement.revoked)
        why = "has been revoked" if revoked else "is not in the statement"
        raise KeysError(
            f"{statement.where}: {identity.name} {why}; admit it on the authority's machine with `levelcast keys node`"
        )
    if own.keys != identity.public:
        raise KeysError(
            f"{statement.where}: lists other public keys of {identity.name} than its key files have; admit its new "
            "keys on the authority's machine with `levelcast keys node --admit`"
        )
    ordered = sorted(statement.epochs, key=lambda each: each.number)
    ends = [*(each.from_ns + ACCEPTED_AFTER_NS for each in ordered[1:]), None]
    epochs = {
        each.number: _opened(identity, statement, own, each, end) for each, end in zip(ordered, ends, strict=True)
    }
    return Keyring(identity, statement, own, epochs)


def _opened(identity: Identity, statement: KeyStatement, own: Holder, epoch: Epoch, until_ns: int | None) -> EpochKeys:
    purpose = purpose_of(statement.network, epoch.number, own.name, own.role)
    content = identity.open(epoch.envelopes.get(own.name, b""), purpose)
    expected = 2 * KEY_SIZE if own.role in HOLD_SOURCE_KEY else KEY_SIZE
    if content is None or len(content) != expected:
        raise KeysError(
            f"{statement.where}: the envelope of {own.name} for epoch {epoch.number} cannot be opened with its key; "
            "admit it again on the authority's machine with `levelcast keys node --admit`"
        )
    packets = epoch.until_ns if until_ns is None else min(until_ns, epoch.until_ns or until_ns)
    times = (epoch.number, epoch.from_ns, until_ns, packets)
    if own.role in HOLD_CORE_SECRET:
        control = control_key(content, statement.network)
        return EpochKeys(*times, control, core=content)
    if own.role in HOLD_SOURCE_KEY:
        source, control = Secret(content.reveal()[:KEY_SIZE]), Secret(content.reveal()[KEY_SIZE:])
        return EpochKeys(*times, control, own_source=source)
    return EpochKeys(*times, content)
