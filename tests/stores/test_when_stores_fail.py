"""What can be wrong with a store outside: the app says what, and the next move; nothing that was accepted is lost."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pyarrow as pa
import pytest
from crashing_sinks import WRITER, for_rows

import headrace as hr
from headrace.base.outside import SinkFailed
from headrace.base.time import ManualClock
from headrace.connect import mysql, postgres
from headrace.connect.mysql.errors import LoginRefused as MariaLoginRefused
from headrace.connect.postgres.errors import LoginRefused
from headrace.connect.store import StoreRefused
from headrace.engine.operation.running import supervised
from headrace.log import Log
from headrace.testing import Driver

pytest.importorskip("pymysql")
CLOCK = ManualClock()
SECRET = "moneypenny"  # noqa: S105 -- of a user of this test
SECONDS = 300
EACH = pytest.mark.parametrize(
    "kind",
    [  # the fixture is chosen by the test: so is the group of tests that have its server alone
        pytest.param("PostgreSQL", marks=pytest.mark.xdist_group("postgres")),
        pytest.param("MariaDB", marks=pytest.mark.xdist_group("mariadb")),
    ],
)


def shop(storage, sink):
    app = hr.App("shop", storage=storage, shards=1)
    app.stream("orders", "id int, price int, at timestamp", event_time="at").to(sink)
    return app


def order(number):
    return {"id": number, "price": 1, "at": f"2024-05-01T10:00:{number:02}Z"}


@EACH
def test_a_database_that_is_down_when_the_app_starts_is_waited_for(request, tmp_path, kind):
    """The start is tried again within the budget of restarts; the epoch is published when the database is back."""
    made = request.getfixturevalue("breakable_database" if kind == "PostgreSQL" else "breakable_schema")
    sink = (postgres if kind == "PostgreSQL" else mysql).upsert(made.url, "orders")
    with Driver(shop(tmp_path, sink), storage=tmp_path) as driver:
        driver.send("orders", order(1))
        driver.run()
    made.server.kill()
    with Log(tmp_path / "log") as log:
        log.topic("orders").append([order(2)])
    retries = []

    def tried_again(retry):
        retries.append(retry.error)
        if len(retries) == 2:
            made.server.start()

    with supervised(
        shop(tmp_path, sink),
        stop=threading.Event(),
        carrier="in-process",
        restart=hr.Restart(tries=5, first="0 seconds", most="0 seconds"),
        on_start=lambda: None,
        on_retry=tried_again,
    ) as running:
        running.await_caught_up(SECONDS)
    assert [each.condition for each in retries] == ["UNAVAILABLE"] * 2
    assert sorted(made.query("SELECT id FROM orders")) == [(1,), (2,)]


@EACH
def test_a_store_that_is_away_in_mid_stream_gets_its_epoch_when_it_is_back(request, tmp_path, kind):
    """After a minute (by the app's clock) the app stops; the next start publishes the epoch that was committed."""
    made = request.getfixturevalue("breakable_database" if kind == "PostgreSQL" else "breakable_schema")
    sink = (postgres if kind == "PostgreSQL" else mysql).upsert(made.url, "orders")
    with Driver(shop(tmp_path, sink), storage=tmp_path) as driver:
        driver.send("orders", order(1))
        driver.run()
        made.server.kill()
        driver.send("orders", order(2))
        with pytest.raises(SinkFailed, match="epoch") as failed:
            driver.run()
        assert "does not answer" in str(failed.value)
    made.server.start()
    with Driver(shop(tmp_path, sink), storage=tmp_path) as driver:
        driver.run()
    assert sorted(made.query("SELECT id FROM orders")) == [(1,), (2,)]


def test_a_wrong_password_of_a_store_stops_the_app_and_is_not_shown(database, schema, tmp_path):
    """It is not tried again: the next try would be refused, too, and may lock the account."""
    name = f"ada_{schema.name}"
    schema.execute(f"CREATE USER {name} IDENTIFIED BY 'other'")
    database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'other'")
    try:
        for sink, error in (
            (postgres.upsert(database.server.url(database.name, user=name, password=SECRET), "t"), LoginRefused),
            (mysql.upsert(schema.server.url(schema.name, user=name, password=SECRET), "t"), MariaLoginRefused),
        ):
            with pytest.raises(error, match="refuses the login") as refused:
                shop(tmp_path, sink).start(carrier="in-process")
            assert SECRET not in str(refused.value) + repr(refused.value.__cause__)
            assert "env:NAME" in refused.value.hint
    finally:
        schema.execute(f"DROP USER {name}")
        database.execute(f"DROP ROLE {name}")


def test_a_slow_store_holds_the_app_back_and_nothing_piles_up(database, tmp_path):
    """While somebody locks the table, one epoch waits to be published: no other one begins, none is staged."""
    storage = tmp_path / "app"
    app = shop(storage, postgres.upsert(database.url, "orders"))
    with app.start(carrier="in-process") as running, Log(storage / "log") as log:
        topic = log.topic("orders")
        topic.append([order(0)])
        running.await_caught_up(SECONDS)
        before = running.epoch
        with closing(database.connect(autocommit=False)) as other:
            other.execute("LOCK TABLE orders")
            seen = set()
            for number in range(1, 30):
                topic.append([order(number)])
                time.sleep(0.02)
                seen.add((running.epoch, len(list((storage / "staging").glob("*")))))
            other.rollback()
        assert {epoch for epoch, _ in seen} <= {before, before + 1}
        assert max(staged for _, staged in seen) <= 1
        running.await_caught_up(SECONDS)
        assert running.epoch <= before + 4, "what has waited is one epoch, or few"
    assert database.query("SELECT count(*) FROM orders") == [(30,)]


@pytest.mark.prove
@EACH
def test_one_row_of_a_million_is_refused_and_named(request, kind):
    """It is found by halves: the statements of 20 tries, not of a million."""
    made = request.getfixturevalue("database" if kind == "PostgreSQL" else "schema")
    text = "text" if kind == "PostgreSQL" else "varchar(20)"
    made.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, text {text} CHECK (text <> 'bad'))", "INSERT INTO t VALUES (-1, 'x')"
    )
    count, bad, size = 1_000_000, 765_432, 50_000
    sink = for_rows((postgres if kind == "PostgreSQL" else mysql).upsert(made.url, "t"), table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)

    def batches(value):
        for first in range(0, count, size):
            texts = [value if first + i == bad else "fine" for i in range(size)]
            columns = {"id": pa.array(range(first, first + size), pa.int32()), "text": texts, "_time": [0] * size}
            yield pa.record_batch(columns | {"_deleted": [False] * size})

    with pytest.raises(StoreRefused, match=f"id = {bad}"):
        writer.publish(0, batches("bad"))
    assert made.query("SELECT count(*) FROM t") == [(1,)]
    writer.publish(0, batches("good"))
    writer.close()
    assert made.query("SELECT count(*) FROM t") == [(count + 1,)]
