"""A crash at every step of the protocol leaves the outputs of a run that never crashed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import crashing
import disturbed
import pytest

import headrace as hr
from headrace.base.errors import NotRunning, PlanError
from headrace.testing import POINTS, Driver

TOPICS = ("plain", "windows", "late", "totals")
VIEWS = ("totals", "sizes")


def outputs(driver):
    """All that anyone can see: topics in offset order, views."""
    return {name: driver.read(name) for name in TOPICS} | {name: driver.view(name) for name in VIEWS}


def chunks(rows, count):
    return [rows[len(rows) * n // count : len(rows) * (n + 1) // count] for n in range(count)]


def scenario(step=disturbed.quietly):
    epochs = [*chunks(crashing.first()["t"], 3), *chunks(crashing.second()["t"], 4)]
    return disturbed.played(crashing.make("unused"), epochs, step, outputs)


@pytest.fixture(scope="module")
def undisturbed():
    made = scenario()
    assert len(made["plain"]) == 1220
    assert len(made["late"]) == 20
    assert sum(row["n"] for row in made["windows"]) == 1200
    return made


@pytest.mark.parametrize("epochs", [(0, 5), pytest.param((1, 2, 4), marks=pytest.mark.prove)], ids=str)
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_leaves_no_trace_in_the_outputs(undisturbed, point, epochs):
    """Byte for byte: the epochs are cut alike, so every row stands at its offset."""
    assert scenario(disturbed.crashing(point, epochs)) == undisturbed


def test_a_crash_in_every_epoch_is_survived(undisturbed):
    assert scenario(disturbed.crashing("after_staging", range(6))) == undisturbed


def test_state_is_rebuilt_from_its_files(undisturbed):
    """Nothing in memory is needed: every epoch begins with a restart."""
    assert scenario(disturbed.restarting) == undisturbed


def test_a_crashed_driver_says_that_it_must_be_restarted():
    with Driver(crashing.make("unused")) as driver:
        driver.send("t", *crashing.first()["t"])
        driver.crash(at="after_commit")
        with pytest.raises(NotRunning, match=r"driver\.restart"):
            driver.step()
        with pytest.raises(NotRunning):
            driver.view("totals")


def test_a_point_that_does_not_exist_or_is_not_met_is_an_error():
    with Driver(crashing.make("unused")) as driver:
        with pytest.raises(PlanError, match="before_staging"):
            driver.crash(at="before_stagin")
        with pytest.raises(PlanError, match="did not come by"):
            driver.crash(at="before_staging")


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
    """A storage that has processed the first half, with the second half waiting in its topics."""
    storage = tmp_path_factory.mktemp("halfway") / "storage"
    with Driver(crashing.make("unused", joins=True), storage=storage, shards=2) as driver:
        for name, rows in crashing.first().items():
            driver.send(name, *rows)
        driver.run()
    for name, rows in crashing.second().items():
        hr.Log(storage / "log").topic(name).append(rows)
    return storage


def seen(storage):
    """What a killed and restarted app shows; rows of a topic by key, since shards finish in any order."""
    log = hr.Log(storage / "log")
    made = {}
    for name in (*TOPICS, *crashing.JOINED):
        topic = log.topic(name)
        rows = [row for p, end in topic.end_offsets().items() for row in topic.read(p, 0, end).to_pylist()]
        keep = list(topic.schema.names)
        made[f"topic {name}"] = sorted(repr([row[column] for column in keep]) for row in rows)
    app = crashing.make(storage, joins=True)
    return made | {name: app.view(name).to_pylist() for name in (*VIEWS, "worth", "best")}


@pytest.fixture(scope="module")
def unkilled(halfway, tmp_path_factory):
    before, storage = seen(halfway), tmp_path_factory.mktemp("unkilled") / "storage"
    shutil.copytree(halfway, storage)
    with Driver(crashing.make(storage, joins=True), storage=storage) as driver:
        driver.run()
    after = seen(storage)
    assert all(after[name] != before[name] for name in after), "the half in which it dies changes all that can be seen"
    return after


DEEP = [(point, "deep") for point in ("before_staging", "after_staging")]
"""The first task to come by these does no more than read rows; so here one dies that joins, aggregates and ranks."""


SPREAD = [("after_staging", "deep", "spread"), ("during_snapshot", "spread"), ("during_commit", "spread")]
"""Epochs as small as these are one task of Spark; so here they are spread over stages, as large ones are."""


BESIDE = [(point, "beside") for point in ("before_staging", "after_staging", "during_snapshot")]
"""A process that runs some of the shards for Spark's worker dies; what dies elsewhere in such an epoch is in DEEP."""


ALL = [*((point,) for point in POINTS), *DEEP, *SPREAD, *BESIDE]
PLACES = [pytest.param(place, id=" ".join(place)) for place in ALL]


@pytest.mark.prove
@pytest.mark.spark
@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("where", PLACES)
def test_kill_9_on_spark_leaves_no_trace_in_the_outputs(spark, halfway, unkilled, tmp_path, where):
    """A process of its own is killed at the point, with its JVM and workers; then the app is started again.

    A group of its own, for these take minutes: beside all else that needs Spark, not after it.
    """
    storage = tmp_path / "storage"
    shutil.copytree(halfway, storage)
    if "during_snapshot" in where:  # the next change of state writes it whole
        drop_state_chain(storage)
    program = Path(__file__).with_name("crashing.py")
    done = subprocess.run(
        [sys.executable, program, storage, *where], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert (tmp_path / "storage.killed").exists()
    with crashing.make(storage, joins=True).start(spark) as running:
        running.await_caught_up(timeout=300)
    assert seen(storage) == unkilled


def drop_state_chain(storage):
    """Make every head due for a full file, as many epochs would."""
    from dataclasses import replace

    from headrace.engine.storage import Storage
    from headrace.kernels.state.state import MAX_CHAIN

    kept = Storage(storage, "crashing")
    last = kept.last_epoch()
    commit = kept.read_commit(last)
    commit.heads = {
        step: {shard: replace(head, chain=MAX_CHAIN) for shard, head in heads.items()}
        for step, heads in commit.heads.items()
    }
    kept.commit_path(last).write_text(commit.to_json())
