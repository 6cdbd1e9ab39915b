"""A bank on PostgreSQL: writers move money between tables; the app that follows is killed, the server restarted."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import duckdb
import psycopg
import pytest
from bank_app import bank

from headrace.connect import parquet
from headrace.connect.embedded.requests import request_again, requests_of
from headrace.log import Log

CUSTOMERS, MONEY = 1000, 100
PROGRAM = Path(__file__).with_name("bank_app.py")


def open_accounts(database):
    for table in ("checking", "savings"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, balance bigint NOT NULL)")
        database.execute(f"INSERT INTO {table} SELECT i, {MONEY} FROM generate_series(1, {CUSTOMERS}) i")


def truth(database):
    found = database.query("SELECT c.id, c.balance, s.balance FROM checking c JOIN savings s USING (id) ORDER BY 1")
    return [{"id": one, "balance": balance, "saved": saved} for one, balance, saved in found]


def transfer(sql, draw):
    """Move money between an account of each table, in one transaction."""
    amount, one, other = draw.randint(-50, 50), draw.randint(1, CUSTOMERS), draw.randint(1, CUSTOMERS)
    with sql.transaction():
        sql.execute("UPDATE checking SET balance = balance - %s WHERE id = %s", [amount, one])
        sql.execute("UPDATE savings SET balance = balance + %s WHERE id = %s", [amount, other])


@contextmanager
def writers(database, *, count=4, seed=1):
    """Move money with some writers, also while the server is restarted; gives the number of transactions so far."""
    stop, done = threading.Event(), [0] * count

    def write(number):
        draw = random.Random(seed * 100 + number)  # noqa: S311
        while not stop.is_set():
            try:
                with database.connect() as sql:
                    while not stop.is_set():
                        transfer(sql, draw)
                        done[number] += 1
                        stop.wait(0.005)
            except psycopg.OperationalError:
                stop.wait(0.2)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: sum(done)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def sums(app):
    """Return what the view shows, None before it is there."""
    try:
        rows = app.view("sums").to_pylist()
    except Exception:  # noqa: BLE001 - before the first epoch there is no view
        return None
    return (rows[0]["total"], rows[0]["customers"]) if rows else None


def follows(database, app):
    """Wait until the view of customers is what the database has."""
    deadline = time.monotonic() + 60
    while app.view("customers").sort_by("id").to_pylist() != truth(database):
        assert time.monotonic() < deadline, sums(app)
        time.sleep(0.05)


def stored(database, storage):
    """Return what each of the three stores has."""
    query = "SELECT id, balance, saved FROM {} ORDER BY id"
    with duckdb.connect(storage / "customers.duckdb", read_only=True) as db:
        in_duckdb = db.execute(query.format("customers")).fetchall()
    in_parquet = duckdb.sql(query.format(f"({parquet.sql(storage / 'warehouse')})")).fetchall()
    return {"duckdb": in_duckdb, "parquet": in_parquet, "postgres": database.query(query.format("copied_customers"))}


def fire(database, tmp_path, *, kills, restarts=0, seed=1):
    """Kill the app and restart the server at random; return how often the sum was looked at, right each time."""
    draw = random.Random(seed)  # noqa: S311
    right = (2 * CUSTOMERS * MONEY, CUSTOMERS)
    arguments = [str(tmp_path / "storage"), database.url, f"{database.name}_slot"]
    app, looks, snapshot_done = bank(*arguments), 0, False
    misfortunes = ["kill"] * kills + ["restart"] * restarts
    draw.shuffle(misfortunes)
    misfortunes.insert(len(misfortunes) // 2 + 1, "snapshot")
    with writers(database, seed=seed) as transactions:
        process = None
        for misfortune in [*misfortunes, "end"]:
            process = process or subprocess.Popen([sys.executable, str(PROGRAM), *arguments], stderr=subprocess.PIPE)
            until, seen = time.monotonic() + draw.uniform(0.2, 2), None
            while time.monotonic() < until or (not snapshot_done and process.poll() is None):
                seen = sums(app)
                snapshot_done = snapshot_done or seen == right
                assert not snapshot_done or seen == right, (seen, seed)
                looks += snapshot_done
                time.sleep(0.01)
            if process.poll() is not None:  # it began while the server was down: somebody starts it again
                said = process.communicate()[1].decode()
                assert "[UNAVAILABLE]" in said, said
                process = None
                continue
            if misfortune == "snapshot":
                with Log(tmp_path / "storage" / "log") as log:
                    request_again(log, "savings")
                continue
            if misfortune == "restart":
                database.server.kill() if draw.random() < 0.5 else database.server.stop()
                database.server.start()
                continue
            process.kill()
            process.communicate()
            process = None
        assert transactions() > 0
    with app.start(carrier="in-process"):
        follows(database, app)
    assert sums(app) == right
    accounts = [tuple(row.values()) for row in truth(database)]
    assert stored(database, tmp_path / "storage") == dict.fromkeys(("duckdb", "parquet", "postgres"), accounts)
    with Log(tmp_path / "storage" / "log") as log:
        assert not requests_of(log)
    return looks


def test_no_epoch_shows_half_of_a_transaction_and_a_killed_app_goes_on(breakable_database, tmp_path):
    open_accounts(breakable_database)
    assert fire(breakable_database, tmp_path, kills=2, restarts=1) > 0


@pytest.mark.prove
@pytest.mark.parametrize("seed", [7])
def test_fifty_kills_and_five_restarts(breakable_database, tmp_path, seed):
    open_accounts(breakable_database)
    assert fire(breakable_database, tmp_path, kills=50, restarts=5, seed=seed) > 0
