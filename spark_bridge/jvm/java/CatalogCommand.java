import java.util.HashMap;
import java.util.Map;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.util.Failure;

/** A request of the JVM, which the coordinator or the data source answers. */
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

  public CatalogCommand with(Map properties) {
    String[] names = (String[]) properties.keySet().toArray(new String[0]);
    String[] values = new String[names.length];
    for (int i = 0; i < names.length; i++) values[i] = (String) properties.get(names[i]);
    if (names.length > 0) request.putStringArray("names", names).putStringArray("values", values);
    return this;
  }

  // The data source's answer is a schema, and what else there is to tell is metadata of its first
  // field.
  public StructType run() {
    Map all = new HashMap(options);
    all.put("@REQUEST@", request.build().json());
    try {
      if (SparkSession.active().sessionState().dataSourceManager().dataSourceExists("structable")) {
        StructType known = StructableCoordinator.schema(all);
        if (known != null) return known;
      }
      return provider().inferSchema(new CaseInsensitiveStringMap(all));
    } catch (Exception error) {
      String message = String.valueOf(error.getMessage());
      if (message.startsWith("[DATA_SOURCE_NOT_EXIST]")) {
        refuse(
            "DATA_SOURCE_NOT_EXIST",
            "structable is not registered in this session: call register(spark) for it");
      }
      raise(error);
      return null;
    }
  }

  public Metadata answer() {
    return told(run());
  }

  public static Metadata told(StructType answer) {
    return answer.fields()[0].metadata();
  }

  public static boolean is(Metadata answer, String outcome) {
    return outcome.equals(answer.getString("outcome"));
  }

  public static PythonDataSourceV2 provider() {
    PythonDataSourceV2 made = new PythonDataSourceV2();
    made.setShortName("structable");
    return made;
  }

  public static void refuse(String message) {
    refuse("UNSUPPORTED_FEATURE.TABLE_OPERATION", message);
  }

  private static void refuse(String condition, String message) {
    raise(
        new AnalysisException(
            "[" + condition + "] " + message,
            Option.empty(),
            Option.empty(),
            Option.empty(),
            Option.apply(condition),
            scala.collection.immutable.Map$.MODULE$.empty(),
            new QueryContext[0]));
  }

  // Throws it, undeclared as Scala's exceptions are.
  public static void raise(Throwable error) {
    new Failure(error).get();
  }
}
