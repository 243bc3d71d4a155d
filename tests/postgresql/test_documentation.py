"""The SQL of docs/postgresql.md runs, as the role that owns the tables, and the schema has the names of the page."""

import re
from pathlib import Path

import psycopg

from structable.spi import Field, TableSpecification, connect

from .support.shared import Schema

PAGE = (Path(__file__).parents[2] / "docs" / "postgresql.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```sql\n(?P<sql>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_queries_run(postgresql_schema: Schema) -> None:
    with connect(postgresql_schema.url) as storage, storage.transaction() as tx:
        storage.admin.create(TableSpecification("t", [Field.int("k"), Field.int("ctid")], ["k"], ["ctid"]))
        storage.begin_write("t", mode="upsert", job_id="nightly")
        tx.table("t").count()
        found = []
        with psycopg.connect(postgresql_schema.conninfo) as connection:
            for block in BLOCK.finditer(PAGE):
                for query in filter(str.strip, block["sql"].split(";")):
                    # Not every "structable": it is the application name, too.
                    query = query.replace("structable._", f"{postgresql_schema.name}._")
                    query = query.replace("'structable'::", f"'{postgresql_schema.name}'::")
                    found.append(connection.execute(query.encode()).fetchall())
    activity, waiting, jobs, staged, invalid = found
    assert activity
    assert waiting == []
    assert [job[0] for job in jobs] == ["nightly"]
    assert staged == [(0, "0 bytes")]
    assert invalid == []


def test_names_are_those_of_the_page(postgresql_schema: Schema) -> None:
    with connect(postgresql_schema.url) as storage:
        storage.admin.create(TableSpecification("t", [Field.int("k"), Field.int("ctid")], ["k"], ["ctid"]))
    with psycopg.connect(postgresql_schema.conninfo) as connection:
        relations = connection.execute(
            "select relname::text from pg_class where relnamespace = %s::regnamespace "
            "union select proname::text from pg_proc where pronamespace = %s::regnamespace",
            [postgresql_schema.name] * 2,
        ).fetchall()
        names = {name for (name,) in relations}
        columns = connection.execute(
            "select attname::text from pg_attribute where attrelid = %s::regclass and attnum > 0",
            [f"{postgresql_schema.name}.t"],
        ).fetchall()
    assert {"t", "_k1", "_i1_ctid", "_version_1_1", "_structable_tables", "_structable_jobs"} <= names
    assert "_structable_format" in names
    assert {name for (name,) in columns} == {"k", "_ctid"}
