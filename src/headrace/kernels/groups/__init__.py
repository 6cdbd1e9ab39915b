"""Rows grouped by keys, with any window or none: partial groups before the exchange, groups and results after it."""
