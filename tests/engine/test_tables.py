"""Topics and streams read as tables: order, deletes, times, dead letters, crashes, names, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import disturbed
import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.errors import (
    DuplicateStep,
    InvalidPlan,
    PlanChanged,
    StepFailed,
    TopicDiffers,
    UnknownColumn,
    UnreadableRecord,
    WrongColumnType,
)
from headrace.testing import Driver

USERS = "id int, city string, at timestamp"


def at(second):
    return datetime(2026, 1, 1, tzinfo=UTC).replace(second=second)


def user(key, city, second=0):
    return {"id": key, "city": city, "at": at(second)}


class Kept:
    """A sink that keeps each epoch's rows as it got them."""

    def __init__(self):
        self.epochs = {}

    def write(self, epoch, rows):
        """Keep."""
        self.epochs[epoch] = [tuple(row.values()) for row in rows.to_pylist()]


def users_app(**options):
    app = hr.App("users")
    return app, app.table("users", USERS, key="id", event_time="at", **options)


# ---- order ----


@pytest.mark.on_spark
def test_the_last_record_of_a_key_wins_in_the_order_of_offsets(drive):
    """Through an exchange, in more rows than one task of Spark reads, of which a partition has several."""
    app = hr.App("order")
    table = app.table("t", "id int, nr bigint, at timestamp", key="id", event_time="at", partitions=2)
    table.to_view("rows")
    table.group_by().agg(n="count(*)", total="sum(nr)", most="max(nr)").to_view("whole")
    count, keys = 30_000, 700
    rows = pa.table(
        {
            "id": pa.array([nr * 7919 % keys for nr in range(count)], pa.int32()),
            "nr": pa.array(range(count)),
            "at": pa.array([count - nr for nr in range(count)]).cast(pa.timestamp("us", tz="UTC")),  # going back
        }
    )
    driver = drive(app, shards=2)
    driver.log.topic("t").append(rows)
    driver.step()
    last = {nr * 7919 % keys: nr for nr in range(count)}
    assert {row["id"]: row["nr"] for row in driver.view("rows")} == last
    assert driver.view("whole") == [{"n": keys, "total": sum(last.values()), "most": count - 1}]


def test_a_topic_that_is_missing_is_created_compacted_by_the_key():
    app, table = users_app()
    table.to_view("users")
    with Driver(app) as driver:
        topic = driver.log.topic("users")
        assert (topic.cleanup, topic.key, topic.event_time) == ("compact", ("id",), "at")


def test_compaction_of_its_topic_changes_nothing(tmp_path):
    app, table = users_app()
    table.to_view("users")
    with Driver(app, storage=tmp_path / "one") as driver:
        for second in range(30):
            driver.send("users", user(second % 3, f"c{second}", second))
        driver.delete("users", id=2)
        topic = driver.log.topic("users")
        topic.compact()
        driver.run()
        assert driver.view("users") == [user(0, "c27", 27), user(1, "c28", 28)]


def test_a_topic_whose_records_of_one_key_have_no_order_is_refused(tmp_path):
    log = hr.Log(tmp_path / "log")
    log.create_topic("users", USERS, partitions=2, key="city")
    log.create_topic("one", USERS, partitions=1)
    app = hr.App("users")
    app.table("one", USERS, key="id").to_view("one")
    Driver(app, storage=tmp_path).close()
    app, table = users_app()
    table.to_view("users")
    with pytest.raises(TopicDiffers, match=r"it is spread by city[\s\S]*\.latest\('id'\)"):
        Driver(app, storage=tmp_path)


# ---- what a record changes ----


