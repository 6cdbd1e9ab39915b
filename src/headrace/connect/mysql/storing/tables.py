"""Tables that are written to: created, or checked against the step."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.base.outside import Unavailable
from headrace.connect.mysql.reading import quoted
from headrace.connect.mysql.storing.types import EXACT, declared, holds, is_text
from headrace.connect.store import StoreDiffers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    import pymysql

_TABLE = "SELECT table_type, engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_COLUMNS = """
SELECT column_name, column_type, collation_name,
       is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%%auto_increment%%' AND is_generated = 'NEVER',
       is_generated <> 'NEVER', extra LIKE '%%auto_increment%%'
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_UNIQUE = """
SELECT index_name, column_name, sub_part FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND NOT non_unique ORDER BY index_name, seq_in_index
"""
_CREATED = "INSERT IGNORE INTO {} VALUES (%s)"
_LOCK_SECONDS = 30


class _Column(NamedTuple):
    name: str
    kind: str
    collation: str | None
    must_be_given: int
    is_computed: int
    counts: int


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
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def make(self, sql: pymysql.Connection[Any], created: str | None) -> None:
        """Create the table, or check it; `created` is where tables are noted before we create them, None: we do not.

        Raises:
            StoreDiffers: it cannot store the rows of the step.

        """
        with creating(sql, self.schema), sql.cursor() as cursor:
            cursor.execute(_TABLE, [self.schema, self.name])
            found = cursor.fetchone()
            if found is None:
                if created is not None:
                    cursor.execute(_CREATED.format(created), [self.full_name])
                    cursor.execute(self.statement())
                return
            cursor.execute(_COLUMNS, [self.schema, self.name])
            columns = [_Column(*row) for row in cursor.fetchall()]
            cursor.execute(_UNIQUE, [self.schema, self.name])
            unique: dict[str, set[str]] = {}
            for index, column, part in cursor.fetchall():
                unique.setdefault(index, set()).add(column if part is None else f"{column}({part})")
        if found[0] != "BASE TABLE":
            raise StoreDiffers(f"{self.full_name} is no ordinary table", hint="Write to another table.")
        changes = [] if found[1] == "InnoDB" else ["ENGINE = InnoDB"]
        changes += self._changes({each.name: each for each in columns})
        changes += self._keys(unique, {each.name for each in columns if each.counts} - set(self.columns.names))
        if changes:
            raise StoreDiffers(
                f"the table {self.full_name} cannot store the rows of the step",
                detail=f"It has {', '.join(f'{quoted(each.name)} {each.kind}' for each in columns)}; {found[1]}.",
                hint=f"ALTER TABLE {self.full_name} {', '.join(changes)}; or write to another table.",
            )

    def statement(self) -> str:
        """Return the statement that creates the table."""
        required = all(not self.columns.field(name).nullable for name in self.key)
        parts = [
            f"{quoted(field.name)} {self._declared(field)}"
            f"{' NOT NULL' if required and field.name in self.key else ' NULL'}"
            for field in self.columns
        ]
        if self.key:
            parts.append(f"{'PRIMARY KEY' if required else 'UNIQUE KEY'} ({_names(self.key)})")
        end = f"ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {EXACT}"
        return f"CREATE TABLE {self.full_name} ({', '.join(parts)}) {end}"

    def _declared(self, field: pa.Field) -> str:
        return declared(field.type, in_key_of=len(self.key) if field.name in self.key else 0)

    def _changes(self, found: dict[str, _Column]) -> list[str]:
        changes = []
        for field in self.columns:
            column, kind = found.get(field.name), self._declared(field)
            if column is None:
                changes.append(f"ADD COLUMN {quoted(field.name)} {kind}")
            elif column.is_computed:
                changes += [f"DROP COLUMN {quoted(field.name)}", f"ADD COLUMN {quoted(field.name)} {kind}"]
            elif not holds(column.kind, field.type) or (
                field.name in self.key and is_text(field.type) and not _exact(column.collation)
            ):
                changes.append(f"MODIFY COLUMN {quoted(field.name)} {kind}")
        ours = set(self.columns.names)
        needed = [each for each in found.values() if each.must_be_given and each.name not in ours]
        return changes + [f"MODIFY COLUMN {quoted(each.name)} {each.kind} NULL" for each in needed]

    def _keys(self, unique: dict[str, set[str]], counts: set[str]) -> list[str]:
        """Return what makes the key the only one by which a row takes the place of another."""
        if not self.key:
            return []
        key = set(self.key)
        others = [name for name, columns in unique.items() if not key <= columns and not columns <= counts]
        changes = ["DROP PRIMARY KEY" if name == "PRIMARY" else f"DROP INDEX {quoted(name)}" for name in others]
        return changes if key in unique.values() else [*changes, f"ADD UNIQUE KEY ({_names(self.key)})"]


@contextmanager
def creating(sql: pymysql.Connection[Any], schema: str) -> Iterator[None]:
    """Run a block in which no other process of ours creates anything in a database.

    Raises:
        Unavailable: another one does not end.

    """
    lock = f"headrace create {schema}"[:64]
    with sql.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK(%s, %s)", [lock, _LOCK_SECONDS])
        if (found := cursor.fetchone()) is None or found[0] != 1:
            raise Unavailable(f"another process creates tables in {quoted(schema)}", hint="It is tried again.")
        try:
            yield
        finally:
            cursor.execute("DO RELEASE_LOCK(%s)", [lock])


def _exact(collation: str | None) -> bool:
    return collation is not None and collation.endswith("_nopad_bin")


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(quoted, names))
