"""A bank on SQLite: writers move money between tables; the app that follows is killed, its stores follow."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import duckdb
from sqlite_bank import bank
from test_sqlite import SECONDS, Shop

import headrace as hr
from headrace.connect import parquet, sqlite
from headrace.connect.sqlite.capture import connected

PROGRAM = Path(__file__).with_name("sqlite_bank.py")


@contextmanager
def writers(path, count=3):
    """Move money between the tables, in transactions of their own."""
    stop = threading.Event()

    def write(number):
        draw = random.Random(number)  # noqa: S311
        with connected(str(path)) as db:
            db.execute("PRAGMA busy_timeout = 60000")
            while not stop.is_set():
                amount, one, other = draw.randint(-9, 9), draw.randint(1, 50), draw.randint(1, 50)
                db.execute("BEGIN IMMEDIATE")
                db.execute("UPDATE checking SET balance = balance - ? WHERE id = ?", [amount, one])
                db.execute("UPDATE savings SET balance = balance + ? WHERE id = ?", [amount, other])
                db.execute("COMMIT")
                stop.wait(0.005)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_no_epoch_shows_half_of_a_transfer_and_a_killed_app_goes_on(tmp_path):
    shop = Shop(tmp_path / "bank.db")
    shop.run("PRAGMA journal_mode = WAL")
    for table in ("checking", "savings"):
        shop.run(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
        for number in range(1, 51):
            shop.run((f"INSERT INTO {table} VALUES (?, 100)", [number]))
        sqlite.table(shop.path, table).install()
    arguments = [str(tmp_path / "app"), str(shop.path)]
    app, looks, draw = bank(*arguments), 0, random.Random(5)  # noqa: S311
    with writers(shop.path):
        for _ in range(4):
            process = subprocess.Popen([sys.executable, str(PROGRAM), *arguments])
            until = time.monotonic() + draw.uniform(1, 2)
            while time.monotonic() < until or not looks:
                rows = sums(app)
                assert rows in ([], [(10_000, 50)]), rows
                looks += bool(rows)
                time.sleep(0.01)
                assert process.poll() is None
            process.kill()
            process.wait()
    with app.start(carrier="in-process") as running:
        running.await_caught_up(SECONDS)
    balances = shop.rows("checking JOIN savings USING (id)")
    assert {tuple(row.values()) for row in app.view("customers").to_pylist()} == balances
    assert stored(tmp_path / "app") == [balances] * 2
    assert looks > 10


def stored(storage):
    """Return what each of the stores has."""
    query = "SELECT id, balance, saved FROM {}"
    with duckdb.connect(storage / "customers.duckdb", read_only=True) as db:
        in_duckdb = set(db.execute(query.format("customers")).fetchall())
    return [in_duckdb, set(duckdb.sql(query.format(f"({parquet.sql(storage / 'warehouse')})")).fetchall())]


def sums(app):
    try:
        return [(row["total"], row["customers"]) for row in app.view("sums").to_pylist()]
    except hr.HeadraceError:  # before the first epoch there is no view
        return []
