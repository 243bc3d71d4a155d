"""Connection problems, and the responses to them, are logged, and never with a password."""

import logging
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from structable.spi import Field, Storage, StorageUnavailableError, TableSpecification, WriteMode, connect

from .support.proxy import COMMIT, Cut, Proxy
from .support.shared import Schema

TABLE = TableSpecification("t", [Field.int("k"), Field.long("n")], ["k"])


@pytest.fixture
def storage(postgresql_url: str, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> Iterator[Storage]:
    with connect(proxy.url(postgresql_url)) as storage:
        storage.admin.create(TABLE)
        caplog.set_level(logging.DEBUG, "structable.postgresql")
        caplog.clear()
        yield storage
    password = urlsplit(postgresql_url).password
    assert password
    assert password not in caplog.text


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    found = [record for record in caplog.records if record.name == "structable.postgresql"]
    return [record.getMessage() for record in found if record.levelno == level]


def test_nothing_is_logged_where_nothing_goes_wrong(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    storage.table("t").upsert({"k": 1, "n": 1})
    assert storage.table("t").read((1,))
    assert not caplog.records


@pytest.mark.parametrize(("cut", "outcome"), [(Cut.BEFORE, "not committed"), (Cut.AFTER, "committed")])
def test_lost_answer_to_a_commit(
    storage: Storage, proxy: Proxy, caplog: pytest.LogCaptureFixture, cut: Cut, outcome: str
) -> None:
    """The log has the loss, the question, its answer, and the new connection."""
    transaction = storage.transaction()
    transaction.table("t").upsert({"k": 1, "n": 1})
    transaction.table("t").read((2,))
    proxy.trap(COMMIT, cut)
    if cut is Cut.AFTER:
        transaction.commit()
    else:
        with pytest.raises(StorageUnavailableError):
            transaction.commit()
    lost, asked, answer = logged(caplog, logging.WARNING)
    assert lost.startswith("lost the connection to server process ")
    assert asked.startswith("the answer to the commit of transaction ")
    assert answer.endswith(f" was {outcome}")
    assert any(message.startswith("connected again") for message in logged(caplog, logging.INFO))


def test_idle_connection_that_the_server_ended(
    storage: Storage, postgresql_schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    storage.table("t").read((1,))
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
            "where application_name = 'structable' and pid <> pg_backend_pid() and query like %s",
            [f"%{postgresql_schema.name}%"],
        )
    assert storage.table("t").read((1,)) is None
    messages = [message for level in (logging.INFO, logging.WARNING) for message in logged(caplog, level)]
    assert any("server process" in message or "ended the idle connection" in message for message in messages)
    assert any(message.startswith("connected again") for message in messages)


def test_transaction_that_begins_again(storage: Storage, postgresql_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A table changed by another storage is looked up again, and the log names it."""
    storage.table("t").read((1,))
    with connect(postgresql_url) as other:
        other.admin.create_or_update(TableSpecification("t", [*TABLE.fields, Field.int("more")], ["k"]))
    with storage.transaction() as transaction:
        transaction.table("t").upsert({"k": 1, "n": 1})
    assert "beginning a transaction again: one of the tables t was changed" in logged(caplog, logging.INFO)


def test_swept_staging(storage: Storage, postgresql_schema: Schema, caplog: pytest.LogCaptureFixture) -> None:
    """A later job drops the staged rows of a dead one, and the log reports it."""
    name = f"_stage_{'0' * 16}_{1:08x}_{'0' * 20}"
    with psycopg.connect(postgresql_schema.conninfo, autocommit=True) as connection:
        connection.execute(f'create table "{postgresql_schema.name}"."{name}" (c0 integer)')
    storage.begin_write("t", mode=WriteMode.UPSERT, job_id="job")
    assert any(message.startswith("swept 1 staging tables") for message in logged(caplog, logging.INFO))
