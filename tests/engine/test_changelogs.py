"""A topic of a table says at every epoch's end what the table has, also where a row moved between shards."""

from __future__ import annotations

import json

import pytest

import headrace as hr
from headrace.log import Log
from headrace.testing import Driver

ROWS = "id int, k string, v int"


def ranked(app):
    """Rows of a key move to another group, hence to another shard."""
    return app.table("t", ROWS, key="id").group_by("k").top(2, "v desc").named("ranked")


def joined(app):
    """The foreign key of a row changes, hence the shard that joins it."""
    names = app.table("names", "k string, name string", key="k")
    return app.table("t", ROWS, key="id").join(names, on="k", how="left").named("joined")


def current(rows):
    """Return the rows that a changelog leaves, by id."""
    last = {row["id"]: row for row in rows}
    return [row for _, row in sorted(last.items()) if not row.pop("_deleted", False)]


@pytest.mark.on_spark("ranked")
@pytest.mark.parametrize("build", [ranked, joined], ids=["ranked", "joined"])
def test_a_row_that_moves_to_another_shard_is_not_deleted_from_the_topic(drive, build):
    app = hr.App("moving")
    table = build(app)
    table.to_topic("out")
    table.to_view("out")
    driver = drive(app, shards=4)
    published = []
    for round_ in range(3):
        driver.send("t", *({"id": n, "k": "abcdefgh"[(n + round_ * 3) % 8], "v": n} for n in range(8)))
        driver.run()
        new = driver.read("out")
        published += [dict(row) for row in new]
        ids = [row["id"] for row in new]
        assert len(set(ids)) == len(ids), "an epoch says of each key one thing"
        assert current([dict(row) for row in published]) == sorted(driver.view("out"), key=lambda row: row["id"])
        assert len(driver.view("out")) == 8


@pytest.mark.parametrize("build", [ranked, joined], ids=["ranked", "joined"])
def test_an_event_of_debezium_says_what_the_row_was_also_where_it_moved(tmp_path, build):
    app = hr.App("moving")
    table = build(app)
    table.to_topic("out", format="debezium")
    with Driver(app, shards=4, storage=tmp_path) as driver:
        for round_ in range(3):
            driver.send("t", *({"id": n, "k": "abcdefgh"[(n + round_ * 3) % 8], "v": n} for n in range(8)))
            driver.run()
    now, ops = {}, []
    with Log(tmp_path / "log", fsync=False) as log:
        topic = log.topic("out")
        for part, end in topic.end_offsets().items():
            for record in topic.read(part, 0, end).to_pylist():
                event = json.loads(record["value"])
                assert event["before"] == now.get(record["id"])
                now[record["id"]] = event["after"]
                ops.append(event["op"])
    assert ops.count("c") == 8
    assert ops.count("u") == 16


def test_a_group_without_a_key_is_a_dead_letter_of_its_changelog():
    """A null is a group like any other, but no record of a compacted topic."""
    app = hr.App("keys")
    table = app.stream("t", "k string, v int").group_by("k").agg(n="count(*)")
    table.to_view("v")
    table.to_topic("changes")
    with Driver(app) as driver:
        driver.send("t", {"k": "a"}, {"k": None})
        driver.run()
        assert [(row["k"], row["n"]) for row in driver.view("v")] in ([("a", 1), (None, 1)], [(None, 1), ("a", 1)])
        assert [(row["k"], row["n"]) for row in driver.read("changes")] == [("a", 1)]
        (letter,) = driver.read("changes.dead")
        assert letter["reason"] == "no key: k is null, and the topic is compacted"
        assert json.loads(letter["record"])["n"] == 1
        assert letter["offset"] == letter["partition"] == -1
        status = driver.status()
        assert status["dead"] == {"topic:changes": {"rows": 1, "reasons": {"no key": 1}}}
        assert status["sinks"]["topic:changes"]["rows"] == 1