def test_each_record_gives_its_own_change_with_its_time():
    """One key changes three times in an epoch; what changes nothing, or deletes what is not there, gives nothing."""
    app, table = users_app()
    kept = Kept()
    table.to(kept)
    with Driver(app) as driver:
        driver.send("users", user(1, "a", 1), user(1, "a", 1), user(1, "b", 2), user(1, "a", 1))
        driver.step()
        driver.delete("users", id=1, at=at(9))
        driver.delete("users", id=1, at=at(10))
        driver.send("users", user(1, "c", 3))
        driver.step()
        driver.send("users", user(1, "c", 3))
        driver.delete("users", id=5)
        driver.step()
    a, b, c = user(1, "a", 1), user(1, "b", 2), user(1, "c", 3)
    micros = {second: int(at(second).timestamp()) * 1_000_000 for second in range(20)}
    first, second = (
        [(*row.values(), weight, micros[time]) for row, weight, time in rows]
        for rows in (
            [(a, 1, 1), (a, -1, 2), (b, 1, 2), (b, -1, 1), (a, 1, 1)],
            [(a, -1, 9), (c, 1, 3)],
        )
    )
    assert kept.epochs == {0: first, 1: second}


def test_a_row_that_comes_back_to_what_it_was_is_no_news_for_sinks():
    app, table = users_app()
    table.to_topic("copy")
    table.changes().to_topic("changes")
    with Driver(app) as driver:
        driver.send("users", user(1, "a"), user(2, "a"))
        driver.step()
        driver.read("copy"), driver.read("changes")
        driver.send("users", user(1, "b"), user(1, "a"), user(3, "x"))
        driver.delete("users", id=3)
        driver.delete("users", id=2)
        driver.send("users", user(2, "a"))
        driver.step()
        assert driver.read("copy") == []
        assert driver.read("changes") == []


def test_a_delete_without_a_time_has_that_of_the_row_it_deletes():
    app, table = users_app()
    kept = Kept()
    table.to(kept)
    with Driver(app) as driver:
        driver.send("users", user(1, "a", 7))
        driver.step()
        driver.delete("users", id=1)
        driver.send("users", user(2, "a", 8))
        driver.delete("users", id=2)
        driver.step()
    times = [row[-1] for row in kept.epochs[1]]
    assert sorted(times) == [int(at(second).timestamp()) * 1_000_000 for second in (7, 8, 8)]


def test_a_group_whose_rows_are_gone_disappears_and_a_changed_key_changes_both_groups():
    app, table = users_app()
    table.group_by("city").agg(n="count(*)", first="min(id)").to_topic("cities")
    with Driver(app) as driver:
        driver.send("users", user(1, "a"), user(2, "a"), user(3, None))
        driver.step()
        assert driver.read("cities") == [{"city": "a", "n": 2, "first": 1}]  # a null key: a dead letter
        driver.send("users", user(1, "b"))
        driver.step()
        assert driver.read("cities") == [{"city": "a", "n": 1, "first": 2}, {"city": "b", "n": 1, "first": 1}]
        driver.delete("users", id=2)
        driver.step()
        assert driver.read("cities") == [{"city": "a", "n": None, "first": None, "_deleted": True}]


def test_a_watermark_passes_a_table_with_its_rows(drive):
    """What is in order is not late behind it, and windows over a table's changes close."""
    app, table = users_app()
    happened = table.changes().where("_change_type <> 'update_preimage'")
    happened.group_by().window(hr.tumbling("10 seconds", grace="0 seconds"), emit="final").agg(n="count(*)").named(
        "by_time"
    ).to_view("n")
    driver = drive(app)
    for second in range(0, 30, 5):
        driver.send("users", user(second % 2, f"c{second}", second))
        driver.step()
    driver.run()
    assert [row["n"] for row in driver.view("n")] == [2, 2]
    driver.finish()
    assert [row["n"] for row in driver.view("n")] == [2, 2, 2]
    assert driver.late("by_time") == []


# ---- keys that are null ----


def test_a_null_in_the_key_is_a_dead_letter_and_counted(drive):
    app = hr.App("dead")
    app.table("t", "a int, b int, v int", key=("a", "b")).to_view("rows")
    driver = drive(app)
    driver.send("t", {"a": 1, "b": None, "v": 1}, {"a": 1, "b": 1, "v": 2}, {"a": None, "b": 1, "v": 3})
    driver.delete("t", a=2)
    driver.run()
    assert driver.view("rows") == [{"a": 1, "b": 1, "v": 2}]
    letters = driver.read("t.dead")
    assert [(each["offset"], each["reason"]) for each in letters] == [
        (offset, "no key: rows of the table are identified by a, b, and one of them is null") for offset in (0, 2, 3)
    ]
    assert driver.counts("t")["dead"] == 3


