"""The process that forks the Python processes of the session's tasks, with all imported that these would import.

Spark ends the processes of a task that fails; otherwise the next ones would spend a second on importing it again.
"""

import importlib

from pyspark import daemon

_OF_TASKS = (
    "pyspark.sql.worker.plan_data_source_read",
    "structable.backends.hbase",
    "structable.backends.leveldb",
    "structable.backends.postgresql",
    "structable.spark_bridge",
)

if __name__ == "__main__":
    for name in _OF_TASKS:
        importlib.import_module(name)
    daemon.manager()
