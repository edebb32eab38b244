"""The command blocks of pages with commands on Spark run as printed (`tests.documented_parts`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.documented_parts import Runner, keep_demo, need_namespaces, pages, prepare, steps_of_page
from tests.spark_parts import spark

__all__ = ["spark"]

pytestmark = pytest.mark.documentation


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(on_spark=True))
def test_the_commands_of_a_page_run(
    page: str, spark: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    need_namespaces()
    directory = prepare(tmp_path / "kept", keep_demo(tmp_path_factory))
    Runner(directory, tmp_path / "tools", spark).run(steps_of_page(page))
