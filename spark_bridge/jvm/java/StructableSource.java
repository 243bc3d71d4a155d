import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** The data source in Python of one load(), as its scans see it. */
public final class StructableSource {
  // Python's answers about a table, by the table that one load() made, and by the question.
  private static final Map ANSWERS = Collections.synchronizedMap(new WeakHashMap());

  private final PythonTable shared;
  private final CaseInsensitiveStringMap options;
  private final SparkSession session;

  StructableSource(PythonTable shared, CaseInsensitiveStringMap options, SparkSession session) {
    this.shared = shared;
    this.options = options;
    this.session = session;
  }

  static PythonDataSourceV2 provider(PythonTable shared) {
    PythonDataSourceV2 provider = new PythonDataSourceV2();
    provider.setShortName(StructableScanIsolation.FORMAT);
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

  StructType schema() {
    return shared.schema();
  }

  SparkSession session() {
    return session;
  }

  /** Equal for sources that read the same table in the same way. */
  List identity() {
    return Arrays.asList(new Object[] {session, options.asCaseSensitiveMap(), schema()});
  }

  // All columns of the table; the first has the answer.
  private StructType answer(String question) {
    Map known = (Map) ANSWERS.get(shared);
    if (known == null) {
      known = new ConcurrentHashMap();
      ANSWERS.put(shared, known);
    }
    StructType answer = (StructType) known.get(question);
    if (answer == null) {
      answer = ask(question);
      known.put(question, answer);
    }
    return answer;
  }

  // Keys and indexes, and what may be pushed down.
  private Metadata facts() {
    return answer("table").fields()[0].metadata();
  }

  private Metadata size() {
    return answer("size").fields()[0].metadata();
  }

  private StructType ask(String question) {
    Map all = new HashMap(options.asCaseSensitiveMap());
    all.put("@FACTS@", question);
    StructType known = StructableCoordinator.schema(all);
    if (known != null) return known;
    PythonDataSourceV2 asked = new PythonDataSourceV2();
    asked.setShortName(StructableScanIsolation.FORMAT);
    Option before = StructableScanIsolation.enter(session);
    try {
      return asked.inferSchema(new CaseInsensitiveStringMap(all));
    } finally {
      StructableScanIsolation.leave(before);
    }
  }

  boolean pushes() {
    return !facts().getString("pushdown").equals("none");
  }

  boolean pushesAll() {
    return facts().getString("pushdown").equals("all");
  }

  boolean aggregates() {
    return pushesAll() && facts().getBoolean("aggregates");
  }

  List key() {
    return names("key");
  }

  boolean isIndexed(String column) {
    return names("indexes").contains(column);
  }

  private List names(String fact) {
    return facts().contains(fact)
        ? Arrays.asList(facts().getStringArray(fact))
        : Collections.EMPTY_LIST;
  }

  boolean hasStatistics() {
    return size().contains("rows");
  }

  long rows() {
    return size().getLong("rows");
  }

  /**
   * About how many bytes some columns of a row have: texts and bytes share what the others leave of
   * the rows.
   */
  double bytesOfARow(StructType columns) {
    StructType all = answer("size");
    if (!size().contains("bytes")) return columns.defaultSize();
    double left = (double) size().getLong("bytes") / Math.max(1L, rows()) - width(all, false);
    double share = Math.max(0.0, left) / Math.max(1L, width(all, true));
    return width(columns, false) + share * width(columns, true);
  }

  private static long width(StructType columns, boolean varying) {
    long width = 0L;
    for (int i = 0; i < columns.length(); i++) {
      DataType type = columns.fields()[i].dataType();
      boolean varies = type instanceof StringType || type instanceof BinaryType;
      if (varies == varying) width += type.defaultSize();
    }
    return width;
  }

  /** A scan that plans nothing, for what Spark describes. */
  Scan described(StructType columns) {
    return scan(provider(shared), columns);
  }

  // Runs in the driver as part of the execution whose tasks will read, if there is one: `rdd` plans
  // without.
  Batch plan(StructType columns, Metadata request, String execution) {
    String zone = session.conf().get("spark.sql.session.timeZone");
    MetadataBuilder all = new MetadataBuilder().withMetadata(request);
    all.putString(
        "@ZONE@",
        DateTimeUtils.getZoneId(zone).normalized().getId()); // without names of Java alone
    if (execution != null) all.putString("@EXECUTION@", execution);
    StructField[] fields = (StructField[]) columns.fields().clone();
    StructField first = fields[0];
    fields[0] = new StructField(first.name(), first.dataType(), first.nullable(), all.build());
    StructType asked = new StructType(fields);
    List planned = StructableCoordinator.plan(options.asCaseSensitiveMap(), asked);
    PythonDataSourceV2 provider = provider(shared);
    if (planned == null) return scan(provider, asked).toBatch();
    List partitions = planned.subList(1, planned.size());
    provider.setReadInfo(
        new PythonDataSourceReadInfo(
            (byte[]) planned.get(0), CollectionConverters.asScala(partitions).toList()));
    return scan(provider, columns).toBatch();
  }

  private Scan scan(PythonDataSourceV2 provider, StructType columns) {
    return new PythonScanBuilder(provider, StructableScanIsolation.FORMAT, columns, options)
        .build();
  }
}
