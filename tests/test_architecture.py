"""Dependencies point one way, protocols are sans I/O, and only the pipeline needs Spark.

The rules are the tables below; the checks read every module under src/levelcast with `ast`, so that an import
inside a function or under TYPE_CHECKING counts as much as one at the top of the file.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from levelcast.sim.history_rows import NOT_COMPUTED_BY
from tests.import_graph import (
    BEGIN,
    PACKAGE,
    PAGE,
    ROOT,
    everything_below,
    in_page,
    is_within,
    module_name,
    package_imports,
    part_of,
    picture,
    references,
)

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "units", "version", "native"}),
    frozenset({"extras"}),
    frozenset({"records", "timing", "plots"}),
    frozenset({"wire"}),
    frozenset({"protocol"}),
    frozenset({"ring", "byzantine", "keys", "overlay", "storage", "network"}),
    frozenset({"edge", "formats", "market", "planner"}),
    frozenset({"runtime"}),
    frozenset({"client"}),
    frozenset({"node", "sim", "pipeline"}),
    frozenset({"web"}),
    frozenset({"cli"}),
    frozenset({"", "__main__"}),
)
"""A package imports itself and packages of the layers before its own. It never imports a neighbour of its layer."""

ONLY_IN: dict[str, frozenset[str]] = {
    # The live path never needs Java.
    "pyspark": frozenset({"pipeline"}),
    "deltalake": frozenset({"pipeline"}),
    # The one function of the kernel that does I/O.
    "levelcast.native.drain": frozenset({"runtime"}),
    "levelcast.native.pure_core": frozenset({"native"}),
}

SANS_IO = frozenset(
    {
        "records",
        "wire",
        "timing",
        "protocol",
        "ring",
        "byzantine",
        "overlay",
        "edge",
        "market.engine",
        "market.ledger",
        "market.fix",
        "market.entry",
        "market.fair",
        "market.floor",
    }
)
"""Packages, and modules of packages that also do other things."""

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


def layer_of(part: str) -> int | None:
    return next((index for index, parts in enumerate(LAYERS) if part in parts), None)


def layer_fault(part: str, target: str) -> str | None:
    """Why `part` may not import `target`, a name inside Levelcast."""
    other = part_of(target)
    if other == part:
        return None
    mine, theirs = layer_of(part), layer_of(other)
    if mine is None or theirs is None:
        return f"{part if mine is None else other} is not in LAYERS"
    return None if theirs < mine else f"{part or 'the root package'} may not import {target}"


def faults(module: str, source: str) -> list[str]:
    """Every breach of the tables in one module's source, each with its line."""
    part = part_of(module)
    tree = ast.parse(source)
    found = []
    sans_io = any(is_within(module, f"{PACKAGE}.{name}") for name in SANS_IO)
    if layer_of(part) is None:
        found.append(f"{module}: {part} is not in LAYERS")
    for line, name in references(module, tree):
        if is_within(name, PACKAGE) and (fault := layer_fault(part, name)):
            found.append(f"{module}:{line}: {fault}")
        for owned, owners in ONLY_IN.items():
            if is_within(name, owned) and part not in owners:
                found.append(f"{module}:{line}: only {', '.join(sorted(owners))} may import {owned}")
        if sans_io and any(is_within(name, outside) for outside in NOT_SANS_IO):
            found.append(f"{module}:{line}: {part} is sans I/O and may not use {name}")
    if sans_io:
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


def test_the_picture_in_the_documentation_is_the_import_graph() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert BEGIN in text
    assert in_page(text, picture(reversed(LAYERS))) == text, "run python -m tests.import_graph --write"


def test_the_digest_of_a_history_covers_every_package_that_computes_it() -> None:
    below = everything_below("sim")
    assert "ring" in below
    assert not NOT_COMPUTED_BY & (below - {"planner", "plots", "formats"})
    assert set(package_imports()) >= NOT_COMPUTED_BY - {"web"}


