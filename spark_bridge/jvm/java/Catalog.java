import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What `spark.sql.catalog.NAME` names: one store, whose tables have no namespaces. */
public final class Catalog implements StagingTableCatalog {
  private String name;
  private Map options;

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    this.options = options.asCaseSensitiveMap();
  }

  public String name() {
    return name;
  }

  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length > 0) throw new NoSuchNamespaceException(namespace);
    Metadata answer = new CatalogCommand(options, "list", null).answer();
    String[] names = answer.contains("names") ? answer.getStringArray("names") : new String[0];
    Identifier[] found = new Identifier[names.length];
    for (int i = 0; i < names.length; i++) found[i] = Identifier.of(namespace, names[i]);
    return found;
  }

  public Table loadTable(Identifier ident) throws NoSuchTableException {
    if (ident.namespace().length > 0) throw new NoSuchTableException(ident);
    StructType answer = new CatalogCommand(options, "load", ident.name()).run();
    if (CatalogCommand.is(CatalogCommand.told(answer), "absent"))
      throw new NoSuchTableException(ident);
    return KeyedTable.of(name, options, ident.name(), answer);
  }

  public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    return refuseEarlier(ident);
  }

  public Table loadTable(Identifier ident, long timestamp) throws NoSuchTableException {
    return refuseEarlier(ident);
  }

  private Table refuseEarlier(Identifier ident) throws NoSuchTableException {
    String shown = loadTable(ident).name();
    CatalogCommand.refuse(
        "there is no VERSION AS OF or TIMESTAMP AS OF: "
            + shown
            + " keeps its newest rows only; what changed in a table with a change feed is read by"
            + " format(\"structable\") with the option readChangeFeed");
    return null;
  }

  public Table createTable(
      Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    check(ident, partitions);
    CatalogCommand command = new CatalogCommand(options, "create_declared", ident.name());
    StructType answer =
        command.with("schema", schema(columns).json()).with(own(properties, null)).run();
    if (CatalogCommand.is(CatalogCommand.told(answer), "exists"))
      throw new TableAlreadyExistsException(ident);
    return KeyedTable.of(name, options, ident.name(), answer);
  }

  public StagedTable stageCreate(
      Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    check(ident, partitions);
    if (tableExists(ident)) throw new TableAlreadyExistsException(ident);
    return new StagedCatalogTable(
        name, options, ident, schema(columns), own(properties, usual()), false);
  }

  public StagedTable stageReplace(
      Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException, NoSuchTableException {
    check(ident, partitions);
    if (!tableExists(ident)) throw new NoSuchTableException(ident);
    return new StagedCatalogTable(
        name, options, ident, schema(columns), own(properties, usual()), true);
  }

  public StagedTable stageCreateOrReplace(
      Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException {
    check(ident, partitions);
    return new StagedCatalogTable(
        name, options, ident, schema(columns), own(properties, usual()), tableExists(ident));
  }

  private void check(Identifier ident, Transform[] partitions) throws NoSuchNamespaceException {
    if (ident.namespace().length > 0) throw new NoSuchNamespaceException(ident.namespace());
    if (partitions.length > 0) {
      CatalogCommand.refuse(
          "partitions, buckets and clusters are for files, and "
              + name
              + "."
              + ident.name()
              + " would have "
              + Arrays.toString(partitions)
              + "; nothing was written. Its order is that of 'primary-key'");
    }
  }

  private static StructType schema(Column[] columns) {
    StructField[] fields = new StructField[columns.length];
    for (int i = 0; i < fields.length; i++) {
      Column column = columns[i];
      if (column.comment() != null) noComment("column " + column.name());
      fields[i] =
          new StructField(column.name(), column.dataType(), column.nullable(), Metadata.empty());
    }
    return new StructType(fields);
  }

  private static void noComment(String what) {
    CatalogCommand.refuse(
        "structable keeps no comments: leave out that of " + what + "; nothing was written");
  }

  // The format that Spark gives to saveAsTable(), which names none.
  private static String usual() {
    return SparkSession.active().conf().get("spark.sql.sources.default");
  }

  // Without what Spark adds by itself.
  private static Map own(Map properties, String usual) {
    Map own = new HashMap(properties);
    own.remove("owner");
    Object provider = own.remove("provider");
    if (provider != null
        && !provider.equals(usual)
        && !((String) provider).equalsIgnoreCase("structable")) {
      CatalogCommand.refuse(
          "tables of this catalog are structable's, and none of the format "
              + provider
              + "; nothing was written. Leave the format out");
    }
    if (own.containsKey("comment")) noComment("the table");
    return own;
  }

  public Table alterTable(Identifier ident, TableChange[] changes) throws NoSuchTableException {
    StructField[] added = new StructField[changes.length];
    for (int i = 0; i < changes.length; i++) {
      if (!(changes[i] instanceof TableChange.AddColumn)) {
        CatalogCommand.refuse(
            "ALTER TABLE adds columns only, and changed nothing:"
                + " storage.admin.create_or_update(...) adds indexes and widens numbers, and"
                + " another table takes the rows of other columns, by INSERT INTO ... SELECT");
      }
      TableChange.AddColumn column = (TableChange.AddColumn) changes[i];
      String shown = String.join(".", column.fieldNames());
      if (column.comment() != null) noComment("column " + shown);
      if (column.defaultValue() != null) {
        CatalogCommand.refuse(
            "structable keeps no defaults, and changed nothing: leave out that of column " + shown);
      }
      if (!column.isNullable() || column.position() != null || column.fieldNames().length > 1) {
        CatalogCommand.refuse(
            "ALTER TABLE adds columns at the end that may be null, and changed nothing: leave out "
                + "NOT NULL, FIRST and AFTER of column "
                + shown);
      }
      added[i] = new StructField(shown, column.dataType(), true, Metadata.empty());
    }
    CatalogCommand command = new CatalogCommand(options, "add_columns", ident.name());
    StructType answer = command.with("schema", new StructType(added).json()).run();
    if (CatalogCommand.is(CatalogCommand.told(answer), "absent"))
      throw new NoSuchTableException(ident);
    return KeyedTable.of(name, options, ident.name(), answer);
  }

  public boolean dropTable(Identifier ident) {
    if (ident.namespace().length > 0) return false;
    return CatalogCommand.is(new CatalogCommand(options, "drop", ident.name()).answer(), "done");
  }

  public void renameTable(Identifier from, Identifier to) {
    CatalogCommand.refuse(
        "structable renames no table, and changed nothing: create "
            + to.name()
            + ", INSERT INTO it the rows of "
            + from.name()
            + ", and drop that");
  }
}
