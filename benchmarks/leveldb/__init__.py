"""LevelDB: every promise against plyvel itself, with the same options, rows and reads."""
