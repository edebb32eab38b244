"""[keys]: the authority of the network's keys, and the files that have them."""

from __future__ import annotations

import base64
from binascii import Error as Base64Error

from levelcast.network.fields import Fields, known
from levelcast.network.keys import FileKey, FileTable
from levelcast.network.model import KeyFiles
from levelcast.network.sections.draft import Draft

_DEFAULT = KeyFiles("")
TABLES = (
    FileTable(
        "[keys]",
        (
            FileKey("authority", "public key that signs the statement of keys ([security.md](security.md#keys))"),
            FileKey("statement", "signed statement of keys, relative to this file", f'`"{_DEFAULT.statement}"`'),
            FileKey(
                "directory",
                "directory of private keys, relative to this file; the variable LEVELCAST_KEYS overrides it",
                f'`"{_DEFAULT.directory}"`',
            ),
        ),
        "written by `levelcast keys init`",
    ),
)


def read(root: Fields, draft: Draft) -> None:
    fields = root.table("keys")
    if not fields.given:
        return
    missing = "has no authority; `levelcast keys init` writes this table"
    expected = 'a public key, such as "ed25519:BASE64" with 32 bytes'
    authority = fields.read("authority", _public_key, expected, missing=missing)
    paths = known(statement=fields.text("statement") or None, directory=fields.text("directory") or None)
    draft.add(keys=KeyFiles(authority or "", **paths))


def _public_key(value: object) -> str | None:
    prefix = "ed25519:"
    if not isinstance(value, str) or not value.startswith(prefix):
        return None
    try:
        return value if len(base64.b64decode(value[len(prefix) :], validate=True)) == 32 else None
    except (Base64Error, ValueError):
        return None
