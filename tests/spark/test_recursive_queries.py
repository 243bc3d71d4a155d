"""`WITH RECURSIVE` finds all rows, in one state, by the keys of each step where Spark has them."""

from __future__ import annotations

from itertools import product

from structable.spi import Field, Storage, TableSpecification
from tests.spark.conftest import Tables, every_store, settings
from tests.spark.support.plans import planned_scans

ROWS_OF_A_LOCAL_STEP = "spark.sql.cteRecursionAnchorRowsLimitToConvertToLocalRelation"
"""Of a step with at most as many rows Spark has the keys when it plans the next one."""


def create_tree(storage: Storage, rows: int) -> None:
    storage.admin.create(TableSpecification("tree", [Field.long("id"), Field.long("parent")], ["id"], ["parent"]))
    storage.table("tree").upsert_many(
        {"id": number, "parent": number // 2 if number > 1 else None} for number in range(1, rows + 1)
    )


@every_store
def test_steps_with_keys_and_steps_without(tables: Tables, storage: Storage) -> None:
    create_tree(storage, 60)
    tables.read("tree").createOrReplaceTempView("tree")
    added = iter(range(1000, 2000))
    with (
        settings(tables.session, {ROWS_OF_A_LOCAL_STEP: "4"}),
        planned_scans(
            tables.session, lambda: storage.table("tree").upsert({"id": next(added), "parent": 3})
        ) as planned,
    ):
        found = tables.session.sql("""
            with recursive c(id) as (select id from tree where parent is null
                union all select t.id from c join tree t on t.parent = c.id)
            select id from c
        """).collect()
    assert sorted(row.id for row in found) == list(range(1, 61))
    keys = [" in [" in str(one.where) for one in planned]
    assert True in keys
    assert False in keys[keys.index(True) :]
    assert len({one.execution for one in planned}) == 1


def test_no_keys_of_rows_that_spark_does_not_have(tables: Tables, storage: Storage) -> None:
    """Spark ends in an internal error where it plans a filter by the keys of a recursion before it has them."""
    create_tree(storage, 15)
    tables.read("tree", statistics=10_000_000).createOrReplaceTempView("tree")
    anchors = ["select 1L, 0", "select id, 0 from tree where parent is null"]
    for anchor, (hint, condition) in product(anchors, [("", "c.depth < 3"), ("/*+ broadcast(c) */", "true")]):
        query = f"""
            with recursive c(id, depth) as ({anchor}
                union all select {hint} t.id, depth + 1 from c join tree t on t.parent = c.id where {condition})
            select id from c
        """
        assert sorted(row.id for row in tables.session.sql(query).collect()) == list(range(1, 16)), query
