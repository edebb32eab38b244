"""Optional packages: the table follows pyproject.toml, and versions are found without an import."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy
import pytest

from levelcast.extras import EXTRA_OF_PACKAGE, java_version, package_version, parse_java_version

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
FOR_USERS = ("files", "plot", "spark")


def test_every_package_is_in_its_extra_and_no_package_for_users_is_left_out() -> None:
    extras = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    packages = {extra: {re.split(r"[<>=\[]", each)[0] for each in extras[extra]} for extra in extras}
    for package, extra in EXTRA_OF_PACKAGE.items():
        assert package in packages[extra]
    assert set().union(*(packages[extra] for extra in FOR_USERS)) - {"levelcast"} <= set(EXTRA_OF_PACKAGE)


def test_versions_are_found_without_an_import() -> None:
    code = "import sys; from levelcast.extras import *; print(package_version('numpy'), 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [numpy.__version__, "False"]


def test_a_missing_package_and_one_without_metadata() -> None:
    assert package_version("no_such_package") is None
    assert package_version("tomllib") == "unknown"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment\n', 17),
        ('java version "1.8.0_401"\n', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19\n', 21),
        ("", None),
    ],
)
def test_versions_of_java(text: str, version: int | None) -> None:
    assert parse_java_version(text) == version


def test_the_java_of_java_home_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_version() is None
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr("levelcast.extras._JAVA_LIMIT_S", 60.0)
    assert java_version() == 17
