"""Envelope encryption: values sealed by keys that the store never holds."""
