"""A process that ends while it reads a split ends cleanly, in whatever order the interpreter collects its objects."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from structable.spi import Field, TableSpecification, connect

storage = connect(sys.argv[1])
storage.admin.create(TableSpecification("t", fields=[Field.long("k"), Field.string("s")], primary_key=["k"]))
storage.table("t").upsert_many({"k": number, "s": "x" * 100} for number in range(20_000))
plan = storage.plan_scan("t", splits=2)
open_to_the_end = storage.read_split(plan.splits[0])
print(next(open_to_the_end).num_rows > 0, flush=True)
"""


def test_a_process_that_ends_amid_a_split(tmp_path: Path) -> None:
    run = [sys.executable, "-c", PROGRAM, f"leveldb://{tmp_path}/store?durability=process"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
