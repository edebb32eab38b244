"""A program that publishes or subscribes loads nothing of a node, nor what only some clients need."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import pytest

import levelcast.client

MODULES = sorted(f"levelcast.client.{module.name}" for module in pkgutil.iter_modules(levelcast.client.__path__))
NODE = (
    "levelcast.node",
    "levelcast.sim",
    "levelcast.cli",
    "levelcast.pipeline",
    "levelcast.ring.member",
    "levelcast.ring.listener",
    "levelcast.ring.secondary",
    "levelcast.ring.reformation_server",
)
HEAVY = ("rich", "typer", "click", "pyarrow", "matplotlib", "pandas", "pyspark", "deltalake")
EVENT_LOOP = {
    "levelcast.client.async_publisher",
    "levelcast.client.edge_sockets",
    "levelcast.client.group",
    "levelcast.client.reliable_multicast",
    "levelcast.client.subscriber",
    "levelcast.client.trader",
    "levelcast.client.unicast_sockets",
}
"""The modules that work in the caller's event loop."""


def loaded_by(statement: str) -> list[str]:
    """The modules that a fresh interpreter has after a statement."""
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def among(loaded: list[str], packages: tuple[str, ...]) -> list[str]:
    return [name for name in loaded if name in packages or name.startswith(tuple(f"{each}." for each in packages))]


@pytest.mark.parametrize("module", MODULES)
def test_a_client_module_loads_nothing_of_a_node(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert among(loaded, (*NODE, *HEAVY)) == []
    if module not in EVENT_LOOP:
        assert among(loaded, ("asyncio",)) == []


@pytest.mark.parametrize("name", ["Group", "Publisher", "Subscriber"])
def test_the_public_classes_load_nothing_of_a_node(name: str) -> None:
    loaded = loaded_by(f"import levelcast\nlevelcast.{name}")
    assert among(loaded, (*NODE, *HEAVY)) == []
    assert among(loaded, ("levelcast.formats",)) == []


def test_a_publisher_loads_nothing_of_the_edge() -> None:
    assert among(loaded_by("import levelcast\nlevelcast.Publisher"), ("levelcast.edge",)) == []


def test_a_subscriber_loads_nothing_of_the_serving_edge_nor_of_a_disk() -> None:
    loaded = loaded_by("import levelcast\nlevelcast.Subscriber")
    assert among(loaded, ("levelcast.edge.server", "levelcast.storage", "levelcast.ring")) == []


def test_the_package_alone_loads_next_to_nothing() -> None:
    assert among(loaded_by("import levelcast"), ("levelcast", "numpy")) == ["levelcast", "levelcast.version"]
