"""Create the keys of a network on one machine: authority, operator, nodes, and the first statement."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from levelcast.cli.errors import replacing
from levelcast.cli.keys.places import KeyPlaces, check_names, holder_of, new_identity, places_of
from levelcast.keys.authority import DEFAULT_VALID_S, first_statement
from levelcast.keys.files import create_directory
from levelcast.keys.identity import Identity, key_files, public_text
from levelcast.keys.secret import KeysError
from levelcast.keys.statement import AUTHORITY, OPERATOR
from levelcast.network import load_network
from levelcast.network.model import KeyFiles


def create_keys(
    network_file: Path, valid_s: int = DEFAULT_VALID_S, *, every: bool = True
) -> tuple[KeyPlaces, tuple[str, ...]]:
    """Create authority and operator, and with `every` all nodes; add [keys] to the network file.

    Return the paths and the names of the holders. Raise KeysError, before anything is written, if there are keys.
    """
    network = load_network(network_file)
    if network.keys is not None:
        raise KeysError(f"{network_file}: already has a [keys] table; remove it first to create a new authority")
    check_names(network)
    files = KeyFiles("", f"{network_file.stem}.keys.json")
    where = places_of(network_file, files)
    if where.statement.exists():
        raise KeysError(f"{where.statement}: statement already exists; remove it first to create a new authority")
    names = (AUTHORITY, OPERATOR, *(network.node_names if every else ()))
    create_directory(where.directory)
    require_free(where, names)
    made = {name: new_identity(where.directory, name) for name in names}
    authority = made.pop(AUTHORITY)
    holders = [holder_of(network, each.public) for each in made.values()]
    for each in made.values():
        write_public(where, each)
    statement = first_statement(authority, network.id, holders, time.time_ns(), valid_s)
    _add_table(where, replace(files, authority=authority.public.sign_text))
    written = places_of(network_file)
    written.write(statement, authority)
    return where, names


def require_free(where: KeyPlaces, names: tuple[str, ...]) -> None:
    """Refuse to begin where a private key exists, so that nothing is written halfway."""
    for name in names:
        for path in key_files(where.directory, name):
            if path.exists():
                raise KeysError(f"{path}: private key already exists; remove it first if it is no longer needed")


def write_public(where: KeyPlaces, identity: Identity) -> Path:
    """Write the file with which a node requests admission."""
    path = where.directory / f"{identity.name}.public.json"
    with replacing(path) as unfinished:
        unfinished.write_text(public_text(identity.public), encoding="utf-8")
    return path


def _add_table(where: KeyPlaces, files: KeyFiles) -> None:
    """Append [keys] to the network file; the other lines stay as they are."""
    text = where.file.read_text(encoding="utf-8")
    lines = [f'authority = "{files.authority}"', f'statement = "{files.statement}"']
    with replacing(where.file) as unfinished:
        unfinished.write_text("\n".join((text.rstrip("\n"), "", "[keys]", *lines, "")), encoding="utf-8")
