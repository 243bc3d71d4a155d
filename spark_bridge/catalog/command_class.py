"""The class `structable.CatalogCommand`: a request of the JVM, which the data source in Python answers."""

from __future__ import annotations

from .requests import REQUEST

__all__ = ["JAVA"]

JAVA = """
package structable;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.util.Failure;

public final class CatalogCommand {
  private final Map options;
  private final MetadataBuilder request = new MetadataBuilder();

  public CatalogCommand(Map options, String command, String table) {
    this.options = options;
    request.putString("command", command);
    if (table != null) request.putString("table", table);
  }

  public CatalogCommand with(String name, String value) {
    request.putString(name, value);
    return this;
  }

  public CatalogCommand with(String name, Metadata[] values) {
    if (values.length > 0) request.putMetadataArray(name, values);  // an empty array has no type
    return this;
  }

  public CatalogCommand with(Map properties) {
    String[] names = (String[]) properties.keySet().toArray(new String[0]);
    String[] values = new String[names.length];
    for (int i = 0; i < names.length; i++) values[i] = (String) properties.get(names[i]);
    if (names.length > 0) request.putStringArray("names", names).putStringArray("values", values);
    return this;
  }

  // The data source's answer is a schema, and what else there is to tell is metadata of its first field.
  public StructType run() {
    Map all = new HashMap(options);
    all.put("@REQUEST@", request.build().json());
    try {
      return provider().inferSchema(new CaseInsensitiveStringMap(all));
    } catch (Exception error) {
      String message = String.valueOf(error.getMessage());
      if (message.startsWith("[DATA_SOURCE_NOT_EXIST]")) {
        refuse("DATA_SOURCE_NOT_EXIST", "structable is not registered in this session: call register(spark) for it");
      }
      raise(error);
      return null;
    }
  }

  public Metadata answer() { return told(run()); }

  public static Metadata told(StructType answer) { return answer.fields()[0].metadata(); }

  public static boolean is(Metadata answer, String outcome) { return outcome.equals(answer.getString("outcome")); }

  public static PythonDataSourceV2 provider() {
    PythonDataSourceV2 made = new PythonDataSourceV2();
    made.setShortName("structable");
    return made;
  }

  public static void refuse(String message) { refuse("UNSUPPORTED_FEATURE.TABLE_OPERATION", message); }

  private static void refuse(String condition, String message) {
    raise(new AnalysisException(
        "[" + condition + "] " + message, Option.empty(), Option.empty(), Option.empty(), Option.apply(condition),
        scala.collection.immutable.Map$.MODULE$.empty(), new QueryContext[0]));
  }

  // Throws it, undeclared as Scala's exceptions are.
  public static void raise(Throwable error) { new Failure(error).get(); }

  // Conditions as Python reads them, or null if one is of another kind.
  public static Metadata[] conditions(Predicate[] predicates) {
    Metadata[] all = new Metadata[predicates.length];
    for (int i = 0; i < predicates.length; i++) {
      all[i] = condition(predicates[i]);
      if (all[i] == null) return null;
    }
    return all;
  }

  private static Metadata condition(Expression expression) {
    if (!(expression instanceof Predicate)) return null;
    String name = ((Predicate) expression).name();
    Expression[] children = expression.children();
    MetadataBuilder made = new MetadataBuilder().putString("name", name);
    if (name.equals("ALWAYS_TRUE") || name.equals("ALWAYS_FALSE")) return made.build();
    if (name.equals("AND") || name.equals("OR") || name.equals("NOT")) {
      Metadata[] parts = new Metadata[children.length];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = condition(children[i]);
        if (parts[i] == null) return null;
      }
      return made.putMetadataArray("children", parts).build();
    }
    if (children.length > 0 && children[0] instanceof Literal) {
      String mirrored = mirrored(name);
      if (mirrored == null || children.length != 2) return null;
      made.putString("name", mirrored);
      children = new Expression[] {children[1], children[0]};
    }
    if (children.length == 0 || !(children[0] instanceof NamedReference)) return null;
    String[] path = ((NamedReference) children[0]).fieldNames();
    if (path.length != 1) return null;
    made.putString("column", path[0]);
    Metadata[] values = new Metadata[children.length - 1];
    for (int i = 0; i < values.length; i++) {
      if (!(children[i + 1] instanceof Literal)) return null;
      values[i] = value((Literal) children[i + 1]);
    }
    return (values.length > 0 ? made.putMetadataArray("children", values) : made).build();
  }

  private static String mirrored(String name) {
    if (name.equals("=") || name.equals("<=>") || name.equals("<>")) return name;
    if (name.equals("<")) return ">";
    if (name.equals("<=")) return ">=";
    if (name.equals(">")) return "<";
    if (name.equals(">=")) return "<=";
    return null;
  }

  private static Metadata value(Literal literal) {
    MetadataBuilder made = new MetadataBuilder().putString("type", literal.dataType().typeName());
    Object value = literal.value();
    if (value instanceof byte[]) {
      StringBuilder digits = new StringBuilder();
      byte[] bytes = (byte[]) value;
      for (int i = 0; i < bytes.length; i++) digits.append(String.format("%02x", new Object[] {new Byte(bytes[i])}));
      value = digits;
    }
    return (value == null ? made : made.putString("value", value.toString())).build();
  }
}
""".replace("@REQUEST@", REQUEST)
