"""An epoch becomes visible in two databases at once, whichever step a crash comes at: PostgreSQL, MariaDB, or both."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import uuid

import killed_writer
import pytest
from crashing_sinks import CrashAt, epochs, expected
from killed_writer import publish

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.connect import mysql, parquet, postgres
from headrace.connect.store import StoreDiffers, StoreRefused, WriterFenced
from headrace.connect.two_phase import two_phase
from headrace.testing import Crash, Driver

pytest.importorskip("pymysql")
STEPS = {"before_prepare", "in_transaction", "after_prepare", "after_commit", "after_rollback", "after_resolving"}
EITHER = pytest.mark.parametrize(
    "two", ["both", "two of PostgreSQL"], indirect=True, ids=["of both kinds", "of PostgreSQL"]
)


class OfPostgres:
    """A database of PostgreSQL, and what an outsider sees of it."""

    upsert, text = staticmethod(postgres.upsert), "text"

    def __init__(self, database):
        self.database, self.url = database, database.url
        self.execute, self.query = database.execute, database.query

    def in_doubt(self):
        return [
            gid
            for (gid,) in self.query("SELECT gid FROM pg_prepared_xacts WHERE database = %s", self.database.name)
            if gid.startswith("headrace:")
        ]


class OfMaria:
    """A database of MariaDB; a test of xdist's group has its server alone."""

    upsert, text = staticmethod(mysql.upsert), "varchar(20)"

    def __init__(self, schema):
        self.schema, self.url = schema, schema.url
        self.execute, self.query = schema.execute, schema.query

    def in_doubt(self):
        names = [data.decode() for *_, data in self.query("XA RECOVER")]
        return [each for each in names if each.startswith("headrace:")]


@pytest.fixture
def two(request, database):
    """Two databases: of one PostgreSQL, or of a PostgreSQL and a MariaDB."""
    if getattr(request, "param", "both") == "both":
        maria = OfMaria(request.getfixturevalue("schema"))
        yield OfPostgres(database), maria
        for name in maria.in_doubt():
            maria.execute(f"XA ROLLBACK '{name}'")
        return
    from postgres_servers import Database

    name = f"t{uuid.uuid4().hex[:8]}"
    database.execute(f"CREATE DATABASE {name}")
    other = OfPostgres(Database(database.server, name))
    yield OfPostgres(database), other
    for gid in other.in_doubt():
        other.execute(f"ROLLBACK PREPARED '{gid}'")
    database.execute(f"DROP DATABASE {name} WITH (FORCE)")


def opened(two, *, fault=lambda _point: None):
    return killed_writer.opened([each.url for each in two], fault)


def seen(two):
    return [sorted(((i, text) for i, text in each.query("SELECT id, text FROM t")), key=str) for each in two]


def in_doubt(two):
    return [name for each in two for name in each.in_doubt()]


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


@EITHER
@pytest.mark.parametrize("upto", [2, pytest.param(99, marks=pytest.mark.prove)])
def test_a_crash_between_any_two_steps_leaves_both_databases_alike(two, upto):
    """At each step of each epoch in turn, also while an older crash is resolved; nothing stays in doubt."""
    passed = set()
    for epoch in (each for each in epochs(table=True) if each <= upto):
        for number in range(1, 99):
            if epoch in (0, 2, 6):
                passed |= crash_while_resolving(two)
            writer, fault = opened(two), CrashAt(number)
            last, writer.fault = writer.last_epoch(), fault
            for each in writer.branches:
                each.fault = fault
            try:
                if last < epoch:
                    publish(writer, epoch)
            except Crash:
                passed.add(fault.points[-1])
            finally:
                writer.close()  # a process that has died has no connection
            if last == epoch:
                break
        assert not in_doubt(two)
        assert seen(two) == [expected(table=True, upto=epoch)] * 2, f"epoch {epoch}"
    assert passed >= STEPS


