"""On both carriers: a topic that is replaced is noticed at the start and while the app runs."""

from __future__ import annotations

import shutil

import pytest

import headrace as hr
from headrace.base.outside import OffsetsBeyondEnd, OutputLost, SourceDiverged, SourceReplaced
from headrace.engine.recovery.verify import verify
from headrace.engine.storage import Storage
from headrace.log import Log


def two_lines(**more):
    app = hr.App("two", storage="unused", shards=1, **more)
    rows = app.stream("in", "id int")
    rows.to_topic("out")
    rows.to_view("v")
    return app


@pytest.mark.on_spark
def test_a_topic_that_is_replaced_is_noticed(drive, tmp_path):
    driver = drive(two_lines(), storage=tmp_path / "app")
    driver.send("in", {"id": 1}, {"id": 2})
    driver.run()
    log = driver.log
    log.delete_topic("in")
    log.create_topic("in", "id int").append([{"id": n} for n in range(9)])
    with pytest.raises(SourceReplaced, match='the topic "in" was deleted and created again'):
        driver.step()
    for _ in range(2):
        with pytest.raises(SourceReplaced, match="headrace reset FILE"):
            driver.restart()


def test_an_output_that_is_gone_and_an_input_that_is_older_are_noticed_at_the_start(drive, tmp_path):
    driver = drive(two_lines(), storage=tmp_path / "app")
    driver.send("in", {"id": 1}, {"id": 2})
    driver.run()
    log = driver.log
    head, segment = (tmp_path / f"app/log/topics/in/0/{name}" for name in ("head", f"{0:020d}.segment"))
    kept = head.read_bytes(), segment.read_bytes()
    driver.send("in", {"id": 3})
    driver.run()
    log.close()
    newer = head.read_bytes(), segment.read_bytes()
    head.write_bytes(kept[0])
    segment.write_bytes(kept[1])
    with pytest.raises(OffsetsBeyondEnd, match="has read up to offset 3, and it ends at offset 2"):
        driver.restart()
    head.write_bytes(newer[0])
    segment.write_bytes(newer[1])
    driver.restart()
    driver.log.delete_topic("out")
    with pytest.raises(OutputLost, match='the topic "out" no longer has epoch'):
        driver.restart()


@pytest.mark.on_spark
def test_a_log_restored_from_an_older_copy_that_has_grown_past_the_apps_offset_is_noticed(drive, tmp_path):
    app = two_lines(topics=f"log:{tmp_path}/log")
    driver = drive(app, storage=tmp_path / "app")
    driver.send("in", {"id": 1}, {"id": 2})
    driver.run()
    shutil.copytree(tmp_path / "log/topics/in", tmp_path / "older")
    driver.send("in", {"id": 3})
    driver.run()
    driver.close()
    shutil.rmtree(tmp_path / "log/topics/in")
    (tmp_path / "older").rename(tmp_path / "log/topics/in")
    with Log(tmp_path / "log") as log:
        log.topic("in").append([{"id": 30}])
        log.topic("in").append([{"id": 40}])
    for _ in range(2):
        with pytest.raises(
            SourceDiverged, match='"in", partition 0: the record before offset 3 is not the one'
        ) as error:
            drive(app, storage=tmp_path / "app")
    assert "headrace reset FILE" in error.value.hint
    (found,) = verify(tmp_path / "app", tmp_path / "log")
    assert (found.part, found.what) == (
        'source "in"',
        'the topic "in" has another record before offset 3 of partition 0 than was read',
    )


@pytest.mark.parametrize("change", ["compact", "retention", "evolve", "partition", "archive", "forget the commit's"])
def test_a_topic_that_was_cleaned_or_changed_is_the_same(drive, tmp_path, change):
    app = two_lines(topics=f"log:{tmp_path}/log")

    def log():
        return Log(tmp_path / "log", segment_bytes=20_000, fsync=False)

    with log() as made:
        topic = made.create_topic("in", "id int", key="id", partitions=1)
        for start in range(0, 6000, 500):
            topic.append([{"id": n % 700} for n in range(start, start + 500)])
    with drive(app, storage=tmp_path / "app") as driver:
        driver.run()
    storage = Storage(tmp_path / "app", "two")
    commit = storage.read_commit(storage.last_epoch())
    assert [*commit.sources["in"].marks] == ["0"]
    with log() as changed:
        topic = changed.topic("in")
        if change == "compact":
            topic.alter(cleanup="compact")
            assert topic.compact().records_removed
        elif change == "retention":
            topic.alter(retention_bytes=1)
            assert topic.clean()
            assert topic.start_offsets()[0] > 0
        elif change == "evolve":
            topic.evolve("id int, more string")
        elif change == "partition":
            topic.add_partitions(2)
        elif change == "archive":
            (tmp_path / "archive").mkdir()
            topic.alter(archive=tmp_path / "archive", archive_after="0 seconds")
            assert topic.clean()
            (tmp_path / "archive").rename(tmp_path / "elsewhere")
        else:  # an older version wrote it
            commit.sources["in"].marks.clear()
            storage.replace_commit(commit)
    driver = drive(app, storage=tmp_path / "app")
    driver.send("in", {"id": 9000})
    driver.run()
    assert {"id": 9000} in driver.view("v")
