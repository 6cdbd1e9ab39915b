"""A sink that keeps only checksums, and the same checksums of other copies of the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Sums:
    """Adds up the deltas of a table: rows, `n` and `total`, each by weight. Our counterpart of a noop sink."""

    name: str = "sums"
    rows_out: int = 0
    rows: int = 0
    n: int = 0
    total: int = 0
    epochs: list[int] = field(default_factory=list)

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Receive the delta of an epoch."""
        self.epochs.append(epoch)
        weight = rows.column("_weight").cast(pa.int64())
        self.rows_out += rows.num_rows
        self.rows += pc.sum(weight).as_py() or 0
        self.n += pc.sum(pc.multiply(rows.column("n"), weight)).as_py() or 0
        self.total += pc.sum(pc.multiply(rows.column("total"), weight)).as_py() or 0

    @property
    def answer(self) -> dict[str, int]:
        """What must be equal on both sides."""
        return {"groups": self.rows, "n": self.n, "total": self.total}


@dataclass
class KeptDeltas(Sums):
    """Also keeps the deltas, for one full comparison."""

    deltas: list[pa.Table] = field(default_factory=list)

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Receive the delta of an epoch."""
        super().write(epoch, rows)
        self.deltas.append(rows)

    def fingerprint(self, *, at: str = "epoch_us(window_start)") -> tuple[int, ...]:
        """Return a checksum over every row of the sum of the deltas; `at` is SQL for the time of a row."""
        deltas = pa.concat_tables(self.deltas)
        with duckdb.connect() as con:
            con.execute("SET TimeZone = 'UTC'")
            con.register("deltas", deltas)
            summed = f"(SELECT k, {at} AS w, n, total FROM deltas GROUP BY ALL HAVING sum(_weight) <> 0)"
            weights = con.execute(f"SELECT count(*) FROM (SELECT 1 FROM deltas GROUP BY k, {at}, n, total "
                                  "HAVING sum(_weight) NOT IN (0, 1))").fetchall()  # fmt: skip
            return (*fingerprint(con, summed), int(weights[0][0]))


def of_updates(folder: Path) -> tuple[int, ...]:
    """Return the same checksum of Spark's updates in Parquet: the row of a group's last batch counts."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        last = (
            f"(SELECT k, epoch_us(max_by(window_start, batch)) AS w, max_by(n, batch) AS n, "
            f"max_by(total, batch) AS total FROM '{folder}/**/*.parquet' GROUP BY k, window_start)"
        )
        return (*fingerprint(con, last), 0)


def of_rows(parquet: Path, *, size: int) -> tuple[int, ...]:
    """Return the same checksum of a plain batch query over the input; `size` is the window in microseconds."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        groups = (
            f'(SELECT k, epoch_us("at") // {size} * {size} AS w, count(*) AS n, sum(v)::BIGINT AS total '
            f"FROM '{parquet}/*.parquet' GROUP BY ALL)"
        )
        return (*fingerprint(con, groups), 0)


def of_rows_given(folder: Path, *, at: str) -> tuple[int, ...]:
    """Return the same checksum of final rows in Parquet."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        return (*fingerprint(con, f"(SELECT k, {at} AS w, n, total FROM '{folder}/**/*.parquet')"), 0)


def fingerprint(con: duckdb.DuckDBPyConnection, source: str) -> tuple[int, ...]:
    """Return the number of rows (k, w, n, total) of a relation, its sums, and a checksum that ignores order."""
    row = "hash(k::BIGINT, w::BIGINT, n::BIGINT, total::BIGINT)"
    found = con.execute(f"SELECT count(*), sum(n), sum(total), bit_xor({row}) FROM {source}").fetchall()
    return tuple(int(value) for value in found[0])
