"""Shared by all stores, and depends on none: connection pools, field types, work that no signal interrupts."""
