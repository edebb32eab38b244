"""Signatures of receivers under a certificate of tapes (`levelcast.storage.tape.certificate`).

A signature is an entry `{"receiver", "algorithm": "ed25519", "key", "signature"}`, key and signature in hexadecimal. It
covers bytes that begin with `{`; everything else that an identity signs begins with "levelcast".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from levelcast.keys.identity import SIGN, Identity, verifies
from levelcast.keys.secret import KeysError
from levelcast.keys.statement import RECEIVER, SECONDARY, KeyStatement

SignatureEntry = dict[str, Any]


class Signers(NamedTuple):
    """The receivers that have signed."""

    placed: tuple[str, ...]
    """Receivers whose key is that of the statement."""
    unplaced: tuple[str, ...]
    """Names whose key the statement does not have under this name; without a statement, all of them."""


def sign_certificate(identity: Identity, content: bytes, signatures: Sequence[SignatureEntry]) -> list[SignatureEntry]:
    """Return the signatures with that of a receiver, which replaces an earlier one of the same name."""
    own = {
        "receiver": identity.name,
        "algorithm": SIGN,
        "key": identity.public.sign.hex(),
        "signature": identity.sign(content).hex(),
    }
    others = [each for each in signatures if each["receiver"] != identity.name]
    return sorted((*others, own), key=lambda each: str(each["receiver"]))


def find_signers(content: bytes, signatures: Sequence[SignatureEntry], statement: KeyStatement | None) -> Signers:
    """Return who has signed. Raise KeysError if a signature is wrong, twice, or of an unknown algorithm."""
    placed: list[str] = []
    unplaced: list[str] = []
    for each in signatures:
        name, key = each["receiver"], bytes.fromhex(each["key"])
        if each["algorithm"] != SIGN:
            raise KeysError(f"the signature of {name} is of an unknown algorithm; update Levelcast")
        if not verifies(key, bytes.fromhex(each["signature"]), content):
            raise KeysError(f"the signature of {name} does not match the certificate; obtain an unchanged copy")
        if name in (*placed, *unplaced):
            raise KeysError(f"{name} has signed twice; obtain an unchanged copy")
        holder = statement.holder(name) if statement is not None else None
        is_own = holder is not None and holder.role in (RECEIVER, SECONDARY) and holder.keys.sign == key
        (placed if is_own else unplaced).append(name)
    return Signers(tuple(placed), tuple(unplaced))
