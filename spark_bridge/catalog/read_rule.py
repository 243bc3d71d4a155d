"""The optimizer rule that makes tables of a catalog those of the format, before `scan_isolation` sees them.

Thus a scan of a catalog's table is one of `format("structable")`. The same rule refuses UPDATE and MERGE and says what
to do instead.
"""

from __future__ import annotations

__all__ = ["JAVA", "RULE_CLASS"]

RULE_CLASS = "structable.CatalogReads"
JAVA = """
package structable;

import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.Product;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

public final class CatalogReads extends Rule {
  public static final class Builder extends AbstractFunction1 {
    public Object apply(Object session) { return new CatalogReads(); }
  }

  public TreeNode apply(TreeNode plan) {
    String name = plan.getClass().getSimpleName();
    if (name.equals("DeleteFromTable")) return plan;  // deletes by the catalog's table itself
    if (name.equals("UpdateTable")) {
      refuse(plan, "UPDATE", "INSERT INTO it the changed rows, which a SELECT of all columns makes");
    }
    if (name.equals("MergeIntoTable")) {
      refuse(plan, "MERGE", "INSERT INTO it inserts rows and changes those of their keys; delete rows by DELETE FROM, "
          + "or by df.write.format(\\"structable\\") with the option mode of value delete");
    }
    return plan.transformDown(new Expose());
  }

  private static void refuse(TreeNode plan, String statement, String instead) {
    Object target = ((Product) plan).productElement(0);
    while (!isOurs(target)) {
      if (!(target instanceof TreeNode) || ((TreeNode) target).children().size() != 1) return;
      target = ((TreeNode) target).children().head();
    }
    CatalogCommand.refuse("structable has no " + statement + ", and nothing was written to "
        + ((DataSourceV2Relation) target).table().name() + ": " + instead);
  }

  static boolean isOurs(Object node) {
    return node instanceof DataSourceV2Relation && ((DataSourceV2Relation) node).table() instanceof CatalogTable;
  }

  public static final class Expose extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) { return isOurs(node); }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      CatalogTable table = (CatalogTable) relation.table();
      Object[] parts = new Object[relation.productArity()];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = relation.productElement(i);
        if (parts[i] == table) parts[i] = table.loaded();
        else if (parts[i] == relation.options()) parts[i] = table.readOptions(relation.options());
      }
      return relation.makeCopy(parts);
    }
  }
}
"""
