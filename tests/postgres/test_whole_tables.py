"""What a capture must not miss without a word: rows of children, rows written anew, changes of a time apart."""

from __future__ import annotations

from contextlib import closing
from threading import Event

import pytest
from capturing import capture_of, in_a_log, rows_of, running, until

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.connect import postgres
from headrace.connect.capture.errors import NotCapturable
from headrace.connect.postgres.errors import SlotLost
from headrace.connect.postgres.position import Position
from headrace.connect.postgres.stream import HEADER, SlotStream
from headrace.log import Log


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as opened:
        yield opened


def table(database, *names):
    for name in names:
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v int)", f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 3)"
        )


def follow(database, log, names, *statements, rows=None):
    """Capture tables until topics have what they have (or some `rows`), run statements, and wait once more."""

    def same():
        return all(
            name in log.topics() and rows_of(log, name) == set(database.query(rows or f"SELECT * FROM {name}"))
            for name in names
        )

    capture, _ = capture_of(database, *names)
    with in_a_log(log, capture) as landing, running(capture, landing) as failure:
        until(lambda: failure or same(), failure)
        database.execute(*statements)
        until(lambda: failure or same(), failure)


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_key_that_two_rows_may_have_for_a_moment_is_refused(database, identity):
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, other int NOT NULL UNIQUE)",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
    )
    with pytest.raises(NotCapturable, match="DEFERRABLE"):
        capture_of(database, "t")
    database.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX t_other_key")
    assert capture_of(database, "t")[0].tables["t"].key == ("other",)


def test_of_a_table_that_others_inherit_from_its_own_rows_are_captured(database, log):
    table(database, "t")
    database.execute("CREATE TABLE child () INHERITS (t)", "INSERT INTO child VALUES (3, 30), (4, 40)")
    statements = ["UPDATE child SET v = 41 WHERE id = 4", "UPDATE t SET v = v + 1", "DELETE FROM t WHERE id = 1"]
    follow(database, log, ["t"], *statements, rows="SELECT * FROM ONLY t")


def test_a_table_whose_type_was_changed_is_read_anew(database, log):
    table(database, "t")
    follow(database, log, ["t"], "ALTER TABLE t ALTER v TYPE bigint USING v * 10")
    database.execute("ALTER TABLE t ALTER v TYPE int USING v * 10")
    follow(database, log, ["t"])


@pytest.mark.parametrize(
    ("how", "says"),
    [("WITH (publish = 'insert, update, delete')", "some kinds of changes"), ("WHERE (id > 2)", "leaves out rows of")],
)
def test_a_publication_that_leaves_out_changes_is_refused(database, log, how, says):
    table(database, "t")
    capture, _ = capture_of(database, "t")
    database.execute(f"CREATE PUBLICATION {capture.publication} FOR TABLE t {how}")
    with pytest.raises(NotCapturable, match=says), in_a_log(log, capture) as landing, running(capture, landing):
        pass


@pytest.mark.parametrize("apart", ["left out of the program", "removed from the publication"])
def test_a_table_that_was_not_captured_for_a_time_is_read_anew(database, log, apart):
    table(database, "t", "u")
    follow(database, log, ["t", "u"])
    changes = ["UPDATE u SET v = 10 WHERE id = 2", "DELETE FROM u WHERE id = 1", "INSERT INTO t VALUES (4, 4)"]
    if apart == "left out of the program":
        follow(database, log, ["t"], *changes)
    else:
        publication = capture_of(database, "t")[0].publication
        database.execute(f"ALTER PUBLICATION {publication} DROP TABLE u", *changes)
    follow(database, log, ["t", "u"])
    assert rows_of(log, "u") == {(2, 10), (3, 3)}


def test_an_update_that_leaves_the_key_is_one_record_whatever_identifies_a_row(database):
    table(database, "t")
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    capture, landing = capture_of(database, "t")
    with running(capture, landing) as failure:
        until(lambda: failure or len(landing.tables["t"]) == 3, failure)
        database.execute("UPDATE t SET v = 5 WHERE id = 1", "UPDATE t SET id = 9 WHERE id = 2")
        until(lambda: failure or (9,) in landing.tables["t"], failure)
    changes = [(row["id"], row["v"], row["_deleted"]) for each in landing.appends for row in each.get("t", ())]
    assert changes[3:] == [(1, 5, False), (2, 2, True), (9, 2, False)]


def test_messages_of_others_outside_of_transactions_do_not_hold_the_slot(database):
    table(database, "t")
    capture, landing = capture_of(database, "t")
    with running(capture, landing) as failure:
        until(lambda: failure or len(landing.tables["t"]) == 3, failure)
    stream = SlotStream(capture.address, slot=capture.slot, publication=capture.publication, start=0)
    with closing(stream):
        database.execute("SELECT pg_logical_emit_message(false, 'beat', 'x')", "INSERT INTO t VALUES (4, 4)")
        kinds = []
        while "C" not in kinds:
            received = stream.read(0.5, most_bytes=1 << 20)
            kinds += [chr(each[HEADER]) for each in received.messages]
        assert "M" not in kinds
        database.execute("SELECT pg_logical_emit_message(false, 'beat', 'x')")
        assert not stream.read(0.5, most_bytes=1 << 20).messages
        assert stream.between


def test_a_server_that_is_an_older_copy_with_its_slot_is_refused(database):
    table(database, "t")
    capture, landing = capture_of(database, "t")
    with running(capture, landing) as failure:
        until(lambda: failure or len(landing.tables["t"]) == 3, failure)
    at = Position.of(landing.stored)
    landing.stored = at.at(at.lsn + (1 << 40)).to_bytes()
    with pytest.raises(SlotLost, match="older copy of the server"):
        capture.run(landing, Event())


def test_a_table_is_not_captured_into_two_topics(database, tmp_path):
    table(database, "t")
    app = hr.App("twice", storage=tmp_path / "twice")
    for topic in ("first", "second"):
        app.table(topic, source=postgres.table(database.url, "t")).to_view(f"{topic}_rows")
    with pytest.raises(InvalidPlan, match='two topics: "first" and "second"'), app.start(carrier="in-process"):
        pass
