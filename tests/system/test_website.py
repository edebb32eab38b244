"""The documentation site in a real browser: nothing is loaded from other hosts, and the search finds words.

The site is built into build/docs, as by `make docs`, unless it is current there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from website.build import BuildError, build, run_sphinx

PAGES = ("index.html", "architecture.html", "api.html")

pytestmark = pytest.mark.documentation


@pytest.fixture(scope="module")
def sphinx(require_module: Callable[[str], ModuleType]) -> None:
    for name in ("sphinx", "furo", "myst_parser", "mermaidx"):
        require_module(name)


@pytest.fixture(scope="module")
def site(sphinx: None) -> Path:
    """The folder of the built site."""
    return build().parent


@pytest.fixture(scope="module")
def chromium(require_module: Callable[[str], ModuleType], require_tool: Callable[[str], str]) -> Iterator[Any]:
    driver = require_module("playwright.sync_api")
    path = require_tool("chromium")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A page of the browser that records requests to other hosts and errors; such requests are not sent."""

    def __init__(self, browser: Any, home: str) -> None:
        self.home = home
        self.elsewhere: list[str] = []
        self.errors: list[str] = []
        self.page = browser.new_page(viewport={"width": 1280, "height": 1000})
        self.page.route("**/*", self._route)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _route(self, route: Any) -> None:
        if route.request.url.startswith((self.home, "data:")):
            route.continue_()
        else:
            self.elsewhere.append(route.request.url)
            route.abort()

    def _note(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.home}/{path}", wait_until="networkidle")

    def is_wider_than_the_window(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The address of the site on a web server of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class _Anchors(HTMLParser):
    """Collect the ids and the links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def test_every_link_of_every_page_leads_to_a_page_and_an_anchor(site: Path) -> None:
    pages = {path: _Anchors(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            found = pages.get(target)
            if not target.is_file() or (found and url.fragment and unquote(url.fragment) not in found.ids):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 50
    assert broken == []


def test_pages_opened_as_files_load_nothing_from_other_hosts(site: Path, chromium: Any) -> None:
    visit = Visit(chromium, site.as_uri())
    for path in PAGES:
        visit.open(path)
        assert visit.page.locator("article h1").first.is_visible()
        assert not visit.is_wider_than_the_window(), path
        broken = "images => images.filter(image => !image.naturalWidth).map(image => image.src)"
        assert visit.page.eval_on_selector_all("article img", broken) == []
    visit.open("architecture.html")
    assert visit.page.locator(".diagram img").get_attribute("alt") == "Packages and their imports"
    visit.open("search.html?q=reformation")
    visit.page.wait_for_selector("#search-results li a")
    assert (visit.elsewhere, visit.errors) == ([], [])


def test_the_search_field_finds_a_word_and_shows_where(served: str, chromium: Any) -> None:
    visit = Visit(chromium, served)
    visit.open("index.html")
    visit.page.fill("input[name=q]", "reformation")
    visit.page.press("input[name=q]", "Enter")
    visit.page.wait_for_selector("#search-results li p.context")
    titles = visit.page.locator("#search-results li a").all_inner_texts()
    assert any("Reformation" in title for title in titles)
    visit.open("search.html?q=nosuchwordanywhere")
    visit.page.wait_for_selector("#search-results p.search-summary")
    assert visit.page.locator("#search-results li a").count() == 0
    assert (visit.elsewhere, visit.errors) == ([], [])


def test_a_request_to_another_host_and_an_error_are_noticed(served: str, chromium: Any) -> None:
    visit = Visit(chromium, served)
    visit.open("index.html")
    visit.page.set_content('<img src="http://other.invalid/x.png"><script>missing()</script>')
    visit.page.wait_for_load_state("networkidle")
    assert visit.elsewhere == ["http://other.invalid/x.png"]
    assert any("missing is not defined" in error for error in visit.errors)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The docs of a small repository, with links of every kind."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n[page](docs/page.md#one-heading)\n", encoding="utf-8")
    (tmp_path / "code.py").write_text("x = 1 < 2\n", encoding="utf-8")
    (docs / "changelog.md").write_text("# Changelog\n\nSee [CHANGELOG.md](../CHANGELOG.md).\n", encoding="utf-8")
    (docs / "page.md").write_text("# Page\n\n## One heading\n\n[code](../code.py) [home](index.md)\n", encoding="utf-8")
    (docs / "benchmarks.md").write_text("# Benchmarks\n", encoding="utf-8")
    (docs / "benchmarks").mkdir()
    (docs / "benchmarks" / "one.md").write_text("# One\n\n[code](../../code.py)\n", encoding="utf-8")
    lists = "## First\n\n- [A page](page.md)\n- [All](benchmarks.md)\n- [Changes](../CHANGELOG.md)\n"
    (docs / "index.md").write_text(f"# Home\n\n{lists}", encoding="utf-8")
    return docs


@pytest.mark.usefixtures("sphinx")
def test_links_work_on_the_site_as_in_the_repository(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_sphinx(small, out, tmp_path / "work")
    page, code = (out / "page.html").read_text(encoding="utf-8"), "_source/code.py.html"
    assert f'href="{code}"' in page
    assert f'href="../{code}"' in (out / "benchmarks" / "one.html").read_text(encoding="utf-8")
    assert "&lt;" in (out / code).read_text(encoding="utf-8")
    assert 'href="page.html#one-heading"' in (out / "changelog.html").read_text(encoding="utf-8")
    assert '<span class="caption-text">First</span>' in page
    assert 'href="changelog.html"' in page


@pytest.mark.usefixtures("sphinx")
def test_a_broken_link_a_bad_diagram_and_a_page_in_no_list_fail_the_build(small: Path, tmp_path: Path) -> None:
    bad = "[a](gone.md) [b](page.md#gone) [c](../gone.py) [d](#nowhere)\n\n```mermaid\nflowchart TD\n  a -->> ->\n```\n"
    with open(small / "page.md", "a", encoding="utf-8") as page:
        page.write(bad)
    (small / "alone.md").write_text("# Alone\n", encoding="utf-8")
    with pytest.raises(BuildError) as failure:
        run_sphinx(small, tmp_path / "out", tmp_path / "work")
    for part in ("gone.md", "'gone'", "../gone.py", "nowhere", "Mermaid rendering failed", "alone.md"):
        assert part in str(failure.value), part
