"""A FastAPI service over a table; README.md shows how to run it."""
