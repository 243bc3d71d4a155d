#!/bin/sh
# Spark 4.3.0: a step of WITH RECURSIVE reads a source by the runtime filter of an earlier step, and rows are missing.
#
# A step whose predecessor gave at most 100 rows (spark.sql.cteRecursionAnchorRowsLimitToConvertToLocalRelation) is
# planned with a dynamic pruning filter: Spark calls SupportsRuntimeV2Filtering.filter() on the Scan, then toBatch() and
# planInputPartitions(). A later step has more rows, and no filter: it plans with the *same Scan object* and does not
# call filter(), which has no counterpart that would reset it. So a source that filters its scan, as the interface's
# documentation asks, gives that step the rows of the last filter.
#
# Expected: all rows, or an error.
# Seen, of a tree of 1,023 rows: 255 rows, without an error. With spark.sql.optimizer.dynamicPartitionPruning.enabled of
#   false all 1,023. At the end, of one scan:
#     filter() to the children of 64 rows
#     planInputPartitions() for the children of 64 rows
#     planInputPartitions() for the children of 64 rows     <- the step after, of 128 rows
#
# Exits with 0 as long as this is so; needs a JDK (javac).
set -eu
command -v javac > /dev/null || { echo "javac is missing: install a JDK" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 || exit 2
jars=$(venv/bin/python -c 'import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), "jars"))')

cat > TreeSource.java <<'JAVA'
import java.util.*;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The rows 1 to 1,023, of which row n is a child of row n / 2. */
@SuppressWarnings("deprecation")
public class TreeSource implements TableProvider {
  static final StructType SCHEMA = new StructType().add("id", "long").add("parent", "long");

  public StructType inferSchema(CaseInsensitiveStringMap options) { return SCHEMA; }

  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new TreeTable();
  }

  static class TreeTable implements SupportsRead {
    public String name() { return "tree"; }

    public StructType schema() { return SCHEMA; }

    public Set<TableCapability> capabilities() { return EnumSet.of(TableCapability.BATCH_READ); }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) { return TreeScan::new; }
  }

  static class TreeScan implements Scan, Batch, SupportsRuntimeV2Filtering {
    private Set<Long> parents;  // of the rows to read; null for all

    private void log(String call) { System.out.printf("  scan %08x: %s%n", System.identityHashCode(this), call); }

    public StructType readSchema() { return SCHEMA; }

    public NamedReference[] filterAttributes() { return new NamedReference[] {Expressions.column("parent")}; }

    public void filter(Predicate[] predicates) {
      for (Predicate one : predicates) {
        if (!one.name().equals("IN")) continue;
        parents = new HashSet<>();
        for (Expression part : one.children()) {
          if (part instanceof Literal) parents.add((Long) ((Literal<?>) part).value());
        }
      }
      log("filter() to the children of " + parents.size() + " rows");
    }

    public ColumnarSupportMode columnarSupportMode() { return ColumnarSupportMode.UNSUPPORTED; }

    public Batch toBatch() { return this; }

    public InputPartition[] planInputPartitions() {
      log("planInputPartitions() for the children of " + (parents == null ? "all rows" : parents.size() + " rows"));
      return new InputPartition[] {new Rows(parents)};
    }

    public PartitionReaderFactory createReaderFactory() { return new Factory(); }
  }

  record Rows(Set<Long> parents) implements InputPartition {}

  static class Factory implements PartitionReaderFactory {
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      Set<Long> parents = ((Rows) partition).parents();
      return new PartitionReader<>() {
        private long id;

        public boolean next() {
          do id++; while (id <= 1023 && parents != null && !parents.contains(id / 2));
          return id <= 1023;
        }

        public InternalRow get() {
          return new GenericInternalRow(new Object[] {id, id == 1 ? null : (Object) (id / 2)});
        }

        public void close() {}
      };
    }
  }
}
JAVA
mkdir classes
javac -cp "$jars/*" -d classes TreeSource.java

cat > query.py <<'PYTHON'
import sys

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.extraClassPath", sys.argv[1])
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.read.format("TreeSource").load().createOrReplaceTempView("tree")
found = {}
for pruning in ("false", "true"):
    spark.conf.set("spark.sql.optimizer.dynamicPartitionPruning.enabled", pruning)
    found[pruning] = spark.sql("""
        with recursive c(id) as (
            select id from tree where parent is null
            union all select t.id from c join tree t on t.parent = c.id
        ) select count(*) from c
    """).collect()[0][0]
    print(f"Spark {spark.version}, dynamic pruning {pruning}: {found[pruning]} rows of 1023", flush=True)
if found != {"false": 1023, "true": 255}:
    sys.exit("the behaviour has changed")
PYTHON
venv/bin/python query.py "$work/classes"
