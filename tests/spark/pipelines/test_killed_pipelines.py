"""A pipeline whose driver is killed after the commit of each step, before Spark's own, and started again."""

import json
from pathlib import Path

import pytest

from structable.spi import Storage, connect
from tests.postgresql.support.shared import Schema
from tests.spark.pipelines.support import pipeline_driver
from tests.spark.pipelines.support.pipeline_driver import ASKED, PROFILES, VIEWS
from tests.spark.test_killed_streams import application

pytestmark = [pytest.mark.xdist_group("spark-applications"), pytest.mark.slow]

ARRIVALS: list[dict[str, list[dict[str, object]]]] = [
    {
        "changed": [{"id": "a", "name": "Ann"}, {"id": "b", "name": "Bob"}, {"id": "a", "name": "Anna"}],
        "viewed": [{"id": "a", "n": 1}, {"id": "c", "n": 2}, {"id": "b", "n": 3}],
        "asked": [{"n": 1, "place": 1}, {"n": 2, "place": 2}],
    },
    {
        "changed": [{"id": "c", "name": "Cid"}],
        "viewed": [{"id": "c", "n": 2}],
        "asked": [{"n": 2, "place": 3}, {"n": 3, "place": 4}],
    },
]


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
        local.admin.create(VIEWS)
        server.admin.create(PROFILES)
        server.admin.create(ASKED)
        arrive(tmp_path, 0)
        assert [run(1), run(1), run(1)] == [["profiles"], ["views"], ["asked"]]
        arrive(tmp_path, 1)
        assert run(0) == ["profiles", "views", "asked", "ended"]
        assert rows(server, "profiles") == [("a", "Anna"), ("b", "Bob"), ("c", "Cid")]
        assert rows(local, "views") == [(1, "a", "Anna"), (2, "c", "Cid"), (3, "b", "Bob")]
        assert rows(server, "asked") == [(1, 1, "Anna"), (2, 3, "Cid"), (3, 4, "Bob")]
    sunk = [json.loads(file.read_text()) for file in sorted((tmp_path / "sink").iterdir())]
    assert sunk == [[[1, 1, "Anna"], [2, 2, None]], [[2, 3, "Cid"], [3, 4, "Bob"]]]
