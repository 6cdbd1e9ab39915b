"""The columns of a subscription: those of its topics, united by name, and what the log knows of each record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headrace.base.errors import TopicDiffers, UnknownColumn, WrongColumnType
from headrace.base.schema import TIMESTAMP, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from headrace.engine.spark.datasource.options import ReadOptions
    from headrace.log import Topic

METADATA = {
    "_topic": pa.string(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_time": TIMESTAMP,
    "_deleted": pa.bool_(),
    "_headers": pa.map_(pa.string(), pa.string()),
}
_FORMAT = 'format("headrace")'


def offered(topics: Sequence[Topic]) -> pa.Schema:
    """Return all columns that a subscription has, metadata last; every one may be null, since tombstones are records.

    Raises:
        TopicDiffers: two topics have a column of one name and different types.

    """
    found: dict[str, pa.Field] = {}
    owner: dict[str, str] = {}
    for topic in topics:
        for field in topic.schema:
            kept = found.setdefault(field.name, pa.field(field.name, field.type))
            if kept.type != field.type:
                raise TopicDiffers(
                    f'the topics "{owner[field.name]}" and "{topic.name}" cannot be read as one: the column '
                    f'"{field.name}" is {type_name(kept.type)} in the first and {type_name(field.type)} in the second',
                    hint="Read them one by one, cast the column, and unite the frames: one.unionByName(other).",
                )
            owner.setdefault(field.name, topic.name)
    metadata = [pa.field(name, kind) for name, kind in METADATA.items() if name not in found]
    return pa.schema([*found.values(), *metadata])


def chosen(topics: Sequence[Topic], options: ReadOptions) -> pa.Schema:
    """Return the columns that are read unless the user gives a schema.

    Raises:
        UnknownColumn: the option `columns` names one that no topic has.

    """
    known = offered(topics)
    if options.columns:
        return pa.schema([_known(name, known) for name in options.columns])
    return known if options.metadata else pa.schema([field for field in known if field.name not in METADATA])


def spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's schema of columns; it does not depend on what the session takes a `timestamp` for."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(topics: Sequence[Topic], schema: StructType) -> pa.Schema:
    """Return Arrow's schema of what Spark asks for: the batches must have exactly this one.

    Raises:
        UnknownColumn: the schema that the user gave has a column that no topic has.
        WrongColumnType: it has another type there.

    """
    known, asked = offered(topics), to_arrow_schema(schema, timezone="UTC")
    for field in asked:
        has = _known(field.name, known)
        if has.type != field.type:
            raise WrongColumnType(
                field.name,
                step=_FORMAT,
                is_type=type_name(has.type),
                needs=type_name(has.type),
                role=f"read as {type_name(field.type)}: cast it in the query",
            )
    return asked


def _known(name: str, known: pa.Schema) -> pa.Field:
    if name not in known.names:
        raise UnknownColumn(name, step=_FORMAT, columns=known.names)
    return known.field(name)
