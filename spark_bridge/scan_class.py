"""The class `StructableScanIsolation`, in Java: the rule, and the table, scan builder and scan that it puts in."""

from __future__ import annotations

from .table_sizes import BYTES, REQUEST, ROWS

__all__ = ["EXECUTION", "JAVA", "LIMIT", "PROBE", "RULE_CLASS", "ZONE"]

PROBE = "structable.probe"
EXECUTION = "structable.execution"
ZONE = "structable.zone"
LIMIT = "structable.limit"

RULE_CLASS = "StructableScanIsolation"
JAVA = (
    """
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
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
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
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

  public static final class IsolatedScanBuilder extends PythonScanBuilder
      implements SupportsPushDownRequiredColumns, SupportsPushDownLimit {
    private final PythonTable shared;
    private final CaseInsensitiveStringMap options;
    private final SparkSession session;
    private Filter[] accepted = new Filter[0];
    private Scan described;
    private StructType required;
    private int limit = -1;

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

    // Each split gives so many rows, and Spark takes the first of all: it asks only if no filter is left to it.
    public boolean pushLimit(int rows) {
      if (options.getBoolean("readChangeFeed", false)) return false;
      limit = rows;
      return true;
    }

    public boolean isPartiallyPushed() { return true; }

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
      if (limit >= 0) mark.putLong("@LIMIT@", limit);
      columns = marked(columns, mark.build());
      PythonScanBuilder last = builder(columns);
      if (accepted.length > 0) last.pushFilters(accepted);
      return last.build().toBatch();
    }

    // Of the whole table: its rows are known only without filters, and its bytes are the most that there can be.
    Statistics size(StructType read) {
      Map asked = new HashMap(options.asCaseSensitiveMap());
      asked.put("@SIZE@", "true");
      PythonDataSourceV2 provider = new PythonDataSourceV2();
      provider.setShortName(FORMAT);
      Option before = enter(session);
      try {
        Metadata told = provider.inferSchema(new CaseInsensitiveStringMap(asked)).fields()[0].metadata();
        if (!told.contains("@ROWS@")) return new Size(OptionalLong.empty(), OptionalLong.empty());
        double bytes = (double) told.getLong("@BYTES@") * width(read) / width(shared.schema());
        boolean all = accepted.length == 0;
        return new Size(
            OptionalLong.of(Math.max(1L, (long) bytes)),
            all ? OptionalLong.of(told.getLong("@ROWS@")) : OptionalLong.empty());
      } catch (Exception unknown) {
        return new Size(OptionalLong.empty(), OptionalLong.empty());
      } finally {
        leave(before);
      }
    }

    private static long width(StructType schema) {
      long width = 0;
      for (int i = 0; i < schema.fields().length; i++) width += schema.fields()[i].dataType().defaultSize();
      return Math.max(1L, width);
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

  public static final class Size implements Statistics {
    private final OptionalLong bytes;
    private final OptionalLong rows;

    public Size(OptionalLong bytes, OptionalLong rows) {
      this.bytes = bytes;
      this.rows = rows;
    }

    public OptionalLong sizeInBytes() { return bytes; }

    public OptionalLong numRows() { return rows; }
  }

  public static final class IsolatedScan implements Scan, SupportsMetadata, SupportsReportStatistics {
    private final IsolatedScanBuilder builder;
    private final StructType columns;
    private final Scan described;
    private Batch batch;
    private Statistics size;

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
      if (builder.limit >= 0) all = ((scala.collection.immutable.Map) all).updated("PushedLimit", "" + builder.limit);
      return (scala.collection.immutable.Map) all;
    }

    public synchronized Statistics estimateStatistics() {
      if (size == null) size = builder.size(columns);
      return size;
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
      Option before = enter(builder.session);
      try {
        return planned().planInputPartitions();
      } finally {
        leave(before);
      }
    }

    public synchronized PartitionReaderFactory createReaderFactory() {
      Option before = enter(builder.session);
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

  }

  static Option enter(SparkSession session) {
    Option before = SparkSession.getActiveSession();
    SparkSession.setActiveSession(session);
    return before;
  }

  static void leave(Option before) {
    if (before.isDefined()) {
      SparkSession.setActiveSession((SparkSession) before.get());
    } else {
      SparkSession.clearActiveSession();
    }
  }
}
""".replace("@PROBE@", PROBE)
    .replace("@EXECUTION@", EXECUTION)
    .replace("@ZONE@", ZONE)
    .replace("@LIMIT@", LIMIT)
    .replace("@SIZE@", REQUEST)
    .replace("@ROWS@", ROWS)
    .replace("@BYTES@", BYTES)
)