def killed(two, epoch, number):
    """Write an epoch in a process that is killed at a step; return where it was, None where it ended by itself."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(killed_writer.PRELOADED)
    ours, theirs = processes.Pipe(duplex=False)
    urls = [each.url for each in two]
    child = processes.Process(target=killed_writer.write_until, args=(urls, epoch, number, theirs))
    child.start()
    theirs.close()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    points = []
    with contextlib.suppress(EOFError):
        while True:
            points.append(ours.recv())
    return points[-1] if child.exitcode else None


@pytest.mark.parametrize("upto", [0, pytest.param(99, marks=pytest.mark.prove)])
def test_a_kill_between_any_two_steps_leaves_both_databases_alike(two, upto):
    """`kill -9`: the servers see connections that end. The process after it is killed, too, while it resolves."""
    passed = set()
    for epoch in (each for each in epochs(table=True) if each <= upto):
        for number in range(1, 99):
            point = killed(two, epoch, number)
            passed.add(point)
            if in_doubt(two):
                passed.add(killed(two, epoch, 1))
            writer = opened(two)
            assert not in_doubt(two)
            assert len({branch.last for branch in writer.branches}) == 1, "both are at the same epoch"
            writer.close()
            assert seen(two) == [expected(table=True, upto=writer.last_epoch())] * 2
            if point is None:
                break
        assert writer.last_epoch() == epoch
    assert passed >= (STEPS if upto else STEPS - {"in_transaction"})


@EITHER
def test_what_is_half_decided_is_decided_alike_when_the_app_is_opened(two):
    """Prepared in one: rolled back. Committed in the first: committed in the other, before anything is published."""
    for point, times, left, there in (
        ("after_prepare", 1, 1, -1),
        ("after_prepare", 2, 2, -1),
        ("after_commit", 1, 1, 0),
        ("after_commit", 2, 0, 1),
    ):

        class At(CrashAt):
            def __call__(self, passed, point=point):
                if passed == point:
                    super().__call__(passed)

        writer = opened(two)
        writer.fault = At(times)
        with pytest.raises(Crash):
            publish(writer, max(there, 0))
        writer.close()
        assert len(in_doubt(two)) == left
        after = opened(two)
        assert (after.last_epoch(), after.branches[0].last, after.branches[1].last) == (there, there, there)
        after.close()
        assert not in_doubt(two)


@EITHER
def test_an_older_process_decides_nothing_any_more(two):
    """It hangs after both are prepared; the newer one rolls back, and its commit finds nothing."""
    whole = list(epochs(table=True))
    old = opened(two)

    def overtaken(point):
        if point == "after_prepare" and len(in_doubt(two)) == 2:
            new.append(opened(two))

    new = []
    old.fault = overtaken
    with pytest.raises((WriterFenced, Unavailable)):
        publish(old, whole[0])
    for epoch in whole:
        publish(new[0], epoch)
    old.fault = lambda _point: None
    with pytest.raises(WriterFenced):
        publish(old, whole[1])
    old.close()
    new[0].close()
    assert seen(two) == [expected(table=True)] * 2


def test_an_older_process_that_hangs_in_mariadb_with_a_branch_is_ended(two):
    """MariaDB gives a prepared branch to nobody while its connection lives: the connection is ended."""
    reached, goes_on = threading.Event(), threading.Event()

    def hang(point):
        if point == "after_prepare" and not reached.is_set():
            reached.set()
            goes_on.wait(60)

    old, heard = opened(two), []
    old.fault = hang

    def write():
        try:
            publish(old, 0)
        except (WriterFenced, Unavailable) as error:
            heard.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    assert reached.wait(60)
    assert len(two[1].in_doubt()) == 1, "MariaDB is the first by its address"
    new = opened(two)
    assert not in_doubt(two)
    assert new.last_epoch() == -1
    goes_on.set()
    thread.join(60)
    assert heard
    for epoch in epochs(table=True):
        publish(new, epoch)
    new.close()
    old.close()
    assert seen(two) == [expected(table=True)] * 2


@pytest.mark.parametrize("refusing", [0, 1], ids=["PostgreSQL", "MariaDB"])
def test_a_row_that_one_database_refuses_is_in_none(two, refusing):
    two[refusing].execute(f"CREATE TABLE t (id int UNIQUE, text {two[refusing].text} CHECK (text <> 'b'))")
    writer = opened(two)
    with pytest.raises(StoreRefused, match="id = "):
        publish(writer, 0)
    assert not in_doubt(two)
    assert seen(two) == [[], []]
    writer.close()


@pytest.mark.parametrize("killed", ["PostgreSQL", pytest.param("MariaDB", marks=pytest.mark.prove)])
@pytest.mark.xdist_group("postgres")
def test_a_server_that_is_killed_between_prepare_and_commit_goes_on(request, killed):
    """The same writer publishes again when the server is back."""
    maria = killed == "MariaDB"
    database = request.getfixturevalue("database" if maria else "breakable_database")
    schema = request.getfixturevalue("lonely_schema" if maria else "schema")
    server = schema.server if maria else database.server
    two = OfPostgres(database), OfMaria(schema)
    kills, calls = [3, 6, 9], []

    def kill(point):
        if point in ("after_prepare", "after_commit"):
            calls.append(point)
            if len(calls) in kills:
                server.kill()

    writer = opened(two)
    writer.fault = kill
    for epoch in epochs(table=True):
        for _ in range(9):
            try:
                publish(writer, epoch)
            except Unavailable:
                server.start()
            else:
                break
        else:
            pytest.fail("the epoch is not published")
    writer.close()
    server.start()
    assert len(calls) > max(kills)
    assert seen(two) == [expected(table=True)] * 2
    assert not in_doubt(two)


@EITHER
def test_an_app_writes_to_two_databases(two):
    first, second = two_phase(two[0].upsert(two[0].url, "orders"), two[1].upsert(two[1].url, "parts"))
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


def test_a_galera_cluster_takes_no_part(two, monkeypatch):
    """It has no XA."""
    from headrace.connect.mysql.storing import branch

    asked = branch.run
    monkeypatch.setattr(branch, "run", lambda sql, q: [("wsrep_on", "ON")] if "wsrep_on" in q else asked(sql, q))
    with pytest.raises(StoreDiffers, match="Galera"):
        opened(two)


def test_two_databases_are_needed(tmp_path):
    one = "postgresql://ada@localhost/shop"
    for sinks in (
        (postgres.upsert(one, "a"), postgres.upsert(one, "b")),
        (postgres.upsert(one, "a"), parquet.folder(str(tmp_path))),
        (mysql.upsert("mysql://ada@localhost/shop", "a"),),
    ):
        with pytest.raises(InvalidPlan, match="two databases"):
            two_phase(*sinks)
    assert postgres.two_phase is mysql.two_phase is two_phase
