"""What the words of simulated programs share: the shape of a step's rows, which decides what may follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.testing.simulation.case import EVER

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

SECOND = 1_000_000
DELAY, GRACE = 5, 5
"""Seconds: what a source with late rows is out of order, and what its windows are corrected."""

NONE = "CAST(NULL AS BIGINT) AS _seq, CAST(NULL AS BIGINT) AS _w"
SUMMARIES = (
    "sum(v)",
    "max(v)",
    "min(v)",
    "count(distinct v)",
    "sum(v) - count(*)",
    "count(*) FILTER (WHERE v > 1)",
    "sum(distinct v)",
    "max_by(v, v)",
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a step's rows are, as far as it decides what may follow.

    `source`: all steps from this source on are without state, so `_seq` and `_w` are known. `timed`: `ts` is the event
    time. `records`: a table as its topic has it, whose records are known. `late`: its source has late rows. `ordered`:
    its stream comes in the order of event time, so that nothing is late, whatever the grace. `waits`: not complete
    before the end of the input. `extra`: columns besides those of all steps, so that only a projection may follow.
    `key`: the table's, as the app says it. `final`: rows of closed windows, which stay as they are. `late_rows`: the
    query of the rows that are late for the step itself; None: it has none.
    """

    table: bool
    source: bool = False
    records: bool = False
    key: tuple[str, ...] | None = None
    timed: bool = False
    late: bool = False
    ordered: bool = False
    waits: bool = False
    extra: tuple[str, ...] = ()
    final: bool = False
    late_rows: str | None = None


@dataclass(frozen=True)
class Word:
    """A verb: `takes` says which inputs it may have, `draw` gives code, query and shape."""

    name: str
    takes: Callable[[tuple[Shape, ...]], bool]
    draw: Callable[[Random, tuple[Shape, ...]], tuple[str, str, Shape]]
    inputs: int = 1


def plain(shapes: tuple[Shape, ...]) -> bool:
    """Whether steps have the columns of all steps, and no more."""
    return not any(shape.extra for shape in shapes)


def stream(shapes: tuple[Shape, ...]) -> bool:
    """Whether they are streams."""
    return plain(shapes) and not any(shape.table for shape in shapes)


def timed(shapes: tuple[Shape, ...]) -> bool:
    """Whether they are streams with their event times, and without late rows."""
    return stream(shapes) and all(shape.timed and not shape.late for shape in shapes)


def tables(shapes: tuple[Shape, ...]) -> bool:
    """Whether they are tables."""
    return plain(shapes) and all(shape.table for shape in shapes)


def same(shapes: tuple[Shape, ...]) -> Shape:
    """Return the shape of a step's rows after a step without state."""
    return replace(shapes[0], records=False, final=False, late_rows=None)


def grace_of(dice: Random, shape: Shape) -> str:
    """Return a grace for windows of a step's rows with which only those of the source with late rows are late."""
    if shape.late or (shape.ordered and not shape.table):
        return f"{GRACE if shape.late else dice.choice((0, 0, GRACE))} seconds"
    return EVER
