"""Tables that are written to: created, or checked against the step."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql as words

from headrace.base.errors import InvalidPlan
from headrace.base.names import quote
from headrace.connect.postgres.storing.types import declared, holds
from headrace.connect.store import StoreDiffers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    import pyarrow as pa

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typcategory,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> '' OR a.attidentity = 'a',
       coalesce(NOT c.collisdeterministic, false) OR t.typname = 'citext'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""
_UNIQUE = """
SELECT array_agg(a.attname::text) FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int[]) AS k(number)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indisvalid AND i.indimmediate
GROUP BY i.indexrelid
"""
NULLS_NOT_DISTINCT = 15_00_00
"""The version from which a unique constraint may take nulls as equal."""
_CREATED = "INSERT INTO headrace.created VALUES (%s) ON CONFLICT DO NOTHING"
_CREATE_LOCK = 7_242_011_983
"""The advisory lock under which we create what is missing."""


_LONGEST_NAME = 63
"""Bytes; PostgreSQL cuts longer names off."""


def check_name(what: str, name: str) -> None:
    """Refuse a name that the server would change.

    Raises:
        InvalidPlan: it is too long or empty, or has a NUL.

    """
    if not name or "\0" in name or len(name.encode()) > _LONGEST_NAME:
        raise InvalidPlan(
            f"PostgreSQL cannot have a {what} named {name!r}",
            detail=f"A name has 1 to {_LONGEST_NAME} bytes, and no NUL.",
            hint=f"Give the {what} another name.",
        )


class _Column(NamedTuple):
    name: str
    kind: str
    category: str
    must_be_given: bool
    is_computed: bool
    is_loose: bool
    """Whether different texts are equal there, such as those that differ in case alone."""


@dataclass(frozen=True)
class Target:
    """A table, the columns that are written, and the key."""

    schema: str
    name: str
    columns: pa.Schema
    key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """Return the name, quoted."""
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def identifier(self) -> words.Identifier:
        """Return the name for a statement."""
        return words.Identifier(self.schema, self.name)

    def make(self, sql: psycopg.Connection) -> None:
        """Create the table, or check it.

        Raises:
            StoreDiffers: it cannot store the rows of the step.

        """
        with creating(sql):
            columns = [_Column(*row) for row in sql.execute(_COLUMNS, [self.full_name])]
            if not columns:
                sql.execute(words.SQL(self.statement(sql.info.server_version)))
                sql.execute(_CREATED, [self.full_name])
                return
        unique = [set(row[0]) for row in sql.execute(_UNIQUE, [self.full_name])]
        changes = [*self._changes({each.name: each for each in columns})]
        if self.key and set(self.key) not in unique:
            changes.append(f"ADD {'UNIQUE' if unique else 'PRIMARY KEY'} ({_names(self.key)})")
        if changes:
            raise StoreDiffers(
                f"the table {self.full_name} cannot store the rows of the step",
                detail=f"It has {', '.join(f'{quote(each.name)} {each.kind}' for each in columns)}.",
                hint=f"ALTER TABLE {self.full_name} {', '.join(changes)}; or write to another table.",
            )

    def statement(self, server_version: int) -> str:
        """Return the statement that creates the table."""
        required = all(not self.columns.field(name).nullable for name in self.key)
        parts = [f"{quote(field.name)} {declared(field.type)}" for field in self.columns]
        if self.key and (required or server_version < NULLS_NOT_DISTINCT):
            parts.append(f"PRIMARY KEY ({_names(self.key)})")
        elif self.key:
            parts.append(f"UNIQUE NULLS NOT DISTINCT ({_names(self.key)})")
        return f"CREATE TABLE {self.full_name} ({', '.join(parts)})"

    def _changes(self, found: dict[str, _Column]) -> list[str]:
        changes = []
        for field in self.columns:
            column = found.get(field.name)
            if column is None:
                changes.append(f"ADD COLUMN {quote(field.name)} {declared(field.type)}")
            elif column.is_computed:
                changes += [
                    f"DROP COLUMN {quote(field.name)}",
                    f"ADD COLUMN {quote(field.name)} {declared(field.type)}",
                ]
            elif not holds(column.kind, column.category, field.type):
                changes.append(f"ALTER COLUMN {quote(field.name)} TYPE {declared(field.type)}")
            elif column.is_loose and field.name in self.key:
                changes.append(f'ALTER COLUMN {quote(field.name)} TYPE text COLLATE "default"')
        ours = set(self.columns.names)
        needed = [each.name for each in found.values() if each.must_be_given and each.name not in ours]
        return changes + [f"ALTER COLUMN {quote(name)} DROP NOT NULL" for name in needed]


@contextmanager
def creating(sql: psycopg.Connection) -> Iterator[None]:
    """Run a transaction in which no other process of ours creates anything in this database."""
    with sql.transaction():
        sql.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATE_LOCK])
        yield


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(quote, names))
