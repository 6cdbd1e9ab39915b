"""A bank on MariaDB: writers move money between tables; the app that follows is killed, the server restarted."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import pymysql
import pytest
from maria_bank_app import bank

from headrace.connect import parquet

CUSTOMERS, MONEY = 200, 100
PROGRAM = Path(__file__).with_name("maria_bank_app.py")


def open_accounts(schema):
    for table in ("checking", "savings"):
        schema.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, balance bigint NOT NULL)")
        schema.execute(f"INSERT INTO {table} SELECT seq, {MONEY} FROM seq_1_to_{CUSTOMERS}")


def truth(schema):
    found = schema.query("SELECT c.id, c.balance, s.balance FROM checking c JOIN savings s USING (id) ORDER BY 1")
    return [{"id": one, "balance": balance, "saved": saved} for one, balance, saved in found]


def transfer(sql, draw):
    """Move money between an account of each table, in one transaction; some are rolled back."""
    amount, one, other = draw.randint(-50, 50), draw.randint(1, CUSTOMERS), draw.randint(1, CUSTOMERS)
    with sql.cursor() as cursor:
        sql.begin()
        cursor.execute("UPDATE checking SET balance = balance - %s WHERE id = %s", [amount, one])
        cursor.execute("UPDATE savings SET balance = balance + %s WHERE id = %s", [amount, other])
        sql.rollback() if draw.random() < 0.1 else sql.commit()


@contextmanager
def writers(schema, *, count=4, seed=1):
    """Move money with some writers, also while the server is restarted; gives the number of transactions so far."""
    stop, done = threading.Event(), [0] * count

    def write(number):
        draw = random.Random(seed * 100 + number)  # noqa: S311
        while not stop.is_set():
            try:
                with closing(schema.connect()) as sql:
                    while not stop.is_set():
                        transfer(sql, draw)
                        done[number] += 1
                        stop.wait(0.005)
            except pymysql.Error:
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


def follows(schema, app, running):
    """Wait until the view of customers is what the database has."""
    deadline = time.monotonic() + 60
    while app.view("customers").sort_by("id").to_pylist() != truth(schema):
        assert time.monotonic() < deadline, str(running.status())
        time.sleep(0.05)


def stored(schema, storage):
    """Return what each of the three stores has."""
    query = "SELECT id, balance, saved FROM {} ORDER BY id"
    with duckdb.connect(storage / "customers.duckdb", read_only=True) as db:
        in_duckdb = db.execute(query.format("customers")).fetchall()
    in_parquet = duckdb.sql(query.format(f"({parquet.sql(storage / 'warehouse')})")).fetchall()
    in_mariadb = [tuple(row) for row in schema.query(query.format("copied_customers"))]
    return {"duckdb": in_duckdb, "parquet": in_parquet, "mariadb": in_mariadb}


def fire(schema, tmp_path, *, kills, restarts=0, seed=1):
    """Kill the app and restart the server at random; return how often the sum was looked at, right each time."""
    draw = random.Random(seed)  # noqa: S311
    right = (2 * CUSTOMERS * MONEY, CUSTOMERS)
    arguments = [str(tmp_path / "storage"), schema.url]
    app, looks, snapshot_done = bank(*arguments), 0, False
    misfortunes = ["kill"] * kills + ["restart"] * restarts
    draw.shuffle(misfortunes)
    with writers(schema, seed=seed) as transactions:
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
            if misfortune == "restart":
                schema.server.kill() if draw.random() < 0.5 else schema.server.stop()
                schema.server.start()
                continue
            process.kill()
            process.communicate()
            process = None
        assert transactions() > 0
    with app.start(carrier="in-process") as running:
        follows(schema, app, running)
    assert sums(app) == right
    accounts = [tuple(row.values()) for row in truth(schema)]
    assert stored(schema, tmp_path / "storage") == dict.fromkeys(("duckdb", "parquet", "mariadb"), accounts)
    return looks


def test_no_epoch_shows_half_of_a_transaction_and_a_killed_app_goes_on(breakable_schema, tmp_path):
    open_accounts(breakable_schema)
    assert fire(breakable_schema, tmp_path, kills=2, restarts=1) > 0


@pytest.mark.prove
@pytest.mark.parametrize("seed", [7])
def test_many_kills_and_restarts_of_mariadb(breakable_schema, tmp_path, seed):
    open_accounts(breakable_schema)
    assert fire(breakable_schema, tmp_path, kills=15, restarts=4, seed=seed) > 0
