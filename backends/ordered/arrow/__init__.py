"""Rows as Arrow record batches: `decoder` reads them, `encoder` writes them. Imports pyarrow and NumPy."""
