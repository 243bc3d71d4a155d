import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/** Replaces the table of each scan by one of its own. */
public final class StructableScanIsolation extends Rule {
  static final String FORMAT = "structable";

  public static final class Builder extends AbstractFunction1 {
    public Object apply(Object session) {
      return new StructableScanIsolation((SparkSession) session);
    }
  }

  private final SparkSession session;

  public StructableScanIsolation(SparkSession session) {
    this.session = session;
  }

  public TreeNode apply(TreeNode plan) {
    return plan.transformDown(new Isolate(session));
  }

  static final class Isolate extends AbstractPartialFunction {
    private final SparkSession session;

    Isolate(SparkSession session) {
      this.session = session;
    }

    public boolean isDefinedAt(Object node) {
      if (!(node instanceof DataSourceV2Relation)) return false;
      Object table = ((DataSourceV2Relation) node).table();
      return table.getClass() == PythonTable.class
          && ((PythonTable) table).name().equalsIgnoreCase(FORMAT);
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      Object[] parts = new Object[relation.productArity()];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = relation.productElement(i);
        if (parts[i] == relation.table())
          parts[i] = new IsolatedTable((PythonTable) relation.table(), session);
      }
      return relation.makeCopy(parts);
    }
  }

  static final class IsolatedTable extends PythonTable {
    private final PythonTable shared;
    private final SparkSession session;

    IsolatedTable(PythonTable shared, SparkSession session) {
      super(StructableSource.provider(shared), FORMAT, shared.schema());
      this.shared = shared;
      this.session = session;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new StructableScanBuilder(new StructableSource(shared, options, session));
    }
  }

  /** Makes a session the active one of this thread, and returns the one that was; see `leave`. */
  static Option enter(SparkSession session) {
    Option before = SparkSession.getActiveSession();
    SparkSession.setActiveSession(session);
    return before;
  }

  static void leave(Option before) {
    if (before.isDefined()) {
      SparkSession.setActiveSession((SparkSession) before.get());
    } else {
      SparkSession.clearActiveSession();
    }
  }
}
