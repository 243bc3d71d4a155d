"""Folders of revisions that tests write."""

from __future__ import annotations

import textwrap
import uuid
from pathlib import Path

from structable.spi import Field, Storage, TableSpecification, Value

RUNS = TableSpecification(
    "runs",
    [
        Field.string("app"),
        Field.int("run"),
        Field.string("payload"),
        Field.string("state"),
        Field.int("attempts"),
    ],
    primary_key=["app", "run"],
    indexes=["state"],
)


class Scripts:
    """A folder of revisions, beside which functions can be put."""

    def __init__(self, place: Path) -> None:
        self.path = place / "revisions"
        self.path.mkdir(parents=True)
        self._module = f"functions_{uuid.uuid4().hex}"

    def add(self, slug: str, **functions: str) -> Path:
        """Write the next revision: the bodies of `up`, `contract` and `down`."""
        number = len(list(self.path.glob("*.py"))) + 1
        file = self.path / f"{number:04}_{slug}.py"
        self.write(file, **functions)
        return file

    def write(self, file: Path, **functions: str) -> None:
        bodies = [
            f"def {name}(op):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
            for name, body in functions.items()
        ]
        file.write_text('"""A revision."""\n\n\n' + "\n\n".join(bodies), encoding="utf-8")

    def function(self, source: str) -> str:
        """Write a module with functions beside the folder, and return its name."""
        (self.path.parent / f"{self._module}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        return self._module


def put_runs(storage: Storage, count: int, apps: int = 3) -> list[dict[str, Value]]:
    """Make the table with rows whose payload is a JSON document with the member `n`, but for every tenth."""
    storage.admin.create_or_update(RUNS)
    rows: list[dict[str, Value]] = [
        {
            "app": f"app{number % apps}",
            "run": number,
            "payload": "no JSON" if number % 10 == 9 else f'{{"n": {number}, "who": {{"name": "N{number}"}}}}',
            "state": "DONE" if number % 2 else "NEW",
            "attempts": number % 5,
        }
        for number in range(count)
    ]
    for begin in range(0, count, 1000):
        storage.table("runs").upsert_many(rows[begin : begin + 1000])
    return rows
