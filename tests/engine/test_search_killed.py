"""A process that searches is killed with signal 9: afterwards each document has met each query once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import search_killed

import headrace as hr
from headrace.testing import Driver

MET = [(1, "cats"), (1, "dogs"), (2, "dogs"), (3, "cats"), (4, "birds")]


def prepared(storage):
    """Run an epoch; leave a changed, a deleted, a refused and a new query and two documents waiting."""
    with Driver(search_killed.make(storage), storage=storage) as driver:
        driver.send("alerts", {"name": "dogs", "query": "dog"}, {"name": "cats", "query": "cat*"})
        driver.send("news", {"id": 1, "body": "Cats, dog"}, {"id": 2, "body": "dog"})
        driver.run()
        driver.send("alerts", {"name": "birds", "query": "owl OR jay"}, {"name": "bad", "query": "("})
        driver.delete("alerts", name="dogs")
        driver.send("news", {"id": 3, "body": "cat dog"}, {"id": 4, "body": "Owl"})


@pytest.mark.parametrize(
    "point",
    ["after_staging", "during_commit", "after_commit",
     *(pytest.param(point, marks=pytest.mark.prove) for point in ("before_staging", "between_topics", "before_mark"))],
)  # fmt: skip
def test_kill_9_leaves_no_trace_in_what_a_search_found(tmp_path, point):
    storage = tmp_path / "storage"
    prepared(storage)
    program = Path(search_killed.__file__)
    done = subprocess.run(
        [sys.executable, program, storage, point], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    app = search_killed.make(storage)
    with Driver(app, storage=storage) as driver:
        driver.run()
    topic = hr.Log(storage / "log").topic("out")
    rows = [row for p, end in topic.end_offsets().items() for row in topic.read(p, 0, end).to_pylist()]
    assert sorted((row["id"], row["name"]) for row in rows) == MET
    counts = search_killed.make(storage).view("counts").to_pylist()
    assert sorted((row["name"], row["n"]) for row in counts) == [("birds", 1), ("cats", 2), ("dogs", 2)]
