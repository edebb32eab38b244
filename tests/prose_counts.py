"""Count words that the prose guide replaces, and how docstrings open, in this checkout or in another one.

    python -m tests.prose_counts                    # counts by word
    python -m tests.prose_counts --before FOLDER    # beside the counts of another checkout
    python -m tests.prose_counts --word take        # every place of one word
    python -m tests.prose_counts --under src/levelcast/edge
    python -m tests.prose_counts --before FOLDER --passages 50 --seed 1    # random texts that the other checkout lacks

Counted: README and docs without the changelog and without code, and the docstrings, comments and sentences (strings
with a space) of `src/`. A use in a literal sense that `prose_literals.toml` lists with its reason is not counted, in
either checkout.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LITERALS = Path(__file__).with_name("prose_literals.toml")
BY_TENTH = 10
"""A word may remain at this fraction of its count before."""
WORDS = {
    "ask": r"ask(s|ed|ing)?",
    "take": r"tak(e|es|en|ing)|took",
    "say": r"say(s|ing)?|said",
    "come": r"com(e|es|ing)|came",
    "customer": r"customers?",
    "who": r"who|whom|whoever|whose",
    "nobody": r"nobody|somebody|everybody|anybody",
    "behind": r"behind",
    "tell": r"tell(s|ing)?|told",
    "is no X": r"(is|are) no(?! more| longer| later| less| larger| faster| earlier)",
    "place": r"place[sd]?",
    "whole": r"whole",
    "stand": r"stand(s|ing)?|stood",
    "hear": r"hear(s|d|ing)?",
    "most, least": r"(?<!at )(most|least)",
    "go on": r"(go|goes|going|went) on",
    "there is no X": r"there (is|are|was|were) no",
    "share": r"shares?",
    "promise": r"promise[sd]?",
    "let": r"lets?|letting",
    "beside": r"besides?",
    "figure": r"figures?",
    "instant": r"instants?",
    "at once": r"at once",
    "die": r"die[sd]?|dying|deaths?|dead",
    "sentence": r"sentences?",
    "a second": r"(records|trades|packets|bytes|messages|datagrams|frames|tokens|requests) a (second|packet|slot)",
    "wanted": r"wanted",
    "so many": r"so (many|long|often)",
    "lie": r"lie|lies|lay|lying",
    "in force": r"in force",
    "silent": r"silent|silence[sd]?",
    "room": r"room",
    "people": r"people|persons?",
    "home": r"homes?",
    "take in": r"(tak(e|es|en|ing)|took) in",
    "the way": r"the (whole )?way",
    "strike": r"struck|strik(e|es|ing)",
    "sound": r"sound",
    "hand over": r"hand(s|ed|ing)? (over|on)",
    "anew": r"anew",
    "cut off": r"cut (off|short)",
    "one after the other": r"one after the other",
    "made up": r"made[- ]up",
    "mend": r"mend(s|ed|ing)?",
    "let in": r"let in",
    "doubled": r"doubled",
    "given again": r"given again",
    "in vain": r"in vain",
    "plea": r"plea(s|d|ds|ded)?",
    "evenness": r"evenness",
    "to come": r"to come",
}
OPENINGS = r"(What|Which|How|Who|Whose|Whether|Of|Where|When|Why)\b"
_CODE = re.compile(r"```.*?```|~~~.*?~~~|`[^`\n]*`|^    .*?$|<[^>]*>|\]\([^)]*\)", re.S | re.M)
_QUOTED = re.compile(r"`[^`\n]*`")


class Text(NamedTuple):
    """A piece of prose."""

    path: str
    line: int
    text: str
    opens: bool = False
    """The docstring of a module, class or function."""


def prose_of(root: Path) -> Iterator[Text]:
    """Yield the prose of a checkout."""
    for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        text = _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), path.read_text(encoding="utf-8"))
        for line, content in enumerate(text.split("\n"), 1):
            yield Text(str(path.relative_to(root)), line, content)
    for path in sorted((root / "src").rglob("*.py")):
        yield from _prose_of_module(str(path.relative_to(root)), path.read_text(encoding="utf-8"))


def _prose_of_module(path: str, source: str) -> Iterator[Text]:
    tree = ast.parse(source)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                docstrings.add(id(first.value))
                yield Text(path, first.value.lineno, _QUOTED.sub(" ", first.value.value), opens=True)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or type(node.value) is not str or id(node) in docstrings:
            continue
        if " " in node.value.strip():
            yield Text(path, node.lineno, _QUOTED.sub(" ", node.value))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(path, token.start[0], _QUOTED.sub(" ", token.string))


def count(root: Path, under: str = "") -> tuple[Counter[str], Counter[str], list[tuple[str, Text]]]:
    """Return the counts by word, the docstrings by the word they open with, and every place of a word."""
    literals = tomllib.loads(LITERALS.read_text(encoding="utf-8")) if LITERALS.exists() else {}
    patterns = {word: re.compile(rf"\b({pattern})\b", re.I) for word, pattern in WORDS.items()}
    exempt = {
        word: re.compile("|".join(f"(?:{each})" for each in found["phrases"]), re.I) for word, found in literals.items()
    }
    words: Counter[str] = Counter()
    openings: Counter[str] = Counter()
    places: list[tuple[str, Text]] = []
    for text in prose_of(root):
        if not text.path.startswith(under):
            continue
        for word, pattern in patterns.items():
            content = exempt[word].sub(" ", text.text) if word in exempt else text.text
            found = len(pattern.findall(content))
            words[word] += found
            places += [(word, text)] * bool(found)
        if text.opens and (opening := re.match(OPENINGS, text.text.strip())):
            openings[opening[1]] += 1
            places.append((f"opens with {opening[1]}", text))
    return words, openings, places


def _print_passages(before: Path, number: int, seed: int) -> None:
    """Print random paragraphs, docstrings, comments and strings that another checkout does not have."""
    known = {" ".join(text.text.split()) for text in prose_of(before)}
    changed = [text for text in prose_of(ROOT) if len(text.text.split()) > 3]
    changed = [text for text in changed if " ".join(text.text.split()) not in known]
    for text in sorted(Random(seed).sample(changed, min(number, len(changed)))):
        print(f"{text.path}:{text.line}: {' '.join(text.text.split())}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.prose_counts", description=__doc__.split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument("--under", default="", help="count only files whose path begins like this")
    parser.add_argument("--word", help='print every place of this word, or of "opens"')
    parser.add_argument("--passages", type=int, default=0, help="print this many random texts that --before lacks")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choice")
    options = parser.parse_args()
    if options.passages:
        if not options.before:
            parser.error("--passages needs --before")
        _print_passages(options.before, options.passages, options.seed)
        return
    words, openings, places = count(ROOT, options.under)
    if options.word:
        for word, text in places:
            if word == options.word or word.startswith(options.word + " with"):
                print(f"{text.path}:{text.line}: {' '.join(text.text.split())[:200]}")
        return
    before, opened, _ = count(options.before, options.under) if options.before else (Counter(), Counter(), [])
    for word, number in words.most_common():
        old = f"{before[word]:7,}" if options.before else ""
        above = " above a tenth" if options.before and number * BY_TENTH > before[word] else ""
        print(f"{word:22}{old}{number:7,}{above}")
    for word, number in openings.most_common():
        print(f"docstring opens with {word:8}{opened[word] if options.before else '':>7}{number:7,}")
    print(f"{'all words':22}{sum(before.values()) if options.before else '':>7}{sum(words.values()):7,}")


if __name__ == "__main__":
    main()
