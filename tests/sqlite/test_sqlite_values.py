"""Values and keys of SQLite have any type: what fits a column, what does not, and which keys are the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from test_sqlite import SECONDS, Follower, Shop

import headrace as hr
from headrace.base.outside import FeedFailed
from headrace.connect import sqlite
from headrace.connect.capture.errors import ValueDoesNotFit
from headrace.connect.embedded.requests import request_again


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "shop ünï #1.db")


def test_a_blob_in_a_column_of_text_fits_one_that_is_declared_as_binary(shop, tmp_path):
    shop.run("INSERT INTO customers VALUES (1, 'a', 'x'), (2, x'00ff', 'y'), (3, x'41', 'z')")
    follower = Follower(shop, tmp_path / "log")
    follower.install()
    with pytest.raises(ValueDoesNotFit, match='column "name", is no string: a BLOB is no text') as wrong:
        follower.run()
    assert wrong.value.hint == "Correct the row, or declare the column as binary, with a new topic."
    new = Follower(shop, tmp_path / "new")
    schema = new.feeds["customers"].declares().schema
    new.run(schema=schema.set(1, pa.field("name", pa.binary())))
    assert new.table() == {(1, b"a", "x"), (2, b"\x00\xff", "y"), (3, b"A", "z")}


def test_a_text_that_is_not_utf8_is_no_string_and_fits_a_column_of_bytes(shop, tmp_path):
    """In the snapshot, and as a change; the column is named as it is, not as the driver shows it."""
    bad = "cast(x'ff41' AS TEXT)"
    shop.run('CREATE TABLE t (id INT PRIMARY KEY, "größe" TEXT)', "INSERT INTO t VALUES (1, 'ok')")
    follower = Follower(shop, tmp_path / "log", "t")
    follower.install()
    shop.run(f"INSERT INTO t VALUES (2, {bad})")
    with pytest.raises(ValueDoesNotFit, match='of t, column "größe", is no string: a text is not UTF-8') as wrong:
        follower.run(until=3)
    assert wrong.value.hint == "Correct the row, or declare the column as binary, with a new topic."
    new = Follower(shop, tmp_path / "new", "t")
    schema = new.feeds["t"].declares().schema
    new.run(until=3, schema=schema.set(1, pa.field("größe", pa.binary())))
    assert new.table("t") == {(1, b"ok"), (2, b"\xffA")}
    shop.run("DELETE FROM t WHERE id = 2")
    follower.run()
    assert follower.table("t") == {(1, "ok")}
    shop.run(f"INSERT INTO t VALUES (3, {bad})")
    with pytest.raises(ValueDoesNotFit, match='column "größe"'):
        follower.run(until=3)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_key_with_a_text_that_is_not_utf8_is_refused(shop, tmp_path, kind):
    """As bytes it could not be told from a BLOB, which is another key."""
    shop.run("CREATE TABLE t (k PRIMARY KEY, v INT)", "INSERT INTO t VALUES (x'ff', 1), (cast(x'ff' AS TEXT), 2)")
    follower = Follower(shop, tmp_path / "log", "t")
    follower.install()
    schema = follower.feeds["t"].declares().schema
    with pytest.raises(ValueDoesNotFit, match=f'column "k", is no {kind}') as wrong:
        follower.run(until=3, schema=schema.set(0, pa.field("k", kind, nullable=False)))
    assert wrong.value.hint == "Correct the row: texts of a key must be UTF-8."


def test_an_app_stops_at_a_text_that_is_not_utf8(shop, tmp_path):
    shop.run("INSERT INTO customers VALUES (1, 'ok', 'x'), (2, cast(x'ff41' AS TEXT), 'y')")
    sqlite.table(shop.path, "customers").install()
    app = hr.App("shop", storage=tmp_path / "app")
    app.table("customers", source=sqlite.table(shop.path, "customers")).to_view("all")
    with app.start(carrier="in-process") as running, pytest.raises(FeedFailed) as failed:
        running.await_caught_up(SECONDS)
    assert 'a value of customers, column "name", is no string: a text is not UTF-8' in str(failed.value)


def test_the_hint_at_a_value_that_does_not_fit_names_a_type_that_takes_it(shop, tmp_path):
    """Text takes numbers and bytes take texts; nothing takes bytes and numbers."""
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, n INT, free)", "INSERT INTO t VALUES (1, 'many', x'41'), (2, 3, 4)")
    follower = Follower(shop, tmp_path / "log", "t")
    follower.install()
    with pytest.raises(ValueDoesNotFit, match='column "n"') as wrong:
        follower.run()
    assert "declare the column as string" in wrong.value.hint
    shop.run("UPDATE t SET n = 1, free = x'ff' WHERE id = 1")
    with pytest.raises(ValueDoesNotFit, match='column "free"') as wrong:
        follower.run()
    assert wrong.value.hint == "Correct the row: no type takes both bytes and numbers."
    shop.run("UPDATE t SET free = x'41' WHERE id = 1")
    follower.run()
    assert follower.table("t") == {(1, 1, "A"), (2, 3, "4")}


@pytest.mark.parametrize(
    ("declared", "key"), [("INT", "'many'"), ("TEXT", "cast(x'ff' AS TEXT)"), ("DATETIME", "'soon'")]
)
@pytest.mark.parametrize("correction", ["UPDATE t SET k = {} WHERE v = 2", "DELETE FROM t WHERE v = 2"])
@pytest.mark.parametrize("streaming", [True, False])
def test_a_capture_goes_on_when_a_key_that_does_not_fit_is_corrected(
    shop, tmp_path, declared, key, correction, streaming
):
    """The note of the old key is still there, and names no row of the topic."""
    good = {"INT": [1, 3], "TEXT": ["'a'", "'c'"], "DATETIME": ["'2026-01-01'", "'2026-01-03'"]}[declared]
    shop.run(f"CREATE TABLE t (k {declared} PRIMARY KEY, v INT)", f"INSERT INTO t VALUES ({good[0]}, 1)")
    follower = Follower(shop, tmp_path / "log", "t")
    follower.install()
    if streaming:
        follower.run()
    shop.run(f"INSERT INTO t VALUES ({key}, 2)")
    with pytest.raises(ValueDoesNotFit, match='column "k"'):
        follower.run(until=3)
    shop.run(correction.format(good[1]), "UPDATE t SET v = 5 WHERE v = 1")
    follower.run()
    assert {row[1] for row in follower.table("t")} == {row[1] for row in shop.rows("t")}
    shop.run("DELETE FROM t")
    follower.run()
    assert follower.table("t") == set()


KEYS = {
    "at DATETIME": ["'2026-01-01 00:00:00'", "'2026-01-01T00:00:01'", "'2026-01-01 00:00:02.5'", "'2026-01-02'"],
    "k": ["5", "'x'", "1.5", "'é'"],
    "d DATE": ["'2026-01-01'", "'0001-01-01'"],
    "n DECIMAL(10, 2)": ["'1.10'", "2", "-0.5"],
    "r REAL": ["1", "0.1", "-0.0", "1e300"],
    "b BOOLEAN": ["0", "1"],
    "i INT": ["-9223372036854775808", "7"],
    "t TEXT": ["''", "'a b'", "'🎉'"],
    "c TEXT COLLATE NOCASE": ["'a'", "'É'", "'é'"],
    "x BLOB": ["x''", "x'00ff'", "x'41'"],
}


@pytest.mark.parametrize("declared", KEYS)
@pytest.mark.parametrize("second", ["", ", s DATETIME"])
def test_a_table_that_is_read_anew_keeps_rows_with_keys_of_any_type(shop, tmp_path, monkeypatch, declared, second):
    """Also where only a part of the key has it."""
    monkeypatch.setattr("headrace.connect.sqlite.reading.KEYS_AT_ONCE", 2)
    name, more = declared.split()[0], ", '2026-01-01T10:00'" if second else ""
    shop.run(
        f"CREATE TABLE t ({declared}{second}, v INT, PRIMARY KEY ({name}{', s' if second else ''}))",
        *(f"INSERT INTO t VALUES ({key}{more}, {n})" for n, key in enumerate(KEYS[declared])),
    )
    follower = Follower(shop, tmp_path / "log", "t", chunk_rows=100)
    follower.install()
    follower.run()
    before = follower.table("t")
    assert len(before) == len(KEYS[declared])
    request_again(follower.log, "t")
    follower.run()
    assert follower.table("t") == before
    forget = f"DELETE FROM t WHERE {name} IS {KEYS[declared][0]}"
    shop.run("DROP TRIGGER _headrace_delete_t", forget)
    follower.install()
    request_again(follower.log, "t")
    follower.run()
    assert follower.table("t") == {row for row in before if row[-1] != 0}


def test_a_key_that_changed_its_case_unseen_is_deleted_in_its_old_case(shop, tmp_path):
    shop.run("CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, v INT)", "INSERT INTO t VALUES ('Ann', 1), ('b', 2)")
    follower = Follower(shop, tmp_path / "log", "t")
    follower.install()
    follower.run()
    follower.feeds["t"].remove()
    shop.run("UPDATE t SET k = 'ANN' WHERE v = 1")
    follower.install()
    request_again(follower.log, "t")
    follower.run()
    assert follower.table("t") == {("ANN", 1), ("b", 2)}
