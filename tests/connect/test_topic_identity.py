"""An app knows the topics that it has read: another one, an older one or none in their place is an error."""

from __future__ import annotations

import shutil

import pytest

import headrace as hr
from headrace.base.errors import HeadraceError, PlanError
from headrace.base.outside import OffsetsBeyondEnd, OutputLost, SourceReplaced
from headrace.base.time import SystemClock
from headrace.connect.embedded.marks import AppMarks, marks_of
from headrace.connect.embedded.source import EmbeddedSource
from headrace.connect.topics import TopicSpec
from headrace.engine.program.reset import reset
from headrace.engine.recovery.verify import verify
from headrace.engine.storage import Storage
from headrace.log import Log
from headrace.plan.plan import make_plan
from headrace.testing import POINTS, Driver


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


def restored_from_an_older_copy(storage, folder):
    """Run the app over three ids, copy a folder, run it over two more, and put the copy in the folder's place."""
    filled(storage, 3)
    shutil.copytree(storage / folder, storage / "old")
    put(storage, 3, 4)
    with Driver(two_lines(), storage=storage) as driver:
        driver.run()
    shutil.rmtree(storage / folder)
    (storage / "old").rename(storage / folder)


def differs(storage):
    """What `headrace verify` says of the input."""
    return next(found.what for found in verify(storage, storage / "log") if found.part == 'source "in"')


def refused(storage):
    with pytest.raises(HeadraceError) as error, Driver(two_lines(), storage=storage) as driver:
        driver.run()
    return error.value


def test_an_end_that_was_read_before_a_later_one_is_no_loss(tmp_path, monkeypatch):
    """One thread reads the end and is held up; another one reads a later end meanwhile."""
    with Log(tmp_path / "log", fsync=False) as log:
        topic = log.create_topic("in", "id int")
        topic.append([{"id": 1}])
        reader = EmbeddedSource(log=log, topic=TopicSpec(name="in", schema=topic.schema), partitions=1).open(
            clock=SystemClock()
        )
        plain = type(topic).end_offsets

        def held_up(self):
            ends = plain(self)
            monkeypatch.setattr(type(topic), "end_offsets", plain)
            topic.append([{"id": 2}])
            assert reader.bounds().end == {"0": 2}
            return ends

        monkeypatch.setattr(type(topic), "end_offsets", held_up)
        assert reader.bounds().end == {"0": 1}
        assert reader.bounds().end == {"0": 2}


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
        assert 'the topic "in" was deleted and created again' in differs(tmp_path)
        assert "headrace reset FILE" in error.hint


def test_an_input_topic_that_was_deleted_is_refused_and_not_created_empty(tmp_path):
    filled(tmp_path)
    with Log(tmp_path / "log", fsync=False) as log:
        log.delete_topic("in")
    error = refused(tmp_path)
    assert isinstance(error, SourceReplaced)
    assert "is gone" in error.what
    assert 'the topic "in" is gone' in differs(tmp_path)
    assert not (tmp_path / "log/topics/in").exists()


def test_a_log_restored_from_an_older_copy_is_refused(tmp_path):
    restored_from_an_older_copy(tmp_path, "log")
    put(tmp_path, 5)
    error = refused(tmp_path)
    assert isinstance(error, OffsetsBeyondEnd)
    assert "was read up to offset 5 of partition 0, and ends at 4" in differs(tmp_path)
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


# ---- what was published --------------------------------------------------------------------------------


def test_an_output_topic_that_was_deleted_is_refused(tmp_path):
    filled(tmp_path)
    with Log(tmp_path / "log", fsync=False) as log:
        log.delete_topic("out")
    for _ in range(2):
        error = refused(tmp_path)
        assert isinstance(error, OutputLost)
        assert 'the topic "out" no longer has epoch 0' in error.what


def test_an_output_topic_that_was_created_again_and_filled_by_others_is_refused(tmp_path):
    filled(tmp_path)
    with Log(tmp_path / "log", fsync=False) as log:
        log.delete_topic("out")
        log.create_topic("out", "id int")
    put(tmp_path, *range(20), name="out")
    assert isinstance(refused(tmp_path), OutputLost)


