"""Imports happybase under `python -OO` too: thriftpy2 reads IDL by a grammar in docstrings, which Python drops then."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType


def import_happybase() -> None:
    """Import happybase, which makes the module `Hbase_thrift`."""
    finder = _GrammarFinder()
    sys.meta_path.insert(0, finder)
    try:
        import happybase  # noqa: F401
    finally:
        sys.meta_path.remove(finder)


class _GrammarFinder(MetaPathFinder):
    """Finds the modules of thriftpy2 that hold the grammar."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if sys.flags.optimize < 2 or name not in ("thriftpy2.parser.lexer", "thriftpy2.parser.parser"):
            return None
        found = PathFinder.find_spec(name, path)
        if found is not None and found.origin is not None:
            found.loader = _WholeLoader(name, found.origin)
        return found


class _WholeLoader(SourceFileLoader):
    """Compiles a module with its docstrings, whatever the options of this Python are."""

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True, optimize=0)
