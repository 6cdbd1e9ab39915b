"""Rows of two sides that meet: streams, tables, versions of a table, a table as of arrival."""
