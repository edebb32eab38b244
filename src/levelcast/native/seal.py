"""Sealing of packets with AES-256-GCM: libcrypto where its headers were at the build, else `cryptography`.

`levelcast.native.pure_seal` specifies each function; `_seal.c` makes the same bytes. LEVELCAST_PURE=1 selects Python.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from levelcast import native

_compiled = None
if not TYPE_CHECKING and os.environ.get("LEVELCAST_PURE", "") in ("", "0"):
    with suppress(ImportError):
        from levelcast.native import _seal as _compiled

if TYPE_CHECKING or _compiled is None:
    from levelcast.native.pure_seal import Opener, Sealer, version

    IMPLEMENTATION = f"Python, {version()}"
else:
    native.teach_module(_compiled.teach)
    Opener, Sealer = _compiled.Opener, _compiled.Sealer
    IMPLEMENTATION = f"C, {_compiled.version()}"
"""The implementation in use and its library, for status pages."""

COMPILED = _compiled is not None
"""The compiled module is in use."""

__all__ = ["COMPILED", "IMPLEMENTATION", "Opener", "Sealer"]
