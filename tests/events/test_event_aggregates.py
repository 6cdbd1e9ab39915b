"""Aggregates: commands become events, states are folds of them, now and as they were; projections follow."""

from __future__ import annotations

import re
import runpy
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from seats import Seat, Taken

import headrace as hr
from headrace import events
from headrace.base.errors import InvalidArgument
from headrace.base.time import ManualClock
from headrace.events.event import Appended, Event
from headrace.log import Log
from headrace.testing import Driver

SEAT = Seat()
PAGE = Path(__file__).parents[2] / "docs" / "events.md"


@pytest.fixture
def store(tmp_path):
    with Log(tmp_path / "log", fsync=False) as log, events.EventStore(log) as opened:
        yield opened


def test_of_two_buyers_who_race_one_gets_the_seat(store):
    outcome, ready = {}, threading.Barrier(8)

    def buy(who):
        ready.wait()
        try:
            outcome[who] = SEAT.execute(store, "12A", ("take", who))
        except Taken as taken:
            outcome[who] = str(taken)

    threads = [threading.Thread(target=buy, args=(f"b{n}",)) for n in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (winner,) = [who for who, answer in outcome.items() if answer == Appended(1)]
    assert {answer for who, answer in outcome.items() if who != winner} == {winner}
    assert SEAT.state(store, "12A") == {"by": winner, "times": 1}


def take_and_free(store, times):
    for number in range(times):
        SEAT.execute(store, "s", ("take", f"b{number}"))
        SEAT.execute(store, "s", ("free", f"b{number}"))


def test_a_state_can_be_had_as_it_was(store):
    take_and_free(store, 10)
    assert SEAT.state(store, "s", until=3) == {"by": "b1", "times": 3}
    assert SEAT.state(store, "s", at=store.load("s")[6].at) == {"by": "b3", "times": 7}
    assert SEAT.state(store, "s") == {"by": None, "times": 20}


def test_snapshots_change_nothing_whether_they_are_there_old_or_broken(store):
    take_and_free(store, 10)
    assert SEAT.load(store, "s") == ({"by": None, "times": 20}, 20)
    kept = store.snapshots.newest(SEAT.name, 1, "s")
    assert kept.version >= 16
    folded = []

    class Watched(Seat):
        name = SEAT.name

        def apply(self, state, event):
            folded.append(event.version)
            return super().apply(state, event)

    assert Watched().load(store, "s") == SEAT.load(store, "s")
    assert folded == list(range(kept.version + 1, 21))

    class Changed(Watched):
        fold = 2

    folded.clear()
    assert Changed().load(store, "s") == SEAT.load(store, "s")
    assert len(folded) == 20
    path = store.log.path / ".events" / "events" / "snapshots.db"
    store.snapshots.close()
    path.write_bytes(b"broken" * 1000)
    again = events.EventStore(store.log)
    assert SEAT.load(again, "s") == ({"by": None, "times": 20}, 20)
    again.close()


def test_a_command_without_events_and_a_repeated_one_record_nothing(store):
    assert SEAT.execute(store, "s", ("take", "ann"), command_id="1") == Appended(1)
    assert SEAT.execute(store, "s", ("free", "ann"), command_id="2") == Appended(2)
    assert SEAT.execute(store, "s", ("take", "ann"), command_id="1") == Appended(1)
    assert SEAT.execute(store, "s", ("free", "ann")) == Appended(2)
    assert store.version("s") == 2


def test_who_is_too_slow_each_time_is_told_so(store):
    class Slow(Seat):
        def handle(self, state, command):
            store.append("s", [Event("SeatFreed", {"by": "other"})])
            return super().handle(state, command)

    with pytest.raises(events.ConflictsRemain, match="3 attempts"):
        Slow().execute(store, "s", ("take", "ann"), attempts=3)


def test_old_events_are_upcast_when_they_are_read(store):
    @store.upcasts.register("SeatTaken", 1)
    def named(data):
        return {"by": data["name"]}

    @store.upcasts.register("SeatTaken", 2)
    def with_price(data):
        return data | {"price": 0}

    store.append("s", [Event("SeatTaken", {"name": "ann"}), Event("SeatTaken", {"by": "bob"}, schema=2)])
    store.append("s", [Event("SeatTaken", {"by": "eve", "price": 3}, schema=3), Event("SeatFreed", {"by": "eve"})])
    assert [(event.schema, event.data) for event in store.load("s")] == [
        (3, {"by": "ann", "price": 0}),
        (3, {"by": "bob", "price": 0}),
        (3, {"by": "eve", "price": 3}),
        (1, {"by": "eve"}),
    ]
    with pytest.raises(hr.HeadraceError, match="already"):
        store.upcasts.register("SeatTaken", 2)(with_price)


def projection(folder, log, store):
    app = hr.App("seats", storage=folder, topics=f"log:{log}", shards=2)
    found = store.stream_in(app)
    taken = found.where("type = 'SeatTaken'").with_columns(by="get_json_object(data, '$.by')")
    taken.group_by("by").agg(seats="count(*)").to_view("buyers")
    return app


def test_a_projection_that_is_replayed_from_nothing_equals_the_live_one(tmp_path):
    log = tmp_path / "log"
    with events.EventStore(log, partitions=2) as store:
        store.upcasts.register("SeatTaken", 1)(lambda data: {"by": data.get("by", data.get("name"))})
        app = projection(tmp_path / "live", log, store)
        with app.start(carrier="in-process") as running:
            for number in range(40):
                store.append(f"s{number}", [Event("SeatTaken", {("by", "name")[number % 2]: f"b{number % 3}"})])
            running.await_caught_up(300)
            live = sorted(app.view("buyers").to_pylist(), key=str)
        assert {row["by"]: row["seats"] for row in live} == {"b0": 14, "b1": 13, "b2": 13}
        replayed = projection(tmp_path / "replayed", log, store)
        with replayed.start(carrier="in-process") as running:
            running.await_caught_up(300)
            assert sorted(replayed.view("buyers").to_pylist(), key=str) == live


def test_the_driver_reads_a_store_too(tmp_path):
    with events.EventStore(tmp_path / "log") as store:
        store.append("s", [Event("SeatTaken", {"by": "ann"})])
        with Driver(projection(tmp_path / "app", tmp_path / "log", store), storage=tmp_path / "app") as driver:
            driver.run()
            assert driver.view("buyers") == [{"by": "ann", "seats": 1}]


def test_events_in_an_app_have_the_schema_of_their_data(tmp_path):
    with events.EventStore(tmp_path / "log") as store:
        store.upcasts.register("SeatTaken", 1)(lambda data: data | {"price": 0})
        store.append("s", [Event("SeatTaken"), Event("SeatTaken", schema=2), Event("SeatFreed", schema=5)])
        app = hr.App("seats", storage=tmp_path / "app", topics=f"log:{tmp_path / 'log'}", shards=1)
        store.stream_in(app).select("version", "schema").to_view("schemas")
        with Driver(app, storage=tmp_path / "app") as driver:
            driver.run()
            found = {row["version"]: row["schema"] for row in driver.view("schemas")}
        assert found == {event.version: event.schema for event in store.load("s")} == {1: 2, 2: 2, 3: 5}


def test_the_example_of_the_seats_sells_each_seat_once(tmp_path):
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "seats.py"))
    said = example["main"](tmp_path)
    assert said[-1] == "seats sold: 3"
    for seat in ("12A", "12B", "12C"):
        assert sorted(line.split(" ", 1)[1] for line in said if seat in line) == [
            f"has {seat}: version 1",
            f"is too late for {seat}",
        ]


