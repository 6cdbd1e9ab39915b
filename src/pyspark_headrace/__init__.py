"""How Spark finds the format "headrace": it looks modules named `pyspark_*` up for a class `DefaultSource`.

Nothing needs to be registered where Spark's Python has Headrace installed.
"""

from headrace.engine.spark import ending
from headrace.engine.spark.datasource.source import Headrace as DefaultSource

__all__ = ["DefaultSource"]

ending.quietly()
