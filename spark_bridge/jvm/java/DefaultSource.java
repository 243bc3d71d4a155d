/**
 * The class that Spark looks for where the thread has no session in which the format was
 * registered.
 */
public class DefaultSource
    extends org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2 {}
