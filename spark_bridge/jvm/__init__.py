"""The driver's JVM: the classes that Spark compiles there, and the rules among them that sessions are given.

Their source is in the folder `java`. In `scan_requests` is what they and the readers in Python tell each other.
"""
