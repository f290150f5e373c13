"""The documentation site: `make docs` builds it from the pages of this folder, without network.

Pages are plain Markdown that reads well without being built. The order of the site is that of README.md here: each of
its sections is a part of the navigation, so that there is one list of pages and not two.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from fedseq import __version__

HERE = Path(__file__).parent
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:benchmarks|results)/[\w/-]+\.md)[^)]*\)")

project = "FedSeq"
author = "the FedSeq contributors"
release = __version__

extensions = ["myst_nb", "sphinx_copybutton"]
exclude_patterns = ["README.md"]  # index.md holds it

myst_heading_anchors = 4  # as on a repository's pages, links name headings
smartquotes = False  # --option is no dash
suppress_warnings = ["myst.header"]  # a page may start below the first level

# Notebooks are text; each is executed for every build, in a folder of its own, and a failing cell fails the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_render_markdown_format = "myst"  # what a cell shows may hold tables
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # else kernels warn of frozen modules

html_theme = "furo"
html_title = f"FedSeq {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\$ "
copybutton_prompt_is_regexp = True


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """The first page has the parts of README.md as navigation, a folder's README.md the other pages of its folder."""
    if docname == "index":
        for heading, pages in _sections((HERE / "README.md").read_text()):
            source[0] += _toctree(pages, f":caption: {heading}")
    elif docname.endswith("/README"):
        source[0] += _toctree(["*"], ":glob:")


def name_outside_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Pages in other folders of the repository are not on the site: where they are linked, their path stands."""
    source[0] = OUTSIDE.sub(r"\1 (`\2`)", source[0])


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """The headings of the reading order, each with the pages that its lines begin with."""
    parts = re.split(r"^## (.+)$", text, flags=re.M)[1:]
    for heading, part in zip(parts[::2], parts[1::2], strict=True):
        yield heading, re.findall(r"^- \[[^]]+\]\(([^)#]+)\.md\)", part, re.M)


def _toctree(pages: list[str], option: str) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", option, "", *pages, "```", ""])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", add_navigation)
    app.connect("source-read", name_outside_pages)
    return {"parallel_read_safe": True}
