"""The site is built again when a page, docstring or linked file has changed, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from website import build as site
from website.layout import SOURCES


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The builds of a repository of a page, a module and a linked file."""
    for name in ("docs/page.md", "docs/plot.svg", "src/module.py", "website/site.css", "tests/linked.py", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    done: list[Path] = []

    def run(_docs: Path, out: Path, _work: Path) -> None:
        page = out / SOURCES / "tests" / "linked.py.html"
        page.parent.mkdir(parents=True)
        page.touch()
        done.append(out)

    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "run_sphinx", run)
    return done


def test_a_current_site_is_not_built_again(builds: list[Path], tmp_path: Path) -> None:
    home = site.build(tmp_path / "build" / "docs")
    assert home == tmp_path / "build" / "docs" / "index.html"
    (tmp_path / "tests" / "other.py").write_text("no page links to it", encoding="utf-8")
    site.build(tmp_path / "build" / "docs")
    assert len(builds) == 1


@pytest.mark.parametrize(
    "changed", ["docs/page.md", "docs/new.md", "docs/plot.svg", "src/module.py", "website/site.css", "tests/linked.py"]
)
def test_a_changed_input_builds_the_site_again(changed: str, builds: list[Path], tmp_path: Path) -> None:
    site.build(tmp_path / "build" / "docs")
    (tmp_path / changed).write_text("changed", encoding="utf-8")
    site.build(tmp_path / "build" / "docs")
    assert len(builds) == 2


def test_a_site_with_errors_is_not_current(builds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Path) -> None:
        raise site.BuildError("broken link")

    with monkeypatch.context() as during:
        during.setattr(site, "run_sphinx", fail)
        with pytest.raises(site.BuildError, match="broken link"):
            site.build(tmp_path / "build" / "docs")
    site.build(tmp_path / "build" / "docs")
    assert len(builds) == 1
