"""Gives each scan of a DataFrame a separate reader in the JVM, which accepts its filters and its columns.

Spark up to 4.3 stores what `pushFilters` and `partitions` returned in an object that all scans of one `load()` share.
Of two scans with different filters the last one planned wins, in one query (`df.where(a).union(df.where(b))`) and even
between queries (`df.where(a).count()`, then `df.count()`), and the others silently read its rows. Nor does it tell a
reader in Python which columns a query needs. An optimizer rule replaces the table of each scan by one that

- belongs to this scan alone, which also makes each query plan its scans anew, on a new snapshot;
- offers the filters first, in a probe that takes no snapshot, and plans once filters and columns are known;
- plans when its partitions are needed, so that `explain` takes no snapshot, and says in which execution it plans;
- plans in the session that built it, which in threads other than the session's own is not the active one;
- leaves filters to Spark if Python cannot hold their dates, on which Spark's own pushdown fails.
"""

from __future__ import annotations

import warnings

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from .optimizer_rules import ensure_rule

__all__ = ["execution_of", "is_probe", "isolate_scans", "zone_of"]

_PROBE = "structable.probe"
_EXECUTION = "structable.execution"
_ZONE = "structable.zone"

_RULE_CLASS = "StructableScanIsolation"
_JAVA = (
    """
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.Product;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

public final class StructableScanIsolation extends Rule {
  static final String FORMAT = "structable";

  public static final class Builder extends AbstractFunction1 {
    public Object apply(Object session) { return new StructableScanIsolation((SparkSession) session); }
  }

  private final SparkSession session;

  public StructableScanIsolation(SparkSession session) { this.session = session; }

  public TreeNode apply(TreeNode plan) { return plan.transformDown(new Isolate(session)); }

  public static final class Isolate extends AbstractPartialFunction {
    private final SparkSession session;

    public Isolate(SparkSession session) { this.session = session; }

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
        if (parts[i] == relation.table()) parts[i] = new IsolatedTable((PythonTable) relation.table(), session);
      }
      return relation.makeCopy(parts);
    }
  }

  public static final class IsolatedTable extends PythonTable {
    private final PythonTable shared;
    private final SparkSession session;

    public IsolatedTable(PythonTable shared, SparkSession session) {
      super(newProvider(shared), FORMAT, shared.schema());
      this.shared = shared;
      this.session = session;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new IsolatedScanBuilder(shared, options, session);
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
    private final SparkSession session;
    private Filter[] accepted = new Filter[0];
    private Scan described;
    private StructType required;

    public IsolatedScanBuilder(PythonTable shared, CaseInsensitiveStringMap options, SparkSession session) {
      super(newProvider(shared), FORMAT, shared.schema(), options);
      this.shared = shared;
      this.options = options;
      this.session = session;
      this.required = shared.schema();
    }

    public Filter[] pushFilters(Filter[] filters) {
      List fitting = new ArrayList();
      List left = new ArrayList();
      for (int i = 0; i < filters.length; i++) (fits(filters[i]) ? fitting : left).add(filters[i]);
      if (!fitting.isEmpty()) {
        StructType schema = marked(shared.schema(), new MetadataBuilder().putBoolean("@PROBE@", true).build());
        PythonScanBuilder probe = builder(schema);
        left.addAll(Arrays.asList(probe.pushFilters((Filter[]) fitting.toArray(new Filter[0]))));
        accepted = probe.pushedFilters();
        described = probe.build();
      }
      return (Filter[]) left.toArray(new Filter[0]);
    }

    public Filter[] pushedFilters() { return accepted; }

    public void pruneColumns(StructType columns) { required = columns; }

    public Scan build() {
      StructType columns = columns();
      return new IsolatedScan(this, columns, described == null ? builder(columns).build() : described);
    }

    // Runs in the driver as part of the execution whose tasks will read, if there is one: `rdd` plans without.
    Batch plan(StructType columns) {
      String execution = session.sparkContext().getLocalProperty("spark.sql.execution.id");
      MetadataBuilder mark = new MetadataBuilder();
      String zone = session.conf().get("spark.sql.session.timeZone");
      mark.putString("@ZONE@", DateTimeUtils.getZoneId(zone).normalized().getId());  // without names of Java alone
      if (execution != null) mark.putString("@EXECUTION@", execution);
      columns = marked(columns, mark.build());
      PythonScanBuilder last = builder(columns);
      if (accepted.length > 0) last.pushFilters(accepted);
      return last.build().toBatch();
    }

    private PythonScanBuilder builder(StructType schema) {
      return new PythonScanBuilder(newProvider(shared), FORMAT, schema, options);
    }

    // The columns of the query and of the filters, which Spark describes by the schema; at least one column.
    private StructType columns() {
      Set names = new HashSet(Arrays.asList(required.fieldNames()));
      for (int i = 0; i < accepted.length; i++) names.addAll(Arrays.asList(accepted[i].references()));
      StructField[] all = shared.schema().fields();
      if (names.isEmpty()) names.add(all[0].name());
      List chosen = new ArrayList();
      for (int i = 0; i < all.length; i++) if (names.contains(all[i].name())) chosen.add(all[i]);
      return new StructType((StructField[]) chosen.toArray(new StructField[0]));
    }

    private static StructType marked(StructType schema, Metadata mark) {
      StructField[] fields = (StructField[]) schema.fields().clone();
      StructField first = fields[0];
      fields[0] = new StructField(first.name(), first.dataType(), first.nullable(), mark);
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

  public static final class IsolatedScan implements Scan, SupportsMetadata {
    private final IsolatedScanBuilder builder;
    private final StructType columns;
    private final Scan described;
    private Batch batch;

    public IsolatedScan(IsolatedScanBuilder builder, StructType columns, Scan described) {
      this.builder = builder;
      this.columns = columns;
      this.described = described;
    }

    public StructType readSchema() { return columns; }

    public String description() { return described.description(); }

    public scala.collection.immutable.Map getMetaData() {
      scala.collection.immutable.Map known = scala.collection.immutable.Map$.MODULE$.empty();
      if (described instanceof SupportsMetadata) known = ((SupportsMetadata) described).getMetaData();
      Object all = known.updated("ReadSchema", columns.catalogString());
      return (scala.collection.immutable.Map) all;
    }

    public CustomMetric[] supportedCustomMetrics() { return described.supportedCustomMetrics(); }

    public CustomTaskMetric[] reportDriverMetrics() { return described.reportDriverMetrics(); }

    // Spark would ask each partition otherwise, for which it would have to plan.
    public Scan.ColumnarSupportMode columnarSupportMode() { return Scan.ColumnarSupportMode.UNSUPPORTED; }

    public synchronized Batch toBatch() {
      if (batch == null) batch = new IsolatedBatch(builder, columns);
      return batch;
    }

    public org.apache.spark.sql.connector.read.streaming.MicroBatchStream toMicroBatchStream(String checkpoint) {
      return described.toMicroBatchStream(checkpoint);
    }
  }

  public static final class IsolatedBatch implements Batch {
    private final IsolatedScanBuilder builder;
    private final StructType columns;
    private Batch planned;

    public IsolatedBatch(IsolatedScanBuilder builder, StructType columns) {
      this.builder = builder;
      this.columns = columns;
    }

    public synchronized InputPartition[] planInputPartitions() {
      Option before = enter();
      try {
        return planned().planInputPartitions();
      } finally {
        leave(before);
      }
    }

    public synchronized PartitionReaderFactory createReaderFactory() {
      Option before = enter();
      try {
        return planned().createReaderFactory();
      } finally {
        leave(before);
      }
    }

    private Batch planned() {
      if (planned == null) planned = builder.plan(columns);
      return planned;
    }

    private Option enter() {
      Option before = SparkSession.getActiveSession();
      SparkSession.setActiveSession(builder.session);
      return before;
    }

    private void leave(Option before) {
      if (before.isDefined()) {
        SparkSession.setActiveSession((SparkSession) before.get());
      } else {
        SparkSession.clearActiveSession();
      }
    }
  }
}
""".replace("@PROBE@", _PROBE)
    .replace("@EXECUTION@", _EXECUTION)
    .replace("@ZONE@", _ZONE)
)


def is_probe(schema: StructType) -> bool:
    """Whether a reader is only offered filters: its partitions will not be read."""
    return bool(schema.fields) and bool(schema.fields[0].metadata.get(_PROBE))


def execution_of(schema: StructType) -> int | None:
    """Return the execution in which a reader plans, if there is one."""
    execution = schema.fields[0].metadata.get(_EXECUTION) if schema.fields else None
    return None if execution is None else int(execution)


def zone_of(schema: StructType) -> str | None:
    """Return the time zone of the session in which a reader plans, if it is known."""
    zone = schema.fields[0].metadata.get(_ZONE) if schema.fields else None
    return None if zone is None else str(zone)


def isolate_scans(spark: SparkSession) -> bool:
    """Give each scan of the format a separate reader, in this session and those derived from it; True if that works.

    If not, filters must not be pushed down. A warning is issued, and results are still right: Spark evaluates all
    filters itself, reads all columns, and scans of one `load()` share a snapshot.
    """
    reason = ensure_rule(spark, _RULE_CLASS, _JAVA)
    if reason is not None:
        warnings.warn(
            f"Spark {spark.version} does not keep the scans of a DataFrame apart ({reason}): no filters are pushed "
            "down",
            stacklevel=3,
        )
    return reason is None
