"""Two steps of an app that write to one place, by names that differ, are refused where they are declared."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import InvalidArgument, InvalidPlan


def declare(*sinks):
    app = hr.App("shop")
    rows = app.table("t", "id string, text string", key="id")
    for sink in sinks:
        rows.to(sink)


def test_tables_of_one_file_of_duckdb_with_names_that_are_one(tmp_path, monkeypatch):
    """DuckDB tells no capital letters from small ones, and a file has many spellings."""
    files = pytest.importorskip("headrace.connect.duckdb")
    monkeypatch.chdir(tmp_path)
    declare(files.table("a.duckdb", "t"), files.table("b.duckdb", "t"), files.table("a.duckdb", "u"))
    for path, name in (("a.duckdb", "T"), (tmp_path / "a.duckdb", "t"), ("x/../a.duckdb", "t")):
        with pytest.raises(InvalidPlan, match=r"two steps write to one place: the table .* of a\.duckdb and the table"):
            declare(files.table("a.duckdb", "t"), files.table(path, name))


@pytest.mark.parametrize(
    ("module", "function"), [("parquet", "folder"), ("delta", "table"), ("search", "tantivy")], ids=lambda each: each
)
def test_spellings_of_one_folder(tmp_path, monkeypatch, module, function):
    """One reaches it from the working directory, the other from the root."""
    where = getattr(pytest.importorskip(f"headrace.connect.{module}"), function)
    monkeypatch.chdir(tmp_path)
    declare(where("totals"), where("others"))
    with pytest.raises(InvalidPlan, match="two steps write to one place"):
        declare(where("totals"), where(tmp_path / "totals"))


def test_an_address_of_delta_with_a_slash_behind_it():
    """It is the same table."""
    delta = pytest.importorskip("headrace.connect.delta")
    with pytest.raises(InvalidPlan, match="two steps write to one place"):
        declare(delta.table("s3://lake/totals"), delta.table("s3://lake/totals/"))


@pytest.mark.parametrize("other", ["redis://localhost:6379/1", "redis://u:p@LOCALHOST?db=1"])
def test_prefixes_of_which_one_begins_with_the_other(other):
    """The key "vip:7" of the one is the key "7" of the other; a repair of one would delete what the other has."""
    redis = pytest.importorskip("headrace.connect.redis")
    declare(redis.hashes("redis://localhost/1", "user:"), redis.keys("redis://localhost/2", "user:vip:"))
    declare(redis.hashes("redis://localhost/1", "user:"), redis.keys(other, "vip:"))
    for one, two in (("user:", "user:vip:"), ("user:vip:", "user:")):
        with pytest.raises(InvalidPlan, match=r"two steps write to one place: .*\(user:.*…\) and "):
            declare(redis.hashes("redis://localhost/1", one), redis.keys(other, two))


@pytest.mark.parametrize("prefix", ["_", "_headrace", "_headrace:", "_headrace:x"])
def test_a_prefix_of_redis_that_marks_begin_with(prefix):
    """`headrace sync check --repair` deleted the marks of all apps with it."""
    redis = pytest.importorskip("headrace.connect.redis")
    with pytest.raises(InvalidArgument, match="cannot be the prefix of keys in Redis"):
        redis.hashes("redis://localhost", prefix)
