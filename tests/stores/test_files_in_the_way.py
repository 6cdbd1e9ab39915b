"""What is in the place of a store is named, once: it does not pass by itself, so the store is not called again."""

from __future__ import annotations

import pytest
from crashing_sinks import for_rows

from headrace.base.time import ManualClock
from headrace.connect.store import StoreDiffers, StoreRefused


def in_duckdb(path):
    from headrace.connect import duckdb

    return duckdb.table(path / "shop.duckdb", "t")


def in_parquet(path):
    from headrace.connect import parquet

    return parquet.folder(path)


def in_tantivy(path):
    pytest.importorskip("tantivy")
    from headrace.connect import search

    return search.tantivy(path)


def in_delta(path):
    pytest.importorskip("deltalake")
    from headrace.connect import delta

    return delta.table(path)


def prepared(sink):
    for_rows(sink, table=True).prepare(clock=ManualClock())


@pytest.mark.parametrize("make", [in_duckdb, in_parquet, in_tantivy, in_delta])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path, make):
    file = tmp_path / "note.txt"
    file.write_text("here")
    for path in (file, file / "below"):
        with pytest.raises(StoreRefused, match=r"note\.txt is no folder"):
            prepared(make(path))
    assert file.read_text() == "here"


def test_a_folder_in_the_place_of_a_database_is_named(tmp_path):
    (tmp_path / "shop.duckdb").mkdir()
    with pytest.raises(StoreRefused, match=r"shop\.duckdb is a folder"):
        prepared(in_duckdb(tmp_path))


def test_a_file_that_is_no_database_is_not_waited_for(tmp_path):
    (tmp_path / "shop.duckdb").write_bytes(b"name,price\nnut,1\n" * 1000)
    with pytest.raises(StoreDiffers, match="not a valid DuckDB database"):
        prepared(in_duckdb(tmp_path))
