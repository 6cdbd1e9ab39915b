"""What the README shows is run."""

from __future__ import annotations

import json
import re
import runpy
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb

import headrace as hr
from headrace.testing import Driver

HOUSE = Path(__file__).parent.parent
README = (HOUSE / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def blocks(kind):
    return [text for found, text in BLOCKS if found == kind]


def test_the_program_is_the_example():
    program = (HOUSE / "examples" / "clicks.py").read_text(encoding="utf-8")
    assert program.split('"""\n\n', 1)[1] == blocks("python")[0]


def test_the_program_says_what_the_readme_shows():
    app = runpy.run_path(str(HOUSE / "examples" / "clicks.py"))["app"]
    rows = [json.loads(line) for line in (HOUSE / "examples" / "clicks.jsonl").read_text().splitlines()]
    with Driver(app) as driver:
        driver.send("clicks", *rows)
        driver.run()
        for row in driver.view("clicks_by_user"):
            window = f"{row['window_start']:%F %T}  {row['window_end']:%F %T}"
            assert f"{row['user']:<4}  {window}  {row['clicks']:>6}  {row['last']}" in README
        for row in driver.read("minutes"):
            times = {name: f"{row[name]:%FT%TZ}" for name in ("window_start", "window_end")}
            assert json.dumps({**row, **times}) in README


def test_the_test_of_the_readme_passes():
    names = runpy.run_path(str(HOUSE / "examples" / "clicks.py"))
    exec(compile(blocks("python")[2], "README.md", "exec"), names)  # noqa: S102 -- our own text


def test_the_views_of_verbs_and_of_sql_hold_the_same_rows():
    names = {"hr": hr}
    exec(compile(blocks("python")[1], "README.md", "exec"), names)  # noqa: S102 -- our own text
    with Driver(names["shop"]) as driver:
        driver.send("users", {"id": 1, "city": "Oslo"}, {"id": 2, "city": "Rome"})
        driver.send("orders", {"id": 1, "buyer": 1, "price": 5}, {"id": 2, "buyer": 2, "price": 7})
        driver.run()
        driver.send("users", {"id": 1, "city": "Rome"})
        driver.delete("orders", id=2)
        driver.run()
        assert driver.view("by_verbs") == driver.view("by_sql") == [{"city": "Rome", "sold": 5}]


def test_a_table_of_a_database_is_followed_into_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("shop.db")) as db, db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, city TEXT, price INTEGER)")
        db.execute("INSERT INTO orders VALUES (1, 'Oslo', 5), (2, 'Rome', 7), (3, 'Rome', 1)")
    names = {"hr": hr}
    exec(compile(blocks("python")[3], "README.md", "exec"), names)  # noqa: S102 -- our own text
    names["sqlite"].table("shop.db", "orders").install()
    with names["sales"].start(carrier="in-process") as running:
        running.await_caught_up(300)
    rows = duckdb.sql(f"SELECT city, sold FROM ({names['parquet'].sql('warehouse/cities')}) ORDER BY city").fetchall()
    assert rows == [("Oslo", 5), ("Rome", 8)]
    assert {tuple(row.values()) for row in names["sales"].view("cities").to_pylist()} == set(rows)
