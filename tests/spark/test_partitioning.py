"""The partition of a key is the same in Spark's SQL and in Python."""

import datetime as dt

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.functions import expr

from structable.spark_bridge.pipelines import partition_of
from structable.spark_bridge.pipelines.partitioners import partition_sql
from structable.spi import Value

pytestmark = pytest.mark.xdist_group("spark")

UTC = dt.UTC
COLUMNS: dict[str, tuple[t.DataType, list[Value]]] = {
    "text": (t.StringType(), ["", "a", "ü€😀", "a\0b", None]),
    "truth": (t.BooleanType(), [True, False, None]),
    "byte": (t.ByteType(), [-128, 127, None]),
    "short": (t.ShortType(), [-(2**15), 2**15 - 1]),
    "int": (t.IntegerType(), [-(2**31), 0, 2**31 - 1]),
    "long": (t.LongType(), [-(2**63), 2**63 - 1, None]),
    "date": (
        t.DateType(),
        [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(2024, 3, 10), dt.date(9999, 12, 31), None],
    ),
    "moment": (
        t.TimestampType(),
        [dt.datetime(2024, 3, 10, 10, 30, 0, 1, UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), None],
    ),
    # 2:30 of 10 March 2024 does not exist in the session's time zone.
    "local ` time": (
        t.TimestampNTZType(),
        [
            dt.datetime(2024, 3, 10, 2, 30, 0, 1),
            dt.datetime(1, 1, 1),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
            None,
        ],
    ),
    "bytes": (t.BinaryType(), [b"", b"\x00\xff", None]),
}


def test_partitions_of_every_type(spark: SparkSession) -> None:
    for name, (kind, values) in COLUMNS.items():
        frame = spark.createDataFrame(
            [(value, 7) for value in values], t.StructType().add(name, kind).add("k", t.IntegerType())
        )
        column = expr(partition_sql([(name, kind.simpleString()), ("k", "int")], 1_000_003))
        found = [row[0] for row in frame.select(column).collect()]
        assert found == [partition_of((value, 7), 1_000_003) for value in values], name
    with pytest.raises(TypeError, match="column 'x' is of type double"):
        partition_sql([("x", "double")], 4)
