"""Resolve links from `docs/` to other files of the repository, as a viewer of the repository does.

`docs/readme.md`, `contributing.md` and `changelog.md` only link to a file of the root; on the site they are that file.
A link to any other file, such as a module, leads to a page with its highlighted text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from website.layout import ROOT_PAGES, SOURCES

_LINK = re.compile(r"\]\((?!https?:|#)(docs/)?([^)\s]+)\)")
_PAGE_OF_FILE = {name: page for page, name in ROOT_PAGES.items()}


def _from_docs(match: re.Match[str]) -> str:
    return f"]({'' if match[1] else '../'}{match[2]})"


def _read_root_file(app: Any, docname: str, source: list[str]) -> None:
    if name := ROOT_PAGES.get(docname):
        source[0] = _LINK.sub(_from_docs, (app.srcdir.parent / name).read_text(encoding="utf-8"))


class RepositoryLinks(SphinxTransform):
    """Replace links to files outside `docs/`."""

    default_priority = 200

    def apply(self, **_: Any) -> None:
        links = (addnodes.download_reference, addnodes.pending_xref)
        for node in list(self.document.findall(lambda node: isinstance(node, links) and node.get("reftype") == "myst")):
            path = self._outside(node["reftarget"] + (".md" if node.get("refdomain") == "doc" else ""))
            if path is None:
                continue
            if path in _PAGE_OF_FILE:
                new = addnodes.pending_xref(**node.attributes | {"refdomain": "doc", "reftarget": _PAGE_OF_FILE[path]})
            else:
                self.env.levelcast_linked.add(path)
                target = f"{SOURCES}/{path}.html"
                here = os.path.dirname(self.env.docname)
                new = nodes.reference(refuri=os.path.relpath(target, here or "."), internal=True)
            new.source, new.line = node.source, node.line
            new += node.children
            node.replace_self(new)

    def _outside(self, target: str) -> str | None:
        """Return the path of a linked file from the root; None if it is in `docs/`, or does not exist."""
        docs = self.env.srcdir
        path = Path(os.path.normpath(docs / os.path.dirname(self.env.docname) / target))
        if path.is_dir():
            path /= "__init__.py"
        if not path.is_file() or path.is_relative_to(docs) or not path.is_relative_to(docs.parent):
            return None
        return path.relative_to(docs.parent).as_posix()


def _source_pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    for path in sorted(app.env.levelcast_linked):
        text = (app.srcdir.parent / path).read_text(encoding="utf-8")
        try:
            lexer = get_lexer_for_filename(path)
        except ClassNotFound:
            lexer = TextLexer()
        code = highlight(text, lexer, HtmlFormatter(nowrap=True))
        body = f'<h1>{escape(path)}</h1>\n<div class="highlight source"><pre>{code}</pre></div>'
        yield f"{SOURCES}/{path}", {"title": path, "body": body}, "page.html"


def _start(_: Any, env: Any, _docnames: list[str]) -> None:
    env.levelcast_linked = set()


def setup(app: Any) -> None:
    app.connect("source-read", _read_root_file)
    app.connect("env-before-read-docs", _start)
    app.connect("html-collect-pages", _source_pages)
    app.add_transform(RepositoryLinks)