def test_dead_letters_say_what_is_missing():
    app = hr.App("dead")
    app.table("t", "a int, b int, at timestamp", key=("a", "b"), event_time="at").to_view("rows")
    with Driver(app) as driver:
        driver.send("t", {"a": 1, "b": 1}, {"a": 1, "b": None}, {"a": 1, "b": 2, "at": at(1)})
        driver.delete("t", a=1, b=2)
        driver.run()
        assert driver.view("rows") == []
        reasons = [each["reason"] for each in driver.read("t.dead")]
        assert len(reasons) == 2
        assert 'the event time "at" is null' in reasons


def test_a_null_in_the_key_stops_the_app_that_says_so():
    app = hr.App("dead")
    app.table("t", "a int, b int", key=("a", "b"), on_error="fail").to_view("rows")
    with Driver(app) as driver:
        driver.send("t", {"a": 1, "b": None})
        with pytest.raises(UnreadableRecord, match="one of them is null"):
            driver.run()


# ---- private columns ----


def test_private_columns_of_a_table_are_forgotten_with_their_subject():
    app = hr.App("private")
    table = app.table("t", "id int, who int, email string", key="id", private={"email": "who"})
    table.to_view("rows")
    with Driver(app) as driver:
        driver.send("t", {"id": 1, "who": 7, "email": "a@x"}, {"id": 2, "who": 8, "email": "b@x"})
        driver.step()
        driver.send("t", {"id": 1, "who": 7, "email": "a@y"})
        driver.step()
        topic = driver.log.topic("t")
        assert topic.cleanup == "compact"
        assert [row["email"] for row in driver.view("rows")] == ["a@y", "b@x"]
        topic.forget(7)
        assert [row["email"] for row in driver.view("rows")] == [None, "b@x"]
        driver.delete("t", id=1)
        driver.step()
        assert [row["id"] for row in driver.view("rows")] == [2]


# ---- crashes ----


def crash_app():
    app = hr.App("crash")
    table = app.table("users", USERS, key="id", event_time="at")
    table.to_view("users")
    table.to_topic("copy")
    table.changes().to_topic("changes")
    table.group_by("city").agg(n="count(*)", most="max(id)").to_view("cities")
    app.stream("facts", USERS, event_time="at").latest("city").to_view("latest")
    return app


def crash_scenario(driver, step=disturbed.quietly):
    for number in range(5):
        for topic in ("users", "facts"):
            driver.send(topic, *(user(key, "abc"[(key + number) % 3], key + number) for key in range(number, 20)))
        driver.delete("users", id=number)
        step(driver, number)
    driver.run()
    return {name: driver.view(name) for name in ("users", "cities", "latest")} | {
        name: driver.read(name) for name in ("copy", "changes")
    }


@pytest.fixture(scope="module")
def undisturbed():
    with Driver(crash_app(), shards=2) as driver:
        made = crash_scenario(driver)
    assert all(made.values())
    return made


@pytest.mark.parametrize("point", disturbed.points("during_snapshot", "between_topics"))
def test_a_crash_leaves_no_trace_in_tables(undisturbed, point):
    with Driver(crash_app(), shards=2) as driver:
        assert crash_scenario(driver, disturbed.crashing(point, (0, 3))) == undisturbed


def test_state_of_tables_is_rebuilt_from_its_files():
    with Driver(crash_app(), shards=2) as driver:
        for number in range(5):
            driver.send("users", *(user(key, "abc"[(key + number) % 3], key + number) for key in range(10)))
            driver.delete("users", id=number)
            driver.step()
            driver.restart()
        assert [row["id"] for row in driver.view("users")] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert sum(row["n"] for row in driver.view("cities")) == 9


# ---- names, and what is refused ----


