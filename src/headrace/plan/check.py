"""What is judged when a step is declared: columns, types and keys. Every rule raises at the user's line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.errors import InvalidPlan, UnknownColumn, WrongColumnType
from headrace.base.schema import RESERVED, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def has_column(column: str, schema: pa.Schema, *, step: str) -> str:
    """Return `column` if the schema has it.

    Raises:
        UnknownColumn: it has not; the nearest name is the hint.

    """
    if not isinstance(column, str) or column not in schema.names:
        raise UnknownColumn(str(column), step=step, columns=schema.names)
    return column


def columns(names: str | Sequence[str] | None, schema: pa.Schema, *, step: str) -> tuple[str, ...]:
    """Return names as a tuple, each known to the schema; None is no name."""
    if names is None:
        return ()
    listed = (names,) if isinstance(names, str) else tuple(names)
    for name in listed:
        has_column(name, schema, step=step)
    no_repeats(listed, step=step)
    return listed


def event_time(column: str | None, schema: pa.Schema, *, step: str) -> str | None:
    """Return the event-time column if it is there and is a timestamp."""
    if column is None:
        return None
    kind = schema.field(has_column(column, schema, step=step)).type
    if not pa.types.is_timestamp(kind):
        raise WrongColumnType(column, step=step, is_type=type_name(kind), needs="timestamp", role="the event time")
    return column


def groupable(names: Iterable[str], schema: pa.Schema, *, step: str) -> None:
    """Refuse a map as a key: maps have no equality in SQL."""
    for name in names:
        kind = schema.field(name).type
        if pa.types.is_map(kind):
            raise WrongColumnType(name, step=step, is_type=type_name(kind), needs="anything but a map", role="a key")


def no_repeats(names: Sequence[str], *, step: str) -> None:
    """Refuse a step that makes two columns of one name, or one of Headrace's own names."""
    lower = [name.lower() for name in names]
    for name in names:
        if names.count(name) == 1 and lower.count(name.lower()) > 1:
            raise InvalidPlan(
                f'step "{step}" makes columns that differ in case alone: '
                + ", ".join(f'"{each}"' for each in names if each.lower() == name.lower()),
                hint="Give one of them another name.",
            )
        if names.count(name) > 1:
            raise InvalidPlan(
                f'step "{step}" makes the column "{name}" twice',
                hint="Give one of them another name.",
            )
        if name in RESERVED:
            raise InvalidPlan(f'step "{step}" makes a column "{name}", a name that Headrace uses itself')
