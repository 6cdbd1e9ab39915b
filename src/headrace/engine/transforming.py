"""What is done to the records of a feed before they land: the same expressions as everywhere, in columns.

A feed with steps is a feed like any other: it runs the one inside on a landing that computes what is appended to it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import duckdb
import pyarrow as pa

from headrace.base.dead_letters import as_json
from headrace.base.errors import InvalidPlan
from headrace.base.names import quote
from headrace.base.schema import as_schema
from headrace.connect.feed import DeadRecord, Declared, Feed, Landing
from headrace.dsl.columns import drop_node, rename_node, select_node, with_columns_node
from headrace.dsl.rows import where_node
from headrace.dsl.verb import Verb
from headrace.expressions import drawn_apart
from headrace.kernels.duck import Duck
from headrace.kernels.failing_sql import failing_sql
from headrace.log import rows_to_table
from headrace.plan.nodes import Select, TopicSource, Where

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from headrace.log.rows import Rows
    from headrace.plan.nodes import Node

_DELETED = "_deleted"
_PASSED_ON = ("_time", _DELETED, "_headers")
"""What records have besides their columns."""


def feed(source: Feed, schema: str | pa.Schema | None = None) -> BeforeLanding:
    """Return the records of a feed, so that they can be filtered and changed before they land in a topic.

        errors = hr.feed(files.lines("access.jsonl"), "path string, status int").where("status >= 500")
        app.stream("errors", source=errors)

    Every step is computed in columns, with Spark's meaning. A record on which an expression fails is a dead letter. The
    position of the feed moves past records that are filtered out, which are nowhere: where somebody may want them
    later, land them, and filter in the app.

    Args:
        source: what a connector returns, such as `files.lines(path)`.
        schema: the columns of its records; a source that knows them needs none.

    Raises:
        InvalidPlan: it is no feed, it follows a table of a database, or nobody knows the columns.
        InvalidSchema: the schema cannot be read.

    """
    if not callable(getattr(source, "run", None)):
        raise InvalidPlan(
            f"feed({source!r}) is no feed",
            hint="Only what lands records in a topic has a time before that. Filter a source that is read itself in "
            "the app: app.stream(…).where(…).",
        )
    if source.reader_group is not None:
        raise InvalidPlan(
            f"{source.identity} follows a table: its changes land as they are",
            detail="A filter would leave out the change that takes a row out of it, and the row would stay.",
            hint="Filter the table in the app: app.table(…).where(…).",
        )
    declared = source.declares() if schema is None else None
    columns = as_schema(schema) if schema is not None else declared.schema if declared else None
    if columns is None:
        raise InvalidPlan(
            f"nobody knows the columns of {source.identity}", hint='Declare them: hr.feed(…, "id int, name string").'
        )
    start = TopicSource(schema=columns, topic="feed", event_time=None, out_of_order=0, idle_after=None)
    return BeforeLanding(source=source, node=start, key=declared.key if declared else ())


@dataclass(frozen=True, kw_only=True)
class BeforeLanding(Feed):
    """A feed with steps before its records land; `feed` creates it. Each verb returns a new one."""

    source: Feed
    node: Node
    key: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What the feed inside reads: its position stays when steps are changed."""
        return self.source.identity

    @property
    def schema(self) -> pa.Schema:
        """The columns that land."""
        return self.node.schema

    def where(self, condition: str) -> Self:
        """Land only records that meet a condition; deletes land always.

        Raises:
            PlanError: the text is no condition over the columns.

        """
        return replace(self, node=where_node(self._verb("where"), condition))

    def with_columns(self, **named: str) -> Self:
        """Add columns, or replace them.

        Raises:
            PlanError: an expression cannot be read.

        """
        return replace(self, node=with_columns_node(self._verb("with_columns"), named))

    def select(self, *columns: str, **named: str) -> Self:
        """Land these columns: names, `expression AS name`, and expressions by name.

        Raises:
            UnknownColumn: a name is not there.
            PlanError: an expression cannot be read.

        """
        return replace(self, node=select_node(self._verb("select"), columns, named))

    def drop(self, *columns: str) -> Self:
        """Land the other columns.

        Raises:
            UnknownColumn: a name is not there.

        """
        return replace(self, node=drop_node(self._verb("drop"), columns))

    def rename(self, **new_old: str) -> Self:
        """Land columns under new names.

        Raises:
            UnknownColumn: an old name is not there.

        """
        return replace(self, node=rename_node(self._verb("rename"), new_old))

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land what the feed inside lands, after the steps."""
        columns = self._root().schema
        with closing(_Steps(self._chain())) as steps:
            self.source.run(_Transformed(landing, columns, steps), stop)

    def declares(self) -> Declared:
        """Return the columns that land, and the key where all of it is left."""
        return Declared(self.schema, self.key if set(self.key) <= set(self.schema.names) else ())

    def check(self) -> None:
        """Ask the feed inside."""
        self.source.check()

    def install(self) -> str | None:
        """Make what the feed inside needs outside."""
        return self.source.install()

    def remove(self) -> str | None:
        """Remove what the feed inside made outside."""
        return self.source.remove()

    def _verb(self, name: str) -> Verb:
        return Verb(self.node, name, {}, in_epoch=False)

    def _chain(self) -> list[Select | Where]:
        found: list[Select | Where] = []
        node = self.node
        while isinstance(node, Select | Where):
            found.append(node)
            node = node.up
        return found[::-1]

    def _root(self) -> Node:
        return self._chain()[0].up if self._chain() else self.node


class _Steps:
    """The steps, and the connection that computes them."""

    def __init__(self, nodes: Sequence[Select | Where]) -> None:
        self._nodes = nodes
        self._duck = Duck()

    def close(self) -> None:
        self._duck.connection.close()

    def computed(self, rows: pa.Table) -> tuple[pa.Table, list[DeadRecord]]:
        """Return the rows that land, and the records on which an expression fails."""
        dead: list[DeadRecord] = []
        for node in self._nodes:
            try:
                rows = self._one(node, rows)
            except duckdb.Error:
                found = self._failing(node, rows)
                if not found:
                    raise
                records = rows.take(list(found)).to_pylist()
                dead += [DeadRecord(as_json(record), why) for record, why in zip(records, found.values(), strict=True)]
                rows = self._one(node, rows.filter(pa.array([row not in found for row in range(rows.num_rows)])))
        return rows, dead

    def _one(self, node: Select | Where, rows: pa.Table) -> pa.Table:
        source = self._duck.register(rows)
        try:
            if isinstance(node, Where):
                kept = f" OR {_DELETED}" if _DELETED in rows.column_names else ""
                return self._duck.arrow(f"SELECT * FROM {source} WHERE ({node.condition.sql}){kept}")
            scalars = drawn_apart([scalar for _, scalar in node.columns])
            columns = [f"{each.sql} AS {quote(name)}" for each, (name, _) in zip(scalars, node.columns, strict=True)]
            hidden = [name for name in _PASSED_ON if name in rows.column_names]
            return self._duck.arrow(f"SELECT {', '.join([*columns, *hidden])} FROM {source}")
        finally:
            self._duck.forget()

    def _failing(self, node: Select | Where, rows: pa.Table) -> dict[int, str]:
        """Return the rows on which the step fails, with the reasons."""
        scalars = [node.condition] if isinstance(node, Where) else [scalar for _, scalar in node.columns]
        found: dict[int, str] = {}
        for scalar in scalars:
            if scalar.raises:
                for row, why in failing_sql(self._duck, scalar.sql, rows):
                    found.setdefault(row, f"{node.shown_verb} before landing fails at {scalar.text}: {why}")
        return dict(sorted(found.items()))


class _Transformed(Landing):
    """A landing that computes what is appended to it."""

    def __init__(self, landing: Landing, schema: pa.Schema, steps: _Steps) -> None:
        self._landing, self._schema, self._steps = landing, schema, steps

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def position(self) -> bytes | None:
        return self._landing.position()

    def has_room(self) -> bool:
        return self._landing.has_room()

    def close(self) -> None:
        self._landing.close()

    def append(self, rows: Rows, *, position: bytes | None = None, dead: Sequence[DeadRecord] = ()) -> None:
        table = rows_to_table(rows, self._schema)
        landed, failing = self._steps.computed(table)
        self._landing.append(_typed(landed, self._landing.schema), position=position, dead=[*dead, *failing])


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the types of a topic: DuckDB knows no time zones, and other names for some."""
    fields: list[Any] = [schema.field(name) if name in schema.names else rows.field(name) for name in rows.column_names]
    return rows.cast(pa.schema(fields))
