"""Build the site and print the address of its home page."""

from __future__ import annotations

import sys

from website.build import BuildError, build

try:
    home = build()
except BuildError as error:
    sys.exit(str(error))
print(f"The documentation is in {home.parent}. Open {home.as_uri()}")
