"""Asking a schema registry what the schemas are that values name; see docs/formats.md."""
