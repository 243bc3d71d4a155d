import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Makes tables of a catalog those of the format, before the rule that isolates scans sees them.
 *
 * <p>Thus a scan of a catalog's table is one of `format("structable")`. The same rule refuses
 * UPDATE and MERGE of a table without a key, or of a view, and says what to do instead, and lets a
 * MERGE that only inserts rows refuse keys that exist.
 */
public final class CatalogReads extends Rule {
  public static final class Builder extends AbstractFunction1 {
    public Object apply(Object session) {
      return new CatalogReads();
    }
  }

  public TreeNode apply(TreeNode plan) {
    String name = plan.getClass().getSimpleName();
    if (name.equals("DeleteFromTable")) return plan; // deletes by the catalog's table itself
    if (name.equals("UpdateTable")) refuse(plan, "UPDATE");
    if (name.equals("MergeIntoTable")) refuse(plan, "MERGE");
    boolean appends = name.equals("AppendData") || name.equals("InsertOnlyMerge");
    return (appends ? insertion(plan) : plan).transformDown(new Expose());
  }

  static void refuse(TreeNode plan, String statement) {
    Object target = ((Product) plan).productElement(0);
    while (!isOurs(target)) {
      if (!(target instanceof TreeNode) || ((TreeNode) target).children().size() != 1) return;
      target = ((TreeNode) target).children().head();
    }
    String written =
        ", and nothing was written to " + ((DataSourceV2Relation) target).table().name() + ": ";
    CatalogCommand.refuse(
        tableOf(target) instanceof KeyedTable || statement.equals("DELETE")
            ? "there is no " + statement + " of a view" + written + "name the table itself"
            : "there is no "
                + statement
                + " of a table without a primary key"
                + written
                + "INSERT INTO adds rows, and a table of write-mode change-log takes rows out by"
                + " df.write.format(\"structable\") with the option mode of value changes");
  }

  // Spark has made a query of each DELETE by another condition, but that of a view.
  static boolean deletesItself(DeleteFromTable delete) {
    if (!isOurs(delete.table())) return false;
    CatalogTable table = tableOf(delete.table());
    if (!(table instanceof KeyedTable)) return true; // which refuses it by itself
    Seq written =
        DataSourceStrategy$.MODULE$.normalizeExprs(
            sequence(Collections.singletonList(delete.condition())),
            ((LogicalPlan) delete.table()).output());
    Option predicate = DataSourceV2Strategy$.MODULE$.translateFilterV2((Expression) written.head());
    return predicate.isDefined()
        && table.canDeleteWhere(new Predicate[] {(Predicate) predicate.get()});
  }

  static Seq sequence(List items) {
    return CollectionConverters.asScala(items).toList();
  }

  static boolean isOurs(Object node) {
    return node instanceof DataSourceV2Relation && tableOf(node) != null;
  }

  // The catalog's table of a relation, also of one that Spark has rewritten a statement to; or
  // null.
  private static CatalogTable tableOf(Object relation) {
    Object table = ((DataSourceV2Relation) relation).table();
    if (table instanceof RowLevelOperationTable) {
      Object operation = ((RowLevelOperationTable) table).operation();
      return operation instanceof KeyedTable.Operation
          ? ((KeyedTable.Operation) operation).table()
          : null;
    }
    return table instanceof CatalogTable ? (CatalogTable) table : null;
  }

  // Spark rewrites a MERGE that only inserts to an append of the rows that join no row of the
  // relation appended to; since 4.2 the append has a name of its own. The optimizer removes a join
  // whose condition is never true.
  private static TreeNode insertion(TreeNode append) {
    Object target = ((Product) append).productElement(0);
    if (!isOurs(target) || !(tableOf(target) instanceof KeyedTable)) return append;
    if (!reads(analyzed(append), (DataSourceV2Relation) target)) return append;
    Object[] parts = parts((Product) append);
    parts[0] = changed((DataSourceV2Relation) target, "mode", "@INSERT@");
    return append.makeCopy(parts);
  }

  // The query of an append before it was optimized, if this version of Spark keeps that.
  private static TreeNode analyzed(TreeNode append) {
    Object[] parts = parts((Product) append);
    for (int i = 0; i < parts.length; i++) {
      Object kept =
          parts[i] instanceof Option && ((Option) parts[i]).isDefined()
              ? ((Option) parts[i]).get()
              : null;
      if (kept instanceof LogicalPlan) return (TreeNode) kept;
    }
    return (TreeNode) append.children().head();
  }

  private static boolean reads(TreeNode plan, DataSourceV2Relation target) {
    if (plan instanceof DataSourceV2Relation) {
      DataSourceV2Relation read = (DataSourceV2Relation) plan;
      return ((AttributeReference) read.output().head())
          .exprId()
          .equals(((AttributeReference) target.output().head()).exprId());
    }
    Iterator children = plan.children().iterator();
    while (children.hasNext()) if (reads((TreeNode) children.next(), target)) return true;
    return false;
  }

  static DataSourceV2Relation changed(DataSourceV2Relation relation, String option, String value) {
    Object[] parts = parts(relation);
    parts[0] = new ChangedTable(tableOf(relation), option, value);
    return (DataSourceV2Relation) relation.makeCopy(parts);
  }

  private static Object[] parts(Product node) {
    Object[] parts = new Object[node.productArity()];
    for (int i = 0; i < parts.length; i++) parts[i] = node.productElement(i);
    return parts;
  }

  public static final class Expose extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return isOurs(node);
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      CatalogTable table = tableOf(relation);
      List columns = new ArrayList();
      AttributeReference before = null;
      Iterator output = relation.output().iterator();
      while (output.hasNext()) {
        AttributeReference column = (AttributeReference) output.next();
        if (column.name().equals("@BEFORE@")) before = column;
        else columns.add(column);
      }
      Object[] parts = parts(relation);
      for (int i = 0; i < parts.length; i++) {
        if (parts[i] == relation.table()) parts[i] = table.loaded();
        else if (parts[i] == relation.options()) parts[i] = table.readOptions(relation.options());
        else if (before != null && parts[i] == relation.output()) parts[i] = sequence(columns);
      }
      LogicalPlan read = (LogicalPlan) relation.makeCopy(parts);
      if (before == null) return read;
      List shown = new ArrayList(columns);
      shown.add(
          new Alias(
              new CreateNamedStruct(sequence(fields(columns, (StructType) before.dataType()))),
              before.name(),
              before.exprId(),
              before.qualifier(),
              Option.apply(before.metadata()),
              sequence(new ArrayList())));
      return new Project(sequence(shown), read);
    }

    private static List fields(List columns, StructType wanted) {
      List fields = new ArrayList();
      for (int i = 0; i < columns.size(); i++) {
        AttributeReference column = (AttributeReference) columns.get(i);
        if (!wanted.getFieldIndex(column.name()).isDefined()) continue;
        fields.add(new Literal(UTF8String.fromString(column.name()), DataTypes.StringType));
        fields.add(column);
      }
      return fields;
    }
  }
}
