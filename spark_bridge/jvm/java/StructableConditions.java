import java.math.BigDecimal;
import java.math.RoundingMode;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Writes a condition as JSON for Python, whole, or not at all where the store would not decide it
 * as Spark does.
 */
public final class StructableConditions {
  private static final int DEEPEST = 50;
  private static final long FIRST_DAY = -719162L; // Python's years are 1 to 9999
  private static final long LAST_DAY = 2932896L;
  private static final long MICROSECONDS = 86400000000L;

  private final StructType schema;

  StructableConditions(StructType schema) {
    this.schema = schema;
  }

  String json(Predicate condition) {
    return json(condition, 0);
  }

  /** All of some conditions, at least one, or null if one cannot be written. */
  String json(Predicate[] conditions) {
    java.util.ArrayList written = new java.util.ArrayList();
    for (int i = 0; i < conditions.length; i++) {
      String one = json(conditions[i]);
      if (one == null) return null;
      written.add(one);
    }
    return all(written);
  }

  /** All of some written conditions, or null if there are none. */
  static String all(java.util.List written) {
    return written.isEmpty() ? null : "[\"and\"," + String.join(",", written) + "]";
  }

  /** Whether a condition leaves its column a single value. */
  static boolean isEquality(Predicate condition) {
    Expression[] parts = condition.children();
    boolean equal = condition.name().equals("=") || condition.name().equals("<=>");
    return equal && parts.length == 2 && parts[1] instanceof Literal;
  }

  /** The first column of a condition that begins with one, or null. */
  static String column(Predicate condition) {
    Expression[] parts = condition.children();
    return parts.length > 0 ? name(parts[0]) : null;
  }

  static String name(Expression column) {
    if (!(column instanceof NamedReference)) return null;
    String[] path = ((NamedReference) column).fieldNames();
    return path.length == 1 ? path[0] : null;
  }

  private String json(Expression condition, int depth) {
    if (depth > DEEPEST) return null;
    if (name(condition) != null)
      return comparison("=", name(condition), "true", BooleanType.class); // a flag
    if (!(condition instanceof Predicate)) return null;
    String operator = ((Predicate) condition).name();
    Expression[] parts = condition.children();
    if (operator.equals("NOT")) {
      String part = json(parts[0], depth + 1);
      return part == null ? null : "[\"not\"," + part + "]";
    }
    if (operator.equals("BOOLEAN_EXPRESSION")) return json(parts[0], depth + 1);
    if (operator.equals("AND") || operator.equals("OR")) {
      StringBuilder text =
          new StringBuilder("[\"").append(operator.equals("OR") ? "or" : "and").append('"');
      return joined(operator, (Predicate) condition, depth, text)
          ? text.append(']').toString()
          : null;
    }
    if (parts.length == 2 && parts[0] instanceof Literal) {
      operator = mirrored(operator);
      if (operator == null) return null;
      parts = new Expression[] {parts[1], parts[0]};
    }
    String column = parts.length > 0 ? name(parts[0]) : null;
    if (column == null && (operator.equals("=") || operator.equals("IN"))) return starts(parts);
    if (column == null || !Arrays.asList(schema.fieldNames()).contains(column)) return null;
    if (operator.equals("IS_NULL")) return "[\"null\"," + text(column) + "]";
    if (operator.equals("IS_NOT_NULL")) return "[\"not\",[\"null\"," + text(column) + "]]";
    if (operator.equals("IN")) return list(column, parts);
    if (parts.length == 2 && name(parts[1]) != null)
      return columns(operator, column, name(parts[1]));
    if (parts.length != 2 || !(parts[1] instanceof Literal)) return null;
    Literal literal = (Literal) parts[1];
    DataType type = schema.apply(column).dataType();
    if (operator.equals("STARTS_WITH"))
      return type instanceof StringType ? comparison("starts", column, literal) : null;
    if (operator.equals("<=>") && literal.value() == null) return "[\"null\"," + text(column) + "]";
    return Arrays.asList(OPERATORS).contains(operator)
        ? comparison(operator, column, literal)
        : null;
  }

  // Whether `substring(column, 1, n)` is one of some texts: the column starts with one, or is it,
  // if that is shorter.
  private String starts(Expression[] parts) {
    if (parts.length < 2 || !(parts[0] instanceof GeneralScalarExpression)) return null;
    Expression[] piece = parts[0].children();
    boolean leads =
        ((GeneralScalarExpression) parts[0]).name().equals("SUBSTRING")
            && piece.length == 3
            && Integer.valueOf(1).equals(constant(piece[1]))
            && constant(piece[2]) instanceof Integer;
    String column = leads ? name(piece[0]) : null;
    if (column == null || !(schema.apply(column).dataType() instanceof StringType)) return null;
    int length = ((Integer) constant(piece[2])).intValue();
    StringBuilder text = new StringBuilder("[\"or\"");
    for (int i = 1; i < parts.length; i++) {
      Object value = constant(parts[i]);
      int characters = value instanceof UTF8String ? ((UTF8String) value).numChars() : length + 1;
      String written = characters > length ? null : string(((UTF8String) value).getBytes());
      if (written == null) return null;
      text.append(characters == length ? ",[\"starts\"," : ",[\"=\",")
          .append(text(column))
          .append(',');
      text.append(written).append(']');
    }
    return text.append(']').toString();
  }

  private static Object constant(Expression part) {
    return part instanceof Literal ? ((Literal) part).value() : null;
  }

