"""The generated pages of the reference are current, and describe every key of the network file that is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from levelcast.network import include
from levelcast.network.sections import TABLES
from levelcast.node.metrics import HISTOGRAMS, common_families, exposition
from levelcast.node.roles import ROLES
from website import reference
from website.home import sections
from website.reference import markdown, network_keys

ROOT = Path(__file__).resolve().parents[1]


def test_every_generated_page_is_current() -> None:
    assert reference.stale() == [], f"run {reference.WRITE}"


def test_a_page_that_differs_from_the_code_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reference, "DOCS", tmp_path)
    for name in reference.PAGES:
        (tmp_path / name).write_text((ROOT / "docs" / name).read_text(encoding="utf-8"), encoding="utf-8")
    page = tmp_path / "metrics.md"
    page.write_text(page.read_text(encoding="utf-8").replace("gauge", "counter", 1), encoding="utf-8")
    assert reference.stale() == ["metrics.md"]
    assert reference.write() == ["metrics.md"]
    assert reference.stale() == []


def test_every_key_that_the_reader_reads_is_described_once() -> None:
    tables = [table for table in TABLES if table not in include.TABLES]
    described = [(table.header, key.name) for table in tables for key in table.keys if " " not in key.name]
    assert len(described) == len(set(described))
    read = network_keys.read_types().keys()
    assert {key for header, key in read if not header} == {re.findall(r"\w+", table.header)[0] for table in tables}
    with_names_as_keys = {"[instruments]", "[helpers]"}
    assert {each for each in read if each[0] and each[0] not in with_names_as_keys} == set(described)


def test_the_keys_of_included_files_are_described() -> None:
    included = {(table.header, key.name) for table in include.TABLES for key in table.keys}
    assert included == {("", include.KEY), *(("[measured]", key) for key in include.MAY_SET["measured"])}


def test_the_metrics_of_every_role_are_on_the_page() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    lateness = {"bounds_s": [0.001], "counts": [1, 0], "sum_s": 0.0}
    for name, role in ROLES.items():
        status = {"name": "n", "role": name, "version": "1", "lateness": lateness}
        status |= {role.STATE[0]: role.STATE[1][0]} if role.STATE else {}
        for line in exposition(status, role.METRICS, role.STATE).splitlines():
            if line.startswith("# TYPE"):
                _, _, metric, kind = line.split()
                assert f"| `{metric}` | {kind} |" in page
    for family in (*common_families(), *HISTOGRAMS.values()):
        assert f"| `levelcast_{family.name}` | {family.type} |" in page


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert markdown.table(("a",), [("x|y",)]) == "| a |\n|---|\n| x\\|y |"


def test_the_home_page_lists_pages_by_need() -> None:
    found = sections((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    assert list(found) == ["Tutorials", "Guides", "Reference", "Explanation", "Benchmarks", "Project"]
    paths = [path for pages in found.values() for _, path in pages]
    assert len(paths) == len(set(paths))
    assert all((ROOT / "docs" / path).is_file() for path in paths)
