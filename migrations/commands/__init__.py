"""The commands of migrations; they need the extra `cli`."""
