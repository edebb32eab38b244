"""Load optional packages; if one is missing, raise an error that states how to install it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from levelcast.errors import UserError


class ExtraMissing(UserError):
    """A package of an extra is not installed."""


def arrow(module: str = "pyarrow") -> Any:
    """Return pyarrow, or one of its modules."""
    return _load(module, "tables, CSV, Parquet and compressed files need it", "files")


def matplotlib(module: str = "matplotlib") -> Any:
    """Return matplotlib, or one of its modules."""
    return _load(module, "plots need it", "plot")


def _load(module: str, why: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ExtraMissing(f"{package} is not installed, and {why}; run: pip install 'levelcast[{extra}]'") from None
