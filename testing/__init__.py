"""A plugin of pytest: the fixture `structable_storage`, an empty store for one test."""
