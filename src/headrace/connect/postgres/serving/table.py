"""One view's table in PostgreSQL: how it is created, changed and read.

A bag's table has one more column, the hash of its row: by it one of several equal rows is found and deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql as words

from headrace.base.names import quote
from headrace.connect.postgres.serving.reading import order_term, read
from headrace.connect.postgres.storing.loading import Loader, Refusals
from headrace.connect.postgres.storing.tables import NULLS_NOT_DISTINCT, Target, check_name
from headrace.connect.postgres.storing.types import declared
from headrace.views.digest import digest, row_hashes
from headrace.views.store import WEIGHT
from headrace.views.values import check_years

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from headrace.views.store import Key

SCHEMA = "public"
ROW_HASH = "_row_hash"
_DELETED = "_deleted"
_BATCH_ROWS = 100_000
_WITHDRAW = """
WITH gone AS MATERIALIZED (SELECT {columns}, count(*) AS _count FROM {staging} GROUP BY {columns}),
found AS (
    SELECT t.ctid AS place, gone._count, row_number() OVER (PARTITION BY {its_columns}) AS _number
    FROM gone JOIN {table} t ON {same}
)
DELETE FROM {table} t USING found WHERE t.ctid = found.place AND found._number <= found._count
"""


@dataclass(frozen=True)
class ServedTable:
    """A view and the table that has its rows."""

    name: str
    schema: pa.Schema
    key: Key

    @property
    def full_name(self) -> str:
        """The table's name, quoted."""
        return f"{quote(SCHEMA)}.{quote(self.name)}"

    @property
    def identifier(self) -> words.Identifier:
        """The table's name, for a statement."""
        return words.Identifier(SCHEMA, self.name)

    @cached_property
    def hash_column(self) -> str:
        """The name of a bag's column of hashes: `_row_hash`, or longer where a column is called so."""
        name = ROW_HASH
        while name in self.schema.names:
            name += "_"
        return name

    @cached_property
    def target(self) -> Target:
        """The table as the loader knows it."""
        columns = self.schema
        if self.key is None:
            columns = columns.append(pa.field(self.hash_column, pa.int64()))
        return Target(SCHEMA, self.name, columns, self.key or ())

    def check(self) -> None:
        """Refuse what PostgreSQL cannot store.

        Raises:
            InvalidPlan: a name is too long, empty or has NUL, or a type is not known.

        """
        for field in self.schema:
            declared(field.type)
        for what, name in [("view", self.name), *(("column", name) for name in self.target.columns.names)]:
            check_name(what, name)

    def create(self, sql: psycopg.Connection) -> None:
        """Create the table."""
        parts = [f"{quote(field.name)} {declared(field.type)}" for field in self.target.columns]
        if self.key:
            distinct = sql.info.server_version >= NULLS_NOT_DISTINCT
            unique = "UNIQUE NULLS NOT DISTINCT" if distinct else "PRIMARY KEY"
            parts.append(f"{unique} ({', '.join(map(quote, self.key))})")
        sql.execute(words.SQL(f"CREATE TABLE {self.full_name} ({', '.join(parts)})"))

    def widen(self, sql: psycopg.Connection, before: pa.Schema) -> None:
        """Give integers that have become wider their new type."""
        for field in self.schema:
            kind = declared(field.type)
            if kind != declared(before.field(field.name).type):
                sql.execute(words.SQL(f"ALTER TABLE {self.full_name} ALTER COLUMN {quote(field.name)} TYPE {kind}"))

    def drop(self, sql: psycopg.Connection) -> None:
        """Drop the table with its rows, if it is there."""
        sql.execute(self._said("DROP TABLE IF EXISTS {table}"))

    def clear(self, sql: psycopg.Connection) -> int:
        """Delete all rows, and return how many; a reader's snapshot still has them, as after TRUNCATE it would not."""
        return sql.execute(self._said("DELETE FROM {table}")).rowcount

    def count(self, sql: psycopg.Connection) -> int:
        """Return the number of rows."""
        found = sql.execute(self._said("SELECT count(*) FROM {table}")).fetchone()
        return int(found[0]) if found else 0

    def read(self, sql: psycopg.Connection, *, in_order: bool = True) -> pa.Table:
        """Return all rows, sorted by the columns that identify them."""
        identity = self.schema.names if self.key is None else self.key
        terms = [order_term(self.schema.field(name)) for name in identity] if in_order else []
        return read(sql, self.identifier, self.schema, terms)

    def digest(self, rows: pa.Table) -> int:
        """Return the digest of rows; the order of the columns does not matter."""
        return digest(rows.select(sorted(self.schema.names)))

    # ---- changing ------------------------------------------------------------------------------------------

    def apply(
        self, sql: psycopg.Connection, delta: pa.Table, *, epoch: int, fault: Callable[[str], None]
    ) -> tuple[int, int]:
        """Apply a delta; return how many rows it withdraws that are not there, and by how much the digest changes."""
        weights = pc.cast(delta[WEIGHT], pa.int64())
        rows = pa.table([delta[field.name].cast(field.type) for field in self.schema], schema=self.schema)
        for field in self.schema:
            if pa.types.is_temporal(field.type):
                check_years(rows[field.name], name=field.name)
        counted = weights.to_numpy() if self.key is None else np.sign(weights.to_numpy())
        change = digest(rows.select(sorted(self.schema.names)), counted)
        loader, refusals = Loader(sql, self.target, name="view"), Refusals(self.target, epoch, None)
        change_rows = self._change_bag if self.key is None else self._change_by_key if self.key else self._change_row
        missing = change_rows(loader, refusals, rows, weights)
        fault("in_transaction")
        return missing, change

    def _change_by_key(self, loader: Loader, refusals: Refusals, rows: pa.Table, weights: pa.ChunkedArray) -> int:
        deleted = pc.less(weights, 0)
        whole = rows.append_column(_DELETED, deleted).filter(pc.not_equal(weights, 0))
        wanted = pc.sum(deleted).as_py() or 0
        if loader.is_empty():
            loader.fill(_batches(whole), refusals)
            return int(wanted)
        has_null = loader.stage(_batches(whole), refusals)
        loader.apply(refusals, has_null=has_null)
        return int(wanted) - loader.deleted

    def _change_row(self, loader: Loader, refusals: Refusals, rows: pa.Table, weights: pa.ChunkedArray) -> int:
        """Change a view of one row."""
        withdrawn, inserted = rows.filter(pc.less(weights, 0)), rows.filter(pc.greater(weights, 0))
        gone = self.clear(loader.sql) if len(withdrawn) or len(inserted) else 0
        loader.add(_batches(inserted.slice(max(0, len(inserted) - 1))), refusals)
        return max(0, len(withdrawn) - gone)

    def _change_bag(self, loader: Loader, refusals: Refusals, rows: pa.Table, weights: pa.ChunkedArray) -> int:
        hashes = pa.array(row_hashes(rows.select(sorted(self.schema.names))).view(np.int64))
        rows = rows.append_column(self.hash_column, hashes)
        loader.add(_batches(_repeated(rows, weights, sign=1)), refusals)
        withdrawn = _repeated(rows, weights, sign=-1)
        if not len(withdrawn):
            return 0
        sql = loader.sql
        self._make_index(sql)
        loader.stage(_batches(withdrawn.append_column(_DELETED, pa.array(np.ones(len(withdrawn), bool)))), refusals)
        sql.execute(words.SQL("ANALYZE {}").format(loader.staging))
        sql.execute("SET LOCAL enable_material = off")  # no plan compares all rows of both
        names = self.target.columns.names
        same = [f"t.{quote(self.hash_column)} = gone.{quote(self.hash_column)}"]
        same += [f"t.{quote(name)} IS NOT DISTINCT FROM gone.{quote(name)}" for name in self.schema.names]
        statement = words.SQL(_WITHDRAW).format(
            table=self.identifier,
            staging=loader.staging,
            columns=words.SQL(", ").join(map(words.Identifier, names)),
            its_columns=words.SQL(", ").join(words.Identifier("gone", name) for name in names),
            same=words.SQL(" AND ".join(same)),
        )
        return len(withdrawn) - sql.execute(statement).rowcount

    def _make_index(self, sql: psycopg.Connection) -> None:
        """Index the hashes: a bag of facts never needs it, so it is created with the first row that is withdrawn."""
        there = sql.execute(_HAS_INDEX, [self.full_name, self.hash_column]).fetchone()
        if there is not None and not there[0]:
            sql.execute(self._said(f"CREATE INDEX ON {{table}} ({quote(self.hash_column)})"))

    def _said(self, statement: str) -> words.Composed:
        return words.SQL(statement).format(table=self.identifier)


_HAS_INDEX = """
SELECT EXISTS (
    SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = to_regclass(%s) AND a.attname = %s AND i.indisvalid
)
"""


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(rows.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS))


def _repeated(rows: pa.Table, weights: pa.ChunkedArray, *, sign: int) -> pa.Table:
    """Return the rows whose weight has this sign, each as often as its weight says."""
    counts = np.maximum(weights.to_numpy() * sign, 0)
    return rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
