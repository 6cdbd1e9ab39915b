"""SQLite: tables followed by triggers, for laptops, tests and small services."""

from headrace.connect.sqlite.declared import table

__all__ = ["table"]