def test_the_program_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[:2]
    names = {}
    exec(compile(first + second, str(PAGE), "exec"), names)  # noqa: S102 - our own text
    assert names["answer"] == Appended(1)
    assert names["late"] == events.Conflict(1)
    assert names["state"] == {"by": "ann"}
    names["store"].close()


class Account(events.Aggregate):
    """The sum of what was paid."""

    snapshot_every = 3

    def initial(self):
        return 0

    def apply(self, state, event):
        return state + event.data["cents"]


def test_a_snapshot_from_before_an_upcast_is_not_used(tmp_path):
    with Log(tmp_path / "log", fsync=False) as log:
        with events.EventStore(log) as store:
            store.append("acc", [Event("Paid", {"cents": 5})] * 4, expected_version=0)
            assert Account().state(store, "acc") == 20
            assert store.snapshots.newest(Account().name, 1, "acc") is not None

            @store.upcasts.register("Paid", 1)
            def in_cents(data):
                return {"cents": data["cents"] * 100}

            store.append("acc", [Event("Paid", {"cents": 7}, schema=2)])
            assert Account().state(store, "acc") == 2007
        with events.EventStore(log) as without:
            assert Account().state(without, "acc") == 27


def paid(cents, times):
    return [Event("Paid", {"cents": cents})] * times


