"""An order-entry program of nine tables: its model and invariants, and a program for each kind of store."""