def test_steps_between_rename_no_state_and_a_changed_table_is_refused(tmp_path):
    def app_of(schema=USERS, condition="true", **options):
        app = hr.App("names")
        app.table("users", schema, key="id", **options).to_view("users")
        app.stream("facts", USERS).where(condition).latest("city").to_view("latest")
        return app

    with Driver(app_of(), storage=tmp_path) as driver:
        assert set(driver.status()["steps"]) == {"users_table", "facts_latest_by_city"}
        driver.send("users", user(1, "a"))
        driver.run()
    with Driver(app_of(condition="id > 3"), storage=tmp_path) as driver:
        assert driver.view("users") == [user(1, "a")]
    with pytest.raises(PlanChanged, match="users_table"):
        Driver(app_of("id int, city string"), storage=tmp_path)


def test_two_tables_of_one_topic_need_names():
    app, table = users_app()
    table.to_view("one")
    with pytest.raises(DuplicateStep):
        app.table("users", USERS, key="id").to_view("two")
    app.table("users", USERS, key="id").named("again").to_view("two")


def refused(make):
    app = hr.App("refused")
    with pytest.raises(InvalidPlan) as error:
        make(app)
    return str(error.value)


def test_what_makes_no_table_is_refused_where_it_is_said():
    assert "needs a key" in refused(lambda app: app.table("t", USERS, key=()))
    assert 'latest("id")' in refused(lambda app: app.stream("t", USERS).latest())

    app = hr.App("refused")
    with pytest.raises(UnknownColumn, match='Did you mean "id"'):
        app.table("t", USERS, key="idd")
    with pytest.raises(WrongColumnType, match="anything but a map"):
        app.table("t", "m map<string, int>, v int", key="m")
    with pytest.raises(WrongColumnType, match="anything but a map"):
        app.stream("t", "m map<string, int>, v int").latest("m")


def test_a_table_without_its_key_is_a_bag_and_no_changelog():
    _, table = users_app()
    lost = table.select("city")
    assert lost.key is None
    for verb in (lambda: lost.to_topic("x"), lost.changes):
        with pytest.raises(InvalidPlan, match="needs the key of the table above"):
            verb()
    assert table.select("city", user="id").key == ("user",)


def test_a_row_without_a_key_is_no_row_of_the_latest():
    """As in a table of a topic: it is a dead letter, with step and reason, and with on_error="fail" an error."""
    for on_error in (None, "dead_letter", "fail"):
        app = hr.App("keys", on_error=on_error)
        app.stream("t", "k string, v int").where("v > 0").latest("k").named("last").to_view("view")
        with Driver(app) as driver:
            driver.send("t", {"k": "a", "v": 1}, {"k": None, "v": 2}, {"k": None, "v": 0})
            if on_error == "fail":
                with pytest.raises(StepFailed, match=r'topic "t", partition 0, offset 1: latest\(k\) fails'):
                    driver.step()
                continue
            driver.step()
            assert driver.view("view") == [{"k": "a", "v": 1}]
            (letter,) = driver.read("t.dead")
            assert letter["offset"] == 1
            assert "no key: rows of the table are identified by k" in letter["reason"]
            assert driver.counts("t")["dead"] == 1


@pytest.mark.parametrize("on_error", [None, "dead_letter", "fail"])
def test_a_group_of_null_is_no_row_of_the_latest(on_error):
    """Behind an exchange, too: the latest closed window of each key, where some rows have none."""
    app = hr.App("keys", on_error=on_error)
    rows = app.stream("t", "k string, at timestamp", event_time="at")
    closed = rows.group_by("k").window(hr.tumbling("1 minute", grace="0 seconds"), emit="final").agg(n="count(*)")
    closed.latest().named("last").to_view("view")
    with Driver(app) as driver:
        driver.send("t", *({"k": k, "at": f"2026-01-31 10:{m:02}"} for k, m in (("a", 0), (None, 0), ("b", 2))))
        if on_error == "fail":
            with pytest.raises(StepFailed, match=r"NULL_KEY"):
                driver.finish()
            return
        driver.finish()
        assert [row["k"] for row in driver.view("view")] == ["a", "b"]
        (letter,) = driver.read("t.dead")
        assert letter["offset"] == -1
        assert driver.status()["dead"]["last"]["rows"] == 1
