"""When a row happened, wherever it has got to: what a window over a table puts a row, and its withdrawal, by.

A withdrawal comes with the time of the change that caused it. A window must take a row away where it has put it, so it
goes by the time that the row itself has.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.plan.corrected import CORRECTED
from headrace.plan.nodes import (
    Dedupe,
    Explode,
    Latest,
    MapBatches,
    ReadSource,
    Select,
    Top,
    TopicSource,
    Union,
    Where,
    Windowed,
)

if TYPE_CHECKING:
    from headrace.plan.nodes import Node

STAMP = "_time"


def row_time(node: Node) -> str | None:
    """Return the column with the time of each row: `_time` where that stays with a row, None where there is none."""
    return STAMP if _stays(node) else _column(node)


def _stays(node: Node) -> bool:
    """Whether a row is withdrawn with the time that it came with: nothing is, or its time is its window's."""
    if node.append_only or (isinstance(node, Windowed) and node.window is not None):
        return True
    passes = isinstance(node, Select | Where | Explode | MapBatches | Union)
    return passes and all(_stays(up) for up in node.ups)


@singledispatch
def _column(node: Node) -> str | None:  # noqa: ARG001 -- nobody knows what else did to the column
    """Return the column in which a source's event time has come as far as this step."""
    return None


@_column.register(TopicSource)
@_column.register(ReadSource)
def _of_source(node: TopicSource | ReadSource) -> str | None:
    return node.event_time


@_column.register(Where)
@_column.register(Top)
@_column.register(Latest)
@_column.register(Dedupe)
def _as_above(node: Where | Top | Latest | Dedupe) -> str | None:
    return _column(node.up)


@_column.register(Explode)
def _beside(node: Explode) -> str | None:
    above = _column(node.up)
    return None if above in node.into else above


@_column.register(Select)
def _renamed(node: Select) -> str | None:
    above = _column(node.up)
    corrected = [name for name, made in node.columns if made.sql == CORRECTED]
    named = [name for name, made in node.columns if above is not None and made.sql == quote(above)]
    return next(iter([*corrected, *named]), None)


@_column.register(Union)
def _of_all(node: Union) -> str | None:
    above = {_column(up) for up in node.ups}
    return above.pop() if len(above) == 1 else None
