"""`windowed_heavy`: about as many groups as rows, so the state dominates.

Expected: 7 times the speed of Spark's own aggregate: our state is joined and written in columns, Spark
gets and puts it a key at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.windowed import Case, measure

if TYPE_CHECKING:
    from bench.figure import Figure
    from bench.setting import Setting

_CASE = Case("windowed_heavy", size="10 seconds", size_us=10_000_000, must=">= 7", runs=3)


def run(setting: Setting) -> list[Figure]:
    """Measure it."""
    return [measure(setting, _CASE)] if setting.spark_allowed else []
