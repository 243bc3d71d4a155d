"""Which module of structable imports which, read from the source: imports for type checkers and in functions count."""

import ast
from collections.abc import Collection
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOP = ("spi", "access", "testing", "backends", "migrations", "datasets", "spark_bridge", "cli")


def modules() -> dict[str, Path]:
    """Return the path of each module, by its name without `structable`: `spi.rows`, `cli` for a package."""
    found = {}
    for top in TOP:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def import_graph() -> dict[str, set[str]]:
    """Return the modules that each module imports by name.

    `from package import name` is an import of the submodule where there is one, else of the package.
    """
    paths = modules()
    return {module: _imports(module, path, paths.keys()) - {module} for module, path in paths.items()}


def _imports(module: str, path: Path, known: Collection[str]) -> set[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join(["structable", *parents, *([node.module] if node.module else [])])
            names += [f"{base}.{alias.name}" for alias in node.names]
    found = set()
    for name in names:
        inner = name.removeprefix("structable.")
        if inner == name:
            continue
        while inner and inner not in known:
            inner = inner.rpartition(".")[0]
        found.add(inner)
    return found - {""}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components of more than one module (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for imported in sorted(graph[module]):
            if imported not in number:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in stack:
                lowest[module] = min(lowest[module], number[imported])
        if lowest[module] == number[module]:
            component = set(stack[stack.index(module) :])
            del stack[stack.index(module) :]
            if len(component) > 1:
                found.append(component)

    for module in graph:
        if module not in number:
            visit(module)
    return found
