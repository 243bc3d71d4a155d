"""The catalog `structable.Catalog`: the tables of a store by their names in Spark's SQL.

`installation` brings the classes of the JVM, whose text is in `command_class`, `table_class`, `keyed_table_class`,
`staging_class`, `catalog_class`, `read_rule`, `change_rule` and `statement_rule`. They know nothing of tables: each
statement becomes a request (`requests`), which the data source receives as an option in one of Spark's planning
processes, and which the coordinator carries out in the driver's process (`commands`).
"""
