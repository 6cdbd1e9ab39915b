"""Answers as a number of rows and a checksum, for comparing large ones: order and names of columns do not count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

OWN = {"_weight", "_time", "batch"}


@dataclass
class Weights:
    """A sink that adds up weights: our counterpart of a sink that throws rows away."""

    name: str = "weights"
    rows: int = 0
    received: int = 0

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Receive the rows of an epoch."""
        del epoch
        self.received += rows.num_rows
        self.rows += (pc.sum(rows.column("_weight")).as_py() or 0) if "_weight" in rows.schema.names else rows.num_rows


@dataclass
class Kept(Weights):
    """Keeps the rows as well, to compare them once."""

    tables: list[pa.Table] = field(default_factory=list)

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Receive the rows of an epoch."""
        super().write(epoch, rows)
        self.tables.append(rows)

    def answer(self) -> tuple[int, int]:
        """Return the number of rows that are there in the end, and their checksum."""
        if not self.tables:
            return (0, 0)
        with duckdb.connect() as con:
            con.execute("SET TimeZone = 'UTC'")
            con.register("kept", pa.concat_tables(self.tables))
            weight = "_weight" if "_weight" in self.tables[0].schema.names else "1"
            return checksum(con, "kept", weight=weight)


def of_updates(folder: Path, key: Collection[str]) -> tuple[int, int]:
    """Return the same of what Spark's streaming gave, as Parquet: of a key the row of the last batch."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        last = f"QUALIFY row_number() OVER (PARTITION BY {', '.join(key)} ORDER BY batch DESC) = 1" if key else ""
        con.execute(f"CREATE VIEW given AS FROM '{folder}/**/*.parquet' {last}")
        return checksum(con, "given")


def checksum(con: duckdb.DuckDBPyConnection, relation: str, *, weight: str = "1") -> tuple[int, int]:
    """Return the rows of a relation, by weight, and the sum of their hashes."""
    columns = con.sql(f"DESCRIBE {relation}").fetchall()
    wanted = sorted((name, kind) for name, kind, *_ in columns if name not in OWN)
    row = ", ".join(_plain(f'"{name}"', kind) for name, kind in wanted)
    found = con.sql(
        f"SELECT coalesce(sum({weight}), 0)::BIGINT, "
        f"coalesce(sum(({weight})::HUGEINT * (hash({row}) >> 8)::HUGEINT), 0)::HUGEINT FROM {relation}"
    ).fetchall()
    return int(found[0][0]), int(found[0][1])


def _plain(name: str, kind: str) -> str:
    """Return SQL for a value that does not depend on how an engine types it."""
    if kind.startswith("TIMESTAMP"):
        return f"epoch_us({name})"
    if kind in {"DOUBLE", "FLOAT"} or kind.startswith("DECIMAL"):
        return f"round({name}::DOUBLE, 6)"
    return f"{name}::BIGINT" if "INT" in kind else f"{name}::VARCHAR"
