"""Workers that wait are woken by what happens; reading starts fast."""

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.log import Log, bell


def ids(tasks):
    return [task.value["id"] for task in tasks]


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """Two workers of a queue that look only when they are rung, and threads."""
    monkeypatch.setattr(bell, "SECONDS", 60)
    with Log(tmp_path / "log") as log, ThreadPoolExecutor() as pool:
        log.create_topic("jobs", "id bigint, about struct<n: int>")
        with log.queue("g", "jobs") as one, log.queue("g", "jobs") as other:
            yield log.topic("jobs"), (one, other), lambda queue: pool.submit(queue.take, wait="50 seconds")


def test_an_append_wakes_as_many_workers_as_it_has_records(waiting):
    jobs, workers, take = waiting
    began = time.monotonic()
    for turn in range(20):
        takes = [take(worker) for worker in workers]
        jobs.append([{"id": 2 * turn}, {"id": 2 * turn + 1}])
        assert sorted(ids([task for each in takes for task in each.result()])) == [2 * turn, 2 * turn + 1]
    assert time.monotonic() - began < 40


def test_a_record_that_is_given_back_wakes_a_worker(waiting):
    jobs, (one, other), take = waiting
    began = time.monotonic()
    jobs.append([{"id": 1, "about": {"n": 1}}])
    (task,) = one.take()
    waits = take(other)
    task.value["about"]["n"] = 2
    one.release(task)
    (task,) = waits.result()
    assert (task.value, task.deliveries) == ({"id": 1, "about": {"n": 1}}, 2)
    waits = take(one)
    other.close()
    assert [task.deliveries for task in waits.result()] == [3]
    assert time.monotonic() - began < 40


def test_a_member_that_waits_is_woken_by_an_append_and_by_one_that_joins(tmp_path, monkeypatch):
    monkeypatch.setattr(bell, "SECONDS", 60)
    began = time.monotonic()
    with Log(tmp_path / "log") as log, ThreadPoolExecutor() as pool:
        clicks = log.create_topic("clicks", "id bigint", partitions=2)
        with log.consumer("g", "clicks") as one, log.consumer("g", "clicks") as other:
            waits = pool.submit(one.poll, wait="50 seconds")
            for turn in range(10):
                clicks.append([{"id": turn}])
                assert [each.rows.num_rows for each in waits.result()] == [1]
                waits = pool.submit(one.poll, wait="50 seconds")
            joins = pool.submit(other.poll, wait="50 seconds")
            while not other.assignment():
                assert time.monotonic() - began < 40
                time.sleep(0.01)
            for partition in range(2):
                clicks.append([{"id": 100 + partition}], partition=partition)
            assert {each.partition for each in [*waits.result(), *joins.result()]} == {0, 1}
    assert time.monotonic() - began < 40


def test_what_a_killed_member_leaves_is_removed_at_an_append(tmp_path):
    program = """
import os, sys
from headrace.log import Log
with Log(sys.argv[1]) as log, log.consumer("g", "jobs") as consumer, log.queue("q", "jobs") as queue:
    consumer.poll(wait="500 milliseconds")
    os._exit(0)
"""
    with Log(tmp_path / "log") as log:
        jobs = log.create_topic("jobs", "id bigint")
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "log")], check=True, timeout=120)
        folder = bell.bells_folder(log.path, "jobs")
        assert sorted(path.name.split("+")[0] for path in folder.iterdir()) == ["g", "q"]
        jobs.append([{"id": 1}])
        assert [path.name for path in folder.iterdir()] == ["q"]


def test_a_bell_is_there_as_long_as_somebody_has_it(tmp_path):
    """A log that nobody uses can be copied by anything: many programs copy no pipes."""
    with Log(tmp_path / "log") as log, ThreadPoolExecutor(8) as pool:
        jobs = log.create_topic("jobs", "id bigint")
        folder = bell.bells_folder(log.path, "jobs")

        def work(number):
            for _ in range(20):
                with log.queue("g", "jobs") as queue:
                    jobs.append([{"id": number}])
                    queue.ack(queue.take(wait="10 seconds"))
                    assert (folder / "g").is_fifo()

        for each in [pool.submit(work, number) for number in range(4)]:
            each.result()
        with log.consumer("c", "jobs") as consumer:
            while consumer.poll(wait="200 milliseconds"):
                pass  # the last one has waited
            assert [path.is_fifo() for path in folder.iterdir()] == [True]
        assert list(folder.iterdir()) == []
    shutil.copytree(tmp_path / "log", tmp_path / "copy")


def test_where_no_pipe_can_be_a_worker_that_waits_looks_by_itself(tmp_path):
    with Log(tmp_path / "log") as log:
        jobs = log.create_topic("jobs", "id bigint")
        path = bell.bells_folder(log.path, "jobs") / "g"
        path.parent.mkdir(parents=True)
        path.touch()
        path.with_name("link").symlink_to(path)
        with log.queue("g", "jobs") as queue, ThreadPoolExecutor() as pool:
            waits = pool.submit(queue.take, wait="50 seconds")
            jobs.append([{"id": 1}])
            assert ids(waits.result()) == [1]
            assert queue.take(wait="10 milliseconds") == []
        assert path.read_bytes() == b""


def test_readers_and_workers_import_no_pandas(tmp_path):
    """It is installed with PySpark, and costs each process a third of a second; pyarrow imports it unasked."""
    with Log(tmp_path / "log") as log:
        log.create_topic("jobs", "id bigint, text string").append([{"id": n, "text": "x"} for n in range(100)])
    program = """
import sys
from headrace.log import Log
with Log(sys.argv[1]) as log, log.consumer("a", "jobs") as consumer, log.queue("b", "jobs") as queue:
    (records,) = consumer.poll()
    consumer.commit()
    few, many = queue.take(3), queue.take(50)
    queue.ack(few + many[::3])
    queue.release(many[1:2])
    again = queue.take()
    assert (records.rows.num_rows, len(few), len(many), len(again)) == (100, 3, 50, 1)
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "log")], check=True, timeout=120)
