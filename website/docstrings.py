"""Parse docstrings as Markdown: they have code between single backticks, indented examples, and tables."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.util.docutils import SphinxDirective

_DIRECTIVE = "markdown"


class Markdown(SphinxDirective):
    """Parse the content as Markdown."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        document = new_document(self.env.docname, self.state.document.settings)
        MystParser().parse("\n".join(self.content), document)
        return list(document.children)


def _wrap(_: Any, _kind: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Put a docstring into the directive."""
    if any(lines):
        lines[:] = [f".. {_DIRECTIVE}::", "", *(f"   {line}" for line in lines), ""]


def setup(app: Any) -> None:
    app.add_directive(_DIRECTIVE, Markdown)
    app.connect("autodoc-process-docstring", _wrap)
