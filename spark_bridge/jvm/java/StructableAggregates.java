import org.apache.spark.sql.connector.expressions.Cast;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Avg;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.aggregate.Sum;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Writes aggregates as JSON for Python: all, or none where a result of the store would differ from
 * Spark's.
 */
final class StructableAggregates {
  private static final int MOST_DIGITS = 38;
  // Spark takes a partial sum of decimals for one of their own type, so that few of narrow ones
  // fit.
  private static final int LEAST_DIGITS = 10;
  // No number of rows exceeds Spark's sum of these, which has 10 digits more.
  private static final int MOST_DIGITS_OF_AVERAGES = 28;

  private final StructType schema;
  final Expression[] groups;
  final AggregateFunc[] functions;
  private final StructField[] results;
  private final StringBuilder text = new StringBuilder("{\"group_by\":[");
  // Whether a cast within the function added digits after the point, which the store leaves out.
  private boolean widened;

  private StructableAggregates(StructType schema, Aggregation wanted) {
    this.schema = schema;
    this.groups = wanted.groupByExpressions();
    this.functions = wanted.aggregateExpressions();
    this.results = new StructField[groups.length + functions.length];
  }

  /** The aggregates, or null if the store does not compute all of them. */
  static StructableAggregates of(StructType schema, Aggregation wanted) {
    StructableAggregates made = new StructableAggregates(schema, wanted);
    return made.results.length > 0 && made.write() ? made : null;
  }

  /**
   * Whether the quotient of a sum and a count is what Spark's average is: it adds up long integers
   * as doubles, and the sum of a `try_avg` is not a `try_sum`, so that it must not overflow.
   */
  static boolean averagesAsSums(StructType schema, Aggregation wanted) {
    AggregateFunc[] functions = wanted.aggregateExpressions();
    for (int i = 0; i < functions.length; i++) {
      if (!(functions[i] instanceof Avg)) continue;
      Expression averaged = functions[i].children()[0];
      String column = StructableConditions.name(averaged);
      if (column != null && schema.apply(column).dataType() instanceof LongType) return false;
      DecimalType type =
          new StructableAggregates(schema, wanted).number(averaged, new StringBuilder());
      if (type != null && type.precision() > MOST_DIGITS_OF_AVERAGES) return false;
    }
    return true;
  }

  /** The columns of the groups, then of the functions. */
  StructType columns() {
    return new StructType(results);
  }

  String json() {
    return text.toString();
  }

  private boolean write() {
    for (int i = 0; i < groups.length; i++) {
      StructField field = ordered(groups[i]);
      if (field == null) return false;
      text.append(i > 0 ? "," : "").append(StructableConditions.text(field.name()));
      results[i] =
          new StructField(field.name(), field.dataType(), field.nullable(), Metadata.empty());
    }
    text.append("],\"functions\":[");
    for (int i = 0; i < functions.length; i++) {
      text.append(i > 0 ? ",[" : "[");
      DataType type = write(functions[i]);
      if (type == null) return false;
      text.append(']');
      results[groups.length + i] =
          new StructField(
              resultName(groups.length + i, functions[i]), type, true, Metadata.empty());
    }
    text.append("]}");
    return true;
  }

  // Spark names a `sum` and a `try_sum` alike, and confuses columns of one name when it reads them.
  private String resultName(int place, AggregateFunc function) {
    String name = function.toString();
    for (int i = 0; i < place; i++) if (results[i].name().equals(name)) return name + " " + place;
    return name;
  }

