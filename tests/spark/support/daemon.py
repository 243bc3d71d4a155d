"""The process that forks the Python processes of the session's tasks, with everything imported that these need.

Spark ends the processes of a task that fails; otherwise the next ones would spend a second on importing it again.
"""

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
