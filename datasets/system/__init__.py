"""The operations of the system datasets, a module each, which share tables and not operations."""
