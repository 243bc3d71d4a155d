import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.RowOrdering$;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.BROADCAST$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Lets Spark filter a large table of a join by the keys of the small side, once it has those.
 *
 * <p>Spark does so for a small side that it will broadcast and that has a selective filter. It
 * looks for one when the sources have taken theirs, and a frame may be small without any. So the
 * small side gets a filter that no source takes, and that is true of every row.
 */
public final class StructableRuntimeFilters extends Rule {
  private static final long LEAST_BYTES = 1000000L; // of a table that is worth it
  private static final long LEAST_RATIO = 100L; // of the table to a small side without a filter

  public static final class Builder extends AbstractFunction1 {
    public Object apply(Object session) {
      return new StructableRuntimeFilters((SparkSession) session);
    }
  }

  private final SparkSession session;

  public StructableRuntimeFilters(SparkSession session) {
    this.session = session;
  }

  public TreeNode apply(TreeNode plan) {
    return plan.transformUp(new Mark(session));
  }

  static final class Mark extends AbstractPartialFunction {
    private final SparkSession session;

    Mark(SparkSession session) {
      this.session = session;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof Join;
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      Join join = (Join) node;
      // Of the types whose small side can be broadcast, these leave out rows of the other that it
      // does not match.
      boolean inner = join.joinType() == Inner$.MODULE$;
      if (!inner && join.joinType() != LeftSemi$.MODULE$ || join.isStreaming()) return join;
      Object[] parts = new Object[join.productArity()];
      for (int i = 0; i < parts.length; i++) parts[i] = join.productElement(i);
      LogicalPlan left = join.left();
      LogicalPlan right = join.right();
      if (isFew(right, join.hint().rightHint(), left)) {
        parts[1] = marked(right);
      } else if (inner && isFew(left, join.hint().leftHint(), right)) {
        parts[0] = marked(left);
      } else {
        return join;
      }
      return join.makeCopy(parts);
    }

    private boolean isFew(LogicalPlan side, Option hint, LogicalPlan other) {
      long table = largestTable(other);
      if (table < LEAST_BYTES) return false;
      if (hint.isDefined() && ((HintInfo) hint.get()).strategy().contains(BROADCAST$.MODULE$))
        return true;
      long most = session.sessionState().conf().autoBroadcastJoinThreshold();
      if (hasFilter(side)) return size(side) <= Math.min(most, table);
      return size(side) <= Math.min(most, table / LEAST_RATIO);
    }

    private static long size(LogicalPlan plan) {
      scala.math.BigInt size = plan.stats().sizeInBytes();
      return size.isValidLong() ? size.toLong() : Long.MAX_VALUE;
    }

    private static long largestTable(LogicalPlan plan) {
      if (plan instanceof DataSourceV2Relation) {
        boolean ours =
            ((DataSourceV2Relation) plan).table() instanceof StructableScanIsolation.IsolatedTable;
        return ours ? size(plan) : 0L;
      }
      long largest = 0L;
      Iterator children = plan.children().iterator();
      while (children.hasNext())
        largest = Math.max(largest, largestTable((LogicalPlan) children.next()));
      return largest;
    }

    private static boolean hasFilter(LogicalPlan plan) {
      if (plan instanceof Filter && chooses(((Filter) plan).condition())) return true;
      Iterator children = plan.children().iterator();
      while (children.hasNext()) if (hasFilter((LogicalPlan) children.next())) return true;
      return false;
    }

    // Joins bring filters of their own, that keys are not null.
    private static boolean chooses(org.apache.spark.sql.catalyst.expressions.Expression condition) {
      if (condition instanceof And)
        return chooses(((And) condition).left()) || chooses(((And) condition).right());
      return !(condition instanceof IsNotNull);
    }

    // At a leaf, where no later rule moves it: the pruning's copy of the small side must remain
    // equal to the join's.
    private static LogicalPlan marked(LogicalPlan side) {
      LogicalPlan leaf = (LogicalPlan) side.collectLeaves().head();
      Attribute read = null; // preferably one that is read anyway
      Iterator all = leaf.output().iterator();
      while (all.hasNext()) {
        Attribute one = (Attribute) all.next();
        if (!RowOrdering$.MODULE$.isOrderable(one.dataType()))
          continue; // maps, which nothing compares
        if (read == null || !side.outputSet().contains(read)) read = one;
      }
      if (read == null) return side;
      return (LogicalPlan) side.transformDown(new AtLeaf(leaf, new EqualNullSafe(read, read)));
    }
  }

  /**
   * Adds a condition to the filter above a leaf, or makes one: of two filters, a source is offered
   * the lower one only.
   */
  static final class AtLeaf extends AbstractPartialFunction {
    private final LogicalPlan leaf;
    private final EqualNullSafe condition;
    private boolean done;

    AtLeaf(LogicalPlan leaf, EqualNullSafe condition) {
      this.leaf = leaf;
      this.condition = condition;
    }

    public boolean isDefinedAt(Object node) {
      return !done && (node == leaf || node instanceof Filter && ((Filter) node).child() == leaf);
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      done = true;
      if (node == leaf) return new Filter(condition, leaf);
      return new Filter(new And(((Filter) node).condition(), condition), leaf);
    }
  }
}
