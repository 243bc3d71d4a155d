"""The documentation site: `make docs` builds it from the pages as they are, and from the docstrings.

The source folder is the root of the repository, so that the links of the pages lead to the same places here and there.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docutils.nodes import Element, TextElement
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

PACKAGES = [
    "structable.spi",
    "structable.spi.access",
    "structable.datasets",
    "structable.datasets.jobs",
    "structable.migrations",
    "structable.spark_bridge",
    "structable.spark_bridge.joins",
    "structable.spark_bridge.pipelines",
]
"""The public packages; docs/api has a page for each."""

project = "structable"
release = version = installed_version("structable")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**.md", "examples/*/README.md"]
exclude_patterns = [".*", "build"]  # folders that are not even searched

html_theme = "furo"
html_title = f"structable {release}"
html_copy_source = False
html_show_copyright = False
templates_path = ["site"]
html_additional_pages = {"index": "redirect.html"}  # the first page is docs/index.html

highlight_language = "text"  # of indented blocks
default_role = "py:obj"  # names in the backticks of docstrings are links where they name something public
myst_heading_anchors = 4
autodoc_typehints_format = "short"
napoleon_google_docstring = False
napoleon_use_ivar = True

_PUBLIC: dict[str, str] = {}
"""Full names of exports in the modules that define them, and in their public packages."""


def setup(app: Sphinx) -> None:
    """Import the public packages, and connect the two hooks below."""
    for name in PACKAGES:
        package = import_module(name)
        for export in package.__all__:
            found = getattr(package, export)
            vars(package).setdefault(export, found)  # autodoc does not see what is imported on first use
            module = getattr(found, "__module__", None)
            if module is not None:
                _PUBLIC.setdefault(f"{module}.{export}", f"{name}.{export}")
    app.connect("autodoc-process-docstring", markdown_backticks)
    app.connect("missing-reference", public_name)


def markdown_backticks(app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
    """Let a letter follow a name in backticks, as in the plural of a class, which reStructuredText does not take."""
    lines[:] = [re.sub(r"(?<!`)(`[^`]+`)(?=\w)", r"\1\\ ", line) for line in lines]


def public_name(app: Sphinx, env: BuildEnvironment, node: Element, content: TextElement) -> Element | None:
    """Resolve the name of a class in the module that defines it, as annotations have it, to its public name."""
    public = _PUBLIC.get(node.get("reftarget", ""))
    if public is None or node.get("refdomain") != "py":
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], public, node, content)
