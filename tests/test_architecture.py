"""The core stands on the standard library alone. The arrows between the folders are import-linter's (`make lint`)."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SPI = Path(__file__).parent.parent / "spi"
MODULES = [module for module in sorted(SPI.rglob("*.py")) if SPI / "conformance" not in module.parents]


class Imports(ast.NodeVisitor):
    """The top-level names of what a module imports at run time."""

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
    if module.name == "arrow.py":
        allowed.add("pyarrow")  # loaded when a batch is first asked for, as the next test shows
    imports = Imports()
    imports.visit(ast.parse(module.read_text(encoding="utf-8")))
    assert imports.names <= allowed


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
