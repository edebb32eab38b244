"""Dependencies point one way, protocols are sans I/O, and only the pipeline needs Spark.

The rules are the tables below; the checks read every module under src/levelcast with `ast`, so that an import
inside a function or under TYPE_CHECKING counts as much as one at the top of the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "levelcast"
ROOT = Path(__file__).resolve().parents[1] / "src" / PACKAGE

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"kernel"}),
    frozenset({"wire", "records"}),
    frozenset({"ring", "chain", "group", "keys", "tape", "network"}),
    frozenset({"edge", "market", "plan"}),
    frozenset({"net", "sim", "pipeline"}),
    frozenset({"cli", "web"}),
    frozenset({"__main__"}),
)
"""A part may import itself and the layers above it in this table, never its own layer's other parts."""

ALSO_ALLOWED: dict[str, frozenset[str]] = {
    # What a customer's or a floor's program imports from the root; each is loaded when it is used.
    "": frozenset({"levelcast.net.publisher", "levelcast.net.subscriber"}),
    # The network file gives a ring its timing and its configuration, so it needs the values that a ring is made with.
    # The bound of a tree of receivers stands with the servers that form its groups.
    "network": frozenset(
        {
            "levelcast.ring.timing",
            "levelcast.ring.derive",
            "levelcast.ring.config",
            "levelcast.ring.secondary_server",
        }
    ),
    # The disk keeps what the ring orders and journals, and answers from it; of the protocol itself it needs nothing.
    "tape": frozenset(
        {"levelcast.ring.catchup", "levelcast.ring.effects", "levelcast.ring.journal", "levelcast.ring.order"}
    ),
}

ONLY_IN: dict[str, frozenset[str]] = {
    # The live path never needs Java.
    "pyspark": frozenset({"pipeline"}),
    # The one function of the kernel that does I/O.
    "levelcast.kernel.drain": frozenset({"net"}),
    "levelcast.kernel.twin": frozenset({"kernel"}),
}

SANS_IO = frozenset({"wire", "ring", "chain", "group"})

CLOCKS = frozenset({"datetime", "sched", "time"})
CHANCE = frozenset({"numpy.random", "random", "secrets", "uuid"})
FILES = frozenset({"fcntl", "io", "mmap", "os", "pathlib", "shutil", "sqlite3", "tempfile"})
NETWORK = frozenset({"http", "select", "selectors", "socket", "socketserver", "ssl", "urllib"})
CONCURRENCY = frozenset(
    {"_thread", "asyncio", "concurrent", "multiprocessing", "queue", "signal", "subprocess", "threading"}
)
HIDDEN = frozenset({"ctypes", "importlib", "logging"})
"""What reaches the outside by another road."""

NOT_SANS_IO = CLOCKS | CHANCE | FILES | NETWORK | CONCURRENCY | HIDDEN
NOT_SANS_IO_CALLS = frozenset({"__import__", "breakpoint", "eval", "exec", "input", "open", "print"})


def module_name(path: Path) -> str:
    """`.../levelcast/ring/source.py` is `levelcast.ring.source`; a package keeps its `__init__`."""
    return ".".join((PACKAGE, *path.relative_to(ROOT).with_suffix("").parts))


