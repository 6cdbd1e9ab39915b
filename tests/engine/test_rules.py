"""Rules over programs: what they leave out, and that the app computes the same without them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine import lowering
from headrace.engine.lowering import rules
from headrace.engine.lowering.rules.equal_exchanges import equal_exchanges
from headrace.engine.lowering.rules.equal_queries import equal_queries
from headrace.kernels.exchange import Send
from headrace.kernels.query import Query
from headrace.plan.plan import make_plan
from headrace.testing import Driver

CLICKS = "user int, url string, price int, at timestamp"


def twice_exchanged():
    """Return an app in which two joins need the same bag, and the same table, by the same columns."""
    app = hr.App("rules")
    clicks = app.stream("clicks", CLICKS, event_time="at").select("user", "url").as_table()
    names = app.stream("names", "user int, name string").as_table()
    teams = app.stream("teams", "user int, team string").as_table()
    clicks.join(names, on="user").named("named").to_view("named")
    clicks.join(teams, on="user", how="left").named("teamed").to_view("teamed")
    clicks.join(names, on="user", where="url <> name").named("other").to_view("other")
    return app


def written_twice():
    """Return an app that says the same of a stream several times, in verbs and in SQL."""
    app = hr.App("rules")
    clicks = app.stream("clicks", CLICKS, event_time="at")
    for number, column in enumerate(("url", "user")):
        dear = clicks.where("price > 10").with_columns(half="price / 2")
        counts = dear.as_table().group_by(column).agg(sum="sum(half)", who="max(user)", what="max(url)")
        counts.named(f"by_{column}").to_view(f"v{number}")
    clicks.where("price > 10").select("user", "url").to_topic("dear")
    app.sql("select user, url from clicks where price > 10").to_topic("dear_by_sql")
    clicks.where("price > 11").to_topic("dearer")
    return app


def of_records():
    """Return an app whose joins are sent records as they were read, times and lists among them."""
    app = hr.App("rules")
    clicks = app.stream("clicks", CLICKS, event_time="at")
    tagged = app.stream("tagged", "user int, tags array<string>, seen timestamp")
    clicks.as_table().join(tagged.as_table(), on="user").named("tags").to_view("tags")
    clicks.as_table().join(tagged.as_table(), on={"at": "seen"}, how="left").named("seen").to_view("seen")
    return app


APPS = {"twice_exchanged": twice_exchanged, "written_twice": written_twice, "of_records": of_records}
INPUT = {
    "clicks": [{"user": n % 3, "url": f"u{n % 2}", "price": 5 * n, "at": f"2026-01-01 00:00:0{n}"} for n in range(6)],
    "names": [{"user": 0, "name": "u0"}, {"user": 1, "name": "bob"}, {"user": 1, "name": "rob"}],
    "tagged": [
        {"user": 0, "tags": ["a", None], "seen": "2026-01-01 00:00:03"},
        {"user": 1, "tags": [], "seen": None},
        {"user": None, "tags": None, "seen": "2026-01-01 00:00:05"},
    ],
    "teams": [{"user": 0, "team": "red"}],
}


def program(app, *used):
    """Return the program of an app after some rules."""
    found = lowering.walk.Lowering(make_plan(app.name, app.plan().sinks), 2).program()
    for rule in used:
        found = rule(found)
    return found


def count(program, kind):
    """Return how many operations of a kind a program has."""
    return sum(isinstance(op, kind) for level in program.levels for op in level.ops)


def test_rows_that_joins_need_in_the_same_shards_are_sent_once():
    assert count(program(twice_exchanged()), Send) == 6
    after = program(twice_exchanged(), equal_queries, equal_exchanges)
    assert count(after, Send) == 3
    assert sum(len(level.receives) for level in after.levels) == 3


def test_equal_steps_over_equal_rows_are_one_query_that_is_computed_once():
    before, after = program(written_twice()), program(written_twice(), equal_queries)
    same = [op for op in before.levels[0].ops if isinstance(op, Query) and "WHERE" in op.after]
    once = [op for op in after.levels[0].ops if isinstance(op, Query) and "WHERE" in op.after]
    assert [len(same), len(once)] == [5, 2]
    assert [op.shared for op in once] == [True, False]
    assert count(before, Query) - count(after, Query) == 6  # three filters, a half, a bag, a choice of columns


def outputs(app):
    """Return all that an app emits, epoch by epoch."""
    found = []
    with Driver(app, shards=2) as driver:
        for at in range(6):
            for topic, rows in INPUT.items():
                if any(source.topic == topic for source in app.plan().sources()) and at < len(rows):
                    driver.send(topic, rows[at])
            driver.step()
            for sink in app.plan().sinks:
                kind, _, name = sink.name.partition(":")
                rows = driver.view(name) if kind == "view" else driver.read(name)
                found.append(sorted(map(str, rows)))
    return found


@pytest.mark.parametrize("name", APPS)
def test_an_app_computes_the_same_with_and_without_the_rules(name, monkeypatch):
    with_rules = outputs(APPS[name]())
    monkeypatch.setattr(rules, "RULES", ())
    assert outputs(APPS[name]()) == with_rules
    assert any(with_rules)


def test_records_reach_a_join_as_they_were_read_and_as_duckdb_would_copy_them(monkeypatch):
    as_read = outputs(of_records())
    monkeypatch.setattr(lowering.walk.Lowering, "facts", lambda *_: None)
    assert outputs(of_records()) == as_read


@pytest.mark.parametrize("name", APPS)
def test_a_storage_that_was_written_without_the_rules_goes_on_with_them(name, monkeypatch, tmp_path):
    """And back: rules change no step's name, and nothing that a storage remembers of the program."""

    def views(storage, orders):
        app = APPS[name]()
        for at, used in enumerate(orders):
            monkeypatch.setattr(rules, "RULES", used)
            with Driver(APPS[name](), shards=2, storage=tmp_path / storage) as driver:
                driver.send("clicks", INPUT["clicks"][at + 3])
                driver.run()
                found = [driver.view(sink.name[5:]) for sink in app.plan().sinks if sink.name.startswith("view:")]
        return found

    both = rules.RULES
    switched = views("switched", ((), both, ()))
    assert switched == views("never", ((), (), ()))
    assert any(switched)


def test_functions_that_draw_are_called_as_often_as_they_are_written():
    app, drawn = hr.App("rules"), map(float, range(1000))
    app.function(
        "drawn", lambda x: pa.array([next(drawn) for _ in x], pa.float64()), returns="double", deterministic=False
    )
    clicks = app.stream("clicks", CLICKS, event_time="at")
    clicks.select("user", x="drawn(price)").to_topic("one")
    clicks.select("user", x="drawn(price)").to_topic("two")
    with Driver(app) as driver:
        driver.send("clicks", *INPUT["clicks"])
        driver.step()
        one, two = ([row["x"] for row in driver.read(topic)] for topic in ("one", "two"))
        assert set(one).isdisjoint(two)
