"""Find the files of a network's keys, and the holders that its network file defines."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from levelcast.cli.errors import replacing
from levelcast.keys.authority import DEFAULT_VALID_S
from levelcast.keys.files import passphrase
from levelcast.keys.identity import Identity, PublicIdentity, key_files
from levelcast.keys.loading import DIRECTORY
from levelcast.keys.secret import KeysError
from levelcast.keys.seen import accept
from levelcast.keys.statement import (
    AUTHORITY,
    NS_PER_S,
    OPERATOR,
    OWN_NAMES,
    Holder,
    KeyStatement,
    read_statement,
    statement_text,
)
from levelcast.network import Network, load_network
from levelcast.network.model import KeyFiles
from levelcast.network.roles import ROLES
from levelcast.units import NS_PER_AGE_UNIT, parse_amount
from levelcast.wire.messages import CONTROL_SOURCE

_NO_KEYS = "the network file has no [keys] table; create keys with `levelcast keys init`"


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """A network, and the paths of its keys on this machine."""

    file: Path
    network: Network
    statement: Path
    directory: Path

    @property
    def authority(self) -> str:
        """The authority's public key."""
        if self.network.keys is None:
            raise KeysError(f"{self.file}: {_NO_KEYS}")
        return self.network.keys.authority

    def read(self, now_ns: int | None) -> KeyStatement:
        """Return the verified statement; without a time, also an expired one."""
        return read_statement(self.statement, self.authority, self.network.id, now_ns)

    def load_authority(self) -> Identity:
        """Return the authority's private keys. Raise KeysError where they are not."""
        return load_identity(self.directory, AUTHORITY)

    def has_authority(self) -> bool:
        return key_files(self.directory, AUTHORITY)[0].exists()

    def write(self, statement: KeyStatement, authority: Identity) -> None:
        """Sign and write a statement."""
        if authority.public.sign_text != self.authority:
            raise KeysError(
                f"{self.directory}: the authority's key there is not the one that [keys] of {self.file} names; use the "
                "directory of this network's keys"
            )
        text = statement_text(statement, authority)
        with replacing(self.statement) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
        accept(self.directory, AUTHORITY, statement, text.encode())


def places_of(file: Path, files: KeyFiles | None = None) -> KeyPlaces:
    """Return the paths for a network file. `files` replaces its [keys] table."""
    network = load_network(file)
    chosen = files or network.keys
    if chosen is None:
        raise KeysError(f"{file}: {_NO_KEYS}")
    directory = os.environ.get(DIRECTORY)
    return KeyPlaces(
        file, network, file.parent / chosen.statement, Path(directory) if directory else file.parent / chosen.directory
    )


def load_identity(directory: Path, name: str) -> Identity:
    """Return the private keys of a holder, with the passphrase of the environment."""
    return Identity.load(directory, name, passphrase())


def new_identity(directory: Path, name: str) -> Identity:
    """Create and store the private keys of a holder."""
    made = Identity.new(name)
    made.save(directory, passphrase())
    return made


def holder_of(network: Network, keys: PublicIdentity) -> Holder:
    """Return the holder with this name in the network file. Raise KeysError if it has none."""
    if keys.name == OPERATOR:
        return Holder(CONTROL_SOURCE, OPERATOR, keys)
    for role in ROLES:
        for node in network.nodes_of(role):
            if node.name == keys.name:
                return Holder(node.id, role.name, keys)
    known = ", ".join((*network.node_names, OPERATOR))
    raise KeysError(f"{keys.name}: not a node of the network file; its nodes are {known}")


def check_names(network: Network) -> None:
    """Refuse a network whose nodes have the names of the operator or of the authority."""
    for name in network.node_names:
        if name in OWN_NAMES:
            raise KeysError(
                f"{name}: a node cannot have this name in a network with keys; rename it in the network file"
            )


def age_s(text: str, option: str) -> int:
    """Return the seconds of a time such as 1h or 90d; raise KeysError for other text."""
    ns = parse_amount(text, NS_PER_AGE_UNIT)
    if ns is None or not NS_PER_S <= ns <= 3_650 * NS_PER_AGE_UNIT["d"]:
        raise KeysError(f'{option}: "{text}" is not a time from 1s to 3650d, such as 1h or 90d; correct it')
    return int(ns) // NS_PER_S


VALID = f"{DEFAULT_VALID_S // 86_400}d"
