"""Brings the changelog topics of an app level with its tables after these were computed again.

A topic that holds a table's changelog has a row for each key. After a replay the table may have other rows: another
program computed it, or other rows were late. What differs is appended: an upsert where a key has another row or is new,
a tombstone where it is gone. So nothing that the topic has is appended again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.names import quote
from headrace.engine.outside import spec_of_sink
from headrace.kernels.duck import Duck, typed
from headrace.plan.sinks import Sink

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headrace.connect.open_topic import OpenTopic
    from headrace.connect.topics import TopicStore
    from headrace.plan.plan import Plan

logger = logging.getLogger("headrace.engine")


def shadows_of(plan: Plan) -> dict[str, Sink]:
    """Return a view of the same rows for each topic that has a table's changelog, by the name of its sink.

    Left out are final results, which are published once; and tables with private columns: the tokens of their values
    cannot be compared.
    """
    topics = [
        sink
        for sink in plan.sinks
        if sink.topic is not None and sink.up.is_table and not sink.up.append_only and sink.record_key
    ]
    return {
        sink.name: Sink(up=sink.up, name=f"view:__changelog_{number}", view=f"__changelog_{number}")
        for number, sink in enumerate(topics)
        if not sink.up.sealed and sink.up.key == sink.record_key
    }


def difference(topics: TopicStore, app: str, sink: Sink, rows: pa.Table) -> pa.Table:
    """Return what to append to a sink's topic so that it has these rows, staged as a changelog.

    Nothing where another app writes to the topic too: its keys would pass for ones that are gone.

    Args:
        topics: the store of the app's topics.
        app: the app's name.
        sink: the sink of the topic.
        rows: the table's rows, one a key.

    """
    assert sink.topic is not None  # noqa: S101 -- the caller chose it
    topic, key, names = topics.opened(spec_of_sink(sink)), sink.record_key, sink.up.schema.names
    others = topics.writers(sink.topic) - {app}
    if others:
        logger.warning('the topic "%s" is not brought level: %s wrote to it too', sink.topic, ", ".join(sorted(others)))
        return rows.slice(0, 0)
    duck = Duck()
    try:
        new, old = duck.register(rows.select(names)), duck.register(content(topic))
        has_key = _not_null(key) if "compact" in topic.cleanup else "true"  # others are dead letters, and were before
        latest = f"SELECT * FROM {old} QUALIFY row_number() OVER (PARTITION BY {_list(key)} ORDER BY _nth DESC) = 1"
        duck.run(f"CREATE TEMP TABLE old AS SELECT {_list(names)} FROM ({latest}) WHERE NOT _deleted")
        was = [f", {each} AS _before" if sink.before else "" for each in (_old(names, key), _packed(names, "n"))]
        changed = duck.arrow(
            f"SELECT n.*, false AS _deleted{was[0]} FROM (SELECT * FROM {new} WHERE {has_key}) n WHERE NOT EXISTS "
            f"(SELECT 1 FROM old o WHERE {_same(names)})"
        )
        gone = duck.arrow(
            f"SELECT {_emptied(names, key)}, true AS _deleted{was[1]} FROM old n WHERE NOT EXISTS "
            f"(SELECT 1 FROM {new} o WHERE {_same(key)})"
        )
    finally:
        duck.connection.close()
    return _staged(sink, [changed, gone])


def content(topic: OpenTopic) -> pa.Table:
    """Return a topic's records with `_deleted`, and their order in `_nth`."""
    starts, columns = topic.start_offsets(), [*topic.schema.names, "_deleted"]
    schema = pa.schema([*((field.name, field.type) for field in topic.schema), ("_deleted", pa.bool_())])
    parts = [
        batch.cast(schema)
        for number, end in topic.end_offsets().items()
        for batch in topic.batches(number, starts[number], end, columns=columns)
    ]
    table = pa.Table.from_batches(parts, schema=schema)
    return table.append_column("_nth", pa.array(range(table.num_rows), pa.int64()))


def _list(names: Collection[str]) -> str:
    return ", ".join(quote(name) for name in names)


def _same(names: Collection[str]) -> str:
    return " AND ".join(f"n.{quote(name)} IS NOT DISTINCT FROM o.{quote(name)}" for name in names)


def _not_null(names: Collection[str]) -> str:
    return " OR ".join(f"{quote(name)} IS NOT NULL" for name in names)


def _emptied(names: Collection[str], key: Collection[str]) -> str:
    return ", ".join(f"n.{quote(name)}" if name in key else f"NULL AS {quote(name)}" for name in names)


def _packed(names: Collection[str], side: str) -> str:
    return f"struct_pack({', '.join(f'{quote(name)} := {side}.{quote(name)}' for name in names)})"


def _old(names: Collection[str], key: Collection[str]) -> str:
    """Return what the row `n` was before."""
    return f"(SELECT {_packed(names, 'o')} FROM old o WHERE {_same(key)})"


def _staged(sink: Sink, tables: Sequence[pa.Table]) -> pa.Table:
    """Return rows as a changelog is staged, with the time at which they are appended."""
    columns = [pa.field(field.name, field.type) for field in sink.up.schema]
    before = [pa.field("_before", pa.struct(columns))] if sink.before else []
    schema = pa.schema([*columns, pa.field("_deleted", pa.bool_()), *before])
    rows = pa.concat_tables([typed(table, schema) for table in tables])
    return rows.add_column(len(columns), "_time", pa.nulls(rows.num_rows, pa.int64()))
