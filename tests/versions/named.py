"""The versions of other software that structable works with, one of each line that docs/stability.md names.

Each is what a registry offers: Maven's artifacts of PostgreSQL, HBase and CPython, and PySpark.
"""

from __future__ import annotations

__all__ = ["HBASE", "POSTGRESQL", "PYSPARK", "PYTHON"]

POSTGRESQL = {"14": "14.20.0", "15": "15.15.0", "16": "16.11.0", "17": "17.7.0", "18": "18.1.0"}
HBASE = {"2.4": "2.4.18", "2.5": "2.5.13", "2.6": "2.6.4"}
PYSPARK = {"4.1": "4.1.1", "4.2": "4.2.0", "4.3": "4.3.0"}
PYTHON = {"3.12": "3.12.7-1.5.11", "3.13": "3.13.8-1.5.12"}
