"""`structable join`: the commands of foreign-key joins, on what a worker recorded."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from structable.spark_bridge import TableRef
from structable.spark_bridge.joins import JoinWorker
from structable.spi import Field, connect
from tests.cli.conftest import Command, every_store
from tests.joins.support.cases import of_pieces
from tests.joins.support.tables import ORDERS, PRODUCTS, join_of


def prepare(url: str) -> None:
    with connect(url) as storage:
        storage.admin.create(ORDERS)
        storage.admin.create(PRODUCTS)
        storage.table("products").upsert({"sku": "y", "name": "bar"})
        with JoinWorker(join_of(url)) as worker:
            worker.step()


def order(url: str, key: str) -> None:
    with connect(url) as storage:
        storage.table("orders").upsert({"id": key, "product": "y", "pieces": 1})


@every_store
def test_status_verify_and_rebuild(structable: Command, url: str) -> None:
    prepare(url)
    shown = json.loads(structable("join", "status", url, "named", "--format", "json").out)
    assert (shown["join"], shown["how"], shown["result"], shown["intent"]) == ("named", "inner", "named_orders", None)
    assert (shown["left"]["table"], shown["left"]["waiting"]) == ("orders", None)
    assert structable("join", "verify", url, "named") == (0, "0\n", "")
    order(url, "a")
    assert structable("join", "verify", url, "named") == (1, "1\n", "")
    text = structable("join", "status", url, "named").out.splitlines()
    assert text[0] == "named: inner join on product = sku into named_orders"
    assert text[1].endswith(" s behind")
    assert text[2].endswith(": up to date")
    assert structable("join", "rebuild", url, "named").out == "1 rows inserted, 0 updated, 0 deleted\n"
    assert structable("join", "verify", url, "named").code == 0


def test_status_without_a_table(structable: Command, tmp_path: Path) -> None:
    """It is shown for what is left, of a foreign key that has a field twice, too."""
    url = f"leveldb://{tmp_path}/store"
    prepare(url)
    with connect(url) as storage:
        storage.admin.create(PRODUCTS.evolve(name="pairs", primary_key=["sku", "name"]))
        pairs = TableRef(url, "pairs"), TableRef(url, "paired")
        on = ["product", "product"]
        with JoinWorker(join_of(url, name="twice", right=pairs[0], on=on, select={}, result=pairs[1])) as worker:
            worker.step()
        storage.admin.drop("pairs")
    text = structable("join", "status", url, "twice").out.splitlines()
    assert text[0] == "twice: inner join on product, product into paired"
    assert text[1].endswith(": up to date")
    assert text[2].endswith(": table 'pairs' does not exist")
    assert structable("join", "verify", url, "twice").code == 3


def test_run_until_it_is_ended(tmp_path: Path) -> None:
    url = f"leveldb://{tmp_path}/store"
    prepare(url)
    command = [sys.executable, "-m", "structable.cli", "join", "run", url, "named", "--poll", "0.05"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, connect(url) as storage:
        storage.table("orders").upsert({"id": "a", "product": "y", "pieces": 1})
        ends = time.monotonic() + 120
        while storage.table("named_orders").count() == 0:
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert process.stderr is not None
        assert process.stderr.read() == "structable: terminated\n"


def test_url_from_the_environment(structable: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"leveldb://{tmp_path}/store"
    prepare(url)
    monkeypatch.setenv("STRUCTABLE_URL", url)
    assert structable("join", "verify", "named") == (0, "0\n", "")
    unknown = structable("join", "verify", "other")
    assert unknown.code == 2
    assert "the store has no join 'other'; its joins: named" in unknown.err
    monkeypatch.delenv("STRUCTABLE_URL")
    assert "STRUCTABLE_URL" in structable("join", "status", "named").err


def test_joiner_is_imported_by_its_name(structable: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"leveldb://{tmp_path}/store"
    prepare(url)
    join = join_of(
        url,
        name="shares",
        select=None,
        joiner=of_pieces,
        result_fields=[Field.float("share")],
        result=TableRef(url, "shares"),
    )
    with JoinWorker(join) as worker:
        worker.step()
    assert structable("join", "verify", url, "shares") == (0, "0\n", "")
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [sys.executable, "-m", "structable.cli", "join", "verify", url, "shares"]
    lost = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert lost.returncode == 1
    assert "its joiner tests.joins.support.cases:of_pieces cannot be imported here" in lost.stderr
