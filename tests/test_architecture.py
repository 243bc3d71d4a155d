"""The core stands on the standard library alone, rooms are imported in one direction, and no import goes in a circle.

The arrows between the folders at the top are import-linter's (`make lint`).
"""

import ast
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.module_graph import TOP, circles, import_graph, modules

SPI = Path(__file__).parent.parent / "spi"
MODULES = sorted(SPI.rglob("*.py"))

MIGRATIONS = sorted((SPI.parent / "migrations").glob("*.py"))

# The other rooms of its folder that each room may import. Modules beside the rooms join them, and belong to none.
# docs/architecture.md has the drawing.
ROOMS = {
    "backends.hbase": {
        "thrift": set(),
        "txn": {"thrift"},
        "upkeep": {"thrift", "txn"},
    },
    "backends.leveldb": {
        "protocol": set(),
        "native": set(),
        "owner": {"native", "protocol"},
        "client": {"protocol"},
    },
    "backends.ordered": {
        "engine": set(),
        "codec": {"engine"},
        "schema": {"engine", "codec"},
        "arrow": {"engine", "codec", "schema"},
        "scan": {"engine", "codec", "schema", "arrow"},
        "feeds": {"engine", "codec", "schema", "arrow", "scan"},
        "jobs": {"engine", "codec", "schema", "arrow"},
    },
    "backends.postgresql": {
        "driver": set(),
        "sql": {"driver"},
        "feeds": {"driver", "sql"},
        "schema": {"driver", "sql", "feeds"},
        "txn": {"driver", "sql", "feeds", "schema"},
        "bulk": {"driver", "sql", "feeds", "schema"},
        "changes": {"driver", "sql", "feeds", "schema", "bulk"},
    },
    "cli": {
        "language": set(),
        "formats": {"language"},
        "commands": {"language", "formats"},
    },
    "datasets": {
        "records": set(),
        "tables": {"records"},
        "coordination": {"records", "tables"},
        "secrets": set(),
        "system": {"records", "tables", "coordination", "secrets"},
        "messaging": {"records", "tables", "coordination", "system"},
        "jobs": {"tables", "coordination", "system"},
        "commands": {"tables", "system", "messaging", "jobs"},
        "revisions": set(),
    },
    "spark_bridge": {
        "base": set(),
        "jvm": {"base"},
        "coordinator": {"base", "jvm"},
        "read": {"base", "jvm", "coordinator"},
        "write": {"base", "coordinator"},
        "stream": {"base", "coordinator", "read", "write"},
        "catalog": {"base", "jvm", "coordinator", "read", "write"},
        "joins": {"base", "jvm", "coordinator", "write"},
        "pipelines": {"base", "coordinator", "read", "write", "joins"},
    },
}

MOST_LINES = 400


class Imports(ast.NodeVisitor):
    """The top-level names of a module's imports at run time."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Import(self, node: ast.Import) -> None:
        self.names |= {alias.name.partition(".")[0] for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module is not None:
            self.names.add(node.module.partition(".")[0])

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.relative_to(SPI).as_posix())
def test_spi_imports_the_standard_library_only(module: Path) -> None:
    allowed = {"structable", *sys.stdlib_module_names}
    if module.name.startswith("_arrow") or module.name in ("_load_job.py", "_loading.py"):
        allowed.add("pyarrow")  # loaded with the first batch, as a test below shows
    if module.name in ("_arrow_tables.py", "_frames.py"):
        allowed |= {"pandas", "polars"}  # only by `to_pandas` and `to_polars`
    if module.name == "_metering.py":
        allowed.add("opentelemetry")  # only where the program has loaded it
    imports = Imports()
    imports.visit(ast.parse(module.read_text(encoding="utf-8")))
    assert imports.names <= allowed


def test_others_import_the_public_modules_of_spi_alone() -> None:
    public = {"spi.arrow", "spi.authors", "spi.errors", "spi.text"}
    found = {
        (module, other)
        for module, imported in import_graph().items()
        for other in imported - public
        if other.startswith("spi.") and module.partition(".")[0] != "spi"
    }
    private = re.compile(r"structable\.spi\._[a-z]")
    for folder in ("docs", "examples", "benchmarks"):
        for file in (SPI.parent / folder).rglob("*.[mp][dy]"):
            found |= {(str(file), name) for name in private.findall(file.read_text(encoding="utf-8"))}
    assert found == set()


@pytest.mark.parametrize("module", MIGRATIONS, ids=lambda module: module.name)
def test_migrations_import_the_standard_library_only(module: Path) -> None:
    imports = Imports()
    imports.visit(ast.parse(module.read_text(encoding="utf-8")))
    assert imports.names <= {"structable", *sys.stdlib_module_names}


def test_memory_store_works_without_any_third_party_module() -> None:
    program = """
import sys
before = set(sys.modules)
from structable.spi import Field, TableSpecification, connect
with connect("memory://") as storage:
    storage.admin.create(TableSpecification("t", [Field.string("k"), Field.int("v")], primary_key=["k"], indexes=["v"]))
    storage.table("t").upsert({"k": "a", "v": 1})
    assert [dict(row) for row in storage.table("t").scan_index("v", 1)] == [{"k": "a", "v": 1}]
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - sys.stdlib_module_names - {"structable"}))
"""
    run = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert run.stdout.split() == []


def test_no_import_goes_in_a_circle() -> None:
    assert circles(import_graph()) == []


@pytest.mark.parametrize("folder", ROOMS)
def test_rooms_are_imported_in_one_direction(folder: str) -> None:
    rooms = ROOMS[folder]
    paths = modules()
    wrong = set()
    for module, imported in import_graph().items():
        here = _room(folder, module, rooms)
        if here is not None:
            targets = {_room(folder, other, rooms) for other in imported} - {None, here} - rooms[here]
            wrong |= {(module, target) for target in targets}
    assert {
        name for name, path in paths.items() if path.name == "__init__.py" and name.rpartition(".")[0] == folder
    } == {f"{folder}.{room}" for room in rooms}
    assert wrong == set()


def _room(folder: str, module: str, rooms: Collection[str]) -> str | None:
    inner = module.removeprefix(f"{folder}.")
    room = inner.partition(".")[0]
    return room if inner != module and room in rooms else None


def test_no_module_is_long() -> None:
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in modules().items()}
    assert {name for name, count in lines.items() if count > MOST_LINES} == set()


_SHARED_NAMES = {
    # The same role in the ordered stores and in PostgreSQL, which never meet.
    "Catalog": {"ordered", "postgresql"},
    "FeedSource": {"ordered", "postgresql"},
    "JobCommit": {"ordered", "postgresql"},
    "JobRecord": {"ordered", "postgresql"},
    "ScanRows": {"ordered", "postgresql"},
    "TableBinding": {"ordered", "postgresql"},
    "WriteJobs": {"ordered", "postgresql"},
    # The option `--format` of three independent groups of shell commands.
    "Format": {"datasets", "migrations", "spark_bridge"},
}
"""The class names that stand for one thing in several folders."""


def test_each_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = {}
    for folder in TOP:
        for path in sorted((SPI.parent / folder).rglob("*.py")):
            parts = path.relative_to(SPI.parent).parts
            home = parts[1] if folder == "backends" else folder
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name.lstrip("_"), []).append(home)
    several = {name: sorted(homes) for name, homes in found.items() if len(homes) > 1}
    assert several == {name: sorted(homes) for name, homes in _SHARED_NAMES.items()}
