"""Versions of other software, besides those of the whole suite, that docs/stability.md says were tested.

Each is what a registry offers: Maven's artifacts of PostgreSQL, HBase and CPython, PySpark and pandas.
"""

from __future__ import annotations

POSTGRESQL = {"14": "14.24.0", "16": "16.15.0", "17": "17.11.0", "18": "18.6.0"}
HBASE = {"2.4": "2.4.17", "2.5": "2.5.8"}
PYSPARK = {"4.1": "4.1.4", "4.2": "4.2.1"}
PYTHON = {"3.13": "3.13.5-1.5.12"}
PANDAS = {"3": "3.1.1"}