def test_every_part_is_in_one_layer() -> None:
    parts = [part for layer in LAYERS for part in layer]
    assert len(parts) == len(set(parts))
    assert set(parts) >= {name.partition(".")[0] for name in SANS_IO}.union(*ONLY_IN.values())


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("levelcast.ring.source", "from levelcast.wire.messages import Token"),
        ("levelcast.ring.source", "from levelcast.ring.schedule import Schedule"),
        ("levelcast.ring.source", "from .schedule import Schedule"),
        ("levelcast.ring.source", "from ..protocol import effects"),
        ("levelcast.ring.__init__", "from .schedule import Schedule"),
        ("levelcast.ring.source", "import numpy as np\nx = np.zeros(3)"),
        ("levelcast.network.model", "from levelcast.timing.rules import Timing"),
        ("levelcast.network.parse", "import pathlib, tomllib"),
        ("levelcast.market.synthetic", "import random"),
        ("levelcast.sim.engine.world", "import random\nfrom levelcast.network import Network"),
        ("levelcast.cli.main", "from levelcast.version import __version__"),
        ("levelcast.cli.main", "from levelcast.sim.engine import world"),
        ("levelcast.cli.main", "from levelcast.web import pages"),
        ("levelcast.pipeline.session", "from pyspark.sql import SparkSession"),
        ("levelcast.__main__", "from levelcast.cli.main import run"),
        ("levelcast.__init__", "from levelcast.version import __version__"),
        ("levelcast.__init__", "from levelcast.client.publisher import Publisher"),
    ],
)
def test_allowed_code_passes(module: str, source: str) -> None:
    assert faults(module, source) == []


@pytest.mark.parametrize(
    ("module", "source", "says"),
    [
        ("levelcast.wire.codec", "from levelcast.ring import source", "wire may not import levelcast.ring"),
        ("levelcast.wire.codec", "from ..ring.source import Source", "wire may not import levelcast.ring"),
        ("levelcast.wire.codec", "from .. import ring", "wire may not import levelcast.ring"),
        ("levelcast.records.walk", "from levelcast import timing", "records may not import levelcast.timing"),
        ("levelcast.wire.__init__", "from ..protocol import machine", "wire may not import levelcast.protocol"),
        (
            "levelcast.ring.source",
            "import levelcast.sim.engine.world",
            "ring may not import levelcast.sim.engine.world",
        ),
        ("levelcast.ring.source", "def f():\n    from levelcast import cli", "levelcast.ring.source:2"),
        ("levelcast.ring.source", "from levelcast.storage import disk", "ring may not import levelcast.storage"),
        ("levelcast.sim.engine.world", "from levelcast.node import node", "sim may not import levelcast.node"),
        ("levelcast.network.model", "from levelcast.ring import member", "network may not import levelcast.ring"),
        ("levelcast.client.publisher", "from levelcast.node import node", "client may not import levelcast.node"),
        ("levelcast.protocol.history", "from levelcast.ring import witness", "protocol may not import levelcast.ring"),
        ("levelcast.cli.main", "from levelcast import __version__", "cli may not import levelcast.__version__"),
        ("levelcast.misc", "x = 1", "misc is not in LAYERS"),
        ("levelcast.cli.main", "import levelcast.misc", "misc is not in LAYERS"),
        ("levelcast.storage.disk", "import pyspark.sql as sql", "only pipeline may import pyspark"),
        ("levelcast.ring.source", "import time", "may not use time"),
        ("levelcast.ring.source", "from time import time_ns", "may not use time.time_ns"),
        ("levelcast.byzantine.vote", "import random as chance", "may not use random"),
        ("levelcast.overlay.measure", "import socket, struct", "may not use socket"),
        ("levelcast.protocol.machine", "import asyncio", "may not use asyncio"),
        ("levelcast.edge.server.machine", "from os import path", "may not use os.path"),
        ("levelcast.market.engine.book", "import time", "may not use time"),
        ("levelcast.market.ledger", "import time", "may not use time"),
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
