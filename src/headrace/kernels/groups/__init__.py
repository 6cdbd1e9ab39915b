"""Rows grouped by keys, with every window or without one: parts before the exchange, groups and results after it."""
