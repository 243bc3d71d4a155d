import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** A scan with everything known that Spark pushed down. */
public final class StructableScan implements SupportsReportStatistics, SupportsRuntimeV2Filtering, SupportsMetadata {
  private static final int MOST_KEYS = 10000;  // of a runtime filter, which each split carries
  private static final int MOST_DIGITS = 18;  // that a long holds

  private final StructableSource source;
  private final StructType columns;
  private final MetadataBuilder request;
  private final String where;  // the pushed conditions for Python, or null
  private final long rowsAtMost;
  private final Scan described;
  private final List asked;  // what Spark planned with, before it filters by the keys of a join
  private scala.collection.immutable.Map shown;
  private String description;
  private IsolatedBatch batch;
  private StructableScan ofIntegers;

  StructableScan(StructableSource source, StructType columns, MetadataBuilder request, String where, long rowsAtMost) {
    this(source, columns, request, where, rowsAtMost, source.described(columns));
  }

  private StructableScan(StructableSource source, StructType columns, MetadataBuilder request, String where,
      long rowsAtMost, Scan described) {
    this.source = source;
    this.columns = columns;
    this.request = request;
    this.where = where;
    this.rowsAtMost = rowsAtMost;
    this.described = described;
    this.asked = Arrays.asList(new Object[] {source.identity(), columns, request.build()});
    this.description = described.description();
    this.shown = scala.collection.immutable.Map$.MODULE$.empty();
    if (described instanceof SupportsMetadata) shown = ((SupportsMetadata) described).getMetaData();
    Object all = shown.updated("ReadSchema", columns.catalogString());
    shown = (scala.collection.immutable.Map) all;
  }

  /** Adds to what `explain` shows. */
  void show(String name, String value) {
    Object all = shown.updated(name, value);
    shown = (scala.collection.immutable.Map) all;
    description = description + " " + name + ": " + value;
  }

  public StructType readSchema() { return columns; }

  public String description() { return description; }

  public scala.collection.immutable.Map getMetaData() { return shown; }

  public CustomMetric[] supportedCustomMetrics() { return described.supportedCustomMetrics(); }

  public CustomTaskMetric[] reportDriverMetrics() { return described.reportDriverMetrics(); }

  // Spark would ask each partition otherwise, for which it would have to plan.
  public Scan.ColumnarSupportMode columnarSupportMode() { return Scan.ColumnarSupportMode.UNSUPPORTED; }

  public Statistics estimateStatistics() {
    if (!source.hasStatistics()) return new Estimate(OptionalLong.empty(), OptionalLong.empty());
    long rows = Math.min(source.rows(), rowsAtMost);
    long bytes = (long) Math.ceil(rows * source.bytesOfARow(columns));
    return new Estimate(OptionalLong.of(rows), OptionalLong.of(Math.max(1L, bytes)));
  }

  public synchronized Batch toBatch() {
    if (batch == null) batch = new IsolatedBatch();
    return batch;
  }

  /**
   * The columns by which Spark may filter once it has the keys of a join's other side. A limit must not see that.
   * No decimals: Spark would ask for those that it makes of integers, which are not in the store.
   */
  public NamedReference[] filterAttributes() {
    List names = new ArrayList();
    boolean whole = source.pushes() && !asks("@LIMIT@") && !asks("@AGGREGATES@");
    for (int i = 0; whole && i < columns.length(); i++) {
      DataType type = columns.fields()[i].dataType();
      if (type instanceof FloatType || type instanceof DoubleType || type instanceof DecimalType) continue;
      names.add(Expressions.column("`" + columns.fields()[i].name().replace("`", "``") + "`"));
    }
    return (NamedReference[]) names.toArray(new NamedReference[0]);
  }

  /** Plans with these conditions, too, as far as the store takes them: Spark joins all the same. */
  public void filter(Predicate[] conditions) {
    List written = new ArrayList();
    if (where != null) written.add(where);
    StructableConditions writer = new StructableConditions(source.schema());
    for (int i = 0; i < conditions.length; i++) {
      String json = writer.keys(conditions[i], MOST_KEYS);
      if (json != null) written.add(json);
    }
    String all = StructableConditions.all(written);
    if (all == null) request.remove("@WHERE@");
    else request.putString("@WHERE@", all);
    ((IsolatedBatch) toBatch()).forget();
  }

  private boolean asks(String key) { return request.build().contains(key); }

  static boolean isShortDecimal(DataType type) {
    return type instanceof DecimalType && ((DecimalType) type).precision() <= MOST_DIGITS;
  }

  /** Whether it reads decimals that an integer can hold, and has not been told to. */
  boolean hasShortDecimals() {
    if (!source.pushes() || asks("@AGGREGATES@")) return false;
    for (int i = 0; i < columns.length(); i++) if (isShortDecimal(columns.fields()[i].dataType())) return true;
    return false;
  }

  /** The same scan, with the unscaled values of short decimals in their place. */
  synchronized StructableScan ofIntegers() {
    if (ofIntegers == null) {
      StructField[] fields = (StructField[]) columns.fields().clone();
      for (int i = 0; i < fields.length; i++) {
        StructField field = fields[i];
        if (!isShortDecimal(field.dataType())) continue;
        fields[i] = new StructField(field.name(), DataTypes.LongType, field.nullable(), field.metadata());
      }
      MetadataBuilder asked = new MetadataBuilder().withMetadata(request.build()).putString("@UNSCALED@", columns.json());
      ofIntegers = new StructableScan(source, new StructType(fields), asked, where, rowsAtMost, described);
      ofIntegers.shown = shown;
      ofIntegers.description = description;
    }
    return ofIntegers;
  }

  public MicroBatchStream toMicroBatchStream(String checkpoint) { return described.toMicroBatchStream(checkpoint); }

  static final class Estimate implements Statistics {
    private final OptionalLong rows;
    private final OptionalLong bytes;

    Estimate(OptionalLong rows, OptionalLong bytes) {
      this.rows = rows;
      this.bytes = bytes;
    }

    public OptionalLong numRows() { return rows; }

    public OptionalLong sizeInBytes() { return bytes; }
  }

  /**
   * Plans when its partitions are needed, in the session that built it. Equal ones give the same rows, as all scans of a
   * query see one state: Spark then reads once what a query needs twice.
   */
  final class IsolatedBatch implements Batch {
    private Batch planned;

    private List asked() { return asked; }

    public boolean equals(Object other) {
      return other instanceof IsolatedBatch && asked.equals(((IsolatedBatch) other).asked());
    }

    public int hashCode() { return asked.hashCode(); }

    public synchronized InputPartition[] planInputPartitions() {
      Option before = StructableScanIsolation.enter(source.session());
      try {
        return planned().planInputPartitions();
      } finally {
        StructableScanIsolation.leave(before);
      }
    }

    public synchronized PartitionReaderFactory createReaderFactory() {
      Option before = StructableScanIsolation.enter(source.session());
      try {
        return planned().createReaderFactory();
      } finally {
        StructableScanIsolation.leave(before);
      }
    }

    synchronized void forget() { planned = null; }

    private Batch planned() {
      if (planned == null) planned = source.plan(columns, request);
      return planned;
    }
  }
}
