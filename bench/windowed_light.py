"""`windowed_light`: few groups, so reading, grouping and exchanging rows dominate.

Expected: 4 times the speed of Spark's own aggregate. Our rows never become JVM rows, and are grouped before the
exchange; Spark groups before its exchange too, but row by row, after decoding Parquet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.windowed import Case, measure

if TYPE_CHECKING:
    from bench.figure import Figure
    from bench.setting import Setting

_CASE = Case("windowed_light", size="10 minutes", size_us=600_000_000, must=">= 4", runs=5)


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    return [measure(setting, _CASE)] if setting.spark_allowed else []
