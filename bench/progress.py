"""How long a streaming query took, as it reports: both sides are read the same way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Timing:
    """`total`: seconds from the call that starts the query until it has caught up. `processing`: see `processing`."""

    total: float
    processing: float
    batches: int

    def __str__(self) -> str:
        return f"{self.processing:.2f} s in {self.batches} batches ({self.total:.2f} s with the query's start)"


def processing(progress: Sequence[Any]) -> tuple[float, int]:
    """Return the seconds from the first batch's start to the last batch's end, and how many batches there were.

    Batches without rows count if they did something: ours close windows, Spark's evict state.
    """
    ran = [batch for batch in progress if "addBatch" in batch["durationMs"]]
    ends = [_start(batch) + batch["durationMs"]["triggerExecution"] / 1000 for batch in ran]
    return max(ends) - min(_start(batch) for batch in ran), len(ran)


def epochs_ms(progress: Sequence[Any], *, rows: int | None = None) -> list[float]:
    """Return how many milliseconds each batch took, with planning and both logs."""
    return [
        float(batch["durationMs"]["triggerExecution"])
        for batch in progress
        if "addBatch" in batch["durationMs"] and (rows is None or batch["numInputRows"] == rows)
    ]


def _start(batch: Any) -> float:
    return datetime.fromisoformat(batch["timestamp"]).timestamp()