  // The type of the function's results; null for one that Spark computes.
  private DataType write(AggregateFunc wanted) {
    widened = false;
    if (wanted instanceof CountStar) {
      text.append("\"count\"");
      return DataTypes.LongType;
    }
    if (wanted instanceof Count) {
      if (((Count) wanted).isDistinct()) return null;
      String column = StructableConditions.name(wanted.children()[0]);
      text.append("\"count\",");
      if (column == null)
        return number(wanted.children()[0], text) == null ? null : DataTypes.LongType;
      text.append(column(column));
      return DataTypes.LongType;
    }
    if (wanted instanceof Min || wanted instanceof Max) {
      StructField field = ordered(wanted.children()[0]);
      if (field == null) return null;
      text.append(wanted instanceof Min ? "\"min\"," : "\"max\",").append(column(field.name()));
      return field.dataType();
    }
    if (!(wanted instanceof Sum) || ((Sum) wanted).isDistinct()) return null;
    Expression summed = wanted.children()[0];
    String column = StructableConditions.name(summed);
    if (column != null && digitsOfIntegers(schema.apply(column).dataType()) > 0) {
      text.append("\"sum\",").append(column(column));
      return DataTypes.LongType;
    }
    text.append("\"sum\",");
    DecimalType type = number(summed, text);
    return type == null || type.precision() < LEAST_DIGITS ? null : type;
  }

  // Arrow does not order NaN as Spark does, nor are zeros of both signs one group there.
  private StructField ordered(Expression column) {
    String name = StructableConditions.name(column);
    if (name == null) return null;
    StructField field = schema.apply(name);
    return field.dataType() instanceof FloatType || field.dataType() instanceof DoubleType
        ? null
        : field;
  }

  private static String column(String name) {
    return "[\"column\"," + StructableConditions.text(name) + "]";
  }

  private static int digitsOfIntegers(DataType type) {
    if (type instanceof ByteType) return 3;
    if (type instanceof ShortType) return 5;
    if (type instanceof IntegerType) return 10;
    return type instanceof LongType ? 20 : 0;
  }

  // Writes an expression of decimals, and returns its type in Spark; null where Spark's result may
  // be rounded.
  private DecimalType number(Expression number, StringBuilder text) {
    String name = StructableConditions.name(number);
    if (name != null) {
      text.append(column(name));
      DataType type = schema.apply(name).dataType();
      return type instanceof DecimalType ? (DecimalType) type : null;
    }
    if (number instanceof Literal) {
      Object value = ((Literal) number).value();
      if (!(value instanceof Decimal)) return null;
      text.append("[\"number\",\"")
          .append(((Decimal) value).toJavaBigDecimal().toPlainString())
          .append("\"]");
      return (DecimalType) ((Literal) number).dataType();
    }
    if (number instanceof Cast) return converted((Cast) number, text);
    if (!(number instanceof GeneralScalarExpression) || number.children().length != 2) return null;
    String operator = ((GeneralScalarExpression) number).name();
    boolean multiplies = operator.equals("*");
    if (!multiplies && !operator.equals("+") && !operator.equals("-")) return null;
    text.append("[\"").append(operator).append("\",");
    DecimalType left = number(number.children()[0], text);
    if (left == null) return null;
    text.append(',');
    DecimalType right = number(number.children()[1], text);
    if (right == null) return null;
    text.append(']');
    int scale = multiplies ? left.scale() + right.scale() : Math.max(left.scale(), right.scale());
    int before =
        multiplies
            ? left.precision() - left.scale() + right.precision() - right.scale() + 1
            : Math.max(left.precision() - left.scale(), right.precision() - right.scale()) + 1;
    if (before + scale <= MOST_DIGITS) return new DecimalType(before + scale, scale);
    if (widened) return null; // Spark's result overflows where the store's does not
    boolean rounds = Math.max(MOST_DIGITS - before, Math.min(scale, 6)) != scale;
    return rounds ? null : new DecimalType(MOST_DIGITS, scale);
  }

  // A cast that changes no value is left out.
  private DecimalType converted(Cast cast, StringBuilder text) {
    if (!(cast.dataType() instanceof DecimalType)) return null;
    DecimalType type = (DecimalType) cast.dataType();
    int before = type.precision() - type.scale();
    String column = StructableConditions.name(cast.expression());
    int digits = column == null ? 0 : digitsOfIntegers(schema.apply(column).dataType());
    if (digits > 0) {
      text.append(column(column));
      widened = widened || type.scale() > 0;
      return before >= digits ? type : null;
    }
    DecimalType own = number(cast.expression(), text);
    if (own == null || type.scale() < own.scale() || before < own.precision() - own.scale())
      return null;
    widened = widened || type.scale() > own.scale();
    return type;
  }
}
