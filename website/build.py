"""Build the site into `build/docs`, unless the pages there are current.

A warning of Sphinx is an error: among others a link to a page, heading or file that does not exist, a page in no list
of `docs/index.md`, or a docstring that cannot be parsed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from website.layout import ROOT, ROOT_PAGES, SOURCES

OUT = ROOT / "build" / "docs"
_STAMP = ".inputs"
"""File with the hashes of everything that the pages were made from."""


class BuildError(Exception):
    """The site could not be built; the message has Sphinx's output."""


def build(out: Path = OUT) -> Path:
    """Return the home page of a site that is made from the present files."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out.parent / f"{out.name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests in several processes
        inputs, stamp = _hash(_inputs()), out / _STAMP
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != inputs + _hash(_linked(out)):
            shutil.rmtree(out, ignore_errors=True)
            run_sphinx(ROOT / "docs", out, out.with_name(f"{out.name}-doctrees"))
            stamp.write_text(inputs + _hash(_linked(out)), encoding="utf-8")
    return out / "index.html"


def run_sphinx(docs: Path, out: Path, work: Path) -> None:
    """Build the pages of `docs`; raise BuildError for any warning."""
    strict = ("-W", "--keep-going", "-n", "-q", "-E")
    folders = ("-c", str(ROOT / "website"), "-d", str(work), str(docs), str(out))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-b", "html", *strict, *folders],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise BuildError(f"{done.stdout}the site has errors; correct the lines above")


def _hash(paths: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in paths:
        found.update(str(path.relative_to(ROOT)).encode() + b"\0")
        found.update(hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"")
    return found.hexdigest()


def _inputs() -> Iterator[Path]:
    """Yield pages, their images, code with docstrings, and the code of the site."""
    yield from (ROOT / name for name in ("constraints.txt", *ROOT_PAGES.values()))
    for folder, suffixes in (("docs", ".md .svg"), ("website", ".py .css .js"), ("src", ".py")):
        yield from sorted(path for path in (ROOT / folder).rglob("*.*") if path.suffix in suffixes.split())


def _linked(out: Path) -> Iterator[Path]:
    """Yield the other files that have a page on a built site, because a page links to them."""
    pages = out / SOURCES
    yield from (ROOT / page.relative_to(pages).with_suffix("") for page in sorted(pages.rglob("*.html")))
