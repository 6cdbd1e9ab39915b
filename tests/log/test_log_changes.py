"""A topic changes while it is used: more partitions, other settings; and who may append meanwhile."""

import fcntl
import multiprocessing
import os
import threading

import pytest

import headrace as hr
from headrace.base.errors import InvalidTopic, TopicDeleted, TopicDiffers
from headrace.log import Log
from headrace.testing import Driver

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["headrace.log", "numpy", "pyarrow.compute"])
DAY = 86_400_000_000


def test_partitions_are_added_and_old_records_stay(log, again):
    topic, other = log.create_topic("a", "n bigint", partitions=2), again().topic("a")
    for n in range(4):
        topic.append([{"n": n}])
    topic.add_partitions(5)
    for seen in (topic, other, again().topic("a")):
        assert seen.partitions == 5
        assert seen.end_offsets() == {0: 2, 1: 2, 2: 0, 3: 0, 4: 0}
        assert seen.start_offsets() == dict.fromkeys(range(5), 0)
    assert other.append([{"n": 9}], partition=4) == {4: range(1)}
    assert topic.read(4, 0, 9).column("n").to_pylist() == [9]
    assert topic.read(0, 0, 9).column("n").to_pylist() == [0, 2]
    topic.add_partitions(5)
    assert topic.partitions == 5


def test_keys_move_when_partitions_are_added(log):
    topic = log.create_topic("k", "id bigint", key="id", partitions=2)
    rows = [{"id": n} for n in range(100)]
    topic.append(rows)
    topic.add_partitions(3)
    given = topic.append(rows)
    twin = log.create_topic("twin", "id bigint", key="id", partitions=3)
    assert {n: len(offsets) for n, offsets in given.items()} == {n: len(o) for n, o in twin.append(rows).items()}


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (1, "has 2 partitions, and none can be removed"),
        (0, "0 partitions are not possible"),
        (10_001, "10001 partitions are not possible"),
        ("3", "partitions is '3', not a number"),
        (True, "partitions is True, not a number"),
    ],
)
def test_a_number_of_partitions_that_cannot_be_is_refused(log, total, expected):
    topic = log.create_topic("a", "n bigint", partitions=2)
    with pytest.raises(InvalidTopic, match=expected):
        topic.add_partitions(total)
    assert topic.partitions == 2


def test_what_a_crash_left_while_partitions_were_added_does_no_harm(log, again, tmp_path):
    log.create_topic("a", "n bigint")
    left = tmp_path / "log" / "topics" / "a" / "1"
    left.mkdir()
    (left / "head").write_bytes(b"half")
    (left / f"{0:020d}.segment").write_bytes(b"rubbish")
    assert again().topic("a").end_offsets() == {0: 0}
    topic = log.topic("a")
    topic.add_partitions(2)
    assert topic.append([{"n": 1}], partition=1) == {1: range(1)}
    assert again().topic("a").read(1, 0, 9).column("n").to_pylist() == [1]


def test_an_app_that_runs_reads_the_partitions_that_are_added(tmp_path):
    app = hr.App("counting")
    app.stream("a", "k string").group_by("k").agg(n="count(*)").to_view("counts")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("a", {"k": "x"})
        driver.run()
        with Log(tmp_path / "log") as log:
            log.topic("a").add_partitions(4)
            for number in range(4):
                log.topic("a").append([{"k": "x"}], partition=number)
        driver.run()
        assert driver.view("counts") == [{"k": "x", "n": 5}]
        driver.restart()
        driver.send("a", {"k": "x"}, partition=3)
        driver.run()
        assert driver.view("counts") == [{"k": "x", "n": 6}]


def test_an_app_reads_a_topic_that_has_evolved_and_is_told_how_to_evolve_one(tmp_path):
    with Log(tmp_path / "log") as log:
        log.create_topic("a", "k string, n int").append([{"k": "x", "n": 1}])
        app = hr.App("summing")
        app.stream("a", "k string, n bigint, extra string").group_by("k").agg(total="sum(n)").to_view("sums")
        with pytest.raises(TopicDiffers) as error, Driver(app, storage=tmp_path):
            pass
        assert f'Log("{tmp_path / "log"}").topic("a").evolve("k string, n bigint, extra string")' in error.value.hint
        log.topic("a").evolve("k string, n bigint, extra string")
        log.topic("a").append([{"k": "x", "n": 2**40}])
        with Driver(app, storage=tmp_path) as driver:
            driver.run()
            assert driver.view("sums") == [{"k": "x", "total": 1 + 2**40}]
        narrow = hr.App("summing")
        narrow.stream("a", "k string, n int").to_topic("out")
        with pytest.raises(TopicDiffers) as error, Driver(narrow, storage=tmp_path):
            pass
        assert error.value.hint == "Declare the columns that the topic has, or use another topic."


