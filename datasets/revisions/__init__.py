"""The history of the system datasets' tables, one script a revision, which `structable system upgrade` runs."""
