"""The documentation is true: its code runs, its links lead somewhere, and it names every public export."""

import dataclasses
import inspect
import re
import uuid
from pathlib import Path

import pytest

import structable.access
import structable.migrations
import structable.spark_bridge.pipelines
import structable.spi
import structable.spi.arrow
import structable.spi.authors
import structable.spi.text
from structable.spi import Capabilities
from tests.module_graph import TOP
from tests.page_code import ROOT, blocks_of, page_name, run_blocks

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
ON_EVERY_STORE = [ROOT / "README.md", ROOT / "docs" / "table-types.md", ROOT / "docs" / "change-feeds.md"]
"""Pages whose code runs in memory, as they show it, and on all other stores."""

LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_code(page, page.read_text(encoding="utf-8"))


def run_code(page: Path, text: str) -> None:
    # A named store in memory lives as long as the process, which runs the page several times.
    text = text.replace("memory://replica", f"memory://{uuid.uuid4().hex}")
    run_blocks(page, [block for block in blocks_of(text) if block.language == "python" and not block.how])


@pytest.mark.parametrize("store", ["leveldb", "postgresql", "hbase"])
@pytest.mark.parametrize("page", ON_EVERY_STORE, ids=page_name)
def test_code_runs_on_every_store(
    page: Path, store: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"leveldb://{tmp_path}/store" if store == "leveldb" else request.getfixturevalue(f"{store}_url")
    text = page.read_text(encoding="utf-8")
    assert 'connect("memory://")' in text
    run_code(page, text.replace('connect("memory://")', f"connect({url!r})"))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_to_files(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


PUBLIC = (
    structable.spi,
    structable.spi.authors,
    structable.spi.arrow,
    structable.spi.text,
    structable.migrations,
    structable.access,
    structable.spark_bridge.pipelines,
)
EXPORTS = {name: getattr(module, name) for module in PUBLIC for name in module.__all__}


@pytest.mark.parametrize("name", EXPORTS)
def test_public_export_has_docstrings(name: str) -> None:
    export = EXPORTS[name]
    if not (inspect.isclass(export) or inspect.isroutine(export)):
        return  # a constant or a type alias; the page below explains it
    assert export.__doc__, f"{name} has no docstring"
    assert not export.__doc__.startswith(f"{name}("), f"{name} has only the docstring that dataclasses make"
    bare = [
        member
        for member, value in inspect.getmembers_static(export)
        if inspect.isclass(export)
        and not member.startswith("_")
        and isinstance(value, (property, staticmethod, classmethod)) | inspect.isroutine(value)
        and not inspect.getdoc(getattr(export, member))
    ]
    assert bare == [], f"{name} has members without docstrings"


def test_docs_name_every_public_export() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent != ROOT)
    missing = [name for name in EXPORTS if not re.search(rf"\b{name}\b", text)]
    assert missing == [], "docs/*.md do not name these exports"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_tables_are_whole(page: Path) -> None:
    """A blank line would split a table in two and show the second part as text."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = text.splitlines()
    first = [
        number for number, line in enumerate(lines) if line.startswith("|") and not lines[number - 1].startswith("|")
    ]
    assert [lines[number] for number in first if not re.match(r"\|( *:?-+:? *\|)+$", lines[number + 1])] == []


def test_nothing_installs_structable_by_its_bare_name() -> None:
    """No index has structable yet: pip would install what somebody else publishes under the name."""
    bare = re.compile(r"pip3? install(?:\s+|(?:[ \t]+[^\s`#]+)+?[ \t]+)['\"]?structable\b(?!-)")
    assert all(
        bare.search(f"pip install{one}") for one in (" structable", "\nstructable[hbase]", " -U x 'structable[a]'")
    )
    folders = (*TOP, "docs", "examples", "tools")
    files = [
        *PAGES,
        *(file for folder in folders for end in ("md", "py") for file in (ROOT / folder).rglob(f"*.{end}")),
    ]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    assert [found[0] for text in texts.values() for found in bare.finditer(text)] == []


def test_contributing_names_every_variable_of_the_tests() -> None:
    used = {
        name
        for folder in ("tests", "testing/conformance", "tools", ".ci")
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and file.suffix != ".pyc"
        for name in re.findall(r"\bSTRUCTABLE_TEST_[A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8", errors="replace"))
    }
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert sorted(name for name in used if name not in text) == []


def test_operations_names_every_logger() -> None:
    used = {
        name
        for folder in TOP
        for file in (ROOT / folder).rglob("*.py")
        for name in re.findall(r'getLogger\("?(.*?)"?\)', file.read_text(encoding="utf-8"))
    }
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert sorted(name for name in used if f"| `{name}` |" not in text) == []


def test_conformance_names_every_capability_and_every_module_of_rules() -> None:
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    rules = {file.stem for file in (ROOT / "testing" / "conformance").glob("*_rules.py")}
    capabilities = {field.name for field in dataclasses.fields(Capabilities)}
    assert sorted(name for name in rules | capabilities if f"`{name}`" not in text) == []
