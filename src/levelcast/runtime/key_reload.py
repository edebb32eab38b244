"""Load the keys of a process and create its `CoreSecurity`; load newer statements while it runs (K3, K10).

The statement file is looked at every `LOOK_NS`. Reading one with 21 members takes about 2 ms, so it is read in the turn
after a release, not before one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from levelcast.network import Network
from levelcast.protocol.effects import Release
from levelcast.protocol.events import Event, KeysChanged, KeysRefused

if TYPE_CHECKING:
    from levelcast.keys.core_security import CoreSecurity
    from levelcast.keys.loading import HolderKeys, KeyLocation
    from levelcast.runtime.sockets import Address

OPERATOR = "operator"
"""Name and role of the holder that seals plans, changes of members and timing records."""
LOOK_NS = 1_000_000_000
"""Interval at which the statement file is looked at."""


def load_keys(network: Network, name: str, holder_id: int, role: str, now: int) -> HolderKeys | None:
    """Return the keys of a node or of the operator; None in a network without keys. Raise KeysError."""
    location = location_of(network)
    if location is None:
        return None
    from levelcast.keys.loading import load_holder  # networks without keys need no cryptography

    return load_holder(location, name, holder_id, role, now)


def location_of(network: Network) -> KeyLocation | None:
    """Return where the keys of a network are on this machine; None without keys."""
    if network.keys is None:
        return None
    from levelcast.keys.loading import KeyLocation

    files = network.keys
    return KeyLocation.of(files.authority, files.statement, files.directory, network.id)


def secure(keys: HolderKeys, domain: int, now: int, address: Address | None = None) -> CoreSecurity:
    """Return the keys at work in one stripe, for messages from this address."""
    from levelcast.keys.core_security import CoreSecurity
    from levelcast.keys.process import new_salt

    return CoreSecurity(keys.keyring, domain, now, new_salt, address)


def key_status(security: CoreSecurity | None) -> dict[str, Any] | None:
    """Return the state of the keys for a status; None without keys."""
    if security is None:
        return None
    from levelcast.native import seal

    return security.status() | {"implementation": seal.IMPLEMENTATION}


class KeyReload:
    """Replace the statement in use when its file changes: a service of a driver."""

    filenos: Sequence[int] = ()

    def __init__(
        self, keys: HolderKeys, security: CoreSecurity, now: int, report: Callable[[Event], None] = lambda _: None
    ) -> None:
        self._keys, self._security, self._report = keys, security, report
        self.wake_ns: int | None = now + LOOK_NS

    def step(self, ready: Collection[int], now: int) -> None:
        from levelcast.keys.secret import KeysError

        if self.wake_ns is not None and now < self.wake_ns:
            return
        self.wake_ns = now + LOOK_NS
        try:
            keyring = self._keys.newer(now)
            if keyring is not None:
                self._security.use(keyring)
                self._report(KeysChanged(0, keyring.statement.number, max(keyring.epochs)))
        except KeysError as error:
            self._report(KeysRefused(0, str(error)))

    def released(self, release: Release, content: bytes | bytearray, now: int) -> None:
        """Do nothing: a release needs no keys."""

    def close(self) -> None:
        """Do nothing: no file stays open."""
