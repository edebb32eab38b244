"""Draw the Mermaid diagrams of the pages as SVG files when the site is built: no script, and nothing from another host.

The SVG is made by Mermaid itself, in the JavaScript engine of the package mermaidx. `accTitle:` in the text of a
diagram is its description for readers who do not see it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from html import escape
from pathlib import Path
from typing import Any

import mermaidx
from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

FOLDER = "_diagrams"
THEME = "neutral"
_TITLE = re.compile(r"^\s*accTitle:\s*(.+)$", re.MULTILINE)
_log = logging.getLogger(__name__)


class Diagrams(SphinxTransform):
    """Replace each Mermaid block by the image of its diagram, which links to the file."""

    default_priority = 100

    def apply(self, **_: Any) -> None:
        for block in list(self.document.findall(nodes.literal_block)):
            if block.get("language") == "mermaid":
                try:
                    file = self._draw(block.astext())
                except RuntimeError as error:
                    _log.warning("%s", error, location=block)
                    continue
                title = _TITLE.search(block.astext())
                href = "../" * self.env.docname.count("/") + f"{FOLDER}/{file}"
                image = f'<a href="{href}"><img src="{href}" alt="{escape(title[1] if title else "Diagram")}"></a>'
                block.replace_self(nodes.raw("", f'<div class="diagram">{image}</div>', format="html"))

    def _draw(self, text: str) -> str:
        """Put the diagram into the folder of the site and return its name. Drawings of earlier builds are reused."""
        kept, folder = Path(self.env.doctreedir) / FOLDER, Path(self.app.outdir) / FOLDER
        name = hashlib.sha256(f"{mermaidx.__version__} {THEME} {text}".encode()).hexdigest()[:16] + ".svg"
        for each in (kept, folder):
            each.mkdir(parents=True, exist_ok=True)
        if not (kept / name).exists():
            (kept / name).write_text(mermaidx.render(text, theme=THEME).svg(), encoding="utf-8")
        shutil.copyfile(kept / name, folder / name)
        return name


def setup(app: Any) -> None:
    app.add_transform(Diagrams)
