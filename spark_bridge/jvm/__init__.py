"""The driver's JVM: the classes that Spark compiles there, and the rules among them that sessions are given.

Their source is in the folder `java`. `scan_requests` has the messages between them and the readers in Python.
"""
