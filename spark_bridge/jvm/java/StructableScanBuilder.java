import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Takes from Spark what the store and the reader in Python do; nothing is planned before the scan's
 * partitions are.
 */
public final class StructableScanBuilder
    implements SupportsPushDownV2Filters,
        SupportsPushDownRequiredColumns,
        SupportsPushDownLimit,
        SupportsPushDownTopN,
        SupportsPushDownAggregates {
  private static final int MOST_TOP_ROWS = 100000; // a reader may have to keep them in memory
  private static final int MOST_ROWS_OF_ONE_TASK = 10000;

  private final StructableSource source;
  private StructType required;
  private Predicate[] accepted = new Predicate[0];
  private String where; // the accepted conditions for Python
  private int limit = -1;
  private SortOrder[] orders;
  private StructableAggregates aggregates;
  private boolean averages = true; // whether sums and counts are averages

  StructableScanBuilder(StructableSource source) {
    this.source = source;
    this.required = source.schema();
  }

  public Predicate[] pushPredicates(Predicate[] conditions) {
    List taken = new ArrayList();
    List left = new ArrayList();
    List written = new ArrayList();
    StructableConditions writer = new StructableConditions(source.schema());
    for (int i = 0; i < conditions.length; i++) {
      String json = source.pushes() ? writer.json(conditions[i]) : null;
      (json == null ? left : taken).add(conditions[i]);
      if (json != null) written.add(json);
    }
    accepted = (Predicate[]) taken.toArray(new Predicate[0]);
    where = StructableConditions.all(written);
    return (Predicate[]) left.toArray(new Predicate[0]);
  }

  public Predicate[] pushedPredicates() {
    return accepted;
  }

  public void pruneColumns(StructType columns) {
    required = columns;
  }

  // Spark calls the following methods only if it evaluates no condition itself. It does the rest:
  // it takes the first of all rows of the splits, merges them, and adds up the splits' results.

  // One task gives exactly the few rows of a limit: Spark then reads it to its end, and its Python
  // process lives on. A limit of Spark's own abandons it, and the next query waits most of a
  // second for another one.
  public boolean isPartiallyPushed() {
    return !isWhole();
  }

  private boolean isWhole() {
    return limit >= 0 && orders == null && limit <= MOST_ROWS_OF_ONE_TASK;
  }

  public boolean pushLimit(int rows) {
    if (!source.pushesAll() || aggregates != null) return false;
    limit = rows;
    return true;
  }

  // By the leading columns of the key, or by an indexed one.
  public boolean pushTopN(SortOrder[] wanted, int rows) {
    if (!source.pushesAll() || aggregates != null || rows > MOST_TOP_ROWS) return false;
    for (int i = 0; i < wanted.length; i++) {
      String column = StructableConditions.name(wanted[i].expression());
      if (!sorts(column) || wanted[i].direction() != wanted[0].direction()) return false;
    }
    boolean byIndex =
        wanted.length == 1 && source.isIndexed(StructableConditions.name(wanted[0].expression()));
    if (!byKey(wanted) && !byIndex) return false;
    limit = rows;
    orders = wanted;
    return true;
  }

  // Keys and indexes; not floats, which neither takes so far: Arrow does not order NaN as Spark
  // does.
  private boolean sorts(String column) {
    if (column == null || !source.key().contains(column) && !source.isIndexed(column)) return false;
    DataType type = source.schema().apply(column).dataType();
    return !(type instanceof FloatType) && !(type instanceof DoubleType);
  }

  private boolean byKey(SortOrder[] wanted) {
    List key = source.key();
    for (int i = 0; i < wanted.length; i++) {
      String column = StructableConditions.name(wanted[i].expression());
      if (i == key.size() || !key.get(i).equals(column)) return false;
    }
    return wanted.length > 0;
  }

  // Spark asks about averages here only: then it asks for their sums and counts.
  public boolean supportCompletePushDown(Aggregation aggregation) {
    averages = averages && StructableAggregates.averagesAsSums(source.schema(), aggregation);
    return false;
  }

  public boolean pushAggregation(Aggregation aggregation) {
    if (!source.aggregates() || !averages) return false;
    aggregates = StructableAggregates.of(source.schema(), aggregation);
    return aggregates != null;
  }

  public Scan build() {
    MetadataBuilder request = new MetadataBuilder();
    if (where != null) request.putString("@WHERE@", where);
    if (limit >= 0) request.putLong("@LIMIT@", limit);
    if (isWhole()) request.putBoolean("@WHOLE@", true);
    if (orders != null) request.putString("@TOP@", top());
    if (aggregates != null) request.putString("@AGGREGATES@", aggregates.json());
    boolean total = aggregates != null && aggregates.groups.length == 0;
    StructableScan scan =
        new StructableScan(
            source,
            aggregates == null ? columns() : aggregates.columns(),
            request.build(),
            where,
            total ? 1L : rowsAtMost());
    if (accepted.length > 0) scan.show("PushedFilters", shown(accepted));
    if (aggregates != null) scan.show("PushedAggregates", shown(aggregates.functions));
    if (aggregates != null && !total) scan.show("PushedGroupBy", shown(aggregates.groups));
    if (orders != null) scan.show("PushedTopN", "ORDER BY " + shown(orders) + " LIMIT " + limit);
    else if (limit >= 0) scan.show("PushedLimit", "" + limit);
    return scan;
  }

  // The columns, whether they descend, and whether nulls come first.
  private String top() {
    StringBuilder text = new StringBuilder("[[");
    for (int i = 0; i < orders.length; i++) {
      text.append(i > 0 ? "," : "")
          .append(StructableConditions.text(StructableConditions.name(orders[i].expression())));
    }
    text.append("],").append(orders[0].direction() == SortDirection.DESCENDING);
    return text.append(',')
        .append(orders[0].nullOrdering() == NullOrdering.NULLS_FIRST)
        .append(']')
        .toString();
  }

  // In the table's order; at least one column.
  private StructType columns() {
    Set names = new HashSet(Arrays.asList(required.fieldNames()));
    StructField[] all = source.schema().fields();
    if (names.isEmpty()) names.add(all[0].name());
    List chosen = new ArrayList();
    for (int i = 0; i < all.length; i++) if (names.contains(all[i].name())) chosen.add(all[i]);
    return new StructType((StructField[]) chosen.toArray(new StructField[0]));
  }

  // Conditions that give all columns of the key leave one row for each combination of their values.
  private long rowsAtMost() {
    List key = accepted.length > 0 ? source.key() : new ArrayList();
    long rows = key.isEmpty() ? Long.MAX_VALUE : 1L;
    for (int k = 0; k < key.size(); k++) {
      long values = Long.MAX_VALUE;
      for (int i = 0; i < accepted.length; i++) {
        if (!key.get(k).equals(StructableConditions.column(accepted[i]))) continue;
        if (StructableConditions.isEquality(accepted[i])) values = 1L;
        if (accepted[i].name().equals("IN"))
          values = Math.min(values, accepted[i].children().length - 1L);
      }
      rows = values > Long.MAX_VALUE / rows ? Long.MAX_VALUE : rows * values;
    }
    return rows;
  }

  static String shown(Expression[] parts) {
    StringBuilder text = new StringBuilder("[");
    for (int i = 0; i < parts.length; i++) text.append(i > 0 ? ", " : "").append(parts[i]);
    return text.append("]").toString();
  }
}
