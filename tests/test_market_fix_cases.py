"""Acceptance definitions of another FIX engine pass against the session: one test per definition file.

`LEVELCAST_FIX_CASES` names their directory; without it they are looked for in the recorded data.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fix_parts import DefinitionRunner


def definitions() -> list[Path]:
    folder, data = os.environ.get("LEVELCAST_FIX_CASES"), os.environ.get("LEVELCAST_DATA")
    if folder is not None:
        found = sorted(Path(folder).glob("*.def"))
        return found or [Path(folder) / "no definition file here"]
    return sorted((Path(data) / "quickfix_fix44_server_cases").glob("*.def")) if data else []


@pytest.mark.data
@pytest.mark.parametrize("path", definitions(), ids=lambda path: path.stem)
def test_definition(path: Path) -> None:
    DefinitionRunner().run(path)
