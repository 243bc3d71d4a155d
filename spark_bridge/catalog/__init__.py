"""The catalog `structable.Catalog`: the tables of a store by their names in Spark's SQL.

`installation` brings the classes of the JVM, which are in `jvm/java`: `Catalog`, its tables, and the rules
`CatalogReads`, `CatalogChanges` and `CatalogStatements`. They know nothing of tables: each statement becomes
a request (`requests`), which the data source receives as an option in one of Spark's planning processes, and which the
coordinator carries out in the driver's process (`commands`).
"""