  private static String mirrored(String operator) {
    if (operator.equals("<")) return ">";
    if (operator.equals("<=")) return ">=";
    if (operator.equals(">")) return "<";
    if (operator.equals(">=")) return "<=";
    return operator.equals("=") || operator.equals("<=>") || operator.equals("<>")
        ? operator
        : null;
  }

  private static final String[] OPERATORS = {"=", "<>", "<=>", "<", "<=", ">", ">="};

  // A chain of a thousand parts is a tree a thousand deep in Spark, and one list here.
  private boolean joined(String operator, Predicate condition, int depth, StringBuilder text) {
    Expression part = condition;
    java.util.ArrayList parts = new java.util.ArrayList();
    while (part instanceof Predicate && ((Predicate) part).name().equals(operator)) {
      Expression[] both = part.children();
      parts.add(both[1]);
      part = both[0];
    }
    parts.add(part);
    for (int i = parts.size() - 1; i >= 0; i--) {
      String one = json((Expression) parts.get(i), depth + 1);
      if (one == null) return false;
      text.append(',').append(one);
    }
    return true;
  }

  private String comparison(String operator, String column, Literal literal) {
    return comparison(operator, column, value(column, literal), null);
  }

  private String comparison(String operator, String column, String value, Class wanted) {
    if (value == null || wanted != null && !wanted.isInstance(schema.apply(column).dataType()))
      return null;
    return "[" + text(operator) + "," + text(column) + "," + value + "]";
  }

  private String columns(String operator, String one, String other) {
    if (operator.equals("<=>") || !Arrays.asList(OPERATORS).contains(operator)) return null;
    if (!Arrays.asList(schema.fieldNames()).contains(other)) return null;
    if (!schema.apply(one).dataType().equals(schema.apply(other).dataType())) return null;
    return "[\"columns\"," + text(operator) + "," + text(one) + "," + text(other) + "]";
  }

  /**
   * A condition `in` of a join's keys, of which null meets none; null if it cannot be written or
   * has too many.
   */
  String keys(Predicate condition, int most) {
    Expression[] parts = condition.children();
    if (!condition.name().equals("IN") || name(parts[0]) == null) return null;
    java.util.ArrayList held = new java.util.ArrayList();
    for (int i = 0; i < parts.length; i++) {
      if (!(parts[i] instanceof Literal) || ((Literal) parts[i]).value() != null)
        held.add(parts[i]);
    }
    if (held.size() == 1) return "[\"in\"," + text(name(parts[0])) + ",[]]";
    return held.size() > most + 1
        ? null
        : list(name(parts[0]), (Expression[]) held.toArray(new Expression[0]));
  }

  // A null in the list makes `in` unknown instead of false. On floats, Spark compares by bits once
  // the list is long, so that -0.0 is no longer 0.0: those lists stay with Spark.
  private String list(String column, Expression[] parts) {
    DataType type = schema.apply(column).dataType();
    if (type instanceof FloatType || type instanceof DoubleType || parts.length < 2) return null;
    StringBuilder text = new StringBuilder("[\"in\",").append(text(column)).append(",[");
    for (int i = 1; i < parts.length; i++) {
      String value = parts[i] instanceof Literal ? value(column, (Literal) parts[i]) : null;
      if (value == null) return null;
      text.append(i > 1 ? "," : "").append(value);
    }
    return text.append("]]").toString();
  }

  // A value in the form in which Spark computes, of the column's type; null for one that the column
  // cannot hold.
  private String value(String column, Literal literal) {
    DataType type = schema.apply(column).dataType();
    Object value = literal.value();
    if (value == null) return null;
    if (type instanceof DecimalType && value instanceof Decimal) {
      BigDecimal number = ((Decimal) value).toJavaBigDecimal();
      DecimalType own = (DecimalType) type;
      if (number.stripTrailingZeros().scale() > own.scale()) return null;
      number = number.setScale(own.scale(), RoundingMode.UNNECESSARY);
      return number.precision() > own.precision() ? null : text(number.toPlainString());
    }
    if (!type.equals(literal.dataType())) return null;
    if (type instanceof DateType) return within(((Integer) value).longValue(), 1L);
    if (type instanceof TimestampType || type instanceof TimestampNTZType) {
      return within(((Long) value).longValue(), MICROSECONDS);
    }
    if (type instanceof FloatType) return text(Double.toString(((Float) value).doubleValue()));
    if (type instanceof DoubleType) return text(value.toString());
    if (type instanceof BinaryType) return text(Base64.getEncoder().encodeToString((byte[]) value));
    if (type instanceof StringType) return string(((UTF8String) value).getBytes());
    boolean plain = value instanceof Number || value instanceof Boolean;
    return plain ? value.toString() : null;
  }

  private static String within(long value, long unit) {
    return value >= FIRST_DAY * unit && value < (LAST_DAY + 1L) * unit
        ? Long.toString(value)
        : null;
  }

  private static String string(byte[] encoded) {
    String value = new String(encoded, StandardCharsets.UTF_8);
    boolean held =
        value.indexOf(0) < 0 && Arrays.equals(value.getBytes(StandardCharsets.UTF_8), encoded);
    return held ? text(value) : null;
  }

  static String text(String value) {
    StringBuilder text = new StringBuilder("\"");
    for (int i = 0; i < value.length(); i++) {
      char c = value.charAt(i);
      if (c == '"' || c == '\\') {
        text.append('\\').append(c);
      } else if (c < ' ') {
        text.append("\\u00").append(c < 16 ? "0" : "").append(Integer.toHexString(c));
      } else {
        text.append(c);
      }
    }
    return text.append('"').toString();
  }
}
