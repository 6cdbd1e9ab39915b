"""Rows too far behind the watermark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headrace.kernels.counts import Counts
from headrace.kernels.op import Operator, StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLate(Operator):
    """Rows more than `reach` microseconds behind the watermark are late; the others go on."""

    reach: int

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the rows in time."""
        in_time, late, counts = split_late(inputs[0].tables, self.reach, context.watermark)
        return StepResult(in_time, late=late, counts=counts)


def split_late(
    parts: list[pa.Table], reach: int, watermark: int | None
) -> tuple[list[pa.Table], list[pa.Table], Counts]:
    """Return the rows in time, the late ones, which are more than `reach` behind the watermark, and their counts."""
    counts = Counts(rows_in=sum(part.num_rows for part in parts))
    if watermark is None:
        return parts, [], counts
    in_time, late = [], []
    for part in parts:
        behind = pc.less(part.column("_time"), watermark - reach)
        if not pc.any(behind, min_count=0).as_py():
            in_time.append(part)
            continue
        late.append(part.filter(behind))
        in_time.append(part.filter(pc.invert(behind)))
    counts.late = sum(part.num_rows for part in late)
    return [part for part in in_time if part.num_rows], late, counts
