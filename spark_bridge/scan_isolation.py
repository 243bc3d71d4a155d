"""Gives each scan of a DataFrame a reader of its own in the JVM, which takes over its filters and its columns.

Spark up to 4.3 stores what `pushFilters` and `partitions` returned in an object that all scans of one `load()` share.
Of two scans with different filters the last one planned wins, in one query (`df.where(a).union(df.where(b))`) and even
between queries (`df.where(a).count()`, then `df.count()`), and the others silently read its rows. Nor does it tell a
reader in Python which columns a query needs. An optimizer rule replaces the table of each scan by one that

- belongs to this scan alone, which also makes each query plan its scans anew, on a new snapshot;
- offers the filters first, in a probe that takes no snapshot, and plans once filters and columns are known;
- keeps filters with Spark whose dates Python cannot hold, on which Spark's own pushdown fails.
"""

from __future__ import annotations

import warnings

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

__all__ = ["is_probe", "isolate_scans"]

_PROBE = "structable.probe"

# Compiled by Janino, which Spark brings for its code generation. It knows no generics, hence the erased signatures.
_RULE_CLASS = "StructableScanIsolation"
_JAVA = """
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Product;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

public final class StructableScanIsolation extends Rule {
  static final String FORMAT = "structable";

  public static final class Builder extends AbstractFunction1 {
    public Object apply(Object session) { return new StructableScanIsolation(); }
  }

  public TreeNode apply(TreeNode plan) { return plan.transformDown(new Isolate()); }

  public static final class Isolate extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      if (!(node instanceof DataSourceV2Relation)) return false;
      Object table = ((DataSourceV2Relation) node).table();
      return table.getClass() == PythonTable.class && ((PythonTable) table).name().equalsIgnoreCase(FORMAT);
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      Object[] parts = new Object[relation.productArity()];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = relation.productElement(i);
        if (parts[i] == relation.table()) parts[i] = new IsolatedTable((PythonTable) relation.table());
      }
      return relation.makeCopy(parts);
    }
  }

  public static final class IsolatedTable extends PythonTable {
    private final PythonTable shared;

    public IsolatedTable(PythonTable shared) {
      super(newProvider(shared), FORMAT, shared.schema());
      this.shared = shared;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new IsolatedScanBuilder(shared, options);
    }
  }

  static PythonDataSourceV2 newProvider(PythonTable shared) {
    PythonDataSourceV2 provider = new PythonDataSourceV2();
    provider.setShortName(FORMAT);
    try {
      // The data source that load() made, to spare the Python process that would make it again.
      Field from = PythonTable.class.getDeclaredField("ds");
      Field made = PythonDataSourceV2.class.getDeclaredField("dataSourceInPython");
      from.setAccessible(true);
      made.setAccessible(true);
      made.set(provider, made.get(from.get(shared)));
    } catch (ReflectiveOperationException other) {
      // Another version of Spark makes it again.
    }
    return provider;
  }

  public static final class IsolatedScanBuilder extends PythonScanBuilder implements SupportsPushDownRequiredColumns {
    private final PythonTable shared;
    private final CaseInsensitiveStringMap options;
    private Filter[] accepted = new Filter[0];
    private StructType required;

    public IsolatedScanBuilder(PythonTable shared, CaseInsensitiveStringMap options) {
      super(newProvider(shared), FORMAT, shared.schema(), options);
      this.shared = shared;
      this.options = options;
      this.required = shared.schema();
    }

    public Filter[] pushFilters(Filter[] filters) {
      List fitting = new ArrayList();
      List left = new ArrayList();
      for (int i = 0; i < filters.length; i++) (fits(filters[i]) ? fitting : left).add(filters[i]);
      if (!fitting.isEmpty()) {
        PythonScanBuilder probe = builder(marked(shared.schema()));
        left.addAll(Arrays.asList(probe.pushFilters((Filter[]) fitting.toArray(new Filter[0]))));
        accepted = probe.pushedFilters();
      }
      return (Filter[]) left.toArray(new Filter[0]);
    }

    public Filter[] pushedFilters() { return accepted; }

    public void pruneColumns(StructType columns) { required = columns; }

    public Scan build() {
      PythonScanBuilder last = builder(columns());
      if (accepted.length > 0) last.pushFilters(accepted);
      return last.build();
    }

    private PythonScanBuilder builder(StructType schema) {
      return new PythonScanBuilder(newProvider(shared), FORMAT, schema, options);
    }

    // What the query needs and what the filters name, for Spark describes them by the schema; and a column at least.
    private StructType columns() {
      Set names = new HashSet(Arrays.asList(required.fieldNames()));
      for (int i = 0; i < accepted.length; i++) names.addAll(Arrays.asList(accepted[i].references()));
      StructField[] all = shared.schema().fields();
      if (names.isEmpty()) names.add(all[0].name());
      List chosen = new ArrayList();
      for (int i = 0; i < all.length; i++) if (names.contains(all[i].name())) chosen.add(all[i]);
      return new StructType((StructField[]) chosen.toArray(new StructField[0]));
    }

    private static StructType marked(StructType schema) {
      StructField[] fields = (StructField[]) schema.fields().clone();
      StructField first = fields[0];
      fields[0] = new StructField(
          first.name(), first.dataType(), first.nullable(), new MetadataBuilder().putBoolean("@PROBE@", true).build());
      return new StructType(fields);
    }

    // The years 1 to 9999 are Python's.
    private static boolean fits(Object value) {
      if (value instanceof Filter) {
        Product filter = (Product) value;
        for (int i = 0; i < filter.productArity(); i++) if (!fits(filter.productElement(i))) return false;
        return true;
      }
      if (value instanceof Object[]) {
        Object[] values = (Object[]) value;
        for (int i = 0; i < values.length; i++) if (!fits(values[i])) return false;
        return true;
      }
      if (value instanceof java.sql.Date) return fits(((java.sql.Date) value).getTime(), 86400000L);
      if (value instanceof java.sql.Timestamp) return fits(((java.sql.Timestamp) value).getTime(), 0L);
      if (value instanceof java.time.Instant) return fitsSeconds(((java.time.Instant) value).getEpochSecond());
      if (value instanceof java.time.LocalDate) return fitsYear(((java.time.LocalDate) value).getYear());
      if (value instanceof java.time.LocalDateTime) return fitsYear(((java.time.LocalDateTime) value).getYear());
      return true;
    }

    // Old dates differ by days between the calendars that Java and Spark count them in; none such comes near the limit.
    private static boolean fits(long milliseconds, long slack) {
      return milliseconds >= -62135596800000L + 4 * 86400000L && milliseconds <= 253402300799999L - slack;
    }

    private static boolean fitsSeconds(long seconds) { return seconds >= -62135596800L && seconds <= 253402300799L; }

    private static boolean fitsYear(int year) { return year >= 1 && year <= 9999; }
  }
}
""".replace("@PROBE@", _PROBE)


