"""Load optional packages; if one is missing, raise an error that states how to install it. List what is installed."""

from __future__ import annotations

import os
import re
import subprocess
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from levelcast.errors import UserError

EXTRA_OF_PACKAGE = {
    "pyarrow": "files",
    "matplotlib": "plot",
    "pyspark": "spark",
    "deltalake": "spark",
    "pandas": "spark",
    "duckdb": "spark",
}
"""Optional packages that users need, each with the extra that installs it."""
_JAVA_LIMIT_S = 1.5
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')


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


def package_version(package: str) -> str | None:
    """Return the version of an importable package, without importing it; None if it is not installed."""
    if find_spec(package) is None:
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def java_version() -> int | None:
    """Return the major version of the Java that Spark would start; None if it does not run."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_java_version(done.stderr)


def parse_java_version(text: str) -> int | None:
    """Return the major version that `java -version` prints.

    >>> parse_java_version('openjdk version "17.0.15" 2025-04-15'), parse_java_version('java version "1.8.0_401"')
    (17, 8)
    """
    match = _JAVA_VERSION.search(text)
    return int(match[1]) if match else None
