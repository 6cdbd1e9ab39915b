"""What users write: apps, streams, tables and their verbs."""

from headrace.dsl.app import App
from headrace.dsl.grouped import Grouped
from headrace.dsl.stream_table import Stream, Table

__all__ = ["App", "Grouped", "Stream", "Table"]
