"""How JVMs run for tests."""

QUICK_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""A collector without threads, and only the quick compiler: tests end before the other has paid for itself."""
