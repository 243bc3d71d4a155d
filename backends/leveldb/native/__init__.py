"""The typed border to plyvel and to LevelDB's own files: nothing else imports plyvel.

`database` opens and writes, `reads` reads, and `native_guard` keeps a database from being closed under a call; `log`
and `log_format` verify LevelDB's logs, `recovery` mends them, `checkpoint` links a snapshot's files.
"""
