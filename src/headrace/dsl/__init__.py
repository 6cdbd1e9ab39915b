"""The words: apps, streams, tables, and what is said of them."""

from headrace.dsl.app import App
from headrace.dsl.stream_table import Grouped, Stream, Table

__all__ = ["App", "Grouped", "Stream", "Table"]
