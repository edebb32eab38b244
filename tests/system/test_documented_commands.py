"""The command blocks of the README, the tutorials and the guides run as printed (`tests.documented_parts`).

Pages with commands on Spark are in `test_documented_commands_on_spark`. A page that fails runs again in a new
directory: it starts networks as a reader would, without allowance for other tests that run at the same time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented_parts import Runner, keep_demo, need_namespaces, pages, prepare, steps_of_page

pytestmark = pytest.mark.documentation


@pytest.mark.parametrize("page", pages(on_spark=False))
def test_the_commands_of_a_page_run(page: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    need_namespaces()
    steps = steps_of_page(page)

    def run(attempt: str) -> None:
        directory = prepare(tmp_path / attempt / "kept", keep_demo(tmp_path_factory))
        Runner(directory, tmp_path / attempt / "tools").run(steps)

    try:
        run("1")
    except pytest.fail.Exception as error:
        print(f"{page} runs again: {error}")
        run("2")
