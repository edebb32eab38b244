"""Hold the bytes of a key so that they do not reach a log, a status page, a traceback or a file by accident.

Python cannot guarantee that memory is wiped: the bytes of a key may remain in freed memory until it is reused.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import NoReturn, final

from levelcast.errors import UserError


class KeysError(UserError):
    """A key, a statement or a directory of keys that cannot be used; the message names files and keys, no values."""


@final
class Secret:
    """Bytes of a key. It has no readable form, cannot be pickled or copied, and compares in constant time."""

    __slots__ = ("_bytes",)

    def __init__(self, content: bytes) -> None:
        self._bytes = content

    def reveal(self) -> bytes:
        """Return the bytes, for a cipher or a derivation only."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and compare_digest(self._bytes, other._bytes)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<secret of {len(self._bytes)} bytes>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be pickled or copied")
