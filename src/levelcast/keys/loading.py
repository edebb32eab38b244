"""Load the keys of a holder from the files of a network, and again when its statement changes (K3).

A process reads its private keys once. A newer statement replaces the one in use while the process runs; a file that
cannot be used is reported once, and the keys in use stay.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from levelcast.keys.files import passphrase
from levelcast.keys.identity import Identity
from levelcast.keys.keyring import Keyring, open_keyring
from levelcast.keys.secret import KeysError
from levelcast.keys.seen import accept
from levelcast.keys.statement import parse_statement, read_content

DIRECTORY = "LEVELCAST_KEYS"
"""Variable with the directory of private keys, in place of that of the network file."""


@dataclass(frozen=True, slots=True)
class KeyLocation:
    """Places of the keys of a network on this machine."""

    authority: str
    statement: Path
    directory: Path
    network: int

    @classmethod
    def of(
        cls, authority: str, statement: str, directory: str, network: int, environment: Mapping[str, str] = os.environ
    ) -> KeyLocation:
        """Return the location of the network file's [keys]; the environment may name another directory."""
        return cls(authority, Path(statement), Path(environment.get(DIRECTORY) or directory), network)


class HolderKeys:
    """The keys of one holder: its identity, and the newest statement that it has accepted."""

    def __init__(self, location: KeyLocation, name: str, now_ns: int) -> None:
        """Raise KeysError if the private keys are missing, or the statement cannot be used."""
        self._location = location
        self._identity = Identity.load(location.directory, name, passphrase())
        self._version = _version_of(location.statement)
        self.keyring = self._read(now_ns)

    def newer(self, now_ns: int) -> Keyring | None:
        """Return the keys of a statement that is newer than the one in use. Raise KeysError if it cannot be used."""
        version = _version_of(self._location.statement)
        if version is None or version == self._version:
            return None
        self._version = version
        found = self._read(now_ns)
        if found.statement.number <= self.keyring.statement.number:
            return None
        self.keyring = found
        return found

    def _read(self, now_ns: int) -> Keyring:
        where = self._location
        content = read_content(where.statement)
        statement = parse_statement(content, where.authority, where.network, now_ns, str(where.statement))
        keyring = open_keyring(self._identity, statement)
        statement.epoch_at(now_ns)
        accept(where.directory, self._identity.name, statement, content)
        return keyring


def load_holder(location: KeyLocation, name: str, holder_id: int, role: str, now_ns: int) -> HolderKeys:
    """Load the keys of a node or of the operator. Raise KeysError if the statement has it with another role."""
    keys = HolderKeys(location, name, now_ns)
    own = keys.keyring.own
    if (own.id, own.role) != (holder_id, role):
        raise KeysError(
            f"{location.statement}: lists {name} as {own.role} {own.id}, but the network file has it as {role} "
            f"{holder_id}; admit it again on the authority's machine with `levelcast keys node --admit`"
        )
    return keys


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
