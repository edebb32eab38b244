"""A subscriber loads nothing of the edge's sending side."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import levelcast.edge.subscriber

MODULES = sorted(path.stem for path in Path(levelcast.edge.subscriber.__path__[0]).glob("*.py"))
LIST = "import sys, {module}; print(*(name for name in sys.modules if name.startswith('levelcast.edge.server')))"


@pytest.mark.parametrize(
    "module", ["levelcast.client.subscriber", *(f"levelcast.edge.subscriber.{name}" for name in MODULES)]
)
def test_it_loads_nothing_of_the_server(module: str) -> None:
    found = subprocess.run([sys.executable, "-c", LIST.format(module=module)], capture_output=True, check=True)
    assert found.stdout.split() == []
