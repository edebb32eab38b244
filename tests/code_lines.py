"""Count lines of code by package: without blank lines, comments and docstrings.

python -m tests.code_lines [FOLDER]     # another checkout, to compare with
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Lines of a module that hold code."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
    counts: Counter[str] = Counter()
    for folder in ("src/levelcast", "benchmarks", "tests"):
        base = root / folder
        for path in base.rglob("*.py"):
            parts = path.relative_to(base).parts
            name = f"src/{parts[0]}" if folder.startswith("src") and len(parts) > 1 else folder
            counts[name] += code_lines(path.read_text(encoding="utf-8"))
    for name, count in sorted(counts.items()):
        print(f"{name:20} {count:7,}")
    source = sum(count for name, count in counts.items() if name.startswith("src"))
    print(f"{'src, all':20} {source:7,}")


if __name__ == "__main__":
    main()
