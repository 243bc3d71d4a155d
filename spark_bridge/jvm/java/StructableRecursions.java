import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnionLoopRef;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.Function1;
import scala.collection.Iterator;
import scala.runtime.AbstractPartialFunction;

/**
 * Removes from a recursion the filters of structable's tables by keys of the recursion's own rows.
 *
 * <p>Spark ends in an internal error when it puts the rows of a step into such a filter. It makes
 * another for each step where it has those rows.
 */
public final class StructableRecursions extends Rule {
  public TreeNode apply(TreeNode plan) {
    return ((LogicalPlan) plan).transformDownWithSubqueries(new Unfiltered());
  }

  static final class Unfiltered extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof Filter
          && kept((Filter) node, ((Filter) node).condition()) != ((Filter) node).condition();
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      Filter filter = (Filter) node;
      org.apache.spark.sql.catalyst.expressions.Expression kept = kept(filter, filter.condition());
      return kept == null ? filter.child() : new Filter(kept, filter.child());
    }

    // The rest of a condition; null if nothing is left.
    private static org.apache.spark.sql.catalyst.expressions.Expression kept(
        Filter filter, org.apache.spark.sql.catalyst.expressions.Expression condition) {
      if (condition instanceof DynamicPruningSubquery) {
        return isOfRecursion(filter, (DynamicPruningSubquery) condition) ? null : condition;
      }
      if (!(condition instanceof And)) return condition;
      And both = (And) condition;
      org.apache.spark.sql.catalyst.expressions.Expression left = kept(filter, both.left());
      org.apache.spark.sql.catalyst.expressions.Expression right = kept(filter, both.right());
      if (left == both.left() && right == both.right()) return both;
      return left == null ? right : right == null ? left : new And(left, right);
    }

    private static boolean isOfRecursion(Filter filter, DynamicPruningSubquery keys) {
      boolean ours = false;
      Iterator filtered = filter.child().collectLeaves().iterator();
      while (filtered.hasNext()) {
        Object leaf = filtered.next();
        if (!(leaf instanceof DataSourceV2ScanRelation)) continue;
        DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) leaf;
        boolean has = keys.pruningKey().references().subsetOf(relation.outputSet());
        ours |= has && relation.scan() instanceof StructableScan;
      }
      boolean recursive = false;
      Iterator rows = keys.buildQuery().collectLeaves().iterator();
      while (rows.hasNext()) recursive |= rows.next() instanceof UnionLoopRef;
      return ours && recursive;
    }
  }
}
