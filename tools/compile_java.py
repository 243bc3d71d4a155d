"""Have Spark compile the Java of `spark_bridge/jvm/java`, as `register` does; what it refuses is an error here."""

import os
import sys
import warnings

from pyspark.sql import SparkSession

from structable.spark_bridge import register

if __name__ == "__main__":
    warnings.simplefilter("error")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    register(spark)
    spark.stop()
