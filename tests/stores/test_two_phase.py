"""An epoch becomes visible in two databases at once, whichever step a crash comes at."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from crashing_sinks import WRITER, CrashAt, batches, epochs, expected, for_rows

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.base.time import ManualClock
from headrace.connect import postgres
from headrace.connect.store import StoreRefused, WriterFenced
from headrace.testing import Crash, Driver

CLOCK = ManualClock()


@pytest.fixture
def two(database):
    """Two databases of one server."""
    from postgres_servers import Database

    name = f"t{uuid.uuid4().hex[:8]}"
    database.execute(f"CREATE DATABASE {name}")
    other = Database(database.server, name)
    yield database, other
    for (gid,) in in_doubt([other]):
        other.execute(f"ROLLBACK PREPARED '{gid}'")
    database.execute(f"DROP DATABASE {name} WITH (FORCE)")


def opened(two, *, fault=lambda _point: None):
    sinks = postgres.two_phase(*(postgres.upsert(each.url, "t") for each in two))
    sinks = {f"s{n}": replace(for_rows(sink, table=True), fault=fault) for n, sink in enumerate(sinks)}
    for sink in sinks.values():
        sink.prepare(clock=CLOCK)
    return sinks["s0"].open_together(sinks, writer=WRITER, clock=CLOCK)


def publish(writer, epoch):
    rows = epochs(table=True)[epoch]
    writer.publish(epoch, {name: batches(rows, table=True) for name in ("s0", "s1")})


def seen(two):
    return [sorted(each.query("SELECT id, text FROM t"), key=str) for each in two]


def in_doubt(databases):
    """Return what is prepared in the databases of a test: the server is shared."""
    names = ", ".join(f"'{each.name}'" for each in databases)
    return databases[0].query(
        f"SELECT gid FROM pg_prepared_xacts WHERE database IN ({names}) AND starts_with(gid, 'headrace:')"
    )


def crash_while_resolving(two):
    """Open with a crash at the first step of what resolves, then at the next; return where it came."""
    points = set()
    for _ in range(2):
        fault = CrashAt(1)
        try:
            opened(two, fault=fault).close()
        except Crash:
            points.add(fault.points[-1])
    return points


def test_a_crash_between_any_two_steps_leaves_both_databases_alike(two):
    """At each step of each epoch in turn, also while an older crash is resolved; nothing stays in doubt."""
    passed = set()
    for epoch in epochs(table=True):
        for number in range(1, 99):
            fault = CrashAt(number)
            try:
                if epoch in (0, 2, 6):
                    passed |= crash_while_resolving(two)
                writer = opened(two, fault=fault)
                last = writer.last_epoch()
                if last < epoch:
                    publish(writer, epoch)
                writer.close()
            except Crash:
                passed.add(fault.points[-1])
                continue
            if last == epoch:
                break
        assert not in_doubt(two)
        assert seen(two) == [expected(table=True, upto=epoch)] * 2, f"epoch {epoch}"
    assert {"before_prepare", "after_prepare", "after_commit", "after_rollback", "after_resolving"} <= passed


def test_what_is_half_decided_is_decided_alike_when_the_app_is_opened(two):
    """Prepared in one: rolled back. Committed in the first: committed in the other, before anything is published."""
    for steps, epoch, there in ((2, 0, -1), (3, 0, -1), (4, 0, 0), (5, 1, 1)):
        fault = CrashAt(steps)
        writer = opened(two)
        writer.fault = fault
        with pytest.raises(Crash):
            publish(writer, epoch)
        writer.close()
        assert len(in_doubt(two)) == {2: 1, 3: 2, 4: 1, 5: 0}[steps]
        after = opened(two)
        assert (after.last_epoch(), after.parts[0].last, after.parts[1].last) == (there, there, there)
        after.close()
        assert not in_doubt(two)


def test_an_older_process_decides_nothing_any_more(two):
    """It hangs after both are prepared; the newer one rolls back, and its commit finds nothing."""
    whole = list(epochs(table=True))
    old = opened(two)

    def overtaken(point):
        if point == "after_prepare" and len(in_doubt(two)) == 2:
            new.append(opened(two))

    new = []
    old.fault = overtaken
    with pytest.raises(WriterFenced):
        publish(old, whole[0])
    for epoch in whole:
        publish(new[0], epoch)
    with pytest.raises(WriterFenced):
        publish(old, whole[1])
    old.close()
    new[0].close()
    assert seen(two) == [expected(table=True)] * 2


def test_a_row_that_one_database_refuses_is_in_none(two):
    two[1].execute("CREATE TABLE t (id int PRIMARY KEY, text text CHECK (text <> 'b'))")
    writer = opened(two)
    with pytest.raises(StoreRefused, match="id = "):
        publish(writer, 0)
    assert not in_doubt(two)
    assert seen(two) == [[], []]
    writer.close()


def test_a_server_that_is_killed_between_prepare_and_commit_goes_on(breakable_database):
    """The same writer publishes again when the server is back."""
    database = breakable_database
    database.execute("CREATE DATABASE other_of_two")
    from postgres_servers import Database

    two = database, Database(database.server, "other_of_two")
    try:
        kills = [2, 4, 7]
        calls = []

        def kill(_point):
            calls.append(1)
            if len(calls) in kills:
                database.server.kill()

        writer = opened(two)
        writer.fault = kill
        for epoch in epochs(table=True):
            for _ in range(9):
                try:
                    publish(writer, epoch)
                except Unavailable:
                    database.server.start()
                else:
                    break
        writer.close()
        assert len(calls) > max(kills)
        assert seen(two) == [expected(table=True)] * 2
        assert not in_doubt(two)
    finally:
        database.server.start()
        database.execute("DROP DATABASE other_of_two WITH (FORCE)")


def test_an_app_writes_to_two_databases(two):
    first, second = postgres.two_phase(postgres.upsert(two[0].url, "orders"), postgres.upsert(two[1].url, "parts"))
    app = hr.App("shop")
    orders = app.stream("orders", "id int, price int, at timestamp", event_time="at")
    orders.to(first)
    orders.group_by(part="id % 3").agg(n="count(*)").to(second)
    with Driver(app) as driver:
        for point in ("before_sink", "after_sink"):
            driver.send("orders", *({"id": i, "price": 1, "at": "2024-05-01T10:00:00Z"} for i in range(6)))
            driver.crash(at=point)
            driver.restart()
            driver.run()
    assert two[0].query("SELECT count(*) FROM orders") == two[1].query("SELECT sum(n) FROM parts") == [(12,)]


def test_two_databases_are_needed(database):
    with pytest.raises(InvalidPlan, match="two databases"):
        postgres.two_phase(postgres.upsert(database.url, "a"), postgres.upsert(database.url, "b"))
