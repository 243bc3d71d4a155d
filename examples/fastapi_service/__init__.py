"""A FastAPI service over a table; README.md tells how to run it."""
