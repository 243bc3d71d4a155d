#!/bin/sh
# PyIceberg 0.12.0: in a table that is partitioned by a column of doubles, `x = 0.1` does not find the row with 0.1.
#
# The manifest holds the partition's value as a double, but PyIceberg reads it as a 32-bit float: 0.1 becomes
# 0.1000000015, and 1e300 becomes infinity. A scan then skips the file, as its partition seems unable to fulfil the
# filter. Iceberg's specification allows such a partition ("identity: source value, unmodified"; any type but geometry,
# geography and variant), and PyIceberg creates it without a warning. Numbers that 32 bits hold, such as 0.5, are found.
#
# Expected: the rows that the same table has without partitions.
# Seen, without an error, with 0.1, 0.5 and 1e300:
#   x = 0.1            none          without partitions 0.1
#   x = 0.5            0.5           without partitions 0.5
#   x >= 1e300         1e+300        without partitions 1e+300
#   x <= 1e300         0.1 0.5       without partitions 0.1 0.5 1e+300
#
# Exits with 0 as long as this is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" || exit 2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    "pyiceberg[pyarrow,sql-sqlite]==0.12.0" pyarrow==26.0.1 || exit 2
cd "$folder"
venv/bin/python - <<'END'
import os
import sys

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.transforms import IdentityTransform

catalog = SqlCatalog("catalog", uri="sqlite:///catalog.db", warehouse=f"file://{os.getcwd()}")
catalog.create_namespace("space")
rows = pa.table({"x": [0.1, 0.5, 1e300]})


CONDITIONS = {
    "x = 0.1": EqualTo("x", 0.1),
    "x = 0.5": EqualTo("x", 0.5),
    "x >= 1e300": GreaterThanOrEqual("x", 1e300),
    "x <= 1e300": LessThanOrEqual("x", 1e300),
}


def answers(table):
    table.append(rows)
    scans = [table.scan(row_filter=condition).to_arrow() for condition in CONDITIONS.values()]
    return [sorted(scan["x"].to_pylist()) for scan in scans]


right = answers(catalog.create_table("space.whole", rows.schema))
parted = catalog.create_table("space.parted", rows.schema)
with parted.update_spec() as spec:
    spec.add_field("x", IdentityTransform(), "x_part")
found = answers(parted)
partitions = sorted(task.file.partition[0] for task in parted.scan().plan_files())
print(f"PyIceberg {pyiceberg.__version__}; the partitions as it reads them: {partitions}")
for condition, whole, part in zip(CONDITIONS, right, found):
    print(f"  {condition:12} without partitions {whole!s:20} with {part}")
if (right, found) != ([[0.1], [0.5], [1e300], [0.1, 0.5, 1e300]], [[], [0.5], [1e300], [0.1, 0.5]]):
    sys.exit("the behaviour has changed")
END
