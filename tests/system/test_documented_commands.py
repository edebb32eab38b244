"""The command blocks of the README, the tutorials and the guides run as printed (`tests.documented_parts`).

Pages with commands on Spark are in `test_documented_commands_on_spark`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented_parts import Runner, keep_demo, need_namespaces, pages, prepare, steps_of_page


@pytest.mark.parametrize("page", pages(on_spark=False))
def test_the_commands_of_a_page_run(page: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    need_namespaces()
    directory = prepare(tmp_path / "kept", keep_demo(tmp_path_factory))
    Runner(directory, tmp_path / "tools").run(steps_of_page(page))
