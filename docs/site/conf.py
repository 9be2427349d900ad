"""How Sphinx makes the site: `make docs` runs it, with warnings as errors.

The source is the repository itself, so that pages and the links in them are the same there as where
the repository is read without a site.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

project = "torchcomms"
copyright = "torchcomms contributors"
version = release = (ROOT / "torchcomms" / "version.py").read_text().split('"')[-2]

extensions = ["myst_parser", "api_directive"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "benchmarks/README.md"]

myst_enable_extensions = ["fieldlist"]
myst_heading_anchors = 4  # so that links to headings are checked
suppress_warnings = [
    "myst.header",  # pages generated from docstrings have headings of their own
    "ref.python",  # the type `bytes` of Python is no attribute of that name of ours
]

html_theme = "furo"
html_title = f"torchcomms {version}"
html_show_sourcelink = False
templates_path = ["templates"]
html_additional_pages = {"index": "index.html"}  # the front page is docs/index
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
