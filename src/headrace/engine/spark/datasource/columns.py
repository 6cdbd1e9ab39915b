"""The columns of a subscription: those of its topics, united by name, and the metadata of each record."""

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


def all_columns(topics: Sequence[Topic]) -> pa.Schema:
    """Return all columns that a subscription has, metadata last; every one may be null, since tombstones are records.

    Raises:
        TopicDiffers: two topics have a column of one name and different types.

    """
    found: dict[str, pa.Field] = {}
    owner: dict[str, str] = {}
    for topic in topics:
        for field in topic.schema:
            first = found.setdefault(field.name, pa.field(field.name, field.type))
            if first.type != field.type:
                raise TopicDiffers(
                    f'the topics "{owner[field.name]}" and "{topic.name}" cannot be read as one: the column '
                    f'"{field.name}" is {type_name(first.type)} in the first and {type_name(field.type)} in the second',
                    hint="Read them one by one, cast the column, and unite the frames: one.unionByName(other).",
                )
            owner.setdefault(field.name, topic.name)
    metadata = [pa.field(name, kind) for name, kind in METADATA.items() if name not in found]
    return pa.schema([*found.values(), *metadata])


def selected_columns(topics: Sequence[Topic], options: ReadOptions) -> pa.Schema:
    """Return the columns that are read unless the user gives a schema.

    Raises:
        UnknownColumn: the option `columns` names one that no topic has.

    """
    columns = all_columns(topics)
    if options.columns:
        return pa.schema([_field(name, columns) for name in options.columns])
    return columns if options.metadata else pa.schema([field for field in columns if field.name not in METADATA])


def spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's schema of columns; it does not depend on what the session takes a `timestamp` for."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(topics: Sequence[Topic], schema: StructType) -> pa.Schema:
    """Return Arrow's schema of what Spark asks for: the batches must have exactly this one.

    Raises:
        UnknownColumn: the schema that the user gave has a column that no topic has.
        WrongColumnType: it has another type there.

    """
    columns, wanted = all_columns(topics), to_arrow_schema(schema, timezone="UTC")
    for field in wanted:
        has = _field(field.name, columns)
        if has.type != field.type:
            raise WrongColumnType(
                field.name,
                step=_FORMAT,
                is_type=type_name(has.type),
                needs=type_name(has.type),
                role=f"read as {type_name(field.type)}: cast it in the query",
            )
    return wanted


def _field(name: str, schema: pa.Schema) -> pa.Field:
    if name not in schema.names:
        raise UnknownColumn(name, step=_FORMAT, columns=schema.names)
    return schema.field(name)
