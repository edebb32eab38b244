"""Configure Sphinx for the pages of `docs/`."""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

from levelcast.version import __version__  # noqa: E402 - the path comes first

project = "Levelcast"
version = release = __version__
project_copyright = ""
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "website.home",
    "website.repository",
    "website.diagrams",
    "website.docstrings",
]
root_doc = "index"
source_suffix = {".md": "markdown"}
highlight_language = "none"
smartquotes = False  # "--" is an option here, not a dash
pygments_style = "friendly"

html_theme = "furo"
html_title = "Levelcast"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = True

# Headings get the anchors that repository viewers give them, so one link works in both.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
autodoc_mock_imports = ["pyspark", "deltalake"]
# Annotations also name types of other packages, and types of this one without an entry in the reference.
nitpick_ignore_regex = [("py:class", ".*")]
# Repository viewers know more languages than Pygments, such as csv.
suppress_warnings = ["misc.highlighting_failure"]
