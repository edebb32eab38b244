"""The statement: nodes, roles, public keys, epochs and envelopes of a network, signed by the authority (K1 to K3).

It is one JSON file, which travels with the network file: without a node's private key nothing secret can be read from
it. In canonical form (keys sorted, no spaces, UTF-8) it is

    {"authority": key, "body": {...}, "kind": "levelcast statement", "signature": base64}

| `body`      | meaning                                                                                          |
|-------------|--------------------------------------------------------------------------------------------------|
| `version`   | of the format: 1                                                                                 |
| `network`   | identifier of the network, 16 hexadecimal digits                                                 |
| `number`    | rises with every statement; a node refuses a lower one than it has accepted (as TUF does)        |
| `made`, `expires` | in seconds since 1970; an expired statement is refused                                     |
| `cipher`    | of core packets                                                                                  |
| `nodes`     | `name`, `id`, `role`, `sign` and `open` of every holder                                          |
| `epochs`    | `epoch`, `from` and `until` (nanoseconds since 1970 or null), and `envelopes` by name            |
| `revoked`   | `name`, `id` and `role` of nodes whose messages are refused immediately, whatever the epoch      |

The signature covers "levelcast statement v1", a zero byte and the canonical body. An envelope contains what its holder
needs: the core secret (receivers and the authority), or the key of its source and the control key (floors, operator),
or the control key (reformation servers). Its HPKE context names network, epoch, name and role, so that no envelope can
be moved to another place.
"""

from __future__ import annotations

import base64
import json
from binascii import Error as Base64Error
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from levelcast.keys.identity import CIPHER, OPEN, SIGN, Identity, PublicIdentity, key_text, read_key, verifies
from levelcast.keys.secret import KeysError

KIND = "levelcast statement"
VERSION = 1
_SIGNED = b"levelcast statement v1\0"
NS_PER_S = 1_000_000_000
MOST_BYTES = 64 << 20

RECEIVER, SECONDARY, REFORMATION, FLOOR = "receiver", "secondary", "reformation", "floor"
OPERATOR, AUTHORITY = "operator", "authority"
ROLES = (RECEIVER, SECONDARY, REFORMATION, FLOOR, OPERATOR, AUTHORITY)
OWN_NAMES = (OPERATOR, AUTHORITY)
"""Names that no node may have: each is the only holder of its role."""
HOLD_CORE_SECRET = frozenset({RECEIVER, SECONDARY, AUTHORITY})
HOLD_SOURCE_KEY = frozenset({FLOOR, OPERATOR})

ACCEPTED_AFTER_NS = 3_600 * NS_PER_S
"""An epoch is accepted for this long after the next one has begun (K10)."""
KEPT_AFTER_NS = 7 * 86_400 * NS_PER_S
"""Envelopes of an epoch stay in the statement for this long, for receivers that restart on an old journal."""

_REMEDY = "copy the newest statement from the authority's machine"


@dataclass(frozen=True, slots=True)
class Holder:
    """A node, the operator or the authority: its role, its id on the wire, and its public keys."""

    id: int
    role: str
    keys: PublicIdentity

    @property
    def name(self) -> str:
        return self.keys.name


@dataclass(frozen=True, slots=True)
class Epoch:
    """One generation of keys."""

    number: int
    from_ns: int
    envelopes: dict[str, bytes]
    until_ns: int | None = None
    """End of its acceptance, if the revocation of a receiver, which has its core secret, has brought it forward."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """A node that a statement has removed."""

    name: str
    id: int
    role: str


@dataclass(frozen=True, slots=True)
class KeyStatement:
    """The content of a statement; `parse_statement` has verified its signature."""

    network: int
    number: int
    made_s: int
    expires_s: int
    holders: tuple[Holder, ...]
    epochs: tuple[Epoch, ...]
    revoked: tuple[Revoked, ...] = ()
    cipher: str = CIPHER
    where: str = field(default="statement", compare=False)

    def holder(self, name: str) -> Holder | None:
        """Return a holder by name; None if the statement does not list it."""
        return next((each for each in self.holders if each.name == name), None)

    def of_role(self, *roles: str) -> tuple[Holder, ...]:
        """Return all holders with one of the roles, by id."""
        return tuple(sorted((each for each in self.holders if each.role in roles), key=lambda each: each.id))

    def epoch_at(self, now_ns: int) -> Epoch:
        """Return the newest epoch that has begun."""
        begun = [each for each in self.epochs if each.from_ns <= now_ns]
        if begun:
            return max(begun, key=lambda each: each.number)
        ahead_s = (min(each.from_ns for each in self.epochs) - now_ns) / NS_PER_S
        raise KeysError(
            f"{self.where}: the first epoch begins {ahead_s:,.1f} s after this machine's clock; set the clock, or wait"
        )


def purpose_of(network: int, epoch: int, name: str, role: str) -> bytes:
    """Return the HPKE context of an envelope."""
    return f"levelcast envelope v1\0{network:016x}\0{epoch}\0{role}\0{name}".encode()


def canonical(value: Any) -> bytes:
    """Return JSON with sorted keys and without spaces."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def statement_text(statement: KeyStatement, authority: Identity) -> str:
    """Return the file of a statement, signed by the authority."""
    body = _body(statement)
    signature = authority.sign(_SIGNED + canonical(body))
    found = {
        "kind": KIND,
        "authority": authority.public.sign_text,
        "body": body,
        "signature": base64.b64encode(signature).decode(),
    }
    return canonical(found).decode() + "\n"


def read_statement(path: Path, authority: str, network: int, now_ns: int | None) -> KeyStatement:
    """Read and verify a statement file: see `parse_statement`."""
    return parse_statement(read_content(path), authority, network, now_ns, str(path))


