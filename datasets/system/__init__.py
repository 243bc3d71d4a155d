"""The operations of the system datasets, a module each. Modules share tables, not operations."""
