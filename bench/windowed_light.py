"""`windowed_light`: few groups, so reading, grouping and exchanging rows dominate.

Expected: 5 times the speed of Spark's own aggregate, and 7 times with `--scale 10`. Our rows never become JVM rows, and
are grouped before the exchange; Spark groups before its exchange too, but row by row, after decoding Parquet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.windowed import Case, measure

if TYPE_CHECKING:
    from bench.figure import Figure
    from bench.setting import Setting

_CASE = Case("windowed_light", size="10 minutes", size_us=600_000_000, must=">= 5", runs=5)
_LARGE = 10
"""From 40 M rows on the fixed cost of an epoch is little."""


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    case = replace(_CASE, must=">= 7") if setting.scale >= _LARGE else _CASE
    return [measure(setting, case)] if setting.spark_allowed else []
