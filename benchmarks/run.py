"""Measure the speed promises, each against its raw floor: `make bench`, or `python benchmarks/run.py --only points`.

Times depend on the machine and its load; the promises are ratios. The method is in docs/performance.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import QUICK, Measurement, Scale

AREAS = {
    **{name: f"leveldb.{name}" for name in ("points", "bulk", "scans", "group_commit", "client", "queues", "shares")},
    "in-and-out": "in_and_out",
    **{
        name: name
        for name in (
            *(
                "merges",
                "feeds",
                "streams",
                "pipelines",
                "access",
                "joins",
                "datasets",
                "migrations",
                "messaging",
                "growth",
                "postgresql",
                "hbase",
            ),
            *("spark", "tpch", "memory", "workloads"),
        )
    },
}


class Area(Protocol):
    """A module of benchmarks."""

    def measure(self, folder: Path, scale: Scale) -> Iterable[Measurement]:
        """Measure, in an empty folder."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks named on the command line, or all."""
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=AREAS, metavar="NAME", help=f"one of {', '.join(AREAS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a file")
    parser.add_argument("--folder", type=Path, help="where databases are made, and removed (default: a temporary one)")
    parser.add_argument("--quick", action="store_true", help="few rows: proves that it runs, and measures nothing")
    parser.add_argument("--records", type=int, metavar="N", help="rows of the tables of whole programs")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else Scale()
    scale = replace(scale, records=options.records or scale.records)

    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(f"{_machine()}\n")
    found: list[Measurement] = []
    for area in options.only or AREAS:
        with console.status(f"measuring {area} ..."):
            measured = list(_measured(area, options.folder, scale))
        console.print(_table(area, measured))
        found += measured
    missed = [one for one in found if one.verdict not in ("", "met")]
    promised = sum(one.goal is not None for one in found)
    console.print(f"{promised - len(missed)} of {promised} goals met")
    if options.json:
        lines = [asdict(one) | {"verdict": one.verdict} for one in found]
        options.json.write_text(json.dumps({"machine": _machine(), "measurements": lines}, indent=2) + "\n")


def _measured(area: str, folder: Path | None, scale: Scale) -> Iterator[Measurement]:
    module: Area = importlib.import_module(f"benchmarks.{AREAS[area]}")
    with tempfile.TemporaryDirectory(prefix="structable-bench-", dir=folder) as place:
        yield from module.measure(Path(place), scale)


def _table(area: str, measured: Iterable[Measurement]) -> Table:
    table = Table(title=area, title_justify="left", title_style="bold")
    table.add_column("what")
    table.add_column("floor")
    for heading in ("floor us", "ours us", "ratio", "+-", "goal"):
        table.add_column(heading, justify="right")
    table.add_column("")
    found = list(measured)
    if any(one.note for one in found):
        table.add_column("")
    for one in found:
        plain = math.isnan(one.floor)
        table.add_row(
            one.name,
            one.against,
            "" if plain else f"{one.floor:,.3f}",
            f"{one.ours:,.0f} {one.unit}" if plain else f"{one.ours:,.3f}",
            "" if plain else f"{one.ratio:.2f}",
            "" if plain else f"{one.spread / 2:.0%}",
            "" if one.goal is None else f"{one.goal:.3g}",
            f"[red]{one.verdict}[/]" if one.verdict.startswith("missed") else one.verdict,
            *([one.note] if one.note else []),
        )
    return table


def _machine() -> str:
    packages = ("plyvel", "psycopg", "happybase", "numpy", "pyarrow", "pyspark")
    drivers = ", ".join(f"{name} {version(name)}" for name in packages)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{platform.platform()}, {os.cpu_count()} cores, load {load}, Python {platform.python_version()}, {drivers}"


if __name__ == "__main__":
    main()
