"""The words: apps, streams, tables, and what is said of them."""

from headrace.dsl.app import App
from headrace.dsl.grouped import Grouped
from headrace.dsl.stream import Stream
from headrace.dsl.table import Table

__all__ = ["App", "Grouped", "Stream", "Table"]
