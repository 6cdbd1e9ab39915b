"""A forgotten subject is gone from the stores that follow tables, with the next epoch; real stores, and crashes."""

from __future__ import annotations

import json
from contextlib import closing

import duckdb as files
import pytest

import headrace as hr
from headrace.connect import delta, duckdb, mysql, parquet, postgres, redis, search
from headrace.engine.storage import Storage
from headrace.testing import POINTS, Driver

MAIL = "user{}@secret.example"


def shop(*stores):
    """Return an app that gives the newest mail of each user, and all of them, to stores."""
    app = hr.App("shop")
    orders = app.stream("orders", "id int, user int, email string", private={"email": "user"})
    users = orders.group_by("user").agg(n="count(*)", email="max_by(email, id)", every="collect_list(email)")
    for store in stores:
        users.to(store)
    return app


def orders(*users, first=0):
    return [{"id": first + n, "user": user, "email": user and MAIL.format(user)} for n, user in enumerate(users)]


def held(path):
    with files.connect(path, read_only=True) as sql:
        return {user: (n, email, every) for user, n, email, every in sql.execute("FROM users").fetchall()}


def wanted(counts, *, forgotten=()):
    """Return the rows of users with so many orders each; `forgotten`: users whose mails are null."""
    mails = {user: None if user in forgotten else MAIL.format(user) for user in counts}
    return {user: (n, mails[user], [mails[user]] * n) for user, n in counts.items()}


def last_commit(driver):
    storage = Storage(driver.storage, "shop")
    return storage.read_commit(storage.last_epoch())


def forget(driver, user):
    with hr.Log(driver.storage / "log") as log:
        assert log.topic("orders").forget(user) == 1


def test_the_next_epoch_takes_the_values_of_a_forgotten_subject_out(tmp_path):
    """No row arrives, and nobody repairs: forgetting alone makes an epoch due, which writes the rows of the subject."""
    with Driver(shop(duckdb.table(tmp_path / "x.duckdb", "users")), storage=tmp_path / "storage") as driver:
        driver.send("orders", *orders(1, 2, 2, 3, None))
        driver.run()
        assert driver.caught_up
        before = wanted({1: 1, 2: 2, 3: 1})
        assert {user: row for user, row in held(tmp_path / "x.duckdb").items() if user is not None} == before
        forget(driver, 2)
        assert not driver.caught_up
        driver.run()
        (staged,) = last_commit(driver).staged
        assert staged.rows == 1
        assert driver.caught_up
        assert held(tmp_path / "x.duckdb")[2] == (2, None, [None, None])
        assert held(tmp_path / "x.duckdb")[1] == before[1]
        driver.send("orders", *orders(2, first=10))
        driver.run()
        count, newest, every = held(tmp_path / "x.duckdb")[2]
        assert (count, newest, sorted(every, key=str)) == (3, MAIL.format(2), [None, None, MAIL.format(2)])


def test_rows_that_change_in_the_same_epoch_are_written_once(tmp_path):
    """A store that merges by key gets each key once: of the epoch's own rows, where it has one."""
    lake = tmp_path / "lake"
    pytest.importorskip("deltalake")
    with Driver(shop(delta.table(lake)), storage=tmp_path / "storage") as driver:
        driver.send("orders", *orders(*range(1, 9)))
        driver.run()
        for user in (3, 5):
            forget(driver, user)
        driver.send("orders", *orders(5, 6, first=20))
        driver.step()
        assert sum(each.rows for each in last_commit(driver).staged) == 3
    import deltalake

    rows = deltalake.DeltaTable(lake).to_pyarrow_table().to_pylist()
    found = {row["user"]: row["email"] for row in rows}
    assert found == {user: MAIL.format(user) for user in range(1, 9)} | {3: None}
    every = next(row["every"] for row in rows if row["user"] == 5)
    assert sorted(every, key=str) == [None, MAIL.format(5)]


def test_a_subject_that_is_forgotten_while_the_app_is_stopped_is_gone_with_its_next_start(tmp_path):
    def driver():
        return Driver(shop(duckdb.table(tmp_path / "x.duckdb", "users")), storage=tmp_path / "storage")

    with driver() as first:
        first.send("orders", *orders(1, 2))
        first.run()
        storage = first
    forget(storage, 1)
    with driver() as second:
        second.run()
    assert held(tmp_path / "x.duckdb") == wanted({1: 1, 2: 1}, forgotten=[1])


FAST = ("after_commit", "before_sink", "after_sink")
UNUSED = {
    "between_topics",
    "before_mark",
    "before_views",
    "during_snapshot",
    "before_read",
    "after_read",
    "before_staging",
    "after_staging",
}


@pytest.mark.parametrize(
    "point", [*FAST, *(pytest.param(p, marks=pytest.mark.prove) for p in sorted({*POINTS} - {*FAST} - UNUSED))]
)
def test_a_crash_in_the_epoch_that_takes_them_out_leaves_none(tmp_path, point):
    stores = (duckdb.table(tmp_path / "x.duckdb", "users"), parquet.folder(tmp_path / "folder"))
    with Driver(shop(*stores), storage=tmp_path / "storage") as driver:
        driver.send("orders", *orders(1, 2, 3))
        driver.run()
        forget(driver, 2)
        driver.crash(at=point)
        driver.restart()
        driver.run()
        assert held(tmp_path / "x.duckdb") == wanted({1: 1, 2: 1, 3: 1}, forgotten=[2])
        folder = dict(files.sql(f"SELECT user, email FROM ({parquet.sql(tmp_path / 'folder')})").fetchall())
        assert folder == {1: MAIL.format(1), 2: None, 3: MAIL.format(3)}


