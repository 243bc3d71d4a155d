"""The write jobs of an application, without Spark."""

import logging
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from structable.spark_bridge.base.store_client import StoreClient
from structable.spark_bridge.coordinator.stores import OpenStores
from structable.spark_bridge.coordinator.write_jobs import OpenWriteJobs
from structable.spi import (
    CommitOutcomeUnknownError,
    CommitResult,
    Field,
    StagedWrite,
    Storage,
    TableSpecification,
    WriteJob,
    connect,
)
from structable.spi.authors import requested_job

SPEC = TableSpecification("items", [Field.long("id"), Field.long("n")], primary_key=["id"])
PATCHES = pa.RecordBatch.from_pydict({"id": [1, 2], "n": [7, 7], "_arm": ["present", "present"]})


@pytest.fixture
def store() -> Iterator[StoreClient]:
    url = f"memory://{uuid.uuid4().hex}"
    with connect(url) as storage:
        storage.admin.create(SPEC)
        storage.table("items").upsert({"id": 1})
        yield StoreClient(url)


@pytest.mark.parametrize("streaming", [False, True])
def test_missing_keys_of_a_commit_whose_answer_was_lost(
    store: StoreClient, streaming: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows are written once; that keys are not counted is logged, and only then."""
    stores = OpenStores(60.0)
    jobs = OpenWriteJobs(stores)
    lost: list[CommitResult] = []

    def loses_its_answer(self: Storage, job: WriteJob, staged: list[StagedWrite]) -> CommitResult:
        result = commit(self, job, staged)
        if not lost:
            lost.append(result)
            raise CommitOutcomeUnknownError("the answer was lost")
        return result

    def written(number: int) -> CommitResult:
        names: dict[str, object] = (
            {"stream": "s", "batch": number} if streaming else {"job_id": f"{store.url} {number}"}
        )
        job = jobs.begin(store, requested_job("items", "patch", on_missing="skip", **names))
        with stores.using(store) as storage:
            staged = storage.stage(job, 0, 0, [PATCHES])
        return jobs.commit(store, job, [staged])

    try:
        with stores.using(store) as storage:
            commit = type(storage).commit_write
            monkeypatch.setattr(type(storage), "commit_write", loses_its_answer)
            with caplog.at_level(logging.WARNING, "structable.spark"):
                assert written(1) == CommitResult(False, 0)
            assert lost == [CommitResult(True, 1)]
            # Threads of other tests' stores may log into the same capture.
            assert [record.name for record in caplog.records].count("structable.spark") == 1
            assert "the number of its keys without a row at the commit is unknown" in caplog.text
            assert [dict(row) for row in storage.table("items").scan()] == [{"id": 1, "n": 7}]
            caplog.clear()
            assert written(2) == CommitResult(True, 1)
            assert "structable.spark" not in [record.name for record in caplog.records]
    finally:
        stores.close()
