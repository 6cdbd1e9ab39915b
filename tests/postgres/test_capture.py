"""Tables of a real PostgreSQL are followed: their rows, then each change, whole transactions, exactly once."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from capturing import capture_of, running, until, with_source

COLUMNS = {
    "id": ("bigint PRIMARY KEY", "$id"),
    "b": ("bool", "true"),
    "s": ("smallint", "-7"),
    "i": ("int", "2147483647"),
    "r": ("real", "1.5"),
    "d": ("double precision", "0.1"),
    "n": ("numeric(20, 4)", "-12345.6789"),
    "free": ("numeric", "1e30"),
    "t": ("text", r"E'é\n'"),
    "v": ("varchar(9)", "'x'"),
    "c": ("char(5)", "'ab'"),
    "u": ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    "j": ("json", """'{"a": 1}'"""),
    "jb": ("jsonb", """'{"b": [1, 2]}'"""),
    "e": ("mood", "'ok'"),
    "m": ("cents", "3.10"),
    "y": ("bytea", r"'\x00ff10'"),
    "day": ("date", "'2024-02-29'"),
    "ts": ("timestamp", "'2024-02-29 01:02:03.000004'"),
    "tz": ("timestamptz", "'2024-02-29 01:02:03.5+05'"),
    "tm": ("time", "'01:02:03'"),
    "iv": ("interval", "'1 year 2 days'"),
    "ints": ("int[]", "'{1,NULL,3}'"),
    "texts": ("text[]", """ARRAY['a,b', '', NULL, 'NULL', 'q"\\']"""),
    "moments": ("timestamptz[]", "ARRAY['2024-01-01 00:00+00'::timestamptz]"),
    "flags": ("bool[]", "'{t,f}'"),
    "rng": ("int4range", "'[1,5)'"),
    "p": ("pair", "ROW(1, 'x y')"),
    "ip": ("inet", "'10.0.0.1'"),
    "o": ("oid", "42"),
    "decimals": ("numeric(6, 2)[]", "'{1.5,2.25}'"),
    "raw": ("bytea[]", r"ARRAY['\x01'::bytea, '\x'::bytea]"),
}
"""A column of each type, and a value as SQL."""
TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN cents AS numeric(12, 2) CHECK (VALUE >= 0)",
    "CREATE TYPE pair AS (a int, b text)",
    (
        f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, (kind, _) in COLUMNS.items())}, "
        "g int GENERATED ALWAYS AS (i - 1) STORED)"
    ),
)


def test_the_rows_of_a_table_come_first_and_then_each_change(database):
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 2500) i",
    )
    capture, landing = capture_of(database, "t")
    with running(capture, landing) as failure:
        until(lambda: len(landing.tables["t"]) == 2500, failure)
        database.execute(
            "UPDATE t SET v = NULL WHERE id = 1", "DELETE FROM t WHERE id = 2", "UPDATE t SET id = -3 WHERE id = 3"
        )
        until(lambda: (-3,) in landing.tables["t"], failure)
    assert landing.tables["t"][1,] == {"id": 1, "v": None}
    assert (2,) not in landing.tables["t"]
    assert (3,) not in landing.tables["t"]
    assert landing.tables["t"][-3,] == {"id": -3, "v": "v3"}
    assert len(landing.tables["t"]) == 2499


def test_every_type_is_the_same_from_the_snapshot_and_from_a_change(database):
    """Half of the rows come by COPY, the others as changes: no value may tell them apart."""
    database.execute(*TYPES)
    values = ", ".join(each for _, each in COLUMNS.values())
    insert = f"INSERT INTO t ({', '.join(COLUMNS)}) VALUES ({values})"
    empty = "INSERT INTO t (id, texts, ints, y) VALUES ($id, '{}', '{}', '')"
    nothing = "INSERT INTO t (id) VALUES ($id)"
    database.execute(*(each.replace("$id", str(number)) for number, each in enumerate((insert, empty, nothing))))
    capture, landing = capture_of(database, "t")
    with running(capture, landing) as failure:
        until(lambda: len(landing.tables["t"]) == 3, failure)
        database.execute(
            *(each.replace("$id", str(number + 10)) for number, each in enumerate((insert, empty, nothing)))
        )
        until(lambda: len(landing.tables["t"]) == 6, failure)
    for number in range(3):
        copied, changed = (landing.tables["t"][each,] for each in (number, number + 10))
        assert copied | {"id": 0} == changed | {"id": 0}
    whole = landing.tables["t"][0,]
    assert "g" not in whole
    assert whole["n"] == Decimal("-12345.6789")
    assert (whole["free"], whole["m"], whole["c"]) == ("1" + "0" * 30, Decimal("3.10"), "ab   ")
    assert (whole["y"], whole["day"], whole["iv"]) == (b"\x00\xff\x10", dt.date(2024, 2, 29), "P1Y2D")
    assert whole["tz"] == dt.datetime(2024, 2, 28, 20, 2, 3, 500000, tzinfo=dt.UTC)
    assert whole["ts"] == dt.datetime(2024, 2, 29, 1, 2, 3, 4)  # noqa: DTZ001 - it has no zone
    assert (whole["ints"], whole["texts"]) == ([1, None, 3], ["a,b", "", None, "NULL", 'q"\\'])
    assert (whole["flags"], whole["decimals"], whole["raw"]) == (
        [True, False],
        [Decimal("1.50"), Decimal("2.25")],
        [b"\x01", b""],
    )
    assert (whole["rng"], whole["p"], whole["ip"], whole["jb"]) == ("[1,5)", '(1,"x y")', "10.0.0.1", '{"b": [1, 2]}')
    assert landing.tables["t"][1,]["texts"] == [] == landing.tables["t"][1,]["ints"]
    assert set(landing.tables["t"][2,].values()) == {2, None}


def test_a_value_that_is_stored_apart_and_was_not_changed_is_kept(database):
    """The server does not send it: it is read by its key, or taken from the row before where the identity is FULL."""
    big = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) i)"
    for name in ("plain", "whole"):
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, n int, big text)",
            f"ALTER TABLE {name} ALTER big SET STORAGE EXTERNAL",
        )
        database.execute(f"INSERT INTO {name} SELECT 1, 0, {big}")
    database.execute("ALTER TABLE whole REPLICA IDENTITY FULL")
    capture, landing = capture_of(database, "plain", "whole")
    with running(capture, landing) as failure:
        until(lambda: landing.tables["plain"] and landing.tables["whole"], failure)
        for name in ("plain", "whole"):
            database.execute(f"UPDATE {name} SET n = 1", f"UPDATE {name} SET n = 2, id = 5")
        until(lambda: (5,) in landing.tables["plain"] and (5,) in landing.tables["whole"], failure)
    for name in ("plain", "whole"):
        (row,) = landing.tables[name].values()
        assert (row["id"], row["n"], len(row["big"])) == (5, 2, 16_000)


def test_each_record_says_where_it_comes_from(database):
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    capture, landing = capture_of(database, "t")
    with_source(landing, "t")
    with running(capture, landing) as failure:
        until(lambda: landing.tables["t"], failure)
        with database.connect(autocommit=False) as sql:
            (transaction,) = sql.execute("SELECT pg_current_xact_id()::text").fetchone()
            sql.execute("INSERT INTO t VALUES (2), (3)")
        until(lambda: len(landing.tables["t"]) == 3, failure)
    assert landing.tables["t"][1,]["_source"] is None
    two, three = (landing.tables["t"][each,]["_source"] for each in (2, 3))
    assert two == three
    assert two["transaction"] == transaction
    assert abs((two["committed"] - dt.datetime.now(dt.UTC)).total_seconds()) < 60
