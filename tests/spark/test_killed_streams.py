"""Streams whose driver is killed at any time and started again, beside a service that writes the same tables."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from structable.spi import Field, Storage, StructuredTable, TableSpecification, connect
from tests.postgresql.support.shared import Schema
from tests.quick_java import QUICK_JAVA
from tests.spark.support import faulty_tasks, streams_driver
from tests.spark.support.clusters import MASTER

pytestmark = pytest.mark.xdist_group("spark-applications")

RESTARTS = int(os.environ.get("STRUCTABLE_TEST_STREAM_RESTARTS", "1"))
KEYS = [f"k{number}" for number in range(8)]

SUMS = TableSpecification(
    "sums",
    [Field.string("k"), Field.long("rows"), Field.long("total")],
    ["k"],
    options={"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"},
)
PROFILES = TableSpecification(
    "profiles", [Field.string("k"), Field.long("latest"), Field.long("visits"), Field.string("made")], ["k"]
)
FOLLOWED = TableSpecification(
    "followed", [Field.string("k"), Field.long("n")], ["k"], options={"changelog-producer": "lookup"}
)
COPIED = TableSpecification("copied", FOLLOWED.fields, ["k"])


class Service:
    """Writes rows, files that arrive, and visits, until it is stopped."""

    def __init__(self, folder: Path, stores: dict[str, Storage], followed: Storage) -> None:
        self._folder = folder
        self._stores = stores
        self._followed = followed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.arrived: list[tuple[str, int]] = []
        self.visits: Counter[str] = Counter()
        self.failed: BaseException | None = None
        folder.mkdir()

    def __enter__(self) -> "Service":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            chance, number = random.Random(5), 0
            while not self._stopped.wait(0.05):
                number += 1
                if number % 20 == 0:
                    self._arrive([(chance.choice(KEYS), number * 10 + one) for one in range(chance.randrange(9))])
                self._write(chance, number)
        except BaseException as error:
            self.failed = error
            raise

    def _arrive(self, rows: list[tuple[str, int]]) -> None:
        name = f"{len(self.arrived):09}-{random.randrange(10**9)}"
        (self._folder / f".{name}").write_text("".join(json.dumps({"k": k, "n": n}) + "\n" for k, n in rows))
        (self._folder / f".{name}").rename(self._folder / f"{name}.json")
        self.arrived += rows

    def _write(self, chance: random.Random, number: int) -> None:
        key = chance.choice(KEYS)
        rows = self._followed.table("followed")
        if chance.random() < 0.2:
            rows.delete((key,))
        else:
            rows.upsert({"k": key, "n": number})
        self.visits[key] += 1
        for storage in self._stores.values():
            storage.run(lambda tx: visit(tx.table("profiles"), key))


def visit(profiles: StructuredTable, key: str) -> None:
    profiles.update({"k": key}, {"visits": 0, "made": "by default"})
    profiles.increment((key,), "visits")


@contextlib.contextmanager
def application(program: str | None, **settings: object) -> Iterator[subprocess.Popen[str]]:
    """Start an application; kill it with its executors at the end."""
    assert program is not None
    command = [sys.executable, program, json.dumps({"java": " ".join(QUICK_JAVA), **settings})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def run_to_the_end(settings: dict[str, object]) -> bool:
    """Run the streams until they have read all; a Python worker of Spark may start too late on a busy machine."""
    with application(streams_driver.__file__, **settings, stop_after=-1, ends=True) as running:
        assert running.stdout is not None
        return list(running.stdout)[-1:] == ["ended\n"]


@pytest.mark.slow
@pytest.mark.timeout(1200 + 120 * RESTARTS)  # the end may take three attempts on a busy machine
def test_streams_are_exact_whatever_is_killed(tmp_path: Path, postgresql_schema: Schema) -> None:
    urls = {"leveldb": f"leveldb://{tmp_path}/store", "postgresql": postgresql_schema.url}
    chance = random.Random(RESTARTS)
    with connect(urls["leveldb"]) as local, connect(urls["postgresql"]) as server:
        stores = {"leveldb": local, "postgresql": server}
        for storage in stores.values():
            storage.admin.create(SUMS)
            storage.admin.create(PROFILES)
        local.admin.create(FOLLOWED)
        server.admin.create(COPIED)
        settings: dict[str, object] = {
            "master": MASTER,
            "folder": str(tmp_path / "checkpoints"),
            "arrivals": str(tmp_path / "arrivals"),
            "stores": urls,
            "by_function": "postgresql",
            "source": urls["leveldb"],
            "copy": urls["postgresql"],
        }
        with Service(tmp_path / "arrivals", stores, local) as service:
            for _ in range(RESTARTS):
                lines, hangs = chance.randrange(1, 30), chance.random() < 0.5
                program = application(
                    streams_driver.__file__, **settings, stop_after=lines if hangs else -1, ends=False
                )
                with program as running:
                    assert running.stdout is not None
                    for number, line in enumerate(running.stdout, 1):
                        if line == "stopped\n" or (number == lines and not hangs):
                            break
        assert service.failed is None
        assert any(run_to_the_end(settings) for _ in range(3))
        rows, totals, latest = Counter[str](), Counter[str](), dict[str, int]()
        for key, number in service.arrived:
            rows[key] += 1
            totals[key] += number
            latest[key] = max(number, latest.get(key, 0))
        for storage in stores.values():
            sums = {row["k"]: (row["rows"], row["total"]) for row in storage.table("sums").scan()}
            assert sums == {key: (rows[key], totals[key]) for key in rows}
            profiles = {
                row["k"]: (row["latest"], row["visits"], row["made"]) for row in storage.table("profiles").scan()
            }
            assert profiles == {
                key: (latest.get(key), service.visits[key], "by default") for key in {*latest, *service.visits}
            }
        copied = [dict(row) for row in server.table("copied").scan()]
        assert copied == [dict(row) for row in local.table("followed").scan()]


@pytest.mark.slow
def test_tasks_that_fail_after_staging_count_once(tmp_path: Path, postgresql_schema: Schema) -> None:
    """An attempt that fails, a speculative twin, a killed executor."""
    urls = {"leveldb": f"leveldb://{tmp_path}/store", "postgresql": postgresql_schema.url}
    for url in urls.values():
        with connect(url) as storage:
            storage.admin.create(SUMS)
    folder = str(tmp_path / "folder")
    with application(faulty_tasks.__file__, master=MASTER, folder=folder, stores=urls) as running:
        assert running.stdout is not None
        told = [line.strip() for line in running.stdout]
    assert told == [*(f"{store} None ['checkpoint', 'killed', 'twin']" for store in urls), "ended"]
    for url in urls.values():
        with connect(url) as storage:
            sums = {row["k"]: (row["rows"], row["total"]) for row in storage.table("sums").scan()}
        written = sum(int(str(rows)) for rows, _ in sums.values())
        expected: dict[object, tuple[object, object]] = {}
        for key in range(7):
            values = range(key, written, 7)
            expected[f"k{key}"] = (len(values), sum(values))
        assert sums == expected
        assert written >= 4 * faulty_tasks.ROWS
