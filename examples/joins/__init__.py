"""Orders joined with products by their foreign key, on any store: see `README.md`."""