def is_probe(schema: StructType) -> bool:
    """Tell whether a reader is asked for its opinion of filters only, and its partitions will not be read."""
    return bool(schema.fields) and bool(schema.fields[0].metadata.get(_PROBE))


def isolate_scans(spark: SparkSession) -> bool:
    """Give each scan of the format a reader of its own, in this session and those made from it.

    Returns
    -------
    bool
        Whether that worked, and filters may be pushed down. If not, there is a warning, and results are right: Spark
        evaluates all filters itself and reads all columns, and scans of one `load()` share a snapshot.
    """
    try:
        if not _has_rule(spark):
            _add_rule(spark)
        if _has_rule(spark):
            return True
        reason = "its optimizer takes no further rules"
    except (Py4JError, TypeError) as error:  # TypeError: py4j has no such class or method
        reason = str(error).strip().splitlines()[0]
    warnings.warn(
        f"Spark {spark.version} does not keep the scans of a DataFrame apart ({reason}): no filters are pushed down",
        stacklevel=3,
    )
    return False


def _has_rule(spark: SparkSession) -> bool:
    # Asked of the optimizer itself: a rule that it ignored would mean wrong results.
    rules = spark._jsparkSession.sessionState().optimizer().batches().mkString()
    return _RULE_CLASS in str(rules)


def _add_rule(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(spark._jsparkSession.getClass().getClassLoader())
    compiler.cook(_JAVA)
    builder = compiler.getClassLoader().loadClass(f"{_RULE_CLASS}$Builder")
    constructor = builder.getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    instance = constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
    spark._jsparkSession.extensions().injectOptimizerRule(instance)
