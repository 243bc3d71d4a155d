"""plyvel behind types, and LevelDB's own files: no other room imports plyvel.

`database` opens and writes, `reads` reads, and `native_guard` keeps a database from being closed under a call. `log`
and `manifest` read LevelDB's files, written in `log_format`; `log` also undoes a failed write, `recovery` repairs the
files after a crash, and `checkpoint` links a snapshot's files, all with the primitives of `disk`. `format` marks
databases as structable's.
"""
