"""How long a streaming query took, by its own account: the same reading of both sides."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Took:
    """`whole`: from the call that starts the query until it has caught up. `processing`: see `processing`."""

    whole: float
    processing: float
    batches: int

    def __str__(self) -> str:
        return f"{self.processing:.2f} s in {self.batches} batches ({self.whole:.2f} s with the query's start)"


def processing(progress: Sequence[Any]) -> tuple[float, int]:
    """Return the seconds from the first batch's start to the last batch's end, and how many batches there were.

    Batches without rows count as long as they did something: ours that close windows, Spark's that evict state.
    """
    ran = [batch for batch in progress if "addBatch" in batch["durationMs"]]
    ends = [_start(batch) + batch["durationMs"]["triggerExecution"] / 1000 for batch in ran]
    return max(ends) - min(_start(batch) for batch in ran), len(ran)


def epochs_ms(progress: Sequence[Any], *, rows: int | None = None) -> list[float]:
    """Return how long each batch took in milliseconds, planning and both logs included."""
    return [
        float(batch["durationMs"]["triggerExecution"])
        for batch in progress
        if "addBatch" in batch["durationMs"] and (rows is None or batch["numInputRows"] == rows)
    ]


def _start(batch: Any) -> float:
    return datetime.fromisoformat(batch["timestamp"]).timestamp()
