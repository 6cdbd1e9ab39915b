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


def outputs(driver):
    """All that anyone can see: topics in offset order, views."""
    return {name: driver.read(name) for name in TOPICS} | {name: driver.view(name) for name in ("totals", "sizes")}


def chunks(rows, size):
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def scenario(step=disturbed.quietly):
    epochs = [*chunks(crashing.first(), 100), *chunks(crashing.second(), 100)]
    return disturbed.played(crashing.make("unused"), epochs, step, outputs)


@pytest.fixture(scope="module")
def undisturbed():
    made = scenario()
    assert len(made["plain"]) == 1220
    assert len(made["late"]) == 20
    assert sum(row["n"] for row in made["windows"]) == 1200
    return made


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_leaves_no_trace_in_the_outputs(undisturbed, point):
    """Byte for byte: the epochs are cut alike, so every row stands at its offset."""
    assert scenario(disturbed.crashing(point, (0, 3, 7, 8))) == undisturbed


def test_a_crash_in_every_epoch_is_survived(undisturbed):
    assert scenario(disturbed.crashing("after_staging", range(12))) == undisturbed


def test_state_is_rebuilt_from_its_files(undisturbed):
    """Nothing in memory is needed: every epoch begins with a restart."""
    assert scenario(disturbed.restarting) == undisturbed


def test_a_crashed_driver_says_that_it_must_be_restarted():
    with Driver(crashing.make("unused")) as driver:
        driver.send("t", *crashing.first())
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
    """A storage that has processed the first half, with the second half waiting in its topic."""
    storage = tmp_path_factory.mktemp("halfway") / "storage"
    with Driver(crashing.make("unused"), storage=storage, shards=2) as driver:
        driver.send("t", *crashing.first())
        driver.run()
    hr.Log(storage / "log").topic("t").append(crashing.second())
    return storage


def seen(storage):
    """What a killed and restarted app shows; rows of a topic by key, since shards finish in any order."""
    log = hr.Log(storage / "log")
    made = {}
    for name in TOPICS:
        topic = log.topic(name)
        rows = [row for p, end in topic.end_offsets().items() for row in topic.read(p, 0, end).to_pylist()]
        keep = list(topic.schema.names)
        made[name] = sorted(repr([row[column] for column in keep]) for row in rows)
    app = crashing.make(storage)
    return made | {name: app.view(name).to_pylist() for name in ("totals", "sizes")}


@pytest.fixture(scope="module")
def unkilled(halfway, tmp_path_factory):
    storage = tmp_path_factory.mktemp("unkilled") / "storage"
    shutil.copytree(halfway, storage)
    with Driver(crashing.make(storage), storage=storage) as driver:
        driver.run()
    return seen(storage)


@pytest.mark.spark
@pytest.mark.parametrize("point", POINTS)
def test_kill_9_on_spark_leaves_no_trace_in_the_outputs(spark, halfway, unkilled, tmp_path, point):
    """A process of its own is killed at the point, with its JVM and workers; then the app is started again."""
    storage = tmp_path / "storage"
    shutil.copytree(halfway, storage)
    if point == "during_snapshot":  # the next change of state writes it whole
        drop_state_chain(storage)
    program = Path(__file__).with_name("crashing.py")
    done = subprocess.run(
        [sys.executable, program, storage, point], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert (tmp_path / "storage.killed").exists()
    with crashing.make(storage).start(spark) as running:
        running.await_caught_up(timeout=120)
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
