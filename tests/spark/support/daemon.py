"""The process that forks Spark's Python processes, with everything imported that these need."""

import pyarrow.compute  # noqa: F401
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark import daemon

import structable.backends.hbase
import structable.backends.leveldb
import structable.backends.postgresql
import structable.spark_bridge  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
