"""What all tests share: tools that may be missing, the recorded data, and hypothesis's profiles.

A test that needs something which a developer's machine may lack skips there; under LEVELCAST_CI=1 it fails,
so that a green CI run means that the test ran.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

REPOSITORY = Path(__file__).resolve().parents[1]
HELPERS = tuple(
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((REPOSITORY / "tests").rglob("*.py"))
    if not path.name.startswith("test_") and path.name != "conftest.py"
)
# pytest rewrites the asserts of test modules by itself. Those of their helpers must also check under `python -O`.
pytest.register_assert_rewrite(*HELPERS)
IN_CI = os.environ.get("LEVELCAST_CI") == "1"

# No deadline anywhere: the machines are shared, and a slow example is not a wrong one.
settings.register_profile("default", deadline=None)
# CI draws the same bounded examples every time; new ones are looked for locally and by the fuzzer.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=100, print_blob=True)
settings.load_profile("ci" if IN_CI else "default")


def lacking(what: str) -> NoReturn:
    """Skip the test for want of `what`, or fail it in CI."""
    if IN_CI:
        pytest.fail(f"CI must have {what}", pytrace=False)
    pytest.skip(f"needs {what}")


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """Commands that run in the test's process take signals for themselves; later tests fork, and need them back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """`require_tool("tshark")` is the path of that program."""

    def require(name: str) -> str:
        return shutil.which(name) or lacking(f"the program {name}")

    return require


@pytest.fixture(scope="session")
def require_module() -> Callable[[str], ModuleType]:
    """`require_module("databento_dbn")` is that module, imported."""

    def require(name: str) -> ModuleType:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as missing:
            # A module that is there but lacks one of its own is broken, not absent.
            if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
                raise
            lacking(f"the Python module {name}")

    return require


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The recorded market data: LEVELCAST_DATA, or shared/data beside the checkout.

    It is not part of the repository, so its absence skips in CI too; a LEVELCAST_DATA that names nothing is
    a mistake, and fails there.
    """
    given = os.environ.get("LEVELCAST_DATA")
    folder = Path(given) if given else REPOSITORY.parent / "shared" / "data"
    if folder.is_dir():
        return folder.resolve()
    if given:
        lacking(f"the data that LEVELCAST_DATA names ({given})")
    pytest.skip("needs the recorded market data: set LEVELCAST_DATA")


@cache
def _scope(file: str) -> str | None:
    """Return the group of a test file with the shared session, of which there are two; the file itself for other tests
    on Spark."""
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    if re.search(r"^from tests.spark_parts import .*\bspark\b", text, re.MULTILINE):
        return "spark, first half" if re.search(r"/test_pipeline_[a-i]", file) else "spark, second half"
    return file if "spark_parts" in text else None


class SparkScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Run tests that share a Spark session in two processes, other tests on Spark file by file, the rest one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid.partition("::")[0]) or nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SparkScheduling:
    return SparkScheduling(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add marks that follow from facts: `system` in tests/system, and `data` with the fixture `data_dir`."""
    if "system" in item.path.relative_to(REPOSITORY).parts[:-1]:
        item.add_marker("system")
    if "data_dir" in getattr(item, "fixturenames", ()):
        item.add_marker("data")
    if not __debug__ and item.get_closest_marker("asserts"):
        item.add_marker(pytest.mark.skip(reason="an assert of src/ is expected to fail: python -O removes it"))
