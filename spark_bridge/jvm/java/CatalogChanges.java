import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/**
 * Writes the changed rows of UPDATE, MERGE and DELETE by one write job.
 *
 * <p>Spark would have a class of the store's write them on executors. The rule appends them to the
 * table instead, with the columns that say what each row does, and the data source in Python makes
 * patches of them. It runs once, after Spark has given a DELETE whose condition the store evaluates
 * back to the table, and before writes are built.
 */
public final class CatalogChanges extends Rule {
  public static final class Builder extends AbstractFunction1 {
    public Object apply(Object session) {
      return new CatalogChanges();
    }
  }

  public TreeNode apply(TreeNode plan) {
    if (plan instanceof DeleteFromTable && !CatalogReads.deletesItself((DeleteFromTable) plan)) {
      CatalogReads.refuse(plan, "DELETE");
    }
    if (!(plan instanceof WriteDelta)) return plan;
    Object target = ((WriteDelta) plan).originalTable();
    if (!CatalogReads.isOurs(target)) return plan;
    Object changed = CatalogReads.changed((DataSourceV2Relation) target, "@CHANGES@", "true");
    return appended(plan, changed, eachKeyOnce((LogicalPlan) plan.children().head()));
  }

  // Spark gives the key that a row had once for each clause of a MERGE that assigns the key.
  private static LogicalPlan eachKeyOnce(LogicalPlan query) {
    List kept = new ArrayList();
    Set names = new HashSet();
    Iterator output = query.output().iterator();
    while (output.hasNext()) {
      AttributeReference column = (AttributeReference) output.next();
      if (names.add(column.name()) || !column.name().startsWith("@ORIGINAL@")) kept.add(column);
    }
    return kept.size() == query.output().size()
        ? query
        : new Project(CatalogReads.sequence(kept), query);
  }

  // Its parameters are more in newer versions of Spark. Without it the table refuses the statement.
  private static TreeNode appended(TreeNode plan, Object relation, Object query) {
    Method[] methods = AppendData.class.getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (!methods[i].getName().equals("byName")) continue;
      Class[] kinds = methods[i].getParameterTypes();
      Object[] values = new Object[kinds.length];
      for (int k = 0; k < kinds.length; k++)
        values[k] = kinds[k] == Boolean.TYPE ? Boolean.FALSE : null;
      values[0] = relation;
      values[1] = query;
      values[2] = scala.collection.immutable.Map$.MODULE$.empty();
      try {
        return (TreeNode) methods[i].invoke(null, values);
      } catch (ReflectiveOperationException error) {
        CatalogCommand.raise(error);
      }
    }
    return plan;
  }
}