def test_an_app_whose_topic_widens_while_it_runs_is_stopped_with_the_difference(tmp_path):
    """Added columns do not matter to it; one of another type could not be stored in its state."""
    app = hr.App("summing")
    app.stream("a", "k string, n int").group_by("k").agg(biggest="max(n)").to_view("most")
    with Driver(app, storage=tmp_path) as driver, Log(tmp_path / "log") as log:
        driver.send("a", {"k": "x", "n": 1})
        driver.run()
        log.topic("a").evolve("k string, extra int, n int")
        driver.send("a", {"k": "x", "n": 2, "extra": 5})
        driver.run()
        assert driver.view("most") == [{"k": "x", "biggest": 2}]
        log.topic("a").evolve("k string, extra int, n bigint")
        driver.send("a", {"k": "x", "n": 2**40})
        with pytest.raises(TopicDiffers) as error:
            driver.run()
        assert 'the topic "a" has changed while the app runs: its column "n" is bigint now' in error.value.what
        assert "Declare" in error.value.hint


def test_settings_are_altered_for_everybody(log, again):
    topic, other = log.create_topic("a", "n bigint", key="n"), again().topic("a")
    topic.alter(retention="7 days")
    assert (other.retention, other.cleanup) == (7 * DAY, "delete")
    other.alter(retention=None, cleanup="compact")
    assert (topic.retention, topic.cleanup) == (None, "compact")
    assert again().topic("a").cleanup == "compact"


def test_each_change_has_a_later_time_on_disk_than_the_one_before(log, again):
    """Readers notice changes by it: inodes are used again, and times on disk are coarse, or go back."""
    topic, other = log.create_topic("a", "n bigint"), again().topic("a")
    path = log.path / "topics" / "a" / "topic.json"
    ahead = path.stat().st_mtime_ns + 10**15
    os.utime(path, ns=(ahead, ahead))
    for n in range(1, 4):
        before = path.stat().st_mtime_ns
        topic.alter(retention=f"{n} days")
        assert path.stat().st_mtime_ns > before >= ahead
        assert other.retention == n * DAY


@pytest.mark.parametrize(
    ("settings", "expected", "hint"),
    [
        ({"retentoin": "1 day"}, 'there is no setting "retentoin" to alter', 'Did you mean "retention"?'),
        ({"partitions": 3}, 'there is no setting "partitions" to alter', "Topic.add_partitions adds some."),
        ({"schema": "n int"}, 'there is no setting "schema" to alter', "Topic.evolve changes the schema."),
        ({"key": "n"}, 'there is no setting "key" to alter', "The key never changes"),
        ({"cleanup": "burn"}, 'cleanup is "burn"', "It is one of delete, compact"),
        ({"cleanup": "compact"}, "there is no key", "Set key="),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(log, settings, expected, hint):
    topic = log.create_topic("a", "n bigint")
    with pytest.raises(InvalidTopic) as error:
        topic.alter(**settings)
    assert expected in error.value.what
    assert hint in error.value.hint
    assert (topic.retention, topic.cleanup) == (None, "delete")


def test_a_topic_that_is_gone_is_not_changed(log, again):
    topic = log.create_topic("a", "n bigint")
    again().delete_topic("a")
    again().create_topic("a", "n bigint")
    for change in (lambda: topic.evolve("n bigint, m int"), lambda: topic.add_partitions(2), topic.alter):
        with pytest.raises(TopicDeleted):
            change()


def changing(path, number, together):
    with Log(path, fsync=False) as log:
        topic = log.topic("a")
        together.wait()
        if number == 0:
            topic.alter(retention="1 day")
        elif number == 1:
            topic.add_partitions(3)
        else:
            topic.evolve("n bigint, m int", {"m": 1})


def test_processes_that_change_a_topic_at_once_lose_no_change(tmp_path):
    with Log(tmp_path, fsync=False) as log:
        topic = log.create_topic("a", "n bigint")
        together = CONTEXT.Barrier(3)
        started = [CONTEXT.Process(target=changing, args=(tmp_path, n, together), daemon=True) for n in range(3)]
        for process in started:
            process.start()
        for process in started:
            process.join()
            assert process.exitcode == 0
        assert (topic.retention, topic.partitions, topic.schema.names) == (DAY, 3, ["n", "m"])


# ---- a second writer -----------------------------------------------------------------------------------


def one_append(path, out):
    with Log(path) as log:
        out.send("ready")
        out.send(log.topic("a").append([{"n": 2}])[0])


def test_a_second_process_waits_while_another_appends_and_goes_on_when_it_dies(tmp_path):
    """The lock belongs to the process: the system takes it back, however the process ends."""
    with Log(tmp_path) as log:
        log.create_topic("a", "n bigint").append([{"n": 1}])
    locked, locks = os.pipe()
    pid = os.fork()
    if not pid:  # an appender that is held up for ever in the middle of an append
        fd = os.open(tmp_path / "topics" / "a" / "0" / "head", os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(locks, b"x")
        threading.Event().wait()
    os.read(locked, 1)
    ours, theirs = CONTEXT.Pipe()
    second = CONTEXT.Process(target=one_append, args=(tmp_path, theirs), daemon=True)
    second.start()
    assert ours.recv() == "ready"
    assert not ours.poll(0.3)
    with Log(tmp_path) as reader:  # readers wait for nobody
        assert reader.topic("a").read(0, 0, 9).column("n").to_pylist() == [1]
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert ours.recv() == range(1, 2)
    second.join()
    with Log(tmp_path) as log:
        assert log.topic("a").read(0, 0, 9).column("n").to_pylist() == [1, 2]