def kept_version(store):
    kept = store.snapshots.newest(Account().name, 1, "acc")
    return None if kept is None else kept.version


def test_a_snapshot_of_events_that_an_older_copy_of_the_log_never_had_is_not_used(tmp_path):
    """Also where the stream has become as long again: the events are other ones."""
    topics, copy = tmp_path / "log" / "topics", tmp_path / "copy"
    with events.EventStore(tmp_path / "log") as store:
        store.append("acc", paid(1, 3))
        assert Account().load(store, "acc") == (3, 3)
        shutil.copytree(topics, copy)
        assert kept_version(store) == 3
        store.append("acc", paid(1000, 7))
        assert Account().load(store, "acc") == (7003, 10)
    shutil.rmtree(topics)
    shutil.copytree(copy, topics)
    with events.EventStore(tmp_path / "log") as store:
        assert kept_version(store) is None
        store.append("other", paid(2, 1))
        store.append("acc", paid(1, 3))
        assert Account().load(store, "acc") == (6, 6)
        assert kept_version(store) == 6, "the one of the other history is replaced, though it is of a later version"
        store.append("acc", paid(1, 6))
        assert Account().load(store, "acc") == (12, 12)


def test_a_snapshot_of_a_topic_that_was_created_again_is_not_used(tmp_path):
    with Log(tmp_path / "log", clock=ManualClock(), fsync=False) as log:
        for cents in (5, 2):
            with events.EventStore(log) as store:
                store.append("acc", [*paid(cents, 3), *paid(1, 1)])
                assert Account().load(store, "acc") == (cents * 3 + 1, 4)
                assert kept_version(store) == 4
            log.delete_topic("events")


@pytest.mark.parametrize(("given", "version"), [(Event("Paid", {}), 1), ([], 0), ((), 0), ([Event("Paid", {})] * 2, 2)])
def test_a_command_gives_events_or_one(store, given, version):
    seat = type("Gives", (Seat,), {"handle": lambda *_: given})()
    assert seat.execute(store, "seat", {}) == Appended(version)


def test_a_command_that_gives_nothing_says_what_to_return(store):
    seat = type("Forgot", (Seat,), {"handle": lambda *_: None})()
    with pytest.raises(InvalidArgument, match="handle of Forgot gave None, and no events"):
        seat.execute(store, "seat", {})
    assert store.version("seat") == 0


def test_a_snapshot_without_a_mark_of_an_older_release_is_not_used(tmp_path):
    folder = tmp_path / "log" / ".events" / "events"
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "snapshots.db", isolation_level=None)) as sql:
        sql.execute(
            "CREATE TABLE snapshots (aggregate TEXT, fold INTEGER, stream TEXT, version INTEGER, "
            "state TEXT, PRIMARY KEY (aggregate, fold, stream)) WITHOUT ROWID"
        )
        sql.execute("INSERT INTO snapshots VALUES (?, 1, 'acc', 4, '99')", [Account().name])
    with events.EventStore(tmp_path / "log") as store:
        store.append("acc", paid(1, 5))
        assert Account().load(store, "acc") == (5, 5)
        assert kept_version(store) == 5
