"""What a capture must not miss without a word: altered tables, statements and texts of any charset, a time apart."""

from __future__ import annotations

from contextlib import closing

import pytest
from following import capture_of, followed, rows_of, running

from headrace.connect.capture.errors import NotCapturable, SourceSchemaChanged
from headrace.connect.mysql import reading
from headrace.connect.mysql.address import MysqlAddress
from headrace.connect.mysql.capture import Capture
from headrace.connect.mysql.catalogue import described
from headrace.log import Log


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as opened:
        yield opened


def table(schema, *names):
    for name in names:
        schema.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL)",
            f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 3)",
        )


def renamed(schema, name):
    """Return a capture of a table of any name into the topic t."""
    address = MysqlAddress.parse(schema.url)
    with address.connected() as sql:
        return Capture(address=address, tables={"t": described(sql, schema.name, name)}, chunk_rows=2)


@pytest.mark.parametrize(
    ("alter", "error", "says"),
    [
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (v)", SourceSchemaChanged, "another key: v"),
        ("ADD FOREIGN KEY (v) REFERENCES parent (id) ON DELETE CASCADE", NotCapturable, "changes rows by itself"),
        ("ADD SYSTEM VERSIONING", NotCapturable, "no ordinary table"),
    ],
)
def test_an_alteration_after_which_changes_would_be_lost_stops_the_capture(schema, log, alter, error, says):
    table(schema, "parent", "t")
    with pytest.raises(error, match=says), running(capture_of(schema, "t"), log) as wait:  # noqa: PT012 - the thread
        wait(followed(schema, log))
        schema.execute(f"ALTER TABLE t {alter}")
        wait(lambda: False)


def test_a_table_that_was_not_captured_for_a_time_is_read_anew(schema, log):
    table(schema, "t", "u")
    with running(capture_of(schema, "t", "u"), log) as wait:
        wait(followed(schema, log, "u"))
    schema.execute("UPDATE u SET v = 10 WHERE id = 2", "DELETE FROM u WHERE id = 1", "INSERT INTO t VALUES (4, 4)")
    with running(capture_of(schema, "t"), log) as wait:
        wait(followed(schema, log))
    with running(capture_of(schema, "t", "u"), log) as wait:
        wait(followed(schema, log, "u"))
    assert rows_of(log, "u") == {(2, 10), (3, 3)}


@pytest.mark.parametrize(
    ("name", "charset", "statement"),
    [
        ("größe", "latin1", "TRUNCATE TABLE größe"),
        ("größe", "latin1", "ALTER TABLE größe MODIFY v bigint NOT NULL; UPDATE größe SET v = v + 1"),
        ("a`b", "utf8mb4", "TRUNCATE TABLE `a``b`"),
        ('a"b', "utf8mb4", 'TRUNCATE TABLE "a""b"'),
    ],
)
def test_a_statement_is_read_in_the_charset_of_its_session_and_names_may_be_quoted(
    schema, log, name, charset, statement
):
    shown = reading.quoted(name)
    table(schema, shown)
    with running(renamed(schema, name), log) as wait:
        wait(lambda: "t" in log.topics() and len(rows_of(log, "t")) == 3)
        with closing(schema.connect(charset=charset)) as sql, sql.cursor() as cursor:
            cursor.execute("SET sql_mode = 'ANSI_QUOTES'")
            for each in statement.split(";"):
                cursor.execute(each)
        schema.execute(f"INSERT INTO {shown} VALUES (9, 9)")
        wait(lambda: rows_of(log, "t") == set(schema.query(f"SELECT * FROM {shown}")))


LETTERS = {
    "armscii8": "Ա",
    "cp866": "яⁿ",
    "dec8": "é",
    "eucjpms": "日～",  # noqa: RUF001
    "euckr": "한갂",
    "geostd8": "ა",
    "greek": "αʼ",  # noqa: RUF001
    "hebrew": "א‾",
    "hp8": "é",
    "keybcs2": "ŕ",
    "koi8u": "я•",
    "macce": "Ą",
    "sjis": "日\\",
    "swe7": "é",
    "ujis": "日\\",
}


def test_texts_of_charsets_that_python_lacks_or_reads_otherwise_are_those_of_the_server(schema, log):
    columns = ", ".join(f"{name} varchar(9) CHARACTER SET {name}" for name in LETTERS)
    schema.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns}, e enum('Ա', 'a') CHARACTER SET armscii8)")
    with running(capture_of(schema, "t"), log) as wait:
        wait(followed(schema, log))
        values = ", ".join(f"'{each}'".replace("\\", "\\\\") for each in LETTERS.values())
        schema.execute(f"INSERT INTO t VALUES (1, {values}, 'Ա')")
        wait(lambda: rows_of(log, "t"))
    assert rows_of(log, "t") == {(1, *LETTERS.values(), "Ա")} == set(schema.query("SELECT * FROM t"))


def test_a_value_of_several_packets_is_read_whatever_its_bytes(breakable_schema):
    breakable_schema.execute("SET GLOBAL max_allowed_packet = 134217728")
    breakable_schema.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v longblob)", "INSERT INTO t VALUES (1, repeat(x'ff', 34000000))"
    )
    with MysqlAddress.parse(breakable_schema.url).connected() as sql:
        found = reading.chunk(sql, described(sql, breakable_schema.name, "t"), ["id", "v"], after=None, limit=10)
    assert found.rows.column("v")[0].as_buffer().size == 34_000_000
