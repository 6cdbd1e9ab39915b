"""Topics of dead letters: each topic has one, which can take its dead letters, or the app is refused at the start."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan, TopicDiffers
from headrace.testing import Driver

ROWS = "k string, at timestamp"


def copying(topic="t"):
    """An app that copies a topic's rows to a view, and the handle of the topic."""
    app = hr.App("copying")
    rows = app.stream(topic, ROWS, event_time="at")
    rows.to_view("v")
    return app, rows


def test_what_is_called_as_the_dead_letters_of_a_topic_must_be_able_to_take_them(tmp_path):
    app, _ = copying()
    hr.Log(tmp_path / "log").create_topic("t.dead", "k string, reason string")
    with pytest.raises(TopicDiffers, match=r'"t\.dead" has other columns than dead letters have') as error:
        Driver(app, storage=tmp_path)
    assert "It has: k string, reason string. Dead letters have: topic string," in str(error.value)


def test_rows_are_not_written_where_dead_letters_go():
    _, rows = copying()
    with pytest.raises(InvalidPlan, match=r'the dead letters of the topic "t" go to "t\.dead"'):
        rows.to_topic("t.dead")


def test_an_app_may_read_its_own_dead_letters():
    app, _ = copying()
    app.stream("t.dead", "topic string, partition int, offset bigint, reason string, record string").to_view("dead")
    with Driver(app) as driver:
        driver.send("t", {"k": "a", "at": None})
        driver.run()
        assert [row["reason"] for row in driver.view("dead")] == ['the event time "at" is null']


def test_the_longest_name_of_a_topic_has_room_for_its_dead_letters():
    topic = "t" * 200
    app, _ = copying(topic)
    with Driver(app) as driver:
        driver.send(topic, {"k": "a", "at": None}, {"k": "b", "at": 1})
        driver.run()
        assert [row["k"] for row in driver.view("v")] == ["b"]
        assert [row["topic"] for row in driver.read(f"{topic}.dead")] == [topic]


def test_a_queue_says_why_it_cannot_reject(tmp_path):
    log = hr.Log(tmp_path)
    log.create_topic("t.dead", "k string")
    log.create_topic("t", ROWS).append([{"k": "a", "at": 1}])
    with log.queue("g", "t") as queue:
        (task,) = queue.take(1)
        with pytest.raises(TopicDiffers, match=r'"t\.dead" has other columns'):
            queue.reject(task, "no")
