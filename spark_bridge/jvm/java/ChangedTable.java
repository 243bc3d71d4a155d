import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table as the target of a statement that Spark has rewritten, which is written with one more
 * option.
 */
public final class ChangedTable extends CatalogTable {
  private final String option;
  private final String value;

  public ChangedTable(CatalogTable table, String option, String value) {
    super(table.catalog, table.options, table.table, table.answer);
    this.option = option;
    this.value = value;
  }

  // Changed rows have other columns than the table, and are checked in Python.
  public Set capabilities() {
    Set all = new HashSet(super.capabilities());
    all.add(TableCapability.ACCEPT_ANY_SCHEMA);
    return all;
  }

  CaseInsensitiveStringMap writeOptions(CaseInsensitiveStringMap given) {
    Map all = new HashMap(super.writeOptions(given));
    all.put(option, value);
    return new CaseInsensitiveStringMap(all);
  }
}
