import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import org.apache.spark.SparkContext;
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
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * A scan with everything that Spark has pushed down.
 *
 * <p>Spark uses it in several nodes of physical plans, in some of which it filters, and at once in
 * several threads: each step of a recursion has nodes of its own with the scans of the query. So
 * what belongs to a node is in the batch of that node.
 */
public final class StructableScan
    implements SupportsReportStatistics, SupportsRuntimeV2Filtering, SupportsMetadata {
  private static final int MOST_KEYS = 10000; // of a runtime filter, which each split carries
  private static final int MOST_DIGITS = 18; // that a long holds

  private final StructableSource source;
  private final StructType columns;
  private final Metadata request;
  private final String where; // the pushed conditions for Python, or null
  private final long rowsAtMost;
  private final Scan described;
  private final ThreadLocal filtered =
      new ThreadLocal(); // the request for the next batch, of a node that filters
  private final ThreadLocal latest =
      new ThreadLocal(); // planned, and has not given its reader factory
  private scala.collection.immutable.Map shown;
  private String description;
  private String execution; // in which it was planned last
  private StructableScan ofIntegers;

  StructableScan(
      StructableSource source,
      StructType columns,
      Metadata request,
      String where,
      long rowsAtMost) {
    this(source, columns, request, where, rowsAtMost, source.described(columns));
  }

  private StructableScan(
      StructableSource source,
      StructType columns,
      Metadata request,
      String where,
      long rowsAtMost,
      Scan described) {
    this.source = source;
    this.columns = columns;
    this.request = request;
    this.where = where;
    this.rowsAtMost = rowsAtMost;
    this.described = described;
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

  public StructType readSchema() {
    return columns;
  }

  public String description() {
    return description;
  }

  public scala.collection.immutable.Map getMetaData() {
    return shown;
  }

  public CustomMetric[] supportedCustomMetrics() {
    return described.supportedCustomMetrics();
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return described.reportDriverMetrics();
  }

  // Spark would ask each partition otherwise, for which it would have to plan.
  public Scan.ColumnarSupportMode columnarSupportMode() {
    return Scan.ColumnarSupportMode.UNSUPPORTED;
  }

  public Statistics estimateStatistics() {
    if (!source.hasStatistics()) return new Estimate(OptionalLong.empty(), OptionalLong.empty());
    long rows = Math.min(source.rows(), rowsAtMost);
    long bytes = (long) Math.ceil(rows * source.bytesOfARow(columns));
    return new Estimate(OptionalLong.of(rows), OptionalLong.of(Math.max(1L, bytes)));
  }

  public Batch toBatch() {
    Metadata asked = filtered.get() == null ? request : (Metadata) filtered.get();
    filtered.remove();
    return new IsolatedBatch(asked);
  }

  /**
   * The columns by which Spark may filter once it has the keys of a join's other side. A limit must
   * not see that. No decimals: Spark would ask for the decimals that it makes from integers, which
   * are not in the store.
   */
  public NamedReference[] filterAttributes() {
    List names = new ArrayList();
    boolean whole = source.pushes() && !asks("@LIMIT@") && !asks("@AGGREGATES@");
    for (int i = 0; whole && i < columns.length(); i++) {
      DataType type = columns.fields()[i].dataType();
      if (type instanceof FloatType || type instanceof DoubleType || type instanceof DecimalType)
        continue;
      names.add(Expressions.column("`" + columns.fields()[i].name().replace("`", "``") + "`"));
    }
    return (NamedReference[]) names.toArray(new NamedReference[0]);
  }

  /**
   * Makes the batch that this thread makes next plan with these conditions, too, as far as the
   * store takes them: Spark evaluates the join itself, too.
   */
  public void filter(Predicate[] conditions) {
    List written = new ArrayList();
    if (where != null) written.add(where);
    StructableConditions writer = new StructableConditions(source.schema());
    for (int i = 0; i < conditions.length; i++) {
      String json = writer.keys(conditions[i], MOST_KEYS);
      if (json != null) written.add(json);
    }
    MetadataBuilder asked = new MetadataBuilder().withMetadata(request);
    if (!written.isEmpty()) asked.putString("@WHERE@", StructableConditions.all(written));
    filtered.set(asked.build());
  }

  private boolean asks(String key) {
    return request.contains(key);
  }

  static boolean isShortDecimal(DataType type) {
    return type instanceof DecimalType && ((DecimalType) type).precision() <= MOST_DIGITS;
  }

  /** Whether it reads decimals that an integer can hold, and not as integers yet. */
  boolean hasShortDecimals() {
    if (!source.pushes() || asks("@AGGREGATES@")) return false;
    for (int i = 0; i < columns.length(); i++)
      if (isShortDecimal(columns.fields()[i].dataType())) return true;
    return false;
  }

  /** The same scan, with the unscaled values of short decimals in their place. */
  synchronized StructableScan ofIntegers() {
    if (ofIntegers == null) {
      StructField[] fields = (StructField[]) columns.fields().clone();
      for (int i = 0; i < fields.length; i++) {
        StructField field = fields[i];
        if (!isShortDecimal(field.dataType())) continue;
        fields[i] =
            new StructField(field.name(), DataTypes.LongType, field.nullable(), field.metadata());
      }
      Metadata asked =
          new MetadataBuilder()
              .withMetadata(request)
              .putString("@UNSCALED@", columns.json())
              .build();
      ofIntegers =
          new StructableScan(source, new StructType(fields), asked, where, rowsAtMost, described);
      ofIntegers.shown = shown;
      ofIntegers.description = description;
    }
    return ofIntegers;
  }

  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return described.toMicroBatchStream(checkpoint);
  }

  static final class Estimate implements Statistics {
    private final OptionalLong rows;
    private final OptionalLong bytes;

    Estimate(OptionalLong rows, OptionalLong bytes) {
      this.rows = rows;
      this.bytes = bytes;
    }

    public OptionalLong numRows() {
      return rows;
    }

    public OptionalLong sizeInBytes() {
      return bytes;
    }
  }

  // The execution of the query: Spark runs parts of a recursion's steps as executions within it,
  // which see its state.
  private synchronized String execution() {
    SparkContext context = source.session().sparkContext();
    String current = context.getLocalProperty("spark.sql.execution.id");
    boolean within =
        current != null && !current.equals(context.getLocalProperty("spark.sql.execution.root.id"));
    boolean runs =
        execution != null && SQLExecution.getQueryExecution(Long.parseLong(execution)) != null;
    if (!within || !runs) execution = current;
    return execution;
  }

  /**
   * Plans when its partitions are needed, in the session that built it. Equal ones give the same
   * rows, as all scans of a query see one state: Spark then reads once what a query needs twice.
   */
  final class IsolatedBatch implements Batch {
    private final Metadata request;
    private final List asked;
    private Batch planned;

    IsolatedBatch(Metadata request) {
      this.request = request;
      this.asked = Arrays.asList(new Object[] {source.identity(), columns, request});
    }

    private List asked() {
      return asked;
    }

    public boolean equals(Object other) {
      return other instanceof IsolatedBatch && asked.equals(((IsolatedBatch) other).asked());
    }

    public int hashCode() {
      return asked.hashCode();
    }

    public synchronized InputPartition[] planInputPartitions() {
      Option before = StructableScanIsolation.enter(source.session());
      try {
        InputPartition[] partitions = planned().planInputPartitions();
        latest.set(planned);
        return partitions;
      } finally {
        StructableScanIsolation.leave(before);
      }
    }

    // Right after its node has planned: by this batch or, if it filters, by another one.
    public synchronized PartitionReaderFactory createReaderFactory() {
      Option before = StructableScanIsolation.enter(source.session());
      try {
        Batch plan = latest.get() == null ? planned() : (Batch) latest.get();
        latest.remove();
        return plan.createReaderFactory();
      } finally {
        StructableScanIsolation.leave(before);
      }
    }

    private Batch planned() {
      if (planned == null) planned = source.plan(columns, request, execution());
      return planned;
    }
  }
}
