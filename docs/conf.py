"""The site of the documentation: `make docs` builds it into outputs/docs, and every warning is an error.

Sphinx reads from the root of the checkout, so that links between folders are the same here and on a code host. The
first page is outputs/docs/docs/index.html.
"""

import logging
import re
from pathlib import Path

import fairseq_luna.models  # before autodoc reads modules of fairseq that it patches

logging.getLogger("markdown_it").setLevel(logging.WARNING)  # importing fairseq makes every logger print

project = "fairseq_luna"
release = fairseq_luna.__version__
copyright = "fairseq_luna contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["docs/*.md", "research/*.md", "examples/*/README.md", "CONTRIBUTING.md"]
exclude_patterns = [".*", "outputs", "demo", "tests", "build"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
html_theme = "furo"
html_title = f"fairseq_luna {release}"

TREE = """
```{{toctree}}
:hidden:
:caption: {}

{}
```
"""


def add_contents(app, document, source):
    """The contents at the side of every page: what the index links to, in its order, then recipes and studies."""
    if document == root_doc:
        guide = dict.fromkeys(re.findall(r"\]\(((?:\.\./)?\w+\.md)\)", source[0]))
        source[0] += TREE.format("Guide", "\n".join(guide))
        for caption, pages in (("Recipes", "examples/*/README.md"), ("Research", "research/*.md")):
            names = sorted(path.relative_to(app.srcdir).as_posix() for path in Path(app.srcdir).glob(pages))
            source[0] += TREE.format(caption, "\n".join(f"/{name}" for name in names))


def setup(app):
    app.connect("source-read", add_contents)
