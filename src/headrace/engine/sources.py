"""Records that could not be read: counted, and on their way to `<topic>.dead`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine.publish import DEAD_SINK
from headrace.kernels.grouped import Counts
from headrace.kernels.level import stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.connect.embedded import Slice
    from headrace.kernels.level import Report, Task


def bury(report: Report, here: Task, dead: Sequence[tuple[Slice, pa.Table]]) -> None:
    """Stage dead letters for `<topic>.dead`, and count them."""
    by_topic: dict[str, list[pa.Table]] = {}
    for piece, letters in dead:
        by_topic.setdefault(piece.topic, []).append(letters)
        report.counts.setdefault(piece.source, Counts()).dead += letters.num_rows
    for topic, tables in by_topic.items():
        report.staged.append(stage(here, 0, DEAD_SINK + topic, pa.concat_tables(tables)))
