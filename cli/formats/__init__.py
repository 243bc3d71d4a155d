"""The forms of rows and specifications outside a store: files to import and to export, and their values as text."""
