"""YCSB's core workloads A to F: their definitions and keys, and a program for each kind of store."""
