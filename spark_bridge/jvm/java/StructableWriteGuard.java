import java.util.ArrayList;
import java.util.List;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;
import scala.util.Failure;

/**
 * Rejects writes that Spark would carry out differently from their text, before anything is
 * written.
 *
 * <p>Spark's own catalog cannot hold a structable table. `saveAsTable`, `writeTo().create()` and
 * similar calls would write into the table of the options, or replace all its rows, under a name
 * that cannot be read afterwards. An INSERT INTO that names some of the columns fills the others
 * with nulls, which would overwrite stored values.
 */
public final class StructableWriteGuard extends Rule {
  static final String FORMAT = "structable";
  static final String INSTEAD =
      "df.write.format(\"structable\").option(\"url\", ...).option(\"table\","
          + " ...).mode(\"append\").save()";

  public static final class Builder extends AbstractFunction1 {
    public Object apply(Object session) {
      return new StructableWriteGuard();
    }
  }

  public TreeNode apply(TreeNode plan) {
    if (plan instanceof Command) check((Product) plan);
    if (plan instanceof Union) { // maybe of several insertions of one statement
      Iterator children = plan.children().iterator();
      while (children.hasNext()) apply((TreeNode) children.next());
    }
    return plan;
  }

  private static void check(Product command) {
    boolean ours = false;
    for (int i = 0; i < command.productArity(); i++) {
      Object part = command.productElement(i); // the name has the catalog, and comes first
      ours |=
          part instanceof Product
              && ((Product) part).productArity() > 0
              && isOf("structable.Catalog", ((Product) part).productElement(0));
      if (!ours && part instanceof TableSpecBase && isFormat(((TableSpecBase) part).provider()))
        refuseCatalog();
    }
    if (!(command instanceof V2WriteCommand)) return;
    Object written = ((V2WriteCommand) command).table();
    if (!(written instanceof DataSourceV2Relation)) return;
    DataSourceV2Relation relation = (DataSourceV2Relation) written;
    if (!isOf("structable.CatalogTable", relation.table())
        && !isOf("structable.KeyedTable", relation.table())) {
      if (!(relation.table() instanceof PythonTable)
          || !relation.table().name().equalsIgnoreCase(FORMAT)) return;
      if (relation.identifier().isDefined()) refuseCatalog();
    }
    if (command instanceof AppendData && ((AppendData) command).analyzedQuery().isDefined()) {
      List filled = filledUp((LogicalPlan) ((AppendData) command).analyzedQuery().get());
      if (!filled.isEmpty()) {
        refuse(
            "UNSUPPORTED_FEATURE.TABLE_OPERATION",
            "this insertion leaves out columns of a structable table, which Spark would fill up"
                + " with nulls: "
                + String.join(", ", (String[]) filled.toArray(new String[0]))
                + "; nothing was written. Name all columns, with NULL where null is meant; or, to"
                + " keep the other columns, write a DataFrame of only the columns to change: "
                + INSTEAD);
      }
    }
  }

  // The catalog's classes are in another class loader.
  private static boolean isOf(String name, Object value) {
    return value.getClass().getName().equals(name);
  }

  private static boolean isFormat(Option provider) {
    return provider.isDefined() && FORMAT.equalsIgnoreCase((String) provider.get());
  }

  // What Spark adds is a null of the column's type on top of the query. A user's is one of no type,
  // or a cast of it.
  private static List filledUp(LogicalPlan query) {
    List names = new ArrayList();
    if (query instanceof Project) {
      Iterator expressions = ((Project) query).projectList().iterator();
      while (expressions.hasNext()) {
        Object expression = expressions.next();
        if (expression instanceof Alias && ((Alias) expression).child() instanceof Literal) {
          Literal literal = (Literal) ((Alias) expression).child();
          if (literal.value() == null && literal.dataType() != DataTypes.NullType) {
            names.add(((NamedExpression) expression).name());
          }
        }
      }
    }
    return names;
  }

  private static void refuseCatalog() {
    refuse(
        "UNSUPPORTED_FEATURE.TABLE_OPERATION",
        "Spark's own catalog cannot hold a structable table; nothing was written. A catalog of the"
            + " class structable.Catalog (spark.sql.catalog.NAME) names the tables of a store. Else"
            + " the table is created in its store, by storage.admin.create(...), and written by "
            + INSTEAD
            + ", or with "
            + ".mode(\"overwrite\"), which replaces all its rows. To read it by a name, use "
            + "df.createOrReplaceTempView(...)");
  }

  private static void refuse(String condition, String message) {
    Object error =
        new AnalysisException(
            "[" + condition + "] " + message,
            Option.empty(),
            Option.empty(),
            Option.empty(),
            Option.apply(condition),
            scala.collection.immutable.Map$.MODULE$.empty(),
            new QueryContext[0]);
    new Failure((Throwable) error).get(); // throws it, undeclared as Scala's exceptions are
  }
}
