"""Configuration of Sphinx, which builds the site from the pages in this folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

# Autodoc imports all of the library; on a busy machine threads of BLAS would only be in the way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from sphinx.domains.python import PyObject

import rookery

ROOT = Path(__file__).resolve().parent.parent

project = "rookery"
author = "rookery developers"
project_copyright = "rookery developers"
version = release = rookery.__version__
html_title = f"rookery {version}"
exclude_patterns = ["pictures", "_static"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]

# ---------------------------------------------------------------- pages in Markdown

# Anchors as code hosts make them, so that a link holds in both.
myst_heading_anchors = 4
myst_links_external_new_tab = False

# ---------------------------------------------------------------- the reference, from docstrings

default_role = "any"
nitpicky = True
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the text says dtype and shape
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

# Types of other projects, which no page here describes, and no page is fetched while building.
nitpick_ignore_regex = [
    ("py:.*", r"(collections|gymnasium|np|npt|numpy|pathlib|stable_baselines3|torch|typing)\..*")
]
# Types in signatures of public names that the reference does not describe.
nitpick_ignore = [
    ("py:class", name)
    for name in (
        "rookery.env.recipe.EnvRecipe",
        "rookery.learn.config.AdvantageConfig",
        "rookery.learn.config_base.C",
        "rookery.learn.parallel.peers.Peers",
        "rookery.policy.actions.ActionLayout",
        "rookery.policy.network_policy.NetworkPolicy",
        "rookery.policy.numpy.numpy_policy.NetworkSpec",
        "rookery.rollout.normalize.BatchMoments",
        "rookery.run.algorithms.OwnModules",
        "rookery.run.log.history.History",
        "rookery.testing.difference.Difference",
        # Seen by type checkers only, so autodoc has no more of them than the name.
        "AutoresetMode",
        "EnvSource",
        "Gather",
        "NoiseState",
        "ObservationMode",
        "Path",
        "Wrapper",
    )
]

# ---------------------------------------------------------------- looks

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"

# What cannot be read as Python in a signature, which would leave all of it as it is.
_UNREADABLE = [
    (re.compile(r"<function \S*<lambda>>|<factory>"), "..."),
    (re.compile(r"<function (?:\w+\.)*(\w+)>"), r"\1"),
    (re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[(.+?)\]\]"),
     r"~numpy.typing.NDArray[\1]"),
]  # fmt: skip
_PAGE = re.compile(r"docs/(\w+)\.md")
_FOLDER_LINK = re.compile(r"\[([^][]+)\]\((\.\.?/[^()#\s]+)\)")


def _readable(
    app: Any,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Shorten what types and defaults of a signature are written as."""
    texts = [signature, returns]
    for pattern, short in _UNREADABLE:
        texts = [text and pattern.sub(short, text) for text in texts]
    return texts[0], texts[1]


def _without_links_to_folders(app: Any, docname: str, source: list[str]) -> None:
    """Leave the words of links to folders: a code host shows a folder, the site has none."""
    here = (Path(app.srcdir) / docname).parent

    def words(link: re.Match[str]) -> str:
        return link[1] if (here / link[2]).is_dir() else link[0]

    source[0] = _FOLDER_LINK.sub(words, source[0])


def _with_links_to_pages(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Make ``docs/metrics.md`` in a docstring a link to that page."""
    lines[:] = [_PAGE.sub(r":doc:`/\1`", line) for line in lines]


def setup(app: Any) -> None:
    """Let Sphinx call what is above."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"  # as they are called in the docstrings
    app.connect("autodoc-process-docstring", _with_links_to_pages)
    app.connect("autodoc-process-signature", _readable)
    app.connect("source-read", _without_links_to_folders)