def test_an_output_topic_restored_from_an_older_copy_is_refused(tmp_path):
    restored_from_an_older_copy(tmp_path, "log/topics/out")
    put(tmp_path, 5)
    error = refused(tmp_path)
    assert isinstance(error, OutputLost)
    assert "epoch 1" in error.what


def test_a_topic_without_new_rows_for_many_epochs_still_has_what_was_published(tmp_path):
    app = hr.App("two", storage="unused", shards=1)
    rows = app.stream("in", "id int")
    rows.where("id < 0").to_topic("out")
    rows.to_view("v")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("in", {"id": -1})
        driver.run()
        for n in range(3):
            driver.send("in", {"id": n})
            driver.run()
        driver.restart()
        driver.send("in", {"id": 9})
        driver.run()
        assert len(driver.view("v")) == 5
    with Log(tmp_path / "log", fsync=False) as log:
        log.delete_topic("out")
    with pytest.raises(OutputLost), Driver(app, storage=tmp_path):
        pass


def test_rows_without_a_key_only_do_not_count_as_lost(tmp_path):
    app = hr.App("two", storage="unused", shards=1)
    app.stream("in", "id int").group_by("id").agg(n="count(*)").named("g").to_topic("out")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("in", {"id": None})
        driver.run()
        driver.restart()
        driver.send("in", {"id": 1})
        driver.run()
        driver.restart()
        assert driver.read("out") == [{"id": 1, "n": 1}]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_is_not_taken_for_a_loss(tmp_path, point):
    with Driver(two_lines(), storage=tmp_path) as driver:
        driver.send("in", {"id": 1})
        driver.run()
        driver.send("in", {"id": 2})
        try:
            driver.crash(at=point)
        except PlanError:
            pytest.skip("an epoch of this app does not come by the point")
        driver.restart()
        driver.run()
        assert driver.read("out") == [{"id": 1}, {"id": 2}]
        assert len(driver.view("v")) == 2


def test_the_log_says_which_epochs_of_an_app_it_has(tmp_path):
    filled(tmp_path)
    put(tmp_path, 5)
    with Driver(two_lines(), storage=tmp_path) as driver:
        driver.run()
        owner = driver._engine.storage.about()["id"]
        (marks,) = marks_of(driver.log, "two")
        assert marks == AppMarks(id=owner, epoch=1, topics={"out": 1})
        assert marks_of(driver.log, "other") == ()
    with Log(tmp_path / "nothing") as log:
        assert marks_of(log, "two") == ()
        assert not log.path.exists()


def test_the_log_knows_an_epoch_whose_boundaries_are_not_written_yet(tmp_path):
    with Driver(two_lines(), storage=tmp_path) as driver:
        driver.send("in", {"id": 1})
        driver.crash(at="before_mark")
        with Log(tmp_path / "log", fsync=False) as log:
            (marks,) = marks_of(log, "two")
            assert marks.epoch == -1
            assert marks.topics == {"out": 0}
            assert marks.last == 0


def test_a_reset_app_has_marks_of_each_of_its_storages_the_newest_last(tmp_path):
    filled(tmp_path)
    with Driver(two_lines(), storage=tmp_path) as driver:
        first = driver._engine.storage.about()["id"]
    reset(make_plan("two", two_lines().plan().sinks), tmp_path)
    with Driver(two_lines(), storage=tmp_path) as driver:
        driver.run()
        second = driver._engine.storage.about()["id"]
        assert [marks.id for marks in marks_of(driver.log, "two")] == [first, second]


def test_a_partition_of_an_output_topic_that_ends_before_what_was_published_is_refused(tmp_path):
    """The other partition has the epoch, so only the boundaries know."""
    app = hr.App("two", storage="unused", shards=1)
    app.table("in", "id int", key="id").to_topic("out")
    with Driver(app, storage=tmp_path) as driver:
        driver.log.topic("out").add_partitions(2)
    shutil.copytree(tmp_path / "log/topics/out/1", tmp_path / "old")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("in", *({"id": n} for n in range(20)))
        driver.run()
        assert all(driver.log.topic("out").end_offsets().values())
    shutil.rmtree(tmp_path / "log/topics/out/1")
    (tmp_path / "old").rename(tmp_path / "log/topics/out/1")
    with pytest.raises(OutputLost, match="partition 1 ends at offset 0"), Driver(app, storage=tmp_path):
        pass
