import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from structable.spi import Storage, WriteMode
from tests.spark.conftest import Tables, complete, every_store
from tests.spark.support.samples import EVERYTHING, ROWS, RUNS, runs

OLD = runs(4)
KEYS = ["app", "started"]


@pytest.fixture(autouse=True)
def old_rows(storage: Storage) -> None:
    storage.admin.create(RUNS)
    storage.table("runs").upsert_many(OLD)


def stored(storage: Storage) -> dict[int, tuple[str | None, float | None]]:
    """Return the rows by the second part of their key."""
    return {row.started: (row.status, row.cost) for row in storage.table("runs").scan()}


OLD_STORED = {row["started"]: (row["status"], row["cost"]) for row in OLD}


@every_store
def test_every_type_goes_in_as_it_comes(tables: Tables, storage: Storage) -> None:
    storage.admin.create(EVERYTHING)
    tables.write(tables.frame(EVERYTHING, ROWS), "everything")
    written = [dict(row) for row in storage.table("everything").scan()]
    assert repr(written) == repr(complete(EVERYTHING, ROWS))


@every_store
def test_upsert_is_the_default_and_keeps_other_fields(tables: Tables, storage: Storage) -> None:
    frame = tables.frame(RUNS, [{**row, "cost": 9.0} for row in runs(2, first=3)], ["app", "started", "cost"])
    tables.write(frame, "runs")
    assert stored(storage) == {**OLD_STORED, 3: (None, 9.0), 4: (None, 9.0)}


@every_store
def test_replace_nulls_missing_fields(tables: Tables, storage: Storage) -> None:
    tables.write(tables.frame(RUNS, runs(2, first=1), KEYS), "runs", mode="replace")
    assert stored(storage) == {**OLD_STORED, 1: (None, None), 2: (None, None)}


@every_store
def test_insert_refuses_keys_that_exist_and_writes_nothing(tables: Tables, storage: Storage) -> None:
    with pytest.raises(
        AnalysisException, match=r"RecordExistsError: table 'runs' already has a row with the key \('etl', 3"
    ):
        tables.write(tables.frame(RUNS, runs(3, first=3)), "runs", mode="insert")
    assert stored(storage) == OLD_STORED
    tables.write(tables.frame(RUNS, runs(3, first=4)), "runs", mode="insert")
    assert len(stored(storage)) == 7


@every_store
def test_update_refuses_keys_that_do_not_exist(tables: Tables, storage: Storage) -> None:
    with pytest.raises(AnalysisException, match="RecordNotFoundError: table 'runs' has no row with the key"):
        tables.write(tables.frame(RUNS, runs(3, first=3)), "runs", mode="update")
    assert stored(storage) == OLD_STORED
    changed = tables.frame(RUNS, runs(2)).select(*KEYS, lit("DONE").alias("status"))
    tables.write(changed, "runs", mode="update")
    assert stored(storage) == {**OLD_STORED, 0: ("DONE", 0.0), 1: ("DONE", 0.25)}


@every_store
def test_delete_takes_keys(tables: Tables, storage: Storage) -> None:
    tables.write(tables.frame(RUNS, runs(9, first=2), KEYS), "runs", mode="delete")
    assert sorted(stored(storage)) == [0, 1]


@pytest.mark.parametrize("by_option", [False, True])
def test_overwrite_replaces_the_whole_table(tables: Tables, storage: Storage, by_option: bool) -> None:
    writer = tables.writer(tables.frame(RUNS, runs(2, first=50)), "runs")
    (writer.option("mode", "overwrite") if by_option else writer.mode("overwrite")).save()
    assert sorted(stored(storage)) == [50, 51]


@every_store
def test_a_table_can_be_overwritten_from_itself(tables: Tables, storage: Storage) -> None:
    frame = tables.read("runs").where("started >= 2").withColumn("status", lit("KEPT"))
    tables.writer(frame, "runs").mode("overwrite").save()
    assert stored(storage) == {2: ("KEPT", 0.5), 3: ("KEPT", 0.75)}


@pytest.mark.parametrize("save_mode", ["errorifexists", "ignore"])
def test_other_save_modes_are_refused_by_spark(tables: Tables, save_mode: str) -> None:
    with pytest.raises(AnalysisException, match='Please use either the "Append" or "Overwrite" mode') as caught:
        tables.writer(tables.frame(RUNS, OLD), "runs").mode(save_mode).save()
    assert caught.value.getCondition() == "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"


@every_store
def test_indexes_and_later_transactions_see_the_rows(tables: Tables, storage: Storage) -> None:
    tables.write(tables.frame(RUNS, runs(300, first=100)).repartition(4), "runs")
    with storage.transaction() as tx:
        assert sum(1 for _ in tx.table("runs").scan_index("status", "OK")) == 2 + 200
        assert tx.table("runs").count() == 304


def test_an_empty_frame_is_a_job_too(tables: Tables, storage: Storage) -> None:
    tables.write(tables.frame(RUNS, []), "runs")
    assert stored(storage) == OLD_STORED
    tables.writer(tables.frame(RUNS, []), "runs").mode("overwrite").save()
    assert stored(storage) == {}


def test_null_literals_and_any_order_of_columns(tables: Tables, storage: Storage) -> None:
    frame = tables.frame(RUNS, runs(1)).select("cost", lit(None).alias("status"), "started", "app")
    tables.write(frame, "runs", mode="replace")
    assert stored(storage)[0] == (None, 0.0)


