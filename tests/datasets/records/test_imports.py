"""The datasets load no driver and nothing heavy, and name no backend."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import structable.datasets

HEAVY = ("plyvel", "psycopg", "happybase", "pyarrow", "numpy", "cryptography")


def test_import_loads_nothing_heavy() -> None:
    program = f"import sys, structable.datasets; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_backend_is_named() -> None:
    names = re.compile("memory|leveldb|postgresql|hbase", re.IGNORECASE)
    files = Path(structable.datasets.__file__).parent.rglob("*.py")
    assert [str(file) for file in files if names.search(file.read_text())] == []
