"""The MariaDB of the tests: it logs rows, keeps what was committed, and prepares transactions."""

from __future__ import annotations

from contextlib import closing

import pymysql
import pytest


def test_a_killed_server_comes_back_with_what_was_committed_and_prepared(breakable_schema):
    """Kill -9 is what the tests of capture and of two-phase commit rely on."""
    breakable_schema.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    gid = f"{breakable_schema.name}_one"
    with closing(breakable_schema.connect()) as sql, sql.cursor() as cursor:
        for each in (f"XA START '{gid}'", "INSERT INTO t VALUES (2)", f"XA END '{gid}'", f"XA PREPARE '{gid}'"):
            cursor.execute(each)
        breakable_schema.server.kill()
    with pytest.raises(pymysql.OperationalError):
        breakable_schema.connect()
    breakable_schema.server.start()
    assert breakable_schema.query("SELECT id FROM t") == [(1,)]
    breakable_schema.execute(f"XA COMMIT '{gid}'")
    assert breakable_schema.query("SELECT id FROM t ORDER BY id") == [(1,), (2,)]


def test_the_log_has_rows_with_the_names_of_columns_and_gtids(schema):
    """What capture needs is switched on."""
    names = ("log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata")
    found = dict(schema.query("SHOW GLOBAL VARIABLES WHERE variable_name IN %s", names))
    assert found == dict(zip(names, ("ON", "ROW", "FULL", "FULL"), strict=True))
    schema.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert schema.query("SELECT @@gtid_current_pos")[0][0].startswith("0-1-")
