"""Change feeds of ordered stores: how they are read, netted, divided and expired."""
