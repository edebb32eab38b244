"""Report generated pages that are not current, or rewrite them with --write."""

from __future__ import annotations

import sys

from website.reference import WRITE, stale, write

if sys.argv[1:] == ["--write"]:
    print("\n".join(f"Wrote docs/{name}" for name in write()) or "All generated pages are current.")
elif sys.argv[1:]:
    sys.exit(f"unknown arguments: {' '.join(sys.argv[1:])}; the only option is --write")
elif pages := stale():
    sys.exit(f"not current: {', '.join(f'docs/{name}' for name in pages)}; run {WRITE}")
else:
    print("All generated pages are current.")
