"""Describe a statement of keys, and find what an operator must do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from levelcast.cli.keys.places import KeyPlaces, holder_of, load_identity
from levelcast.keys.authority import MOST_EPOCH_S
from levelcast.keys.identity import key_files
from levelcast.keys.keyring import open_keyring
from levelcast.keys.secret import KeysError
from levelcast.keys.seen import newest_number
from levelcast.keys.statement import NS_PER_S, OWN_NAMES, KeyStatement
from levelcast.node.status_client import Answer

_EXPIRES_SOON_S = 14 * 86_400


def describe(statement: KeyStatement, directory: Path, now_ns: int) -> dict[str, Any]:
    """Return the public content of a statement."""
    begun = [each.number for each in statement.epochs if each.from_ns <= now_ns]
    current = max(begun, default=0)
    states = {each.number: "before" if each.number < current else "planned" for each in statement.epochs}
    return {
        "network": f"{statement.network:016x}",
        "number": statement.number,
        "expires": _time(statement.expires_s),
        "nodes": [
            {
                "name": each.name,
                "role": each.role,
                "id": each.id,
                "sign": each.keys.sign_text,
                "open": each.keys.open_text,
                "private": key_files(directory, each.name)[0].exists(),
            }
            for each in statement.holders
        ],
        "epochs": [
            {
                "epoch": each.number,
                "from": _time(each.from_ns // NS_PER_S),
                "state": "current" if each.number == current else states[each.number],
                "holders": len(each.envelopes),
            }
            for each in statement.epochs
        ],
        "revoked": [{"name": each.name, "role": each.role, "id": each.id} for each in statement.revoked],
    }


def find_problems(where: KeyPlaces, statement: KeyStatement, now_ns: int) -> list[str]:
    """Return what must be done, a sentence each."""
    return [
        *_of_nodes(where, statement),
        *_of_times(statement, now_ns),
        *_of_private_keys(where, statement),
    ]


def _of_nodes(where: KeyPlaces, statement: KeyStatement) -> Iterator[str]:
    names = where.network.node_names
    for name in names:
        if statement.holder(name) is None:
            revoked = "has been revoked" if any(each.name == name for each in statement.revoked) else "has no keys"
            yield f"{name}: {revoked}; run `levelcast keys node --name {name}` on its machine"
    for each in statement.holders:
        if each.name in OWN_NAMES:
            continue
        if each.name not in names:
            yield f"{each.name}: not in the network file; run `levelcast keys revoke --name {each.name}`"
        elif (wanted := holder_of(where.network, each.keys)) != each:
            yield (
                f"{each.name}: the statement has {each.role} {each.id}, the network file {wanted.role} {wanted.id}; "
                "admit it again with `levelcast keys node --admit`"
            )


def _of_times(statement: KeyStatement, now_ns: int) -> Iterator[str]:
    left_s = statement.expires_s - now_ns / NS_PER_S
    if left_s < _EXPIRES_SOON_S:
        yield f"The statement expires in {left_s / 86_400:.1f} days; run `levelcast keys rotate`"
    age_s = (now_ns - max(each.from_ns for each in statement.epochs)) / NS_PER_S
    if age_s > MOST_EPOCH_S:
        limit = MOST_EPOCH_S // 86_400
        yield f"The newest epoch is {age_s / 86_400:.1f} days old, above {limit} days; run `levelcast keys rotate`"


def _of_private_keys(where: KeyPlaces, statement: KeyStatement) -> Iterator[str]:
    for each in statement.holders:
        if not any(path.exists() for path in key_files(where.directory, each.name)):
            continue
        try:
            identity = load_identity(where.directory, each.name)
            open_keyring(identity, statement)
            if (seen := newest_number(where.directory, each.name)) > statement.number:
                newer = f"{each.name}: has accepted statement {seen}, newer than {statement.number}"
                yield f"{newer}; copy the newest one here"
        except KeysError as error:
            yield str(error)


def problems_of_running(answers: Iterable[Answer], statement: KeyStatement) -> Iterator[str]:
    """Yield the running nodes that do not use the statement."""
    for each in answers:
        keys = each.status.get("keys")
        if keys is None:
            yield f"{each.name}: runs without keys; restart it with this network file"
        elif keys["statement"] != statement.number:
            number = f"uses statement {keys['statement']}, not {statement.number}"
            yield f"{each.name}: {number}; copy the newest statement to its machine"


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
