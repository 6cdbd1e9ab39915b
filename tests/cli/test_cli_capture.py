"""`headrace connect install`, `remove` and `snapshot`: triggers of SQLite, and tables that are read anew."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

PROGRAM = """
import headrace as hr
from headrace.connect import sqlite

app = hr.App("shop", storage="shop", shards=1)
app.table("customers", source=sqlite.table("shop.db", "customers")).group_by("city").agg(n="count(*)").to_view("cities")
"""


@pytest.fixture
def program(folder):
    """A database, and a program that follows a table of it."""
    run("CREATE TABLE customers (id INTEGER PRIMARY KEY, city TEXT)")
    run("INSERT INTO customers VALUES (1, 'Rome'), (2, 'Oslo'), (3, 'Rome')")
    (folder / "app.py").write_text(PROGRAM)
    return "app.py"


def run(statement):
    with closing(sqlite3.connect("shop.db")) as db, db:
        db.execute(statement)


def cities(headrace, program):
    done = headrace("run", program, "--local", "--until-caught-up")
    assert done.code == 0, done.err
    shown = headrace("views", "show", "cities", "--app", program, "--json")
    return {row["city"]: row["n"] for row in json.loads(shown.out)["rows"]}


def test_a_table_is_followed_from_install_to_remove(headrace, program):
    assert "triggers of customers made" in headrace("connect", "install", program).out
    assert "nothing to do" in headrace("connect", "install", program).out
    assert cities(headrace, program) == {"Rome": 2, "Oslo": 1}
    run("UPDATE customers SET city = 'Bern' WHERE id = 3")
    assert cities(headrace, program) == {"Rome": 1, "Oslo": 1, "Bern": 1}
    removed = headrace("connect", "remove", program, "--json")
    assert json.loads(removed.out) == {"removed": {"customers": "triggers of customers"}}


def test_a_check_says_that_there_are_no_triggers(headrace, program):
    missing = headrace("connect", "check", program)
    assert missing.code == 1
    assert "no triggers note the changes of the table customers" in missing.out
    headrace("connect", "install", program)
    assert headrace("connect", "check", program).code == 0


def test_changes_that_were_missed_are_read_anew_on_request(headrace, program):
    headrace("connect", "install", program)
    assert cities(headrace, program) == {"Rome": 2, "Oslo": 1}
    headrace("connect", "remove", program)
    run("DELETE FROM customers WHERE id = 1")
    missing = headrace("run", program, "--local", "--until-caught-up")
    assert missing.code != 0
    assert "headrace connect install" in missing.err
    headrace("connect", "install", program)
    assert "headrace connect snapshot" in headrace("run", program, "--local", "--until-caught-up").err
    assert "will be read anew" in headrace("connect", "snapshot", program, "customers").out
    assert cities(headrace, program) == {"Rome": 1, "Oslo": 1}


def test_a_topic_that_follows_no_table_is_refused_with_the_nearest(headrace, program):
    wrong = headrace("connect", "snapshot", program, "customer")
    assert wrong.code == 1
    assert 'Did you mean "customers"?' in wrong.err


def test_a_column_that_was_added_stops_the_app_with_the_command_that_goes_on(headrace, program, folder):
    whole = 'app.table("customers", source=sqlite.table("shop.db", "customers")).to_view("all")'
    (folder / "app.py").write_text(PROGRAM.split("app.table", maxsplit=1)[0] + whole)
    headrace("connect", "install", program)
    headrace("run", program, "--local", "--until-caught-up")
    run("ALTER TABLE customers ADD COLUMN vip INTEGER DEFAULT 7")
    stopped = headrace("run", program, "--local", "--until-caught-up")
    assert "headrace reset FILE --step customers_table" in stopped.err
    assert headrace("reset", program, "--step", "customers_table", "--yes").code == 0
    assert headrace("run", program, "--local", "--until-caught-up").code == 0
    shown = json.loads(headrace("views", "show", "all", "--app", program, "--json").out)["rows"]
    assert {(row["id"], row["vip"]) for row in shown} == {(1, 7), (2, 7), (3, 7)}
