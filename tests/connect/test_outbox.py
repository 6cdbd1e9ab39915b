"""The outbox on real databases: an event a committed row, landed once whatever crashes, and deleted then."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing

import pytest

import headrace as hr
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.outside import FeedFailed
from headrace.connect import files, outbox, sqlite
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.topics import TopicSpec
from headrace.log import Log
from headrace.testing import Crash

SECONDS = 300
POSTGRES = pytest.param("on_postgres", marks=pytest.mark.xdist_group("postgres"))
MARIADB = pytest.param("on_mariadb", marks=pytest.mark.xdist_group("mariadb"))
POINTS = ["before_landing", "during_landing", "between_topics", "before_mark", "after_landing"]


class OnSqlite:
    """An outbox in SQLite."""

    def __init__(self, path):
        self.path = path
        self.run(lambda db: db.execute(outbox.ddl("sqlite")))
        self.source = sqlite.table(path, "outbox")
        outbox.events(self.source).install()

    def run(self, act):
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            return act(db)

    def waiting(self):
        return self.run(lambda db: db.execute("SELECT count(*) FROM outbox").fetchone()[0])


class OnPostgres:
    """An outbox in PostgreSQL."""

    def __init__(self, database):
        from headrace.connect import postgres

        self.database = database
        database.execute(outbox.ddl("postgresql"))
        self.source = postgres.table(database.url, "outbox", slot=database.name)

    def run(self, act):
        with self.database.connect(autocommit=False) as sql:
            return act(sql)

    def waiting(self):
        return self.database.query("SELECT count(*) FROM outbox")[0][0]


class OnMariadb:
    """An outbox in MariaDB."""

    def __init__(self, schema):
        from headrace.connect import mysql

        self.schema = schema
        schema.execute(outbox.ddl("mysql"))
        self.source = mysql.table(schema.url, "outbox")

    def run(self, act):
        with closing(self.schema.connect(autocommit=False)) as sql:
            result = act(sql)
            sql.commit()
            return result

    def waiting(self):
        return self.schema.query("SELECT count(*) FROM outbox")[0][0]


@pytest.fixture
def on_sqlite(tmp_path):
    return OnSqlite(tmp_path / "shop.db")


@pytest.fixture
def on_postgres(database):
    return OnPostgres(database)


@pytest.fixture
def on_mariadb(schema):
    return OnMariadb(schema)


def place(shop, number, *, kind="order"):
    """Write an event in a transaction."""
    facts = {"n": number, "ü": "🎉"}
    return shop.run(
        lambda db: outbox.write(
            db,
            aggregate_type=kind,
            aggregate_id=f"{kind}-{number % 3}",
            type="Placed",
            payload=facts,
        )
    )


def app_of(shop, folder, **topics):
    app = hr.App("shop", storage=folder, shards=1)
    for topic, kind in (topics or {"orders": "order", "others": None}).items():
        found = app.stream(topic, event_time="created", source=outbox.events(shop.source, kind))
        found.select("id", "aggregate_type", "aggregate_id", "payload").to_view(f"{topic}_seen")
    return app


def seen(app, view):
    try:
        return [json.loads(row["payload"])["n"] for row in app.view(view).to_pylist()]
    except hr.HeadraceError:  # before the first epoch there is no view
        return []


def until(holds):
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("on", ["on_sqlite", POSTGRES, MARIADB])
def test_events_reach_the_topics_of_their_types_once_and_their_rows_are_deleted(request, on, tmp_path):
    shop = request.getfixturevalue(on)
    place(shop, 0)
    place(shop, 1, kind="refund")
    app = app_of(shop, tmp_path / "app")
    with app.start(carrier="in-process"):
        until(lambda: seen(app, "orders_seen") == [0])
        for number in range(2, 10):
            place(shop, number, kind=("order", "refund")[number % 2])
        with pytest.raises(ZeroDivisionError):
            shop.run(lambda db: (outbox.write(db, aggregate_type="order", aggregate_id="x", type="T"), 1 / 0))
        until(lambda: sorted(seen(app, "orders_seen")) == [0, 2, 4, 6, 8])
        until(lambda: sorted(seen(app, "others_seen")) == [1, 3, 5, 7, 9])
        until(lambda: shop.waiting() == 0)
    topic = Log(tmp_path / "app" / "log").topic("orders")
    assert topic.key == ("aggregate_id",)
    assert sum(topic.end_offsets().values()) == 5


class Stop(threading.Event):
    """Stops when everything that was written is in the topics, or after a while."""

    def __init__(self, done):
        super().__init__()
        self.done = done
        self.deadline = time.monotonic() + SECONDS

    def is_set(self):
        return super().is_set() or self.done() or time.monotonic() > self.deadline


def landed(log):
    return [
        json.loads(row["payload"])["n"]
        for name in ("orders", "others")
        if log.has_topic(name)
        for part in log.topic(name).end_offsets()
        for row in log.topic(name).read(part, 0, 10_000).to_pylist()
    ]


def run(shop, log, done, fault=lambda _point: None):
    feeds = {"orders": outbox.events(shop.source, "order"), "others": outbox.events(shop.source)}
    specs = {name: TopicSpec(name=name, schema=outbox.EVENTS, key=("aggregate_id",)) for name in feeds}
    store = EmbeddedTopics(log, partitions=2, fault=fault)
    landing = store.shared_landing(
        "outbox", specs, feeds={name: each.identity for name, each in feeds.items()}, limit=10**6, read=lambda _: 0
    )
    with closing(landing):
        feeds["orders"].run_together(feeds, landing, Stop(done))


@pytest.mark.parametrize("on", ["on_sqlite", POSTGRES])
@pytest.mark.parametrize("point", [*POINTS, "before_delete", "after_delete"])
def test_a_crash_at_any_step_lands_each_event_once(request, on, point, tmp_path, monkeypatch):
    shop, armed = request.getfixturevalue(on), []

    def fault(at):
        if at in armed:
            armed.remove(at)
            raise Crash(at)

    kind = type(shop.source)
    delete = kind.delete

    def deleting(self, column, values):
        if values:
            fault("before_delete")
        delete(self, column, values)
        if values:
            fault("after_delete")

    monkeypatch.setattr(kind, "delete", deleting)
    with Log(tmp_path / "log", fsync=False) as log:
        written = 0
        for _ in range(3):
            for _ in range(5):
                place(shop, written, kind=("order", "refund")[written % 2])
                written += 1
            armed.append(point)
            with pytest.raises(Crash):
                run(shop, log, lambda: False, fault)
            place(shop, written)
            written += 1
            run(shop, log, lambda written=written: len(landed(log)) >= written and shop.waiting() == 0)
            assert sorted(landed(log)) == list(range(written))


def test_a_type_that_no_topic_takes_stops_the_feed_and_its_row_stays(on_sqlite, tmp_path):
    place(on_sqlite, 1, kind="refund")
    app = app_of(on_sqlite, tmp_path / "app", orders="order")
    with app.start(carrier="in-process") as running, pytest.raises(FeedFailed, match="refund") as failed:
        running.await_caught_up(SECONDS)
    assert "outbox.events" in str(failed.value)
    assert on_sqlite.waiting() == 1
    app = app_of(on_sqlite, tmp_path / "app", orders="order", others=None)
    with app.start(carrier="in-process"):
        until(lambda: seen(app, "others_seen") == [1])


def test_a_lost_slot_is_replaced_and_what_is_still_in_the_table_is_landed_once(on_postgres, tmp_path):
    from headrace.connect.embedded.requests import request_again

    place(on_postgres, 0)
    app = app_of(on_postgres, tmp_path / "app", orders="order")
    with app.start(carrier="in-process"):
        until(lambda: seen(app, "orders_seen") == [0] and on_postgres.waiting() == 0)
    outbox.events(on_postgres.source).remove()
    place(on_postgres, 1)
    with app.start(carrier="in-process") as running, pytest.raises(FeedFailed, match="does not exist"):
        running.await_caught_up(SECONDS)
    with Log(tmp_path / "app" / "log") as log:
        request_again(log, "orders")
    with app.start(carrier="in-process"):
        until(lambda: sorted(seen(app, "orders_seen")) == [0, 1] and on_postgres.waiting() == 0)


@pytest.mark.parametrize("on", ["on_sqlite", POSTGRES])
def test_sqlalchemy_writes_in_its_transaction(request, on):
    import sqlalchemy
    import sqlalchemy.orm

    shop = request.getfixturevalue(on)
    url = f"sqlite:///{getattr(shop, 'path', '')}"
    if on == "on_postgres":
        url = shop.database.url.replace("postgresql:", "postgresql+psycopg:")
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        outbox.write(connection, aggregate_type="order", aggregate_id="1", type="Placed", payload=[1], id="mine")
    with sqlalchemy.orm.Session(engine) as session:
        outbox.write(session, aggregate_type="order", aggregate_id="1", type="Placed", table="outbox")
        session.rollback()
    engine.dispose()
    assert shop.waiting() == 1


def test_what_cannot_be_is_refused_by_our_errors(on_sqlite, tmp_path):
    with pytest.raises(InvalidArgument, match="no JSON"):
        on_sqlite.run(lambda db: outbox.write(db, aggregate_type="a", aggregate_id="1", type="T", payload={1, 2}))
    with pytest.raises(InvalidArgument):
        on_sqlite.run(lambda db: outbox.write(db, aggregate_type="a", aggregate_id=1, type="T"))
    with pytest.raises(InvalidArgument, match="no connection"):
        outbox.write(object(), aggregate_type="a", aggregate_id="1", type="T")
    with pytest.raises(InvalidArgument, match="oracle"):
        outbox.ddl("oracle")
    with pytest.raises(InvalidPlan, match="no table"):
        outbox.events(files.lines(tmp_path / "x"))
    on_sqlite.run(lambda db: db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)"))
    wrong = sqlite.table(on_sqlite.path, "t")
    wrong.install()
    app = hr.App("wrong", storage=tmp_path / "wrong")
    app.stream("t", event_time="created", source=outbox.events(wrong)).to_view("v")
    with app.start(carrier="in-process") as running, pytest.raises(FeedFailed, match="is no outbox"):
        running.await_caught_up(SECONDS)
