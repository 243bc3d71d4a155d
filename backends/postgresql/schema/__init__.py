"""The tables of a schema: `catalog` reads their records, `admin` changes them under the `ddl_lock`.

`alter_table` and `indexes` build the statements, `inspection` compares the records with the server's own catalog.
"""
