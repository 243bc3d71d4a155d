"""Code that the other rooms share: names of stores and tables, checked options, Spark's form of tables, and errors.

Some of it is about the running process: its micro-batch, and the needs of processes that Spark reuses.
"""
