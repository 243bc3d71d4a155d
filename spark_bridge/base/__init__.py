"""Code that the other rooms share: names of stores and tables, checked options, Spark's form of tables, and errors.

Some of it is of the Python process that runs: its micro-batch, and what tasks that Spark reuses need.
"""
