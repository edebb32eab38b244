"""Update `docs/wire-formats.md`: the layouts are those of the module heads in `levelcast.wire`."""

from __future__ import annotations

import inspect
import re
from textwrap import dedent
from types import ModuleType

from levelcast.wire import chain_codec, codec, group_codec, header, reformation_codec, token_codec, wide_codec

BEGIN, END = "<!-- layouts: python -m website.reference --write -->", "<!-- end of layouts -->"
_PARTS = (
    ("Header", header),
    ("Packets, repairs, probes", codec),
    ("Tokens, requests, catch-up", token_codec),
    ("Reformation", reformation_codec),
    ("Groups of secondaries", group_codec),
    ("Wide-area groups", wide_codec),
    ("Chain multicast", chain_codec),
)
_LAYOUT = re.compile(r"^(?:(?: {4}.*)?\n)+", re.MULTILINE)


def _layouts(module: ModuleType) -> str:
    found = [dedent(block).strip("\n") for block in _LAYOUT.findall(inspect.getdoc(module) or "")]
    return "\n\n".join(block for block in found if block)


def page(text: str) -> str:
    """Return the page with current layouts."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = [f"### {title}\n\n```text\n{_layouts(module)}\n```" for title, module in _PARTS]
    return "\n\n".join((before + BEGIN, *parts, END + after))
