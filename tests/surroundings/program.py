"""A broad program for processes in a changed state: `main(url, folder)` prints what it did and found.

That depends on neither time nor chance. On a store of several processes it starts another in the same state.
"""

import asyncio
import datetime as dt
import enum
import io
import json
import re
import subprocess
import sys
import threading
from contextlib import redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa

from structable.access import Batching, open_table
from structable.cli.app import app
from structable.datasets import Digits, Record, RecordTable, SystemData, new_run_id
from structable.spi import (
    AggregateExpression,
    Aggregation,
    Field,
    FieldType,
    Storage,
    TableSpecification,
    Transaction,
    col,
    connect,
)

NOW = dt.datetime(2026, 3, 29, 1, 30, 0, 123456, dt.UTC)
TYPES = TableSpecification(
    "types",
    [
        Field.string("id"),
        *(Field(kind.value, kind) for kind in FieldType if kind is not FieldType.DECIMAL),
        Field.decimal("decimal", 38, 10),
    ],
    ["id"],
    ["timestamp"],
)
TOTALS = TableSpecification(
    "totals",
    [Field.int("k"), Field.decimal("x", 20, 2), Field.double("y"), Field.string("names")],
    ["k"],
    options={
        "merge-engine": "aggregation",
        "changelog-producer": "lookup",
        "fields.x.aggregate-function": "sum",
        "fields.y.aggregate-function": "max",
        "fields.names.aggregate-function": "listagg",
    },
)
TURKISH = "I\u0130\u0131i"
ROWS: list[dict[str, Any]] = [
    {
        "id": TURKISH,
        "boolean": True,
        "byte": -128,
        "short": 2**15 - 1,
        "int": -(2**31),
        "long": 2**63 - 1,
        "float": 0.1,
        "double": 1e300,
        "string": TURKISH,
        "bytes": bytes(range(256)),
        "date": dt.date(1969, 12, 31),
        "timestamp": NOW,
        "timestamp_ntz": dt.datetime(2026, 3, 29, 2, 30),
        "decimal": Decimal("-1234567890123456789012345678.0123456789"),
    },
    {"id": "b", "string": "i", "double": float("inf"), "timestamp": dt.datetime(1, 1, 1, tzinfo=dt.UTC)},
    {"id": "c", "double": float("nan"), "timestamp": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC)},
]
CSV = 'id,decimal,double,timestamp,string\nfile,"1234567890.1234567891",1.5,2026-03-29T02:30:00+02:00,"{}"\n'


class Color(enum.StrEnum):
    RED = "red"


class Order(Record):
    number: int
    color: Color
    placed: dt.datetime
    total: Annotated[Decimal, Digits(30, 4)]
    parts: dict[str, Decimal] = {}


ORDERS = RecordTable(Order, "orders", key=("number",))