def fails_in(frame: DataFrame, partition: int, attempts: int) -> DataFrame:
    """Return the frame, with a task of one partition that fails at its end, in its first attempts."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == partition and task.attemptNumber() < attempts:
            raise RuntimeError("this task fails")

    return frame.mapInArrow(fail, frame.schema)


@every_store
def test_rows_of_a_retried_task_are_there_once(tables: Tables, storage: Storage) -> None:
    frame = tables.frame(RUNS, runs(100, first=1000)).repartition(3)
    tables.write(fails_in(frame, partition=1, attempts=1), "runs", mode="insert")
    assert len(stored(storage)) == 104


@every_store
def test_a_job_whose_task_fails_for_good_leaves_nothing(tables: Tables, storage: Storage) -> None:
    frame = tables.frame(RUNS, runs(100, first=1000)).repartition(3)
    with pytest.raises(PythonException, match="this task fails"):
        tables.write(fails_in(frame, partition=1, attempts=9), "runs")
    assert stored(storage) == OLD_STORED


@every_store
def test_rows_that_end_early_leave_nothing(tables: Tables, storage: Storage) -> None:
    # The task's Python process gets the first rows, and then the end of its input.
    rows = tables.session.range(0, 50_000, 1, 2).selectExpr(
        "'etl' AS app", "id AS started", "if(id = 49999, raise_error('no more rows'), 'OK') AS status"
    )
    with pytest.raises(Exception, match="no more rows"):
        tables.write(rows, "runs")
    assert stored(storage) == OLD_STORED


@every_store
def test_bad_rows_leave_nothing(tables: Tables, storage: Storage) -> None:
    bad = tables.session.createDataFrame(
        [("etl", 77, "OK"), ("et\0l", 78, "OK")], "app string, started bigint, status string"
    )
    with pytest.raises(PythonException, match=r"field 'app'.*NUL"):
        tables.write(bad, "runs")
    nulls = tables.session.createDataFrame([(None, 77)], "app string, started bigint")
    with pytest.raises(PythonException, match=r"field 'app'.*null"):
        tables.write(nulls, "runs")
    assert stored(storage) == OLD_STORED


@every_store
def test_a_job_submitted_again_under_its_id_does_nothing_and_says_so(
    tables: Tables, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    job = f"nightly-{uuid.uuid4()}"
    tables.write(tables.frame(RUNS, runs(2, first=10)), "runs", mode="insert", jobId=job)
    storage.table("runs").delete(("etl", 10))
    assert job not in caplog.text
    tables.write(tables.frame(RUNS, runs(2, first=10)), "runs", mode="insert", jobId=job)
    assert f"the job '{job}' (option jobId) had been committed before; nothing was written" in caplog.text
    assert sorted(stored(storage)) == [0, 1, 2, 3, 11]


@every_store
def test_a_failed_job_can_be_submitted_again_under_its_id(tables: Tables, storage: Storage) -> None:
    job = f"nightly-{uuid.uuid4()}"
    frame = tables.frame(RUNS, runs(30, first=10)).repartition(2)
    with pytest.raises(PythonException, match="this task fails"):
        tables.write(fails_in(frame, partition=0, attempts=9), "runs", mode="insert", jobId=job)
    tables.write(frame, "runs", mode="insert", jobId=job)
    assert len(stored(storage)) == 34


def test_an_id_is_for_one_table_and_mode(tables: Tables) -> None:
    job = f"nightly-{uuid.uuid4()}"
    tables.write(tables.frame(RUNS, runs(1)), "runs", jobId=job)
    with pytest.raises(AnalysisException, match=job):
        tables.write(tables.frame(RUNS, runs(1)), "runs", jobId=job, mode="replace")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["app", "cost"], {}, "field 'started': is part of the primary key and missing"),
        (["app", "started", "cost"], {"mode": "delete"}, "delete takes only app, started"),
        (KEYS, {"mode": "merge"}, "the option mode is 'merge'; allowed are upsert, insert"),
        (KEYS, {"splits": 3}, "the option splits is not for writing"),
        (KEYS, {"colour": "red"}, "has no option 'colour'"),
        (KEYS, {"table": "absent"}, "table 'absent' does not exist"),
    ],
)
def test_a_wrong_write_fails_before_any_task_in_one_line(
    tables: Tables, columns: list[str], options: dict[str, object], message: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        tables.write(tables.frame(RUNS, OLD).select(*columns), **{"table": "runs", **options})  # type: ignore[arg-type]
    assert caught.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert message in str(caught.value).splitlines()[0]
    assert "Traceback" not in str(caught.value)


def test_a_column_of_another_type_is_refused_with_the_cast_to_make(tables: Tables) -> None:
    frame = tables.frame(RUNS, OLD)
    with pytest.raises(
        AnalysisException, match=r"field 'cost': is bigint in the DataFrame; cast it: .cast\('double'\)"
    ):
        tables.write(frame.withColumn("cost", frame.started), "runs")


@pytest.mark.parametrize("mode", [mode for mode in WriteMode if mode is not WriteMode.PATCH])
def test_every_mode_of_the_interface_is_an_option(tables: Tables, mode: WriteMode) -> None:
    frame = tables.frame(RUNS, runs(1, first=0 if mode is not WriteMode.INSERT else 9), KEYS)
    if mode is WriteMode.CHANGES:
        frame = frame.withColumn("_change_type", lit("+U"))
    tables.write(frame, "runs", mode=mode)
