"""Makes the HTML pages of this folder: sphinx-build -n -W docs build/html

Needs Debian's python3-sphinx, python3-sphinx-copybutton, python3-myst-parser and furo (packaging/packages-test.txt).
The pages stay plain Markdown: a code host shows them too.
"""

import os
import pathlib
import re

from docutils import nodes
from sphinx import addnodes

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent

project = "horovodrun"
author = copyright = "the horovodrun authors"
version = release = re.search(r"project\(\w+\s+VERSION\s+([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]

extensions = ["myst_parser", "sphinx_copybutton"]
# README.md is the list of pages for readers of the source tree; index.md is that of the site.
exclude_patterns = ["README.md", "design/README.md"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = f"horovodrun {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
smartquotes = False  # "--" is the beginning of a flag


def offer_sources(app, doctree):
    """Turns a link to a Markdown file of the source tree into a download; myst_parser does so for other files."""
    folder = pathlib.Path(app.env.doc2path(app.env.docname)).parent
    for link in list(doctree.findall(addnodes.pending_xref)):
        path = (folder / link["reftarget"]).resolve()
        # Version 5 of myst_parser takes it for a page of the site, whose name has no suffix.
        if link.get("refdomain") == "doc" and not path.is_file():
            path = path.with_name(f"{path.name}.md")
        if link.get("reftype") == "myst" and DOCS not in path.parents and path.is_file():
            target = f"/{os.path.relpath(path, DOCS)}"
            link.replace_self(addnodes.download_reference("", "", *link.children, reftarget=target))


def shorten_differences(app, doctree):
    """Names the files of a difference by their last part: literalinclude writes the paths of this machine."""
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") == "udiff":
            text = re.sub(r"(?m)^(---|\+\+\+) \S*/", r"\1 ", block.astext())
            block.children = [nodes.Text(text)]


def setup(app):
    # Before Sphinx collects downloads, which is also done by this event.
    app.connect("doctree-read", offer_sources, priority=400)
    app.connect("doctree-read", shorten_differences)
