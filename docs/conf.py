"""The documentation site: `make docs` builds it from the pages as they are, and from the docstrings.

The source folder is the root of the repository, so that the links of the pages lead to the same places here and there.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PACKAGES = [
    "structable.spi",
    "structable.spi.authors",
    "structable.spi.arrow",
    "structable.spi.text",
    "structable.access",
    "structable.datasets",
    "structable.datasets.jobs",
    "structable.datasets.messaging",
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


def setup(app: Sphinx) -> None:
    """Show autodoc the names that a package imports on first use, and read its docstrings by the hook below."""
    for name in PACKAGES:
        package = import_module(name)
        for export in package.__all__:
            vars(package).setdefault(export, getattr(package, export))
    app.add_lexer("mermaid", TextLexer)  # shown as text
    app.connect("autodoc-process-docstring", markdown_backticks)


def markdown_backticks(app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
    """Let a letter follow a name in backticks, as in the plural of a class, which reStructuredText does not take."""
    lines[:] = [re.sub(r"(`[^`]+`)(\w?)", _apart, line) for line in lines]


def _apart(found: re.Match[str]) -> str:
    return rf"{found[1]}\ {found[2]}" if found[2] else found[1]