def read_content(path: Path) -> bytes:
    """Return the bytes of a statement file."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise KeysError(
            f"{path}: statement of keys not found; create it with `levelcast keys init`, or {_REMEDY}"
        ) from None
    if len(content) > MOST_BYTES:
        raise KeysError(f"{path}: larger than {MOST_BYTES:,} bytes, so not a statement; {_REMEDY}")
    return content


def parse_statement(
    content: bytes, authority: str, network: int, now_ns: int | None, where: str = "statement"
) -> KeyStatement:
    """Return a statement that the authority has signed for this network and that has not expired.

    `authority` is the key in the network file. Without `now_ns` the expiry is not checked. Raise `KeysError`.
    """
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise KeysError(f"{where}: not a statement of keys, because it is not valid JSON; {_REMEDY}") from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise KeysError(f"{where}: not a statement of keys; {_REMEDY}")
    key = read_key(authority, SIGN, "authority of [keys] in the network file")
    signature = _decoded(found.get("signature"))
    body = found.get("body")
    if not signature:
        raise KeysError(f"{where}: the statement is not signed; {_REMEDY}")
    if found.get("authority") != key_text(SIGN, key):
        raise KeysError(
            f"{where}: signed by another authority than [keys] of the network file names; use the network file and the "
            "statement of one network"
        )
    if not isinstance(body, dict) or not verifies(key, signature, _SIGNED + _canonical_or_none(body)):
        raise KeysError(f"{where}: the authority's signature does not match; the file was changed, so {_REMEDY}")
    statement = _read_body(body, where)
    if statement.network != network:
        raise KeysError(
            f"{where}: the statement is of network {statement.network:016x}, but the network file is of "
            f"{network:016x}; use the network file and the statement of one network"
        )
    if now_ns is not None and now_ns >= statement.expires_s * NS_PER_S:
        raise KeysError(
            f"{where}: the statement expired {(now_ns // NS_PER_S - statement.expires_s) / 3600:,.1f} h ago; "
            f"{_REMEDY}, or renew it there with `levelcast keys rotate`"
        )
    return statement


def _canonical_or_none(body: dict[str, Any]) -> bytes:
    try:
        return canonical(body)
    except (UnicodeEncodeError, RecursionError):
        return b""


def _body(statement: KeyStatement) -> dict[str, Any]:
    return {
        "version": VERSION,
        "network": f"{statement.network:016x}",
        "number": statement.number,
        "made": statement.made_s,
        "expires": statement.expires_s,
        "cipher": statement.cipher,
        "nodes": [
            {
                "name": each.name,
                "id": each.id,
                "role": each.role,
                "sign": each.keys.sign_text,
                "open": each.keys.open_text,
            }
            for each in statement.holders
        ],
        "epochs": [
            {
                "epoch": each.number,
                "from": each.from_ns,
                "until": each.until_ns,
                "envelopes": {name: base64.b64encode(content).decode() for name, content in each.envelopes.items()},
            }
            for each in statement.epochs
        ],
        "revoked": [{"name": each.name, "id": each.id, "role": each.role} for each in statement.revoked],
    }


def _read_body(body: dict[str, Any], where: str) -> KeyStatement:
    """Return the content. The authority has signed it, so an error here is a version that this code does not know."""
    if body.get("version") != VERSION:
        raise KeysError(
            f"{where}: format version {body.get('version')} is not supported, only {VERSION}; update Levelcast"
        )
    if body.get("cipher") != CIPHER:
        raise KeysError(
            f"{where}: unknown cipher {str(body.get('cipher'))[:40]!r}, only {CIPHER} is supported; update Levelcast"
        )
    try:
        epochs = tuple(
            Epoch(
                _whole(each["epoch"], 1, 65_535),
                _whole(each["from"], 0),
                {str(name): _decoded(text) for name, text in each["envelopes"].items()},
                None if each["until"] is None else _whole(each["until"], 0),
            )
            for each in body["epochs"]
        )
        statement = KeyStatement(
            int(str(body["network"]), 16),
            _whole(body["number"], 1),
            _whole(body["made"], 0),
            _whole(body["expires"], 0),
            tuple(_holder(each, where) for each in body["nodes"]),
            epochs,
            tuple(
                Revoked(str(each["name"]), _whole(each["id"], 0, 65_535), str(each["role"])) for each in body["revoked"]
            ),
            where=where,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise KeysError(f"{where}: damaged statement ({type(error).__name__}); {_REMEDY}") from None
    _check_unique(statement, where)
    return statement


def _check_unique(statement: KeyStatement, where: str) -> None:
    for what, values in (
        ("name", [each.name for each in statement.holders]),
        ("id", [each.id for each in statement.holders if each.role not in OWN_NAMES]),
        ("epoch", [each.number for each in statement.epochs]),
    ):
        if len(set(values)) != len(values):
            raise KeysError(f"{where}: damaged statement (the same {what} twice); {_REMEDY}")
    if not statement.epochs:
        raise KeysError(f"{where}: the statement has no epoch; create one with `levelcast keys rotate`")


def _holder(found: dict[str, Any], where: str) -> Holder:
    name, role = found["name"], found["role"]
    if not isinstance(name, str) or role not in ROLES:
        raise ValueError("a holder without a name or with an unknown role")
    keys = PublicIdentity(name, read_key(found["sign"], SIGN, where), read_key(found["open"], OPEN, where))
    return Holder(_whole(found["id"], 0, 65_535), role, keys)


def _whole(value: object, low: int, high: int = 2**63 - 1) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError("a number out of its range")
    return value


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (Base64Error, ValueError):
        return b""


def names_of(holders: Iterable[Holder]) -> str:
    """Return the names of holders for a message."""
    return ", ".join(each.name for each in holders)
