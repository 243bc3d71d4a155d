import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table that a statement makes or replaces with rows of a query.
 *
 * <p>An existing table is overwritten as it is, by one write job, and never dropped. A new one is
 * made just before its rows are written, when the options of the write are known.
 */
public final class StagedCatalogTable implements StagedTable, SupportsWrite {
  private final String catalog;
  private final Map options;
  private final Identifier ident;
  private final StructType schema;
  private final Map properties;
  private final boolean replaces;
  private CatalogTable table;
  private boolean created;

  public StagedCatalogTable(
      String catalog,
      Map options,
      Identifier ident,
      StructType schema,
      Map properties,
      boolean replaces) {
    this.catalog = catalog;
    this.options = options;
    this.ident = ident;
    this.schema = schema;
    this.properties = new HashMap(properties);
    this.replaces = replaces;
  }

  public String name() {
    return catalog + "." + ident.name();
  }

  public StructType schema() {
    return schema;
  }

  public Set capabilities() {
    return EnumSet.of(TableCapability.BATCH_WRITE, TableCapability.TRUNCATE);
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    Map rest = new HashMap(info.options().asCaseSensitiveMap());
    take(rest, "primary-key");
    take(rest, "indexes");
    make("create");
    WriteBuilder builder =
        table.newWriteBuilder(new CatalogTable.Info(info, new CaseInsensitiveStringMap(rest)));
    return replaces ? ((SupportsTruncate) builder).truncate() : builder;
  }

  // saveAsTable() has options only, which are those of the write too.
  private void take(Map rest, String name) {
    Object[] names = rest.keySet().toArray();
    for (int i = 0; i < names.length; i++) {
      if (((String) names[i]).equalsIgnoreCase(name)) properties.put(name, rest.remove(names[i]));
    }
  }

  private void make(String create) {
    if (table != null) return;
    CatalogCommand command =
        new CatalogCommand(options, replaces ? "check_replace" : create, ident.name());
    StructType answer = command.with("schema", schema.json()).with(properties).run();
    if (CatalogCommand.is(CatalogCommand.told(answer), "exists")) {
      CatalogCommand.raise(new TableAlreadyExistsException(ident));
    }
    created = !replaces;
    table = KeyedTable.of(catalog, options, ident.name(), answer);
  }

  public void commitStagedChanges() {
    if (table != null) return;
    if (replaces) {
      CatalogCommand.refuse(
          "structable replaces no table by an empty one, and changed nothing: TRUNCATE TABLE "
              + name()
              + " deletes its rows, and DROP TABLE and CREATE TABLE make another one");
    }
    make("create_declared");
  }

  public void abortStagedChanges() {
    if (created) {
      new CatalogCommand(options, "drop_empty", ident.name())
          .with("schema", schema.json())
          .with(properties)
          .run();
    }
  }
}
