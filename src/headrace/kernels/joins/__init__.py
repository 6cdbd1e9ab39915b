"""Joins: of streams, of tables, of a stream with a table as it arrives or as of a time."""
