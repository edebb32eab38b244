"""The matching engine: compiled where a compiler was available, else in Python. LEVELCAST_PURE=1 selects Python.

`levelcast.native.pure_book` specifies it; `_book.c` is faster and returns the same bytes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import levelcast.native.pure_book as pure_book

_chosen = pure_book
if not TYPE_CHECKING and os.environ.get("LEVELCAST_PURE", "") in ("", "0"):
    with suppress(ImportError):
        from levelcast.native import _book as _chosen

COMPILED = _chosen is not pure_book
"""The compiled module is in use."""

BookKernel = _chosen.BookKernel