def read_plan(storage: Storage, table: str, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - plan_scan's
    with storage.plan_scan(table, **options) as plan:
        return [row for split in plan.splits for part in storage.read_split(split) for row in part.to_pylist()]


def use_rows(storage: Storage) -> object:
    """Write and read values of every type."""
    table = storage.table("types")
    table.upsert_many(ROWS)
    wheres = [
        col("double") > 1.0,
        col("decimal") < Decimal("0.5"),
        col("string").startswith(TURKISH[:2]),
        col("timestamp") == NOW,
    ]
    return [
        [dict(row) for row in table.scan()],
        [[row.id for row in table.scan(where=where)] for where in wheres],
        [row.id for row in table.scan(order_by="timestamp", reverse=True)],
        read_plan(storage, "types", splits=2),
    ]


def use_merges(storage: Storage) -> object:
    """Merge rows by calls, a job and in a thread; read the feed and aggregates."""
    table = storage.table("totals")
    table.upsert({"k": 1, "x": Decimal("12345678.91"), "y": 1.0, "names": "a"})
    table.upsert_many([{"k": 1, "x": Decimal("0.01"), "names": "b"}] * 9)
    job = storage.begin_write("totals", mode="upsert", job_id="job")
    ones: pa.Array[Any] = pa.array([Decimal("1.00")] * 2, pa.decimal128(20, 2))
    batch = pa.record_batch({"k": pa.array([1, 2], pa.int32()), "x": ones})
    storage.commit_write(job, [storage.stage(job, 0, 0, [batch])])
    thread = threading.Thread(target=table.upsert, args=({"k": 2, "x": Decimal("99999999.99")},))
    thread.start()
    thread.join()
    tripled = Aggregation([AggregateExpression.sum(col("x") * 3)])
    sums = read_plan(storage, "totals", aggregate=tripled) if storage.capabilities.aggregates else []
    with storage.transaction() as tx:
        tx.table("totals").delete((1,))
        tx.table("types").update({"id": "b", "long": 7})
    with storage.changes("totals").read() as read:
        changes = [[str(one.kind), dict(one.row)] for one in read]
    return [[dict(row) for row in table.scan()], sums, changes]


def use_threads(storage: Storage) -> object:
    """Write a row that another thread writes, and waits for where the store lets it."""
    threads: list[threading.Thread] = []

    def body(tx: Transaction) -> None:
        tx.table("types").upsert({"id": "c", "long": 1})
        if not threads:
            threads.append(threading.Thread(target=storage.table("types").upsert, args=({"id": "c", "int": 2},)))
            threads[0].start()
            threads[0].join(0.1)

    storage.run(body)
    threads[0].join()
    return [[row["long"], row["int"]] for row in storage.table("types").multi_read([("c",)])]


def use_datasets(storage: Storage) -> object:
    """Write records with documents, and system data in memory."""
    parts = {"b": Decimal("1E+30"), "a": Decimal("2.50")}
    ORDERS(storage).put(Order(number=1, color=Color.RED, placed=NOW, total=Decimal("1E+20"), parts=parts))
    ORDERS(storage).merge_document((1,), "parts", {"c": Decimal("1E+9")})
    read = ORDERS(storage).require(1)
    with connect("memory://") as other:
        SystemData.create(other, clock=lambda: NOW)
        system = SystemData.open(other, clock=lambda: NOW)
        with system.transaction() as s:
            s.preferences.put(("default",), {"size": "1", TURKISH: Decimal("1E+30")})
            s.namespaces.create("sales", description=TURKISH)
        with system.transaction() as s:
            names = [one.namespace for one in s.namespaces.page().items]
            resolved = s.preferences.resolve(("default",)).properties
    return [
        [read.number, read.color, read.placed, read.total, read.parts],
        [dict(row) for row in storage.table("orders").scan()],
        [new_run_id(NOW)[:13], names, resolved],
    ]


async def use_calls(storage: Storage) -> object:
    """Call a table from a loop."""
    async with open_table(storage.table("types"), batching=Batching()) as table:
        await asyncio.gather(*(table.put((f"call {n}",), {"long": n}) for n in range(20)))
        found = await asyncio.gather(*(table.get((f"call {n}",)) for n in range(20)))
        return [row and row["long"] for row in found]


def use_commands(url: str, folder: Path) -> object:
    """Run commands in this process."""
    (folder / "rows.csv").write_text(CSV.format("x" * 200_000), encoding="utf-8")
    return [
        output("backends"),
        output("tables", url),
        output("describe", url, "totals"),
        output("import", url, "types", str(folder / "rows.csv")),
        output(
            "put", url, "types", "id=typed", "decimal=98765432109876543210.5", "timestamp=2026-10-25T02:30:00+01:00"
        ),
        output("scan", url, "types", "--format", "json", "--where", "decimal > 1.5", "--columns", "decimal,timestamp"),
        output("scan", url, "totals", "--format", "csv"),
        output("export", url, "types", str(folder / "rows.parquet")),
        output("count", url, "types"),
        re.sub("[0-9]+ +[0-9-]+T[0-9:.]+Z", "", output("changes", url, "totals", "--columns", "k,x")),
        [line.partition(" ")[0] for line in output("doctor", url).splitlines()],
    ]


def output(*line: str) -> str:
    written = io.BytesIO()
    with io.TextIOWrapper(written, encoding="utf-8") as out, redirect_stdout(out):
        code = app(line, standalone_mode=False)
        out.flush()
        return f"{line[0]}: {code:d}\n{written.getvalue().decode()}"


def plain(value: object) -> object:
    """Return what json writes alike for equal values, in any context of decimals."""
    match value:
        case Decimal():
            return ["decimal", *value.as_tuple()]
        case dt.date():
            return [type(value).__name__, value.isoformat()]
        case bytes():
            return value.hex()
        case str() if len(value) > 10_000:
            return f"{value[:10]} and {len(value):,} characters"
        case float() | str() | int() | None:
            return repr(value)
        case dict():
            return [[plain(key), plain(one)] for key, one in value.items()]
        case list() | tuple():
            return [plain(one) for one in value]
    raise TypeError(f"{value!r} is not plain")


def show(name: str, found: object) -> None:
    print(name, json.dumps(plain(found)), flush=True)


def main(url: str, folder: str) -> None:
    """Use a store in every way; the process that this one starts reads only."""
    with connect(url) as storage:
        if sys.argv[1:]:
            show("other process", [dict(row) for row in storage.table("types").scan()])
            return
        for spec in (TYPES, TOTALS, ORDERS.specification):
            storage.admin.create(spec)
        show("rows", use_rows(storage))
        show("threads", use_threads(storage))
        show("merges", use_merges(storage))
        show("datasets", use_datasets(storage))
        show("calls", asyncio.run(use_calls(storage)))
        show("commands", use_commands(url, Path(folder)))
        if not url.startswith("memory:"):
            subprocess.run([*sys.orig_argv, "other"], check=True)
        for table in storage.admin.list():
            storage.admin.drop(table)
