import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table of a catalog, which reads and writes as the format does. */
public class CatalogTable implements SupportsRead, SupportsWrite, SupportsDeleteV2 {
  final String catalog;
  final Map options;
  final String table;
  final StructType answer;
  final Metadata told;
  private final StructType schema;

  // `answer` is Python's to the command load.
  public CatalogTable(String catalog, Map options, String table, StructType answer) {
    this.catalog = catalog;
    this.options = options;
    this.table = table;
    this.answer = answer;
    this.told = CatalogCommand.told(answer);
    StructField[] fields = (StructField[]) answer.fields().clone();
    StructField first = fields[0];
    fields[0] = new StructField(first.name(), first.dataType(), first.nullable(), Metadata.empty());
    this.schema = new StructType(fields);
  }

  public String name() {
    return catalog + "." + table;
  }

  public StructType schema() {
    return schema;
  }

  public Map properties() {
    Map all = new LinkedHashMap();
    String[] names = told.getStringArray("names");
    String[] values = told.getStringArray("values");
    for (int i = 0; i < names.length; i++) all.put(names[i], values[i]);
    return all;
  }

  // Spark checks and casts what is written, as the table does not accept any schema.
  public Set capabilities() {
    return EnumSet.of(
        TableCapability.BATCH_READ,
        TableCapability.BATCH_WRITE,
        TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE);
  }

  // The table as the format has it.
  public PythonTable loaded() {
    return new PythonTable(CatalogCommand.provider(), "structable", schema);
  }

  public CaseInsensitiveStringMap readOptions(CaseInsensitiveStringMap given) {
    check(given, told.getStringArray("notRead"), "read");
    return merged(new CaseInsensitiveStringMap(options), given);
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    return loaded().newScanBuilder(readOptions(given));
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return loaded().newWriteBuilder(new Info(info, writeOptions(info.options())));
  }

  CaseInsensitiveStringMap writeOptions(CaseInsensitiveStringMap given) {
    check(given, new String[] {"url", "table"}, "written");
    Map own = new HashMap(new CaseInsensitiveStringMap(options));
    own.keySet().removeAll(Arrays.asList(told.getStringArray("onlyRead")));
    Map rest = new HashMap(given.asCaseSensitiveMap());
    drop(rest, given, "primary-key");
    drop(rest, given, "indexes");
    return merged(own, new CaseInsensitiveStringMap(rest));
  }

  // An option of saveAsTable() for a new table, which this one is not any more.
  private void drop(Map rest, CaseInsensitiveStringMap given, String name) {
    if (!given.containsKey(name)) return;
    Object own = properties().get(name);
    if (!given.get(name).replace(" ", "").equals(own == null ? "" : own)) {
      CatalogCommand.refuse(
          "the option "
              + name
              + " is "
              + given.get(name)
              + ", and table "
              + name()
              + " exists with "
              + own
              + "; nothing was written: leave the option out");
    }
    Object[] names = rest.keySet().toArray();
    for (int i = 0; i < names.length; i++)
      if (name.equalsIgnoreCase((String) names[i])) rest.remove(names[i]);
  }

  private void check(CaseInsensitiveStringMap given, String[] refused, String verb) {
    for (int i = 0; i < refused.length; i++) {
      if (given.containsKey(refused[i])) {
        CatalogCommand.refuse(
            "the option "
                + refused[i]
                + " is not for tables of a catalog, and "
                + name()
                + " is one; a table is "
                + verb
                + " with it by format(\"structable\")");
      }
    }
  }

  private CaseInsensitiveStringMap merged(Map own, CaseInsensitiveStringMap given) {
    Map all = new HashMap(own);
    all.putAll(given);
    all.put("table", table);
    return new CaseInsensitiveStringMap(all);
  }

  public boolean canDeleteWhere(Predicate[] predicates) {
    if (!storeDecides(predicates)) {
      CatalogCommand.refuse(
          "the store cannot evaluate the whole condition, and nothing was deleted from "
              + name()
              + ", whose rows have no key: take out those that a query finds, by"
              + " df.write.format(\"structable\") with the option mode of value changes, if its"
              + " write-mode is change-log");
    }
    return true;
  }

  final boolean storeDecides(Predicate[] predicates) {
    Predicate[] chosen = chosen(predicates);
    return chosen.length == 0 || new StructableConditions(schema).json(chosen) != null;
  }

  public void deleteWhere(Predicate[] predicates) {
    for (int i = 0; i < predicates.length; i++)
      if (predicates[i].name().equals("ALWAYS_FALSE")) return;
    Predicate[] chosen = chosen(predicates);
    if (chosen.length == 0) {
      truncateTable();
    } else {
      command("delete").with("where", new StructableConditions(schema).json(chosen)).run();
    }
  }

  // Those that depend on rows.
  private static Predicate[] chosen(Predicate[] predicates) {
    List found = new ArrayList();
    for (int i = 0; i < predicates.length; i++) {
      if (!predicates[i].name().startsWith("ALWAYS_")) found.add(predicates[i]);
    }
    return (Predicate[]) found.toArray(new Predicate[0]);
  }

  public boolean truncateTable() {
    command("truncate").run();
    return true;
  }

  private CatalogCommand command(String command) {
    return new CatalogCommand(options, command, table);
  }

  public boolean equals(Object other) {
    if (!(other instanceof CatalogTable)) return false;
    CatalogTable same = (CatalogTable) other;
    return name().equals(same.name()) && options.equals(same.options) && schema.equals(same.schema);
  }

  public int hashCode() {
    return name().hashCode();
  }

  public static final class Info implements LogicalWriteInfo {
    private final LogicalWriteInfo info;
    private final CaseInsensitiveStringMap options;

    public Info(LogicalWriteInfo info, CaseInsensitiveStringMap options) {
      this.info = info;
      this.options = options;
    }

    public CaseInsensitiveStringMap options() {
      return options;
    }

    public String queryId() {
      return info.queryId();
    }

    public StructType schema() {
      return info.schema();
    }
  }
}