def test_a_running_app_does_it_by_itself(tmp_path):
    """Also where no record arrives."""
    with hr.Log(tmp_path / "log") as log:
        topic = log.create_topic("orders", "id int, user int, email string", private={"email": "user"})
        topic.append(orders(1, 2, 3))
    app = hr.App("shop", storage=tmp_path / "storage", topics=f"log:{tmp_path / 'log'}")
    table = app.stream("orders", "id int, user int, email string", private={"email": "user"})
    users = table.group_by("user").agg(n="count(*)", email="max_by(email, id)", every="collect_list(email)")
    users.to(duckdb.table(tmp_path / "x.duckdb", "users"))
    with app.start(carrier="in-process") as running:
        running.await_caught_up(300)
        with hr.Log(tmp_path / "log") as log:
            log.topic("orders").forget(1)
        running.await_caught_up(300)
        assert held(tmp_path / "x.duckdb") == wanted({1: 1, 2: 1, 3: 1}, forgotten=[1])


@pytest.mark.prove
@pytest.mark.spark
def test_a_running_app_does_it_on_spark(tmp_path, spark):
    with hr.Log(tmp_path / "log") as log:
        topic = log.create_topic("orders", "id int, user int, email string", private={"email": "user"})
        topic.append(orders(1, 2, 3))
    app = hr.App("shop", storage=tmp_path / "storage", topics=f"log:{tmp_path / 'log'}")
    table = app.stream("orders", "id int, user int, email string", private={"email": "user"})
    users = table.group_by("user").agg(n="count(*)", email="max_by(email, id)", every="collect_list(email)")
    users.to(duckdb.table(tmp_path / "x.duckdb", "users"))
    with app.start(spark) as running:
        running.await_caught_up(300)
        with hr.Log(tmp_path / "log") as log:
            log.topic("orders").forget(1)
        running.await_caught_up(300)
        assert held(tmp_path / "x.duckdb") == wanted({1: 1, 2: 1, 3: 1}, forgotten=[1])


def test_mariadb_and_opensearch_have_nothing_of_a_forgotten_subject(tmp_path, schema, opensearch_of_the_run):
    """Neither the row that is found, nor what it was found by."""
    opensearch_of_the_run.start()
    index = f"forgotten_{schema.name}"
    stores = mysql.upsert(schema.url, "users"), search.opensearch(opensearch_of_the_run.url(), index)

    def found(**parameters):
        with closing(stores[1].address.open()) as cluster:
            hits = cluster.ask("GET", f"/{index}/_search", size=100, **parameters)["hits"]["hits"]
        return {each["_source"]["user"]: each["_source"]["email"] for each in hits}

    with Driver(shop(*stores), storage=tmp_path / "storage") as driver:
        driver.send("orders", *orders(*range(1, 6)))
        driver.run()
        before = {user: MAIL.format(user) for user in range(1, 6)}
        assert (dict(schema.query("SELECT user, email FROM users")), found()) == (before, before)
        assert set(found(q="email:user4")) == {4}
        forget(driver, 4)
        driver.run()
        after = before | {4: None}
        assert (dict(schema.query("SELECT user, email FROM users")), found()) == (after, after)
        assert not found(q="email:user4")
        assert not found(q="every:user4")


def test_real_stores_have_nothing_of_a_forgotten_subject(tmp_path, database, redis_of_the_run):
    """PostgreSQL, Redis, a folder of Parquet files and a search index, without any repair."""
    pytest.importorskip("tantivy")
    import redis as client

    redis_of_the_run.start()
    url = redis_of_the_run.url(7)
    with client.Redis.from_url(url) as server:
        server.flushdb()
    stores = (
        postgres.upsert(database.url, "users"),
        redis.hashes(url, "h:"),
        redis.keys(url, "k:"),
        parquet.folder(tmp_path / "folder"),
        search.tantivy(tmp_path / "index", memory_bytes=15_000_000),
    )

    def mails():
        with client.Redis.from_url(url, decode_responses=True) as server:
            hashes = {int(key[2:]): server.hget(key, "email") for key in server.scan_iter("h:*")}
            texts = {int(key[2:]): json.loads(server.get(key))["email"] for key in server.scan_iter("k:*")}
        indexed = search.query(tmp_path / "index", "*", limit=100)
        return [
            dict(database.query('SELECT "user", email FROM users')),
            hashes,
            texts,
            dict(files.sql(f"SELECT user, email FROM ({parquet.sql(tmp_path / 'folder')})").fetchall()),
            {row["user"]: row["email"] for row in indexed},
        ]

    with Driver(shop(*stores), storage=tmp_path / "storage") as driver:
        driver.send("orders", *orders(*range(1, 6)))
        driver.run()
        before = {user: MAIL.format(user) for user in range(1, 6)}
        assert mails() == [before] * 5
        forget(driver, 4)
        driver.run()
        assert mails() == [before | {4: None}] * 5
    assert not search.query(tmp_path / "index", f'email:"{MAIL.format(4)}"', limit=5)
    parquet.compact(tmp_path / "folder", keep="0 seconds")
    assert not any(MAIL.format(4).encode() in each.read_bytes() for each in (tmp_path / "folder").rglob("*.parquet"))
