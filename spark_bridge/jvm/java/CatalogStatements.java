import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import scala.Function1;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Sees UPDATE, MERGE and INSERT OVERWRITE as they are written, before Spark resolves them.
 *
 * <p>Spark leaves out of these queries, without a word, what a statement assigns to the hidden
 * column, and the columns that WITH SCHEMA EVOLUTION would add: both are refused. Where the source
 * of a MERGE names the hidden column, Spark would use the source before it is resolved, so that the
 * rule has it resolved. Where INSERT OVERWRITE would replace partitions, Spark's own error does not
 * name the setting by which it would. That of a stream of a table names no way to read one.
 */
public final class CatalogStatements extends Rule {
  private static final String HIDDEN = "@BEFORE@";
  private static final String OVERWRITES = "spark.sql.sources.partitionOverwriteMode";

  public static final class Builder extends AbstractFunction1 {
    public Object apply(Object session) {
      return new CatalogStatements((SparkSession) session);
    }
  }

  private final SparkSession session;

  public CatalogStatements(SparkSession session) {
    this.session = session;
  }

  public TreeNode apply(TreeNode plan) {
    return ((LogicalPlan) plan).resolveOperatorsDown(new Checked(session));
  }

  static final class Checked extends AbstractPartialFunction {
    private final SparkSession session;

    Checked(SparkSession session) {
      this.session = session;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof UpdateTable
          || node instanceof MergeIntoTable
          || node instanceof InsertIntoStatement
          || node instanceof UnresolvedRelation && ((UnresolvedRelation) node).isStreaming();
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (node instanceof InsertIntoStatement) {
        check((InsertIntoStatement) node);
        return node;
      }
      if (node instanceof UnresolvedRelation) {
        String streamed = isDefinedAt(node) ? name(node) : null;
        if (streamed == null) return otherwise.apply(node);
        CatalogCommand.refuse(
            "a table of a catalog is not a stream: the changes of "
                + streamed
                + " are read by spark.readStream.format(\"structable\") with url, table and"
                + " readChangeFeed");
      }
      String shown = isDefinedAt(node) ? target((TreeNode) node) : null;
      if (shown == null) return otherwise.apply(node);
      LogicalPlan statement = (LogicalPlan) node;
      Iterator expressions = statement.expressions().iterator();
      while (expressions.hasNext()) {
        if (assigns((TreeNode) expressions.next())) {
          CatalogCommand.refuse(
              "the statement assigns the hidden column "
                  + HIDDEN
                  + ", which is read only, and "
                  + "nothing was written to "
                  + shown
                  + ": assign the columns that it consists of");
        }
      }
      if (!(node instanceof MergeIntoTable)) return node;
      MergeIntoTable merge = (MergeIntoTable) node;
      if (merge.withSchemaEvolution()) {
        CatalogCommand.refuse(
            "there is no MERGE WITH SCHEMA EVOLUTION, and nothing was written to "
                + shown
                + ": add the columns by ALTER TABLE .. ADD COLUMNS, and MERGE without it");
      }
      if (!reads(merge.sourceTable())) return node;
      Object[] parts = new Object[merge.productArity()];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = merge.productElement(i);
        if (parts[i] == merge.sourceTable()) {
          parts[i] = session.sessionState().analyzer().execute(merge.sourceTable());
        }
      }
      return merge.makeCopy(parts);
    }

    private void check(InsertIntoStatement insert) {
      if (!insert.overwrite() || !"dynamic".equalsIgnoreCase(session.conf().get(OVERWRITES)))
        return;
      LogicalPlan found = session.sessionState().analyzer().execute(insert.table());
      while (found.children().size() == 1) found = (LogicalPlan) found.children().head();
      if (!(found instanceof DataSourceV2Relation)) return;
      Table table = ((DataSourceV2Relation) found).table();
      boolean format = table instanceof PythonTable && table.name().equalsIgnoreCase("structable");
      if (!format && !CatalogReads.isOurs(found)) return;
      String shown =
          insert.table() instanceof UnresolvedRelation
              ? ((UnresolvedRelation) insert.table()).multipartIdentifier().mkString(".")
              : table.name();
      CatalogCommand.refuse(
          "INSERT OVERWRITE replaces partitions while "
              + OVERWRITES
              + " is dynamic, and "
              + shown
              + " has none, so that nothing was written: set it to static to replace all rows");
    }

    // The name of a statement's table, if a catalog of structable's has it; or null.
    private String target(TreeNode statement) {
      return name(withoutAlias(((Product) statement).productElement(0)));
    }

    private String name(Object named) {
      if (named instanceof PlanWithUnresolvedIdentifier) return computed((LogicalPlan) named);
      if (!(named instanceof UnresolvedRelation)) return null;
      Seq parts = ((UnresolvedRelation) named).multipartIdentifier();
      CatalogManager catalogs = session.sessionState().catalogManager();
      String first = (String) parts.head();
      boolean full = parts.size() > 1 && catalogs.isCatalogRegistered(first);
      Object catalog = full ? catalogs.catalog(first) : catalogs.currentCatalog();
      return catalog instanceof Catalog ? parts.mkString(".") : null;
    }

    // As of IDENTIFIER('app.' || 'pages').
    private String computed(LogicalPlan named) {
      Object found = withoutAlias(session.sessionState().analyzer().execute(named));
      return CatalogReads.isOurs(found) ? ((DataSourceV2Relation) found).table().name() : null;
    }

    private static Object withoutAlias(Object named) {
      while (named instanceof SubqueryAlias) named = ((SubqueryAlias) named).child();
      return named;
    }

    private static boolean assigns(TreeNode expression) {
      if (expression instanceof Assignment) return isHidden(((Assignment) expression).key());
      Iterator children = expression.children().iterator();
      while (children.hasNext()) if (assigns((TreeNode) children.next())) return true;
      return false;
    }

    private static boolean reads(TreeNode node) {
      if (isHidden(node)) return true;
      if (node instanceof LogicalPlan) {
        Iterator expressions = ((LogicalPlan) node).expressions().iterator();
        while (expressions.hasNext()) if (reads((TreeNode) expressions.next())) return true;
      }
      Iterator children = node.children().iterator();
      while (children.hasNext()) if (reads((TreeNode) children.next())) return true;
      return false;
    }

    private static boolean isHidden(Object expression) {
      if (!(expression instanceof UnresolvedAttribute)) return false;
      Iterator parts = ((UnresolvedAttribute) expression).nameParts().iterator();
      while (parts.hasNext()) if (HIDDEN.equalsIgnoreCase((String) parts.next())) return true;
      return false;
    }
  }
}
