"""Reading tables: whole scans by the format (`reader`), or only the rows of the keys that come by (`lookup_joins`)."""
