"""`STRUCTABLE_TEST_VARIANTS` leaves out variants of wide tests, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
WIDE = "tests/conformance/test_memory.py"
NARROW = "tests/ordered/test_key_codec.py"


def collected(*names: str, most: str = "") -> list[str]:
    environment = {**os.environ, "STRUCTABLE_TEST_VARIANTS": most}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *names]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [line for line in run.stdout.splitlines() if "::" in line]


def test_some_variants_of_wide_tests() -> None:
    every, some = collected(WIDE, NARROW), collected(WIDE, NARROW, most="2")
    assert set(some) < set(every)
    before, after = (Counter(name.partition("[")[0] for name in names) for names in (every, some))
    assert before.keys() == after.keys()
    for name, count in before.items():
        assert after[name] == (min(count, 2) if name.startswith(WIDE) else count)
    assert collected(WIDE, NARROW, most="2") == some


def test_named_tests_are_all_run() -> None:
    name = next(name for name in collected(WIDE) if name.endswith("]")).partition("[")[0]
    assert collected(name, most="1") == collected(name) != []
