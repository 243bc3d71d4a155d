"""A pipeline whose driver is killed after the commit of each step, before Spark's own, and started again."""

import json
from pathlib import Path

import pytest

from structable.spi import Storage, connect
from tests.postgresql.support.shared import Schema
from tests.spark.pipelines.support import pipeline_driver
from tests.spark.pipelines.support.pipeline_driver import ASKED, MET, ORDERS, PRODUCTS, PROFILES, VIEWS
from tests.spark.test_killed_streams import application

pytestmark = [pytest.mark.xdist_group("spark-applications"), pytest.mark.slow]

ARRIVALS: list[dict[str, list[dict[str, object]]]] = [
    {
        "changed": [{"id": "a", "name": "Ann"}, {"id": "b", "name": "Bob"}, {"id": "a", "name": "Anna"}],
        "viewed": [{"id": "a", "n": 1}, {"id": "c", "n": 2}, {"id": "b", "n": 3}],
        "asked": [{"n": 1, "place": 1}, {"n": 2, "place": 2}],
        "ordered": [{"id": 1, "product": "a"}, {"id": 2, "product": "b"}],
        "priced": [{"product": "a", "title": "Apple"}],
        "shown": [{"ad": ad, "at": "2024-01-01T10:00:00Z", "place": 1} for ad in "xy"],
        "clicked": [{"ad": "x", "clicked": "2024-01-01T10:01:00Z"}],
    },
    {
        "changed": [{"id": "c", "name": "Cid"}],
        "viewed": [{"id": "c", "n": 2}],
        "asked": [{"n": 2, "place": 3}, {"n": 3, "place": 4}],
        "ordered": [{"id": 3, "product": "a"}],
        "priced": [{"product": "a", "title": "Apples"}, {"product": "b", "title": "Bread"}],
        "shown": [{"ad": "z", "at": "2024-01-01T10:00:00Z", "place": 2}],
        "clicked": [{"ad": ad, "clicked": "2024-01-01T10:02:00Z"} for ad in "yz"],
    },
]
TABLES = ["asked", "met", "orders", "products", "profiles", "titled", "views"]


def arrive(folder: Path, number: int) -> None:
    for name, rows in ARRIVALS[number].items():
        hidden = folder / name / f".{number}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(folder / name / f"{number}.json")


def test_each_write_takes_effect_once_whenever_the_driver_is_killed(tmp_path: Path, postgresql_schema: Schema) -> None:
    for name in (*ARRIVALS[0], "sink"):
        (tmp_path / name).mkdir()
    urls = {"leveldb": f"leveldb://{tmp_path}/store", "postgresql": postgresql_schema.url}

    def run(killed_after: int) -> list[str]:
        settings: dict[str, object] = {"folder": str(tmp_path), **urls, "killed_after": killed_after}
        with application(pipeline_driver.__file__, **settings) as running:
            assert running.stdout is not None
            return [line.removeprefix("committed ").strip() for line in running.stdout]

    def rows(storage: Storage, table: str) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in storage.table(table).scan()]

    with connect(urls["leveldb"]) as local, connect(urls["postgresql"]) as server:
        for storage, specs in ((local, (VIEWS, ORDERS, MET)), (server, (PROFILES, ASKED, PRODUCTS))):
            for spec in specs:
                storage.admin.create(spec)
        arrive(tmp_path, 0)
        killed = [run(1) for _ in TABLES]
        assert sorted(killed) == [[table] for table in TABLES]
        assert run(1) == ["ended"]
        arrive(tmp_path, 1)
        assert sorted(run(0)) == sorted([*TABLES, "ended"])
        assert rows(server, "profiles") == [("a", "Anna"), ("b", "Bob"), ("c", "Cid")]
        assert rows(local, "views") == [(1, "a", "Anna"), (2, "c", "Cid"), (3, "b", "Bob")]
        assert rows(server, "asked") == [(1, 1, "Anna"), (2, 3, "Cid"), (3, 4, "Bob")]
        assert rows(server, "titled") == [(1, "Apples"), (2, "Bread"), (3, "Apples")]
        titles = [
            (str(change.kind), change.row["id"], change.row["title"]) for change in server.changes("titled").read()
        ]
        assert sorted(titles) == [
            ("+I", 1, "Apple"),
            ("+I", 2, "Bread"),
            ("+I", 3, "Apples"),
            ("+U", 1, "Apples"),
            ("-U", 1, "Apple"),
        ]
        assert rows(local, "met") == [("x", 1), ("y", 1), ("z", 2)]
    sunk = [json.loads(file.read_text()) for file in sorted((tmp_path / "sink").iterdir())]
    assert sunk == [[[1, 1, "Anna"], [2, 2, None]], [[2, 3, "Cid"], [3, 4, "Bob"]]]
