import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table whose rows statements may change.
 *
 * <p>Spark rewrites UPDATE, MERGE, and a DELETE whose condition the store does not evaluate, to a
 * query of changed rows: its interface of row-level operations. CatalogChanges writes that query as
 * `row_changes.py` describes.
 */
public final class KeyedTable extends CatalogTable
    implements SupportsRowLevelOperations, SupportsMetadataColumns {
  public static CatalogTable of(String catalog, Map options, String table, StructType answer) {
    return CatalogCommand.told(answer).contains("key")
        ? new KeyedTable(catalog, options, table, answer)
        : new CatalogTable(catalog, options, table, answer);
  }

  private KeyedTable(String catalog, Map options, String table, StructType answer) {
    super(catalog, options, table, answer);
  }

  // Spark finds the rows of other conditions by a query.
  public boolean canDeleteWhere(Predicate[] predicates) {
    return storeDecides(predicates);
  }

  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    return new Operation(info.command());
  }

  // A hidden column of the fields outside the key: a statement's query carries them as they were
  // read.
  public MetadataColumn[] metadataColumns() {
    return before().isEmpty() ? new MetadataColumn[0] : new MetadataColumn[] {new Before()};
  }

  StructType before() {
    List key = java.util.Arrays.asList(told.getStringArray("key"));
    List others = new ArrayList();
    StructField[] all = schema().fields();
    for (int i = 0; i < all.length; i++) if (!key.contains(all[i].name())) others.add(all[i]);
    return new StructType((StructField[]) others.toArray(new StructField[0]));
  }

  static NamedReference column(String name) {
    return Expressions.column("`" + name.replace("`", "``") + "`");
  }

  final class Before implements MetadataColumn {
    public String name() {
      return "@BEFORE@";
    }

    public DataType dataType() {
      return before();
    }

    public String comment() {
      return "the fields outside the key";
    }
  }

  final class Operation implements RowLevelOperationBuilder, SupportsDelta {
    private final RowLevelOperation.Command command;

    Operation(RowLevelOperation.Command command) {
      this.command = command;
    }

    public RowLevelOperation build() {
      return this;
    }

    public RowLevelOperation.Command command() {
      return command;
    }

    public NamedReference[] rowId() {
      String[] key = told.getStringArray("key");
      NamedReference[] columns = new NamedReference[key.length];
      for (int i = 0; i < key.length; i++) columns[i] = column(key[i]);
      return columns;
    }

    public NamedReference[] requiredMetadataAttributes() {
      return before().isEmpty() ? new NamedReference[0] : new NamedReference[] {column("@BEFORE@")};
    }

    KeyedTable table() {
      return KeyedTable.this;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
      return table().newScanBuilder(given);
    }

    public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      CatalogCommand.refuse(
          "this version of Spark takes no rule of structable that writes changed rows: there is no "
              + command
              + ", and nothing was written to "
              + name());
      return null;
    }
  }
}
