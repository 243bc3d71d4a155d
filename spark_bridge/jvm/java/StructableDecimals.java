import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Reads decimals of up to 18 digits as integers, which Spark's generated code turns into decimals.
 *
 * <p>Spark takes a decimal out of Arrow by way of a BigInteger and a BigDecimal, at several times
 * the cost of an integer.
 */
public final class StructableDecimals extends Rule {
  public TreeNode apply(TreeNode plan) {
    return ((LogicalPlan) plan).transformDownWithSubqueries(new Read());
  }

  static final class Read extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      if (!(node instanceof DataSourceV2ScanRelation)) return false;
      Object scan = ((DataSourceV2ScanRelation) node).scan();
      return scan instanceof StructableScan && ((StructableScan) scan).hasShortDecimals();
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) node;
      List read = new ArrayList();
      List made = new ArrayList();
      Iterator columns = relation.output().iterator();
      while (columns.hasNext()) {
        AttributeReference column = (AttributeReference) columns.next();
        if (!StructableScan.isShortDecimal(column.dataType())) {
          read.add(column);
          made.add(column);
          continue;
        }
        DecimalType type = (DecimalType) column.dataType();
        AttributeReference integer =
            new AttributeReference(
                column.name(),
                DataTypes.LongType,
                column.nullable(),
                column.metadata(),
                NamedExpression$.MODULE$.newExprId(),
                column.qualifier());
        read.add(integer);
        made.add(
            new Alias(
                new MakeDecimal(integer, type.precision(), type.scale(), false),
                column.name(),
                column.exprId(),
                column.qualifier(),
                Option.apply(column.metadata()),
                sequence(new ArrayList())));
      }
      Object[] parts = new Object[relation.productArity()];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = relation.productElement(i);
        if (parts[i] == relation.scan()) parts[i] = ((StructableScan) relation.scan()).ofIntegers();
        else if (parts[i] == relation.output()) parts[i] = sequence(read);
      }
      return new Project(sequence(made), (LogicalPlan) relation.makeCopy(parts));
    }

    private static Seq sequence(List items) {
      return CollectionConverters.asScala(items).toList();
    }
  }
}
