"""The columns of a captured table and those of its topic: what the topic lacks, and what the table lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.connect.capture.errors import SourceSchemaChanged
from headrace.connect.capture.source import SOURCE

if TYPE_CHECKING:
    from collections.abc import Collection


def captured(schema: pa.Schema) -> list[str]:
    """Return the columns of a topic that come from the table."""
    return [name for name in schema.names if name != SOURCE]


def check_columns(table: str, has: Collection[str], schema: pa.Schema) -> None:
    """Refuse a table that does not have a column of its topic.

    Raises:
        SourceSchemaChanged: a column was dropped or renamed.

    """
    for name in captured(schema):
        if name not in has:
            raise SourceSchemaChanged(
                f'{table} has no column "{name}" any more, or one that is generated',
                detail="Nothing after this change was captured; the database keeps it.",
                hint=f'Take "{name}" out of the program\'s schema, with a new topic; or add the column again.',
            )


def evolved(schema: pa.Schema, before: Collection[str], now: pa.Schema) -> pa.Schema | None:
    """Return a topic's columns with those that a table has got since; None where there are none.

    Args:
        schema: the topic's columns.
        before: the columns that the table had when the capture began: those that the topic lacks were left out.
        now: the columns that it has.

    """
    new = [field for field in now if field.name not in before and field.name not in schema.names]
    if not new:
        return None
    return pa.schema([*schema, *(pa.field(field.name, field.type) for field in new)])
