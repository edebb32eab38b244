"""Make statements: the first one, admission of nodes, new epochs, revocation. Each returns the next statement.

The authority is kept offline; its own envelope has the core secret of every epoch, so that it can admit a node later.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace

from levelcast.keys.derive import KEY_SIZE, control_key, source_key
from levelcast.keys.identity import Identity
from levelcast.keys.secret import KeysError, Secret
from levelcast.keys.statement import (
    AUTHORITY,
    HOLD_CORE_SECRET,
    HOLD_SOURCE_KEY,
    KEPT_AFTER_NS,
    NS_PER_S,
    OWN_NAMES,
    Epoch,
    Holder,
    KeyStatement,
    Revoked,
    purpose_of,
)

DEFAULT_VALID_S = 90 * 86_400
LEAST_AHEAD_S = 3_600
"""Seconds from a rotation to the beginning of its epoch: every node must have its keys before (K10)."""
DEFAULT_GRACE_S = 10
"""Seconds for which packets of earlier epochs are accepted after a receiver is revoked."""
MOST_EPOCH_S = 7 * 86_400
"""An epoch should be replaced within this time (K10)."""


def first_statement(
    authority: Identity, network: int, holders: Iterable[Holder], now_ns: int, valid_s: int = DEFAULT_VALID_S
) -> KeyStatement:
    """Return statement 1 with epoch 1, which begins now."""
    now_s = now_ns // NS_PER_S
    own = Holder(0, AUTHORITY, authority.public)
    statement = KeyStatement(network, 1, now_s, now_s + valid_s, (own, *holders), ())
    return replace(statement, epochs=(_epoch(statement, 1, now_ns, Secret(secrets.token_bytes(KEY_SIZE))),))


def admit(authority: Identity, before: KeyStatement, holder: Holder, now_ns: int, valid_s: int) -> KeyStatement:
    """Return the next statement with a new holder, or with new public keys of a known one."""
    for other in before.holders:
        same_id = other.id == holder.id and other.role not in OWN_NAMES and holder.role not in OWN_NAMES
        if other.name != holder.name and same_id:
            raise KeysError(
                f"{holder.name}: its id {holder.id} is that of {other.name} in the statement; change one of them"
            )
    others = (each for each in before.holders if each.name != holder.name)
    statement = _next(before, now_ns, valid_s)
    statement = replace(
        statement, holders=(*others, holder), revoked=tuple(each for each in before.revoked if each.name != holder.name)
    )
    epochs = [
        replace(each, envelopes=each.envelopes | {holder.name: _envelope(statement, each.number, core, holder)})
        for each, core in zip(statement.epochs, _core_secrets(authority, statement), strict=True)
    ]
    return replace(statement, epochs=tuple(epochs))


def rotate(
    before: KeyStatement, now_ns: int, ahead_s: float = LEAST_AHEAD_S, valid_s: int = DEFAULT_VALID_S
) -> KeyStatement:
    """Return the next statement with a new epoch, whose secret is random (K2)."""
    number = max(each.number for each in before.epochs) + 1
    return _with_new_epoch(before, number, now_ns + int(ahead_s * NS_PER_S), now_ns, valid_s)


def revoke(
    before: KeyStatement,
    name: str,
    now_ns: int,
    grace_s: float = DEFAULT_GRACE_S,
    valid_s: int = DEFAULT_VALID_S,
) -> KeyStatement:
    """Return the next statement without a holder, and with a new epoch, from now, for which it gets no envelope.

    A receiver has the core secret, and with it the keys of all sources. So packets of earlier epochs are accepted only
    for the grace, in which the sources must load the statement. Epochs that have not begun are dropped: the revoked
    node has their keys.
    """
    gone = before.holder(name)
    if name in OWN_NAMES or gone is None:
        known = ", ".join(each.name for each in before.holders if each.name not in OWN_NAMES)
        raise KeysError(f"{name}: not a node of the statement; its nodes are {known}")
    without = replace(
        before,
        holders=tuple(each for each in before.holders if each.name != name),
        epochs=tuple(
            replace(
                each,
                envelopes={holder: sealed for holder, sealed in each.envelopes.items() if holder != name},
                until_ns=_ended(each, now_ns + int(grace_s * NS_PER_S))
                if gone.role in HOLD_CORE_SECRET
                else each.until_ns,
            )
            for each in before.epochs
            if each.from_ns <= now_ns
        ),
        revoked=(*(each for each in before.revoked if each.name != name), Revoked(name, gone.id, gone.role)),
    )
    newest = max(each.number for each in before.epochs)
    return _with_new_epoch(without, newest + 1, now_ns, now_ns, valid_s)


def _ended(epoch: Epoch, until_ns: int) -> int:
    return until_ns if epoch.until_ns is None else min(until_ns, epoch.until_ns)


def _with_new_epoch(before: KeyStatement, number: int, from_ns: int, now_ns: int, valid_s: int) -> KeyStatement:
    statement = _next(before, now_ns, valid_s)
    from_ns = max((from_ns, *(each.from_ns + 1 for each in before.epochs)))
    new = _epoch(statement, number, from_ns, Secret(secrets.token_bytes(KEY_SIZE)))
    return replace(statement, epochs=(*statement.epochs, new))


def _next(before: KeyStatement, now_ns: int, valid_s: int) -> KeyStatement:
    """Return the next number, without epochs that ended long ago."""
    now_s = now_ns // NS_PER_S
    ordered = sorted(before.epochs, key=lambda each: each.number)
    ends = [*(each.from_ns for each in ordered[1:]), None]
    kept = tuple(each for each, end in zip(ordered, ends, strict=True) if end is None or end + KEPT_AFTER_NS > now_ns)
    return replace(before, number=before.number + 1, made_s=now_s, expires_s=now_s + valid_s, epochs=kept)


def _core_secrets(authority: Identity, statement: KeyStatement) -> list[Secret]:
    found = []
    for epoch in statement.epochs:
        purpose = purpose_of(statement.network, epoch.number, AUTHORITY, AUTHORITY)
        core = authority.open(epoch.envelopes.get(AUTHORITY, b""), purpose)
        if core is None:
            raise KeysError(
                f"{statement.where}: the authority's own envelope of epoch {epoch.number} cannot be opened with its "
                "key; restore the key files of the authority"
            )
        found.append(core)
    return found


def _epoch(statement: KeyStatement, number: int, from_ns: int, core: Secret) -> Epoch:
    envelopes = {each.name: _envelope(statement, number, core, each) for each in statement.holders}
    return Epoch(number, from_ns, envelopes)


def _envelope(statement: KeyStatement, epoch: int, core: Secret, holder: Holder) -> bytes:
    purpose = purpose_of(statement.network, epoch, holder.name, holder.role)
    return holder.keys.seal(content_for(holder, core, statement.network), purpose)


def content_for(holder: Holder, core: Secret, network: int) -> Secret:
    """Return what a holder gets of an epoch: see `levelcast.keys.statement`."""
    if holder.role in HOLD_CORE_SECRET:
        return core
    control = control_key(core, network)
    if holder.role in HOLD_SOURCE_KEY:
        return Secret(source_key(core, network, holder.id).reveal() + control.reveal())
    return control
