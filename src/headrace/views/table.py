"""One view's table in SQLite: how it is named, created, changed and read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.views.digest import EMPTY, added, digest, row_hashes
from headrace.views.store import WEIGHT
from headrace.views.values import affinity, order_terms, to_arrow, to_sqlite

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from headrace.views.store import Key

RESERVED_PREFIXES = ("sqlite_", "headrace_")
ROWID = "_rowid_"  # SQLite's own number of a row; a column of that name is stored under another
CHUNK_ROWS = 50_000  # so many rows are Python values at a time


@dataclass(frozen=True)
class ViewTable:
    """A view and the table `stored` that holds its rows."""

    name: str
    stored: str
    schema: pa.Schema
    key: Key

    @cached_property
    def columns(self) -> list[str]:
        """The columns' names in SQLite, quoted: SQLite ignores case, and allows no NUL."""
        names = sorted(self.schema.names)  # so that their order in the schema does not matter
        stored = dict(zip(names, distinct_names(names, taken=[ROWID]), strict=True))
        return [quote(stored[name]) for name in self.schema.names]

    @property
    def identity_columns(self) -> list[str]:
        """The names in SQLite of the columns that identify a row: the key, or all columns of a bag."""
        return [self.columns[self.schema.get_field_index(name)] for name in self.identity_names]

    @property
    def identity_names(self) -> list[str]:
        """The names in the view of the columns that identify a row."""
        return list(self.schema.names if self.key is None else self.key)

    def create(self, db: sqlite3.Connection) -> None:
        """Create the table."""
        columns = (
            f"{column} {affinity(field.type)}".strip() for column, field in zip(self.columns, self.schema, strict=True)
        )
        db.execute(f"CREATE TABLE {quote(self.stored)} ({', '.join(columns)})")
        if self.key:
            self._index(db, "UNIQUE ")

    def drop(self, db: sqlite3.Connection) -> None:
        """Drop the table with its rows."""
        db.execute(f"DROP TABLE {quote(self.stored)}")

    def clear(self, db: sqlite3.Connection) -> None:
        """Delete all rows."""
        db.execute(f"DELETE FROM {quote(self.stored)}")

    def count(self, db: sqlite3.Connection) -> int:
        """Return the number of rows."""
        return int(db.execute(f"SELECT count(*) FROM {quote(self.stored)}").fetchone()[0])

    def read(self, db: sqlite3.Connection) -> pa.Table:
        """Return all rows, sorted by the columns that identify them."""
        kinds = dict(zip(self.columns, self.schema.types, strict=True))
        terms = [term for column in self.identity_columns for term in order_terms(column, kinds[column])]
        order = f" ORDER BY {', '.join(terms)}" if terms else ""
        cursor = db.execute(f"SELECT {', '.join(self.columns)} FROM {quote(self.stored)}{order}")
        batches = [self._batch(rows) for rows in iter(lambda: cursor.fetchmany(CHUNK_ROWS), [])]
        return pa.Table.from_batches(batches, self.schema)

    def digest(self, db: sqlite3.Connection) -> int:
        """Return the digest of the rows that are stored."""
        cursor = db.execute(f"SELECT {', '.join(self.columns)} FROM {quote(self.stored)}")
        total = EMPTY
        for rows in iter(lambda: cursor.fetchmany(CHUNK_ROWS), []):
            total = added(total, digest(self._batch(rows)))
        return total

    def apply(self, db: sqlite3.Connection, delta: pa.Table) -> tuple[int, int]:
        """Apply a delta; return how many rows it withdraws that are not there, and by how much the digest changes."""
        weights = pc.cast(delta[WEIGHT], pa.int64())
        rows = pa.table(
            [delta[field.name].cast(field.type) for field in self.schema] + [weights],
            schema=pa.schema([*self.schema, pa.field(WEIGHT, pa.int64())]),
        )
        change = self._change(rows)
        if self.key is None:
            self._insert(db, _repeated(rows, sign=1))
            return self._withdraw(db, _repeated(rows, sign=-1)), change
        return self._replace(db, rows.filter(pc.less(weights, 0)), rows.filter(pc.greater(weights, 0))), change

    def _change(self, rows: pa.Table) -> int:
        weights = rows[WEIGHT].to_numpy()
        return digest(rows.drop_columns([WEIGHT]), weights if self.key is None else np.sign(weights))

    # ---- a keyed view --------------------------------------------------------------------------------------

    def _replace(self, db: sqlite3.Connection, withdrawn: pa.Table, inserted: pa.Table) -> int:
        """Withdraw rows and insert others; return how many of those to be withdrawn are not there."""
        others = [name for name in self.schema.names if name not in self.identity_names]
        if not self.key or not others:
            missing = self._delete(db, withdrawn)
            self._upsert(db, inserted)
            return missing
        from_here, to_here = same_keys(withdrawn.select(self.identity_names), inserted.select(self.identity_names))
        missing = self._delete(db, withdrawn.filter(pc.invert(from_here)))
        missing += self._update(db, inserted.filter(to_here), others)
        self._upsert(db, inserted.filter(pc.invert(to_here)))
        return missing

    def _update(self, db: sqlite3.Connection, rows: pa.Table, others: list[str]) -> int:
        """Give rows that are there other values; return how many are not."""
        columns = [self.columns[self.schema.get_field_index(name)] for name in others]
        changes = ", ".join(f"{column} = ?" for column in columns)
        statement = f"UPDATE {quote(self.stored)} SET {changes} WHERE {self._same_row}"
        return sum(
            chunk.num_rows - db.executemany(statement, self._values(chunk, [*others, *self.identity_names])).rowcount
            for chunk in self._chunks(rows)
        )

    def _delete(self, db: sqlite3.Connection, rows: pa.Table) -> int:
        if not self.key:
            return len(rows) - db.execute(f"DELETE FROM {quote(self.stored)}").rowcount if len(rows) else 0
        statement = f"DELETE FROM {quote(self.stored)} WHERE {self._same_row}"
        return sum(
            chunk.num_rows - db.executemany(statement, self._values(chunk, self.identity_names)).rowcount
            for chunk in self._chunks(rows)
        )

    def _upsert(self, db: sqlite3.Connection, rows: pa.Table) -> None:
        if not self.key:
            if len(rows):
                db.execute(f"DELETE FROM {quote(self.stored)}")
                self._insert(db, rows.slice(len(rows) - 1))
            return
        key_is_set = pc.is_valid(rows[self.key[0]])
        for name in self.key[1:]:
            key_is_set = pc.and_(key_is_set, pc.is_valid(rows[name]))
        others = [column for column in self.columns if column not in self.identity_columns]
        action = f"UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in others)}" if others else "NOTHING"
        statement = f"{self._insert_statement} ON CONFLICT ({', '.join(self.identity_columns)}) DO {action}"
        for chunk in self._chunks(rows.filter(key_is_set)):
            db.executemany(statement, self._values(chunk, self.schema.names))
        # a unique index takes nulls for different values: rows with nulls in their key are replaced here
        with_nulls = rows.filter(pc.invert(key_is_set))
        if len(with_nulls):
            self._delete(db, with_nulls)
            self._insert(db, with_nulls)

    # ---- a bag ---------------------------------------------------------------------------------------------

    def _insert(self, db: sqlite3.Connection, rows: pa.Table) -> None:
        for chunk in rows.to_batches(max_chunksize=CHUNK_ROWS):
            db.executemany(self._insert_statement, self._values(chunk, self.schema.names))

    def _withdraw(self, db: sqlite3.Connection, rows: pa.Table) -> int:
        """Remove an equal row for each row, and return for how many there was none."""
        if not len(rows):
            return 0
        self._index(db, "")  # a bag of facts never needs it: it is created with the first row that is withdrawn
        table = quote(self.stored)
        first = f"SELECT {ROWID} FROM {table} WHERE {self._same_row} LIMIT 1"
        statement = f"DELETE FROM {table} WHERE {ROWID} = ({first})"
        return sum(
            chunk.num_rows - db.executemany(statement, self._values(chunk, self.schema.names)).rowcount
            for chunk in self._chunks(rows)
        )

    # ---- both ----------------------------------------------------------------------------------------------

    @cached_property
    def _same_row(self) -> str:
        return " AND ".join(f"{column} IS ?" for column in self.identity_columns)

    @cached_property
    def _insert_statement(self) -> str:
        marks = ", ".join("?" * len(self.columns))
        return f"INSERT INTO {quote(self.stored)} ({', '.join(self.columns)}) VALUES ({marks})"

    def _index(self, db: sqlite3.Connection, unique: str) -> None:
        name = quote(f"headrace_key_{self.stored}")
        columns = ", ".join(self.identity_columns)
        db.execute(f"CREATE {unique}INDEX IF NOT EXISTS {name} ON {quote(self.stored)} ({columns})")

    def _chunks(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of their keys: an index takes them twice as fast that way."""
        names = [name for name in self.identity_names if not pa.types.is_nested(self.schema.field(name).type)]
        if names and len(rows) > 1:
            rows = rows.sort_by([(name, "ascending") for name in names])
        yield from rows.to_batches(max_chunksize=CHUNK_ROWS)

    def _values(self, chunk: pa.RecordBatch, names: list[str]) -> Iterable[tuple[Any, ...]]:
        return zip(*(to_sqlite(chunk.column(name), name=name) for name in names), strict=True)

    def _batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        columns = zip(zip(*rows, strict=True), self.schema.types, strict=True)
        arrays = [to_arrow(values, kind) for values, kind in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def same_keys(withdrawn: pa.Table, inserted: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return for each row of two tables of keys whether the other has an equal one.

    Keys are unique in each. A pair may be missed (floats that are not numbers, nested values, colliding hashes); none
    is found that is not there.
    """
    names = inserted.schema.names
    at, here = np.empty(0, np.int64), np.empty(0, np.int64)
    if len(withdrawn) and len(inserted) and not any(pa.types.is_nested(kind) for kind in inserted.schema.types):
        hashes, wanted = row_hashes(withdrawn), row_hashes(inserted)
        order = np.argsort(hashes)
        places = order[np.minimum(np.searchsorted(hashes, wanted, sorter=order), len(order) - 1)]
        here = np.flatnonzero(hashes[places] == wanted)
        at = places[here]
        for name in names:
            one, other = withdrawn[name].take(pa.array(at)), inserted[name].take(pa.array(here))
            equal = pc.or_kleene(pc.equal(one, other), pc.and_(pc.is_null(one), pc.is_null(other)))
            kept = np.asarray(pc.fill_null(equal, fill_value=False))
            at, here = at[kept], here[kept]
    return _at(at, len(withdrawn)), _at(here, len(inserted))


def _at(places: np.ndarray[tuple[int], np.dtype[np.int64]], count: int) -> pa.Array:
    found = np.zeros(count, np.bool_)
    found[places] = True
    return pa.array(found)


def distinct_names(names: Iterable[str], *, taken: Iterable[str] = ()) -> list[str]:
    """Return names that are different for SQLite: those that differ only in case get a number."""
    used = {_lower(name) for name in taken}
    free_names = []
    for name in names:
        free = plain = name.replace("\0", "_")
        number = 2
        while _lower(free) in used:
            free, number = f"{plain}_{number}", number + 1
        used.add(_lower(free))
        free_names.append(free)
    return free_names


def _lower(name: str) -> str:
    """Return a name as SQLite compares it: only the case of ASCII letters is ignored."""
    return name.encode().lower().decode()


def _repeated(rows: pa.Table, *, sign: int) -> pa.Table:
    """Return the rows whose weight has this sign, each as often as its weight says."""
    rows = rows.filter(pc.equal(pc.sign(rows[WEIGHT]), sign))
    weights = pc.abs(rows[WEIGHT])
    if len(rows) == 0 or pc.max(weights).as_py() == 1:
        return rows
    return rows.take([at for at, count in enumerate(weights.to_pylist()) for _ in range(count)])
