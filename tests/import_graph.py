"""The import graph of src/levelcast, read with `ast`: imports inside functions and under TYPE_CHECKING count too.

python -m tests.import_graph            # print the picture of the packages (Mermaid)
python -m tests.import_graph --write    # put it into docs/architecture.md
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = "levelcast"
REPOSITORY = Path(__file__).resolve().parents[1]
ROOT = REPOSITORY / "src" / PACKAGE
PAGE = REPOSITORY / "docs" / "architecture.md"
BEGIN, END = "<!-- packages: python -m tests.import_graph --write -->", "<!-- end of packages -->"


def module_name(path: Path) -> str:
    """`.../levelcast/ring/source.py` is `levelcast.ring.source`; a package keeps its `__init__`."""
    return ".".join((PACKAGE, *path.relative_to(ROOT).with_suffix("").parts))


def part_of(name: str) -> str:
    """The package that a dotted name lives in: `ring` for `levelcast.ring.source`, "" for the root."""
    part = [*name.split("."), ""][1]
    return "" if part in {"__init__", "__version__", "*"} else part


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def references(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each line and the absolute dotted name it imports, or reaches as an attribute of an imported module."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            # `module` includes `__init__` for a package, so one level up is always "this package".
            base = module.split(".")[: -node.level] if node.level else []
            for alias in node.names:
                yield node.lineno, ".".join([*base, *filter(None, [node.module]), alias.name])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            yield node.lineno, f"{bound[node.value.id]}.{node.attr}"


@cache
def package_imports() -> dict[str, frozenset[str]]:
    """Each package below the root, and the packages that it imports."""
    found: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        module = module_name(path)
        part = part_of(module)
        if part in {"", "__main__"}:
            continue
        names = (name for _, name in references(module, ast.parse(path.read_text(encoding="utf-8"))))
        others = {part_of(name) for name in names if is_within(name, PACKAGE)}
        found.setdefault(part, set()).update(others - {part, ""})
    return {part: frozenset(others) for part, others in found.items()}


def everything_below(part: str) -> frozenset[str]:
    """The packages that `part` imports, directly or not."""
    graph, below, ahead = package_imports(), set[str](), [part]
    while ahead:
        for other in graph.get(ahead.pop(), frozenset()) - below:
            below.add(other)
            ahead.append(other)
    return frozenset(below)


def picture(layers: Iterable[Iterable[str]]) -> str:
    """The packages as a Mermaid diagram, layer by layer, the highest first.

    An arrow is an import. One that follows from others is left out, and so are the root modules.
    """
    graph = package_imports()
    leaves = {"errors", "units", "extras", "version"}
    lines = ["```mermaid", "flowchart TD", "    accTitle: Packages and their imports"]
    for number, layer in enumerate(layers):
        shown = sorted(part for part in layer if part in graph and part not in leaves)
        if shown:
            lines += [f"    subgraph layer{number} [ ]", *(f"        {part}" for part in shown), "    end"]
    for part in sorted(graph.keys() - leaves):
        direct = graph[part] - leaves
        implied = {below for other in direct for below in everything_below(other)}
        lines += [f"    {part} --> {other}" for other in sorted(direct - implied)]
    return "\n".join([*lines, "```"])


def in_page(text: str, drawn: str) -> str:
    """The page with the picture between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{drawn}\n{END}{after}"


def main() -> None:
    from tests.test_architecture import LAYERS

    drawn = picture(reversed(LAYERS))
    if "--write" in sys.argv[1:]:
        PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8"), drawn), encoding="utf-8")
    else:
        print(drawn)


if __name__ == "__main__":
    main()