def part_of(name: str) -> str:
    """The part that a dotted name lives in: `ring` for `levelcast.ring.source`, "" for the root."""
    part = [*name.split("."), ""][1]
    return "" if part in {"__init__", "__version__", "*"} else part


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def references(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each line and the absolute dotted name it imports, or reaches as an attribute of an imported module."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            # `module` includes `__init__` for a package, so one level up is always "this package".
            base = module.split(".")[: -node.level] if node.level else []
            for alias in node.names:
                yield node.lineno, ".".join([*base, *filter(None, [node.module]), alias.name])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            yield node.lineno, f"{bound[node.value.id]}.{node.attr}"


def layer_of(part: str) -> int | None:
    return next((index for index, parts in enumerate(LAYERS) if part in parts), None)


def layer_fault(part: str, target: str) -> str | None:
    """Why `part` may not import `target`, a name inside Levelcast."""
    other = part_of(target)
    if other in {part, ""} or any(is_within(target, name) for name in ALSO_ALLOWED.get(part, ())):
        return None
    if part == "":
        return f"the root package may import no part, and imports {target}"
    mine, theirs = layer_of(part), layer_of(other)
    if mine is None or theirs is None:
        return f"{part if mine is None else other} has no place in LAYERS"
    return None if theirs < mine else f"{part} may not import {target}"


def faults(module: str, source: str) -> list[str]:
    """Every breach of the tables in one module's source, each with its line."""
    part = part_of(module)
    tree = ast.parse(source)
    found = []
    if part and layer_of(part) is None:
        found.append(f"{module}: {part} has no place in LAYERS")
    for line, name in references(module, tree):
        if is_within(name, PACKAGE) and (fault := layer_fault(part, name)):
            found.append(f"{module}:{line}: {fault}")
        for owned, owners in ONLY_IN.items():
            if is_within(name, owned) and part not in owners:
                found.append(f"{module}:{line}: only {', '.join(sorted(owners))} may import {owned}")
        if part in SANS_IO and any(is_within(name, outside) for outside in NOT_SANS_IO):
            found.append(f"{module}:{line}: {part} is sans I/O and may not use {name}")
    if part in SANS_IO:
        found += [
            f"{module}:{node.lineno}: {part} is sans I/O and may not call {node.func.id}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NOT_SANS_IO_CALLS
        ]
    return found


MODULES = sorted(ROOT.rglob("*.py"))
PACKAGES = sorted({path.parent for path in MODULES})


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_module_keeps_the_rules(path: Path) -> None:
    assert not faults(module_name(path), path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_package_says_what_lives_there(folder: Path) -> None:
    init = folder / "__init__.py"
    assert init.exists(), f"{folder.name} has no __init__.py"
    assert ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), f"{folder.name} says nothing"


def test_every_part_is_in_one_layer() -> None:
    parts = [part for layer in LAYERS for part in layer]
    assert len(parts) == len(set(parts))
    assert {"", *parts} >= SANS_IO.union(ALSO_ALLOWED, *ONLY_IN.values())


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("levelcast.ring.source", "from levelcast.wire.messages import Token"),
        ("levelcast.ring.source", "from levelcast.ring.timing import Timing"),
        ("levelcast.ring.source", "from .timing import Timing"),
        ("levelcast.ring.source", "from ..wire import messages"),
        ("levelcast.ring.__init__", "from .timing import Timing"),
        ("levelcast.ring.source", "import numpy as np\nx = np.zeros(3)"),
        ("levelcast.network", "from levelcast.ring.timing import Timing"),
        ("levelcast.network", "import pathlib, tomllib"),
        ("levelcast.sim.world", "import random\nfrom levelcast.network import Network"),
        ("levelcast.cli.main", "from levelcast import __version__"),
        ("levelcast.cli.main", "from levelcast.sim import world"),
        ("levelcast.pipeline.session", "from pyspark.sql import SparkSession"),
        ("levelcast.__main__", "from levelcast.cli.main import run"),
        ("levelcast.__init__", "__version__ = '1'"),
    ],
)
def test_allowed_code_passes(module: str, source: str) -> None:
    assert faults(module, source) == []


@pytest.mark.parametrize(
    ("module", "source", "says"),
    [
        ("levelcast.wire.core", "from levelcast.ring import timing", "wire may not import levelcast.ring"),
        ("levelcast.wire.core", "from ..ring.timing import Timing", "wire may not import levelcast.ring"),
        ("levelcast.wire.core", "from .. import ring", "wire may not import levelcast.ring"),
        ("levelcast.wire.core", "from levelcast import records", "wire may not import levelcast.records"),
        ("levelcast.wire.__init__", "from ..ring import timing", "wire may not import levelcast.ring"),
        ("levelcast.ring.source", "import levelcast.sim.world", "ring may not import levelcast.sim.world"),
        ("levelcast.ring.source", "def f():\n    from levelcast import cli", "levelcast.ring.source:2"),
        ("levelcast.ring.source", "from levelcast.tape import segment", "ring may not import levelcast.tape"),
        ("levelcast.sim.world", "from levelcast.net import udp", "sim may not import levelcast.net"),
        ("levelcast.network", "from levelcast.ring import member", "network may not import levelcast.ring"),
        ("levelcast.ring.timing", "from levelcast.network import Network", "ring may not import"),
        ("levelcast.__init__", "from levelcast.ring import timing", "root package may import no part"),
        ("levelcast.misc", "x = 1", "misc has no place in LAYERS"),
        ("levelcast.cli.main", "import levelcast.misc", "misc has no place in LAYERS"),
        ("levelcast.tape.table", "import pyspark.sql as sql", "only pipeline may import pyspark"),
        ("levelcast.ring.source", "import time", "may not use time"),
        ("levelcast.ring.source", "from time import time_ns", "may not use time.time_ns"),
        ("levelcast.chain.vote", "import random as chance", "may not use random"),
        ("levelcast.group.measure", "import socket, struct", "may not use socket"),
        ("levelcast.group.measure", "import asyncio", "may not use asyncio"),
        ("levelcast.group.measure", "from os import path", "may not use os.path"),
        ("levelcast.ring.source", "from threading import Lock", "may not use threading.Lock"),
        ("levelcast.ring.source", "import numpy as np\nnp.random.default_rng()", "may not use numpy.random"),
        ("levelcast.ring.source", "from numpy import random", "may not use numpy.random"),
        ("levelcast.ring.source", "open('tape')", "may not call open"),
    ],
)
def test_forbidden_code_is_detected(module: str, source: str, says: str) -> None:
    found = faults(module, source)
    assert found
    assert says in found[0]
