"""Names are unique and current: public classes in src/, and the modules, paths and commands that the documents name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import BENCHMARKS
from levelcast.cli.main import COMMANDS, load_command

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "levelcast"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_MODULES = {"levelcast.tar.gz", "levelcast.schema"}
"""A file, and a property of a table."""

_CLASS = re.compile(r"^ *class ([A-Za-z]\w*)[(:]", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
_PATH = re.compile(r"(?<![\w./\-<>])(?:src|tests|benchmarks|docs|examples|\.ci)/[\w./*\-]*\w")
_MODULE_FILE = re.compile(r"(?<![\w./\-<>])(?:[a-z_]+/)+[a-z_]+\.(?:py|c|h)\b")
_DOTTED = re.compile(r"(?<![\w./\-])levelcast(?:\.\w+)+")
_COMMAND = re.compile(r"(?<!from )(?<![\w./\-\[])levelcast((?: [a-z][a-z-]*)+)")
_BENCHMARK = re.compile(r"python3? -m benchmarks((?: [a-z][a-z-]*)*)(?![\w.])")
_BENCHMARK_MODULE = re.compile(r"python3? -m (benchmarks(?:\.\w+)+)")
_MAKE = re.compile(r"(?<![\w./\-] )(?<![\w./\-])make((?: [A-Z_]+=\S+)*) ([a-z][a-z-]*)")


def public_classes() -> dict[str, list[str]]:
    """The modules that define each public class."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in _CLASS.findall(path.read_text(encoding="utf-8")):
            found[name].append(str(path.relative_to(SOURCE)))
    return found


def test_no_public_class_name_is_defined_twice() -> None:
    assert {name: places for name, places in public_classes().items() if len(places) > 1} == {}


def code_of(text: str) -> Iterator[str]:
    """The code of a document: fenced blocks and spans."""
    yield from _FENCED.findall(text)
    yield from _SPAN.findall(_FENCED.sub("", text))


def is_path(name: str, document: Path) -> bool:
    """Whether a path exists below the document, the repository, the sources or the package; `*` matches any."""
    return any(any(base.glob(name)) for base in (document.parent, ROOT, SOURCE, PACKAGE))


def is_module(name: str) -> bool:
    """Whether a dotted name is a module, or a name that occurs in the module before it."""
    path, parts = SOURCE, name.split(".")
    if name in NOT_MODULES or parts[-1].startswith("__"):
        return True
    while parts and ((path / parts[0]).is_dir() or (path / f"{parts[0]}.py").is_file()):
        path /= parts.pop(0)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return not parts or re.search(rf"\b{parts[0]}\b", file.read_text(encoding="utf-8")) is not None


@cache
def below(name: str) -> Mapping[str, Any]:
    """The commands below a command of `levelcast`."""
    found: Mapping[str, Any] = getattr(load_command(name), "commands", {})
    return found


def is_command(words: list[str]) -> bool:
    """Whether words after `levelcast` begin with a command and, where it has any, with a command below it."""
    first, second = [*words, "", ""][:2]
    if not first:
        return True
    return first in COMMANDS and (not second or not below(first) or second in below(first))


@cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def unknown_names(document: Path, text: str) -> Iterator[str]:
    """The modules, paths and commands in a document that do not exist."""
    paths = {name for pattern in (_LINK, _PATH, _MODULE_FILE) for name in pattern.findall(text)}
    yield from (name for name in paths if not is_path(name, document))
    yield from (name for name in _DOTTED.findall(text) if not is_module(name))
    known = targets()
    for code in code_of(text):
        yield from (f"levelcast{words}" for words in _COMMAND.findall(code) if not is_command(words.split()))
        yield from (f"make {target}" for _, target in _MAKE.findall(code) if target not in known)
        for words in _BENCHMARK.findall(code):
            yield from (f"benchmarks {name}" for name in words.split() if name not in BENCHMARKS)
        yield from (name for name in _BENCHMARK_MODULE.findall(code) if not is_path(name.replace(".", "/") + "*", ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_names_only_what_exists(document: Path) -> None:
    assert sorted(set(unknown_names(document, document.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("See [the driver](../src/levelcast/runtime/driver.py) and `src/levelcast/ring`.", []),
        ("See [the driver](../src/levelcast/net/driver.py).", ["../src/levelcast/net/driver.py"]),
        ("Tests are in tests/test_nothing.py.", ["tests/test_nothing.py"]),
        ("`runtime/driver.py` and `net/driver.py`", ["net/driver.py"]),
        ("`levelcast.Publisher`, `levelcast.wire.mold`, `levelcast.kernel.twin`", ["levelcast.kernel.twin"]),
        ("`levelcast plan make --out x`, `levelcast plan unmake`, levelcast everywhere", ["levelcast plan unmake"]),
        ("```\nlevelcast tell --all\nmake test\nmake tea\n```", ["levelcast tell", "make tea"]),
        ("`python -m benchmarks throughput haste`", ["benchmarks haste"]),
        ("`python -m benchmarks.cluster --kill`, `python -m benchmarks.crowd`", ["benchmarks.crowd"]),
    ],
)
def test_a_name_that_does_not_exist_is_found(text: str, unknown: list[str]) -> None:
    assert sorted(unknown_names(ROOT / "docs" / "any.md", text)) == unknown
