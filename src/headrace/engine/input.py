"""What is read: a source with what its step declares of it. It travels to the planner of epochs and to tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.connect.decoding import RecordShape
    from headrace.connect.source import Source
    from headrace.expressions import Scalar
    from headrace.plan.arrival import ReadInOrder


@dataclass(frozen=True, kw_only=True)
class Input:
    """A source with what its step declares of it.

    `source`: how to read it; None where Spark reads it. `takes_out`: a record on which an expression fails is a dead
    letter. `out_of_order` and `idle_after` are microseconds. `in_order`: with which others it is read in the order of
    arrival. `timing` computes the event time of a record.
    """

    source: Source | None
    shape: RecordShape
    on_error: str
    takes_out: bool
    out_of_order: int
    idle_after: int | None
    in_order: ReadInOrder | None = None
    timing: Scalar | None = None


def only_replayable(inputs: Mapping[str, Input]) -> bool:
    """Whether there is no source of Spark's own; of these the rows of an epoch are not known in advance."""
    return all(bound.source is not None for bound in inputs.values())


def only_mapped(inputs: Mapping[str, Input]) -> bool:
    """Whether all that is read is columns already: nothing is fetched, decoded, or given its time by an expression."""
    return all(bound.source is not None and bound.source.mapped and bound.timing is None for bound in inputs.values())
