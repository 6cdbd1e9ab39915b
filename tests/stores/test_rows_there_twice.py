"""A comparison finds rows that somebody has added beside those of their keys, and a repair leaves one of each."""

from __future__ import annotations

import pyarrow as pa
import pytest
from crashing_sinks import batches, for_rows, write

from headrace.base.time import ManualClock
from headrace.testing.connectors import COLUMNS


def in_duckdb(path):
    import duckdb

    from headrace.connect import duckdb as files

    def add(rows):
        with duckdb.connect(path / "shop.duckdb") as sql:
            sql.register("given", rows)
            sql.execute("INSERT INTO t FROM given")

    def read():
        with duckdb.connect(path / "shop.duckdb") as sql:
            return sql.execute("FROM t").fetchall()

    return files.table(path / "shop.duckdb", "t"), add, read


def in_delta(path):
    deltalake = pytest.importorskip("deltalake")
    from headrace.connect import delta

    def read():
        found = deltalake.DeltaTable(path).to_pyarrow_dataset().to_table().to_pylist()
        return [(row["id"], row["text"]) for row in found]

    return delta.table(path), lambda rows: deltalake.write_deltalake(path, rows, mode="append"), read


def in_iceberg(path):
    catalogs = pytest.importorskip("pyiceberg.catalog")
    from headrace.connect import iceberg

    (path / "lake").mkdir()
    options = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}/lake"}

    def table():
        return catalogs.load_catalog("default", **options).load_table("shop.t")

    def read():
        return [(row["id"], row["text"]) for row in table().scan().to_arrow().to_pylist()]

    return iceberg.table("shop.t", catalog=options), lambda rows: table().append(rows), read


@pytest.mark.parametrize("make", [in_duckdb, in_delta, in_iceberg])
def test_rows_that_somebody_has_added_to_those_of_a_key_are_found_and_removed(tmp_path, make):
    """Equal rows, rows with other values, and two rows of a key that the table does not have."""
    sink, add, read = make(tmp_path)
    sink = for_rows(sink, table=True)
    write(sink, table=True, upto=0)  # 1 a, 2 b, null nobody
    sink.prepare(clock=ManualClock())
    level = sorted(read(), key=str)
    twice = [(1, "a"), (2, "other"), (None, "nobody"), (None, "else"), (8, "x"), (8, "y")]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*twice, strict=True), COLUMNS.types, strict=True)]
    add(pa.table(columns, schema=COLUMNS))

    def compared(*, repair):
        found = sink.compare(batches([(*row, False) for row in level], table=True), repair=repair)
        return found.missing, found.other, found.extra

    assert compared(repair=False) == (0, 0, 6)
    assert compared(repair=True) == (0, 0, 6)
    assert sorted(read(), key=str) == level
    assert compared(repair=False) == (0, 0, 0)


def test_a_repair_of_a_table_whose_column_has_braces_in_its_name(tmp_path):
    """`headrace sync check --repair` ended with an error about the name of a field."""
    import duckdb

    from headrace.connect import duckdb as files

    names = ["{id}", "a{b"]
    schema = pa.schema([(name, pa.int32()) for name in names])
    sink = files.table(tmp_path / "shop.duckdb", "t")
    sink = sink.for_step(schema=schema, key=("{id}",), is_table=True, sealed=frozenset())
    sink.prepare(clock=ManualClock())
    with duckdb.connect(tmp_path / "shop.duckdb") as sql:
        sql.execute("INSERT INTO t VALUES (7, 7), (1, 0)")
    rows = pa.record_batch([pa.array([1, 2], pa.int32())] * 2, schema=schema)
    found = sink.compare(iter([rows]), repair=True)
    assert (found.missing, found.other, found.extra) == (1, 1, 1)
    with duckdb.connect(tmp_path / "shop.duckdb") as sql:
        assert sorted(sql.execute("FROM t").fetchall()) == [(1, 1), (2, 2)]
