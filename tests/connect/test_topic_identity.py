"""An app knows the topics that it has read: another one, an older one or none in their place is an error."""

from __future__ import annotations

import shutil

import pytest

import headrace as hr
from headrace.base.errors import HeadraceError
from headrace.base.outside import OffsetsBeyondEnd, SourceReplaced
from headrace.engine.reset import reset
from headrace.engine.storage import Storage
from headrace.log import Log
from headrace.plan.plan import make_plan
from headrace.testing import Driver


def two_lines():
    app = hr.App("two", storage="unused", shards=1)
    rows = app.stream("in", "id int")
    rows.to_topic("out")
    rows.to_view("v")
    return app


def filled(storage, count=5):
    """Run the app over the ids from 0 to `count`."""
    with Driver(two_lines(), storage=storage) as driver:
        driver.send("in", *({"id": n} for n in range(count)))
        driver.run()
        assert len(driver.view("v")) == count


def put(storage, *ids, name="in"):
    with Log(storage / "log", fsync=False) as log:
        log.topic(name).append([{"id": n} for n in ids])


def refused(storage):
    with pytest.raises(HeadraceError) as error, Driver(two_lines(), storage=storage) as driver:
        driver.run()
    return error.value


def test_an_input_topic_that_was_deleted_and_created_again_is_refused(tmp_path):
    filled(tmp_path)
    with Log(tmp_path / "log", fsync=False) as log:
        log.delete_topic("in")
        log.create_topic("in", "id int")
    put(tmp_path, 5, 6, 7, 8, 9, 10, 11)
    for _ in range(2):
        error = refused(tmp_path)
        assert isinstance(error, SourceReplaced)
        assert 'the topic "in" was deleted and created again' in str(error)
        assert "headrace reset FILE" in error.hint


def test_an_input_topic_that_was_deleted_is_refused_and_not_created_empty(tmp_path):
    filled(tmp_path)
    with Log(tmp_path / "log", fsync=False) as log:
        log.delete_topic("in")
    error = refused(tmp_path)
    assert isinstance(error, SourceReplaced)
    assert "is gone" in error.what
    assert not (tmp_path / "log/topics/in").exists()


def test_a_log_restored_from_an_older_copy_is_refused(tmp_path):
    filled(tmp_path, 3)
    shutil.copytree(tmp_path / "log", tmp_path / "old")
    put(tmp_path, 3, 4)
    with Driver(two_lines(), storage=tmp_path) as driver:
        driver.run()
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "old").rename(tmp_path / "log")
    put(tmp_path, 5)
    error = refused(tmp_path)
    assert isinstance(error, OffsetsBeyondEnd)
    assert "has read up to offset 5" in error.what
    assert "ends at offset 4" in error.what
    assert "headrace reset FILE" in error.hint


def test_a_topic_that_is_replaced_while_the_app_runs_is_noticed(tmp_path):
    with Driver(two_lines(), storage=tmp_path) as driver:
        driver.send("in", {"id": 1})
        driver.run()
        with Log(tmp_path / "log", fsync=False) as log:
            log.delete_topic("in")
            log.create_topic("in", "id int").append([{"id": 7}, {"id": 8}])
        with pytest.raises(SourceReplaced):
            driver.run()


def test_a_topic_that_is_deleted_while_the_app_runs_is_noticed(tmp_path):
    with Driver(two_lines(), storage=tmp_path) as driver:
        driver.send("in", {"id": 1})
        driver.run()
        with Log(tmp_path / "log", fsync=False) as log:
            log.delete_topic("in")
        with pytest.raises(SourceReplaced):
            driver.run()


def test_after_a_reset_the_new_topic_is_read(tmp_path):
    filled(tmp_path)
    with Log(tmp_path / "log", fsync=False) as log:
        log.delete_topic("in")
        log.create_topic("in", "id int")
    put(tmp_path, 8, 9)
    refused(tmp_path)
    reset(make_plan("two", two_lines().plan().sinks), tmp_path)
    with Driver(two_lines(), storage=tmp_path) as driver:
        driver.run()
        assert [row["id"] for row in driver.view("v")] == [8, 9]


def test_a_topic_replaced_before_any_of_it_was_read_is_just_read(tmp_path):
    with Driver(two_lines(), storage=tmp_path):
        pass
    with Log(tmp_path / "log", fsync=False) as log:
        log.delete_topic("in")
        log.create_topic("in", "id int")
    put(tmp_path, 1)
    with Driver(two_lines(), storage=tmp_path) as driver:
        driver.run()
        assert driver.view("v") == [{"id": 1}]


def test_a_storage_from_before_topics_were_known_takes_the_topic_that_is_there(tmp_path):
    filled(tmp_path)
    storage = Storage(tmp_path, "two")
    commit = storage.read_commit(storage.last_epoch())
    assert commit.sources["in"].instance
    commit.sources["in"].instance = None
    storage.replace_commit(commit)
    put(tmp_path, 5)
    with Driver(two_lines(), storage=tmp_path) as driver:
        driver.run()
        assert len(driver.view("v")) == 6
    with Log(tmp_path / "log", fsync=False) as log:
        log.delete_topic("in")
        log.create_topic("in", "id int")
    assert isinstance(refused(tmp_path), SourceReplaced)


def test_a_topic_has_an_identity_of_its_own(tmp_path):
    with Log(tmp_path / "log", fsync=False) as log:
        first = log.create_topic("t", "id int").id
        assert log.topic("t").id == first
        log.delete_topic("t")
        assert log.create_topic("t", "id int").id != first
