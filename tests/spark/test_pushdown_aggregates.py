"""Aggregates of groups: which ones the store computes, and that no result tells."""

import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession

from structable.backends.ordered.storage import OrderedStorage
from structable.spi import Field, Storage, TableSpecification, Value
from tests.spark.conftest import Tables, every_store
from tests.spark.support.samples import EVERYTHING, ROWS, create_runs

SALES = TableSpecification(
    "sales",
    [
        Field.long("id"),
        Field.string("shop"),
        Field.int("pieces"),
        Field.long("serial"),
        Field.decimal("price", 15, 2),
        Field.decimal("discount", 15, 2),
        Field.decimal("rate", 5, 2),
        Field.decimal("most", 20, 2),
        Field.double("weight"),
        Field.boolean("paid"),
    ],
    primary_key=["id"],
)
COUNT = 4_000


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    """Let plans be what they are from the beginning, and numbers overflow as tests ask for."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield
    for name in ("spark.sql.adaptive.enabled", "spark.sql.ansi.enabled"):
        spark.conf.unset(name)


@pytest.fixture
def sales(storage: Storage) -> list[dict[str, Value]]:
    chances = random.Random(7)
    rows: list[dict[str, Value]] = [
        {
            "id": number,
            "shop": chances.choice(["a", "b", "", None]),
            "pieces": chances.choice([None, chances.randrange(-(2**31), 2**31)]),
            "serial": chances.randrange(-(2**40), 2**40),
            "price": chances.choice([None, Decimal(chances.randrange(-(10**9), 10**9)) / 100]),
            "discount": Decimal(chances.randrange(100)) / 100,
            "rate": Decimal(chances.randrange(-(10**5) + 1, 10**5)) / 100,
            "most": Decimal(chances.randrange(10**6)) / 100,
            "weight": chances.choice([None, 0.0, -0.0, float("nan"), 0.1, 1e300]),
            "paid": chances.choice([None, True, False]),
        }
        for number in range(COUNT)
    ]
    storage.admin.create(SALES)
    storage.table("sales").upsert_many(rows)
    return rows


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan())


def query(tables: Tables, text: str, level: str, table: str = "sales") -> DataFrame:
    """Return a query of `t`, which is the table with that much pushed down."""
    tables.read(table, pushdown=level, splits=2).createOrReplaceTempView("t")
    return tables.session.sql(text)


def outcome(frame: DataFrame) -> str:
    """Return the rows of a frame in the order of their texts, or the class of its error."""
    try:
        return str(sorted(map(str, frame.toArrow().to_pylist())))
    except Exception as error:
        for condition in ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "more than 38 digits"):
            if condition in str(error):
                return "overflow"
        raise


def compared(tables: Tables, text: str, *, pushed: bool, table: str = "sales") -> str:
    """Return the outcome of a query, which is the same whatever is pushed down."""
    frames = [query(tables, text, level, table) for level in ("all", "filters", "none")]
    assert [("PushedAggregates" in plan(frame)) for frame in frames] == [pushed, False, False], text
    found = [outcome(frame) for frame in frames]
    assert found[0] == found[1] == found[2], text
    return found[0]


@every_store
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("groups", ["shop", "shop, paid", "paid, discount", ""])
def test_groups_are_those_of_spark(
    tables: Tables, storage: Storage, sales: list[dict[str, Value]], ansi: str, groups: str
) -> None:
    tables.session.conf.set("spark.sql.ansi.enabled", ansi)
    text = (
        "count(*), count(price), sum(pieces), sum(price), min(price), max(serial), avg(pieces), avg(price), min(paid)"
    )
    for condition in ("true", "id > 50 and (price > 3 or shop is null)", "id < 0"):
        columns, grouping = (f"{groups}, {text}", f"group by {groups}") if groups else (text, "")
        compared(tables, f"select {columns} from t where {condition} {grouping}", pushed=True)


@every_store
def test_groups_are_added_up_where_the_rows_are(tables: Tables, sales: list[dict[str, Value]]) -> None:
    frame = query(tables, "select shop, sum(price) from t where id > 50 group by shop", "all")
    assert "PushedAggregates: [SUM(price)] PushedGroupBy: [shop]" in plan(frame)
    assert len(frame.collect()) == 4
    (leaf,) = (frame._jdf.queryExecution().executedPlan().collectLeaves().apply(place) for place in range(1))
    assert int(leaf.metrics().apply("numOutputRows").value()) <= 8


@pytest.mark.parametrize(
    ("text", "pushed"),
    [
        ("select shop, sum(price * (1 - discount)) from t group by shop", True),
        ("select sum(price * (1 - discount) * (1 + discount)), avg(price - discount * 3) from t", True),
        ("select shop, sum(price * pieces), sum(-1.5 * price + pieces) from t group by shop", True),
        ("select sum(rate * price) from t", True),
        ("select sum(most * most * discount) from t", True),
        ("select sum(price / 3) from t", False),
        ("select sum(pieces + 1) from t", False),
        ("select sum(price * weight) from t", False),
        ("select sum(rate) from t", False),
        ("select sum(cast(rate as decimal(20,2))) from t", True),
        ("select sum(cast(price as decimal(15,1))) from t", False),
        ("select sum(cast(pieces as decimal(12,2))) from t", True),
        ("select sum(cast(price as decimal(38,10)) * cast(price as decimal(38,10))) from t", False),
        ("select sum(weight), min(weight) from t", False),
        ("select weight, count(*) from t group by weight", False),
        ("select shop, avg(serial) from t group by shop", False),
        ("select shop, avg(weight) from t group by shop", False),
        ("select shop, avg(serial), sum(serial), count(serial) from t group by shop", False),
        ("select shop, sum(serial) / count(serial) from t group by shop", True),
        ("select count(distinct shop) from t", False),
        ("select shop, sum(distinct price) from t group by shop", False),
        ("select shop, count(*) filter (where price > 3) from t group by shop", False),
        ("select upper(shop), count(*) from t group by upper(shop)", False),
        ("select shop, paid, count(*) from t group by shop, paid with rollup", False),
        ("select shop, count(*) from t where price + 1 > 3 group by shop", False),
        ("select shop, sum(price), sum(price) + 1, sum(cast(price as decimal(15,2))) from t group by shop", True),
        ("select shop, sum(price), try_sum(price), sum(cast(price as decimal(20,2))) from t group by shop", True),
        (
            "select count(*), sum(serial), count(price), try_sum(serial), count(cast(price as decimal(20,2))) from t",
            True,
        ),
        ("select distinct shop, paid from t", True),
        ("select shop, sum(price) from t group by shop having count(*) > 1010", True),
        ("select sum(price) from t group by shop order by sum(price) limit 2", True),
        ("select id, sum(price), count(*) from t group by id", True),
        ("select t.shop, n from t join (select shop, count(*) n from t group by shop) o on t.shop = o.shop", True),
        ("select try_sum(serial), try_avg(pieces) from t", True),
        ("select any_value(shop) from t where false", False),
    ],
)
@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
def test_what_is_pushed_is_exact(
    tables: Tables, storage: Storage, sales: list[dict[str, Value]], text: str, *, pushed: bool
) -> None:
    compared(tables, text, pushed=pushed)


def test_arithmetic_that_may_be_null_stays_with_spark(
    tables: Tables, storage: Storage, sales: list[dict[str, Value]]
) -> None:
    tables.session.conf.set("spark.sql.ansi.enabled", "false")
    compared(tables, "select shop, sum(price * (1 - discount)) from t group by shop", pushed=False)


@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_sums_overflow_as_those_of_spark(tables: Tables, storage: Storage, ansi: str) -> None:
    tables.session.conf.set("spark.sql.ansi.enabled", ansi)
    storage.admin.create(EVERYTHING)
    row = ROWS[1]
    storage.table("everything").upsert_many({**row, "number": number} for number in range(5))
    found = [
        compared(tables, f"select {text} from t group by name", pushed=True, table="everything")
        for text in ("sum(large)", "sum(huge)", "try_sum(large)", "try_sum(huge)", "sum(medium)", "sum(price)")
    ]
    if ansi == "true":
        assert found[:2] == ["overflow"] * 2
    else:
        assert found[:2] == [f"[\"{{'sum(large)': {2**63 - 5}}}\"]", "[\"{'sum(huge)': None}\"]"]
    assert found[2:4] == ["[\"{'try_sum(large)': None}\"]", "[\"{'try_sum(huge)': None}\"]"]
    assert "499999999.95" in found[5]


@pytest.mark.parametrize("function", ["sum", "count"])
@pytest.mark.parametrize("digits", ["serial", "cast(serial as decimal(20,0))"])
def test_casts_to_more_digits_overflow_as_those_of_spark(
    tables: Tables, storage: Storage, function: str, digits: str
) -> None:
    """The product has 35 digits before the point, and six places after it in Spark alone."""
    fields = [Field.long("id"), Field.decimal("most", 20, 0), Field.long("serial")]
    storage.admin.create(TableSpecification("sales", fields, primary_key=["id"]))
    storage.table("sales").upsert_many(
        {"id": number, "most": Decimal((-1) ** number * 10**17), "serial": 10**17} for number in range(2)
    )
    text = f"select {function}(cast(most as decimal(38,3)) * cast({digits} as decimal(38,3))) from t"
    assert compared(tables, text, pushed=False) == "overflow"
    text = "select sum(cast(most as decimal(20,0)) * serial), sum(cast(most as decimal(22,2))) from t"
    assert "Decimal('0')" in compared(tables, text, pushed=True)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_averages_of_many_digits_overflow_as_those_of_spark(tables: Tables, storage: Storage, ansi: str) -> None:
    """What Spark asks a store for in place of `try_avg` is a sum that fails."""
    tables.session.conf.set("spark.sql.ansi.enabled", ansi)
    fields = [Field.long("id"), Field.decimal("most", 38, 0), Field.decimal("wide", 29, 0), Field.decimal("fit", 28, 0)]
    storage.admin.create(TableSpecification("sales", fields, primary_key=["id"]))
    storage.table("sales").upsert_many(
        {"id": number, "most": Decimal(6 * 10**37), "wide": Decimal(9 * 10**28), "fit": Decimal(10**28 - 1)}
        for number in range(2)
    )
    assert compared(tables, "select try_avg(most) from t", pushed=False) == "[\"{'try_avg(most)': None}\"]"
    assert "90000000000000000000000000000.0000" in compared(tables, "select try_avg(wide) from t", pushed=False)
    assert "9999999999999999999999999999.0000" in compared(tables, "select try_avg(fit) from t", pushed=True)


@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
def test_an_expression_overflows_as_one_of_spark(tables: Tables, storage: Storage) -> None:
    storage.admin.create(SALES)
    table = storage.table("sales")
    table.upsert_many({"id": number, "most": Decimal("1000000.00")} for number in range(3))
    text = "select sum(most * most * most) from t"
    assert "3000000000000000000" in compared(tables, text, pushed=True)
    table.upsert({"id": 7, "most": Decimal(10) ** 12})
    assert compared(tables, text, pushed=True) == "overflow"


@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
@pytest.mark.parametrize("rows", [ROWS, ROWS[-2:], []], ids=["all", "two", "none"])
def test_groups_of_every_type(tables: Tables, storage: Storage, rows: list[dict[str, Value]]) -> None:
    storage.admin.create(EVERYTHING)
    storage.table("everything").upsert_many(rows)
    for name in EVERYTHING.field_names:
        grouped = name not in ("single", "wide")
        text = f"select {name}, count(*), max(number), count(text) from t group by {name}"
        compared(tables, text, pushed=grouped, table="everything")


def test_a_store_without_aggregates_gives_rows(
    tables: Tables, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_runs(storage, 10)
    lacking = replace(storage.capabilities, aggregates=False)
    monkeypatch.setattr(OrderedStorage, "capabilities", lacking)
    compared(tables, "select count(*), sum(started) from t", pushed=False, table="runs")


@pytest.mark.parametrize("url", ["leveldb", "postgresql"], indirect=True)
def test_keys_of_a_join_find_groups(tables: Tables, storage: Storage, sales: list[dict[str, Value]]) -> None:
    text = (
        "select /*+ broadcast(k) */ k.id, n from (select 7 as id union all select 9 union all select -1) k "
        "join (select id, sum(price) n from t group by id) s on k.id = s.id"
    )
    assert len(query(tables, text, "all").collect()) == 2
    compared(tables, text, pushed=True)


def test_aggregates_of_the_columns_of_an_option(tables: Tables, sales: list[dict[str, Value]]) -> None:
    """The option `columns` names what a frame has; aggregates of them go to the store all the same."""
    frame = tables.read("sales", columns="serial,shop")
    wanted = sum(int(str(row["serial"])) for row in sales)
    assert frame.selectExpr("sum(serial)", "count(*)").collect() == [(wanted, COUNT)]
    assert frame.groupBy("shop").count().count() == 4
