"""Shared by all stores, and knows none: pools of connections, field types, work that no signal interrupts."""
