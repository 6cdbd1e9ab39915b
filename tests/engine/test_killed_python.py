"""Python processes of Spark that are killed while an app runs: the next start goes on, and says what happened."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from pyspark.errors import PySparkException

import headrace as hr
from headrace.base.outside import WorkerLost
from headrace.engine.spark.failures import SparkFailed, explained
from headrace.log import Log

PLANNER = "python_streaming_source_runner"


def planners():
    """Return the ids of the processes that plan epochs for this one's JVM."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    lines = [line.split(None, 2) for line in listed.stdout.splitlines()]
    parents = {pid: parent for pid, parent, _ in lines}

    def is_ours(pid):
        return pid == str(os.getpid()) or (pid in parents and is_ours(parents[pid]))

    return [int(pid) for pid, _, args in lines if PLANNER in args and is_ours(pid)]


@pytest.mark.spark
def test_a_killed_planner_is_a_lost_worker(tmp_path, spark):
    """Another start helps, so `app.run` makes one; nothing is lost."""
    app = hr.App("killed", storage=tmp_path, shards=1)
    app.stream("in", "k int", partitions=1).group_by("k").agg(n="count(*)").to_view("counts")
    with app.start(spark) as running:
        Log(tmp_path / "log").topic("in").append([{"k": 1}])
        running.await_caught_up(60)
        found = planners()
        assert found
        for planner in found:
            os.kill(planner, signal.SIGKILL)
        Log(tmp_path / "log").topic("in").append([{"k": 1}])
        with pytest.raises(WorkerLost, match="the connection to it broke") as failed:
            running.await_caught_up(60)
    assert failed.value.may_pass
    with app.start(spark) as running:
        running.await_caught_up(60)
    assert app.view("counts").to_pylist() == [{"k": 1, "n": 2}]


@pytest.mark.parametrize("first", ["", "An error occurred while calling o301.load.\n: java.io.IOException: "])
@pytest.mark.parametrize("why", ["Broken pipe", "Connection reset", "Connection reset by peer", "Stream closed"])
def test_a_connection_to_python_that_breaks_is_a_lost_worker(first, why):
    failed = PySparkException(f"{first}{why}\n\tat org.apache.spark.api.python.PythonWorkerFactory.create")
    assert isinstance(explained(failed), WorkerLost)


def test_a_broken_pipe_of_a_users_function_is_no_lost_worker():
    text = 'Traceback (most recent call last):\n  File "a.py", line 1\nBrokenPipeError: [Errno 32] Broken pipe\n'
    assert isinstance(explained(PySparkException(text)), SparkFailed)
