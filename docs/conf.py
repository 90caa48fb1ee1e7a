"""Makes the HTML pages of this folder: sphinx-build -n -W docs build/html

Needs Debian's python3-sphinx, python3-sphinx-copybutton, python3-myst-parser and furo (packaging/packages-test.txt).
The pages stay plain Markdown: a code host shows them too.
"""

import os
import pathlib
import re

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent

project = "horovodrun"
author = copyright = "the horovodrun authors"
version = release = re.search(r"project\(\w+\s+VERSION\s+([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]

extensions = ["myst_parser", "sphinx_copybutton"]
# A page that moved is one line, `Moved to [Title](page.md#anchor).`, for one release: the site sends its readers on.
MOVED = {
    page.stem: found[1]
    for page in DOCS.glob("*.md")
    if (found := re.fullmatch(r"Moved to \[.*\]\((\S+)\)\.\n", page.read_text(encoding="utf-8")))
}
exclude_patterns = ["README.md", "design/README.md", *(f"{page}.md" for page in MOVED)]

# The sidebar: four groups of at most nine pages, and the pages below one. A title of its own comes before <page>.
SIDEBAR = {
    "Begin": [
        "installing",
        "PyTorch <tutorials/pytorch>",
        "TensorFlow <tutorials/tensorflow>",
        "JAX <tutorials/jax>",
        "MXNet <tutorials/mxnet>",
        "Hugging Face, Lightning <tutorials/huggingface>",
        "Two machines <tutorials/two-machines>",
        "Coming from Horovod, torchrun, mpirun <migration-from-horovod>",
    ],
    "How to": [
        "Environments and packages <environments>",
        "Slurm and other schedulers <schedulers>",
        "Kubernetes <tutorials/kubernetes>",
        "networks",
        "gpus",
        "Data, checkpoints, clipping <data-and-checkpoints>",
        "torch.distributed, DDP, FSDP2 <torch-distributed>",
        "elastic",
        "Hangs, stalls, slow ranks <observe>",
    ],
    "Reference": [
        "Troubleshooting, exit codes <troubleshooting>",
        "cheat-sheet",
        "settings",
        "Output and input <output>",
        "Inspecting, debugging <inspection>",
        "metrics",
        "api/README",
        "C and C++ <c-api>",
        "how-a-job-runs",
    ],
    "For maintainers": [
        "performance",
        "architecture",
        "thread-model",
        "glossary",
    ],
}
BELOW = {
    "installing": ["support-matrix", "third-party-licenses"],
    "tutorials/tensorflow": ["Keras <tutorials/keras>"],
    "migration-from-horovod": ["migration"],
    "schedulers": ["Slurm <tutorials/slurm>", "LSF, PBS, SGE <tutorials/batch-schedulers>"],
    "tutorials/kubernetes": ["Containers <tutorials/containers>", "Notebook <tutorials/notebook>"],
    "networks": ["rendezvous", "security"],
    "data-and-checkpoints": ["unequal-work", "correctness", "process-sets"],
    "torch-distributed": ["torch-distributed-reference", "mixing", "frameworks-and-launchers"],
    "gpus": ["binding", "doctor"],
    "settings": ["config-file"],
    "output": ["json-output"],
    "metrics": ["tracking", "timeline"],
    "api/README": [
        f"api/{name}" for name in ("torch", "tensorflow", "tensorflow.keras", "keras", "mxnet", "jax", "numpy")
    ],
    "c-api": ["First program in C <tutorials/c>", "plugin-abi", "rendezvous-protocol"],
    "performance": ["design/performance-log"],
}
# Words that users search for, and the page and heading that the search names first for them.
SEARCHED = {
    "autotune": "performance#autotuning",
    "bind-to": "binding",
    "breakpoint": "inspection#a-debugger-in-one-rank",
    "checkpoint": "data-and-checkpoints#checkpoints",
    "conda": "environments#conda",
    "ddp": "torch-distributed",
    "deadlock": "observe#does-it-hang",
    "deepspeed": "mixing#deepspeed",
    "detach": "output#jobs-in-the-background",
    "docker": "tutorials/containers",
    "elastic": "elastic",
    "encrypt": "networks#networks-and-ports",
    "environment variable": "environments#environment-of-the-ranks",
    "firewall": "networks#networks-and-ports",
    "fsdp": "torch-distributed",
    "hang": "observe#does-it-hang",
    "heartbeat": "networks#a-host-that-does-not-answer",
    "jupyter": "tutorials/notebook",
    "killed": "troubleshooting#exit-codes",
    "kubernetes": "tutorials/kubernetes",
    "nccl": "gpus",
    "no module": "environments#when-it-fails",
    "no module named": "environments#when-it-fails",
    "oom": "troubleshooting#exit-codes",
    "out of memory": "troubleshooting#exit-codes",
    "permission denied": "troubleshooting#before-ranks-start",
    "port": "networks#networks-and-ports",
    "requirements.txt": "environments#packages-of-the-ranks",
    "sigterm": "inspection#signals",
    "slow": "observe#who-is-slow",
    "ssh": "networks#how-the-launcher-reaches-hosts",
    "stall": "observe#stalls",
    "stdin": "output#standard-input",
    "straggler": "observe#who-is-slow",
    "stuck": "observe#does-it-hang",
    "timeout": "networks#time-limits-of-the-start",
    "zombie": "how-a-job-runs#when-a-process-of-the-job-is-killed",
}

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = f"horovodrun {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False
smartquotes = False  # "--" is the beginning of a flag


def toctree(pages, caption=""):
    pages = [re.sub(r"(^|<)(?=[^<>]*>?$)", r"\1/", page) for page in pages]
    options = [f":caption: {caption}"] if caption else []
    return "\n".join(["", "```{toctree}", *options, ":hidden:", "", *pages, "```", ""])


def add_sidebar(app, page, source):
    """Adds the list of the pages below a page, which a code host would show as text."""
    if page == "index":
        source[0] += "".join(toctree(pages, caption) for caption, pages in SIDEBAR.items())
    source[0] += toctree(BELOW[page]) if page in BELOW else ""


def send_readers_on(app, failure):
    """Writes a page for each that moved, which leads to its new place."""
    for page, target in MOVED.items() if failure is None and app.builder.name == "html" else ():
        place = target.replace(".md", ".html")
        pathlib.Path(app.outdir, f"{page}.html").write_text(
            f'<!doctype html><meta charset="utf-8"><title>Moved</title>'
            f'<meta http-equiv="refresh" content="0; url={place}"><link rel="canonical" href="{place}">'
            f'<p>Moved to <a href="{place}">{place}</a>.</p>\n',
            encoding="utf-8",
        )


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


def add_searched(app, doctree):
    """Puts the words of SEARCHED into the index of the search, which ranks them above words of the text."""
    for word, place in SEARCHED.items():
        page, _, anchor = place.partition("#")
        if page == app.env.docname:
            # A heading that is gone would be a link to nowhere.
            if anchor and anchor not in {each for section in doctree.findall(nodes.section) for each in section["ids"]}:
                logging.getLogger(__name__).warning("conf.py: SEARCHED: there is no %s", place)
            entry = ("single", word, anchor or doctree.next_node(nodes.section)["ids"][0], "", None)
            doctree.insert(0, addnodes.index(entries=[entry]))


def shorten_differences(app, doctree):
    """Names the files of a difference by their last part: literalinclude writes the paths of this machine."""
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") == "udiff":
            text = re.sub(r"(?m)^(---|\+\+\+) \S*/", r"\1 ", block.astext())
            block.children = [nodes.Text(text)]


def setup(app):
    app.connect("source-read", add_sidebar)
    app.connect("doctree-read", add_searched)
    app.connect("build-finished", send_readers_on)
    # Before Sphinx collects downloads, which is also done by this event.
    app.connect("doctree-read", offer_sources, priority=400)
    app.connect("doctree-read", shorten_differences)
