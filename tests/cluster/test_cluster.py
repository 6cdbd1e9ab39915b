"""An app on a standalone cluster: executors, workers, Python workers and drivers die, and the outputs are the same."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import clustered
import pytest

import headrace as hr
from headrace.testing import Driver

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(3000)]
PROGRAM = Path(clustered.__file__)
SMALL, SPREAD = 400, 40_000
"""Rows of a chunk: epochs that one task runs, and epochs that are spread over stages."""


class Scenario:
    """A run on the cluster: chunks are appended while it runs and dies; in the end the outputs are compared."""

    def __init__(self, cluster, folder: Path, *, rows: int, conf: dict[str, str] | None = None) -> None:
        self.cluster = cluster
        self.folder = folder
        self.rows = rows
        self.conf = {"spark.executorEnv.SLOWLY": "0.05"} | (conf or {})
        self.storage = folder / "app"
        self.sent = 0
        self.driver: subprocess.Popen | None = None
        cluster.environment["CLUSTERED"] = str(self.storage)
        with hr.Log(self.storage / "log") as log:
            log.create_topic("users", clustered.USERS, key="user", cleanup="compact", partitions=clustered.PARTITIONS)
            log.topic("users").append(clustered.USER_ROWS)
            log.create_topic("orders", clustered.ORDERS, key="id", event_time="at", partitions=clustered.PARTITIONS)
        self.send()

    def send(self) -> None:
        """Append a chunk."""
        with hr.Log(self.storage / "log") as log:
            log.topic("orders").append(clustered.orders(self.sent, self.rows))
        self.sent += self.rows

    @property
    def epoch(self) -> int:
        """The last committed epoch."""
        names = [file.stem for file in (self.storage / "epochs").glob("*.json")] if self.storage.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def start(self, *arguments: str) -> subprocess.Popen:
        """Start the app; it goes on where the last one stopped."""
        self.driver = self.cluster.run(
            PROGRAM, *arguments, "--restart", "never", conf=self.conf, log=self.folder / "driver.log"
        )
        return self.driver

    def await_epoch(self, epoch: int, seconds: float = 600) -> None:
        """Wait until an epoch is committed."""
        end = time.monotonic() + seconds
        while self.epoch < epoch:
            assert self.driver.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.05)

    def said(self) -> str:
        """Return the end of what the app printed."""
        return (self.folder / "driver.log").read_text()[-3000:]

    def kill_driver(self) -> None:
        """End the driver, its JVM and all that they started here."""
        os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()

    def finish(self) -> None:
        """Run to the end of the input."""
        if self.driver is not None and self.driver.poll() is None:
            self.driver.send_signal(signal.SIGTERM)
            self.driver.wait(120)
        assert self.start("--until-caught-up").wait(600) == 0, self.said()

    def outputs(self, storage: Path) -> dict[str, list]:
        """Return all outputs, sorted."""
        app = clustered.make(str(storage))
        with hr.Log(storage / "log") as log:
            topic = log.topic("windows")
            rows = [row for p, end in topic.end_offsets().items() for row in topic.read(p, 0, end + 1).to_pylist()]
        kept = [{name: row[name] for name in ("user", "window_start", "n", "total")} for row in rows]
        views = {name: sorted(map(str, app.view(name).to_pylist())) for name in ("totals", "cities")}
        return {"windows": sorted(map(str, kept)), **views}

    def compare(self) -> None:
        """Hold the outputs against those of a run in one process that nothing disturbed."""
        calm = self.folder / "calm"
        with Driver(clustered.make(str(calm)), storage=calm) as driver:
            driver.log.topic("users").append(clustered.USER_ROWS)
            driver.log.topic("orders").append(clustered.orders(0, self.sent))
            driver.run()
        assert self.outputs(self.storage) == self.outputs(calm)
        assert len(self.outputs(calm)["totals"]) == 97


def test_an_executor_and_the_driver_are_killed_in_mid_epoch(cluster, tmp_path):
    scenario = Scenario(cluster, tmp_path, rows=SMALL)
    scenario.start()
    scenario.await_epoch(0)
    scenario.send()
    time.sleep(0.15)
    assert cluster.kill("executor") is not None
    scenario.await_epoch(1)
    scenario.send()
    time.sleep(0.1)
    scenario.kill_driver()
    scenario.send()
    scenario.finish()
    scenario.compare()


@pytest.mark.prove
@pytest.mark.parametrize("rows", [SMALL, SPREAD], ids=["small", "spread"])
@pytest.mark.parametrize("seed", [1, 2])
def test_thirty_kills_change_nothing(cluster, tmp_path, rows, seed):
    """Eight kills a case, 32 in all: executors, Python workers, workers of the cluster, drivers."""
    chance = random.Random(seed)  # noqa: S311 -- moments, not secrets
    scenario = Scenario(cluster, tmp_path, rows=rows)
    scenario.start()
    kinds = ["executor", "python", "driver", "worker"] * 2
    chance.shuffle(kinds)
    for kind in kinds:
        scenario.await_epoch(scenario.epoch + 1) if scenario.epoch < 0 else None
        before = scenario.epoch
        scenario.send()
        time.sleep(chance.uniform(0, 0.8))
        if kind == "driver":
            scenario.kill_driver()
            scenario.start()
        else:
            cluster.kill(kind)
        if scenario.driver.poll() is not None:  # Spark gives a task up after four losses: the app says so, and stops
            scenario.start()
        scenario.await_epoch(before + 1)
    scenario.finish()
    scenario.compare()


@pytest.mark.prove
def test_a_second_driver_is_refused_while_the_first_one_lives(cluster, tmp_path):
    scenario = Scenario(cluster, tmp_path, rows=SMALL)
    first = scenario.start()
    scenario.await_epoch(0)
    second = cluster.run(PROGRAM, "--restart", "never", log=tmp_path / "second.log")
    assert second.wait(120) == 1
    assert "STORAGE_BUSY" in (tmp_path / "second.log").read_text()
    assert first.poll() is None
    scenario.finish()
    scenario.compare()


@pytest.mark.prove
def test_a_task_that_hangs_is_overtaken_by_its_speculative_copy(cluster, tmp_path):
    conf = {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "2s",
        "spark.speculation.task.duration.threshold": "3s",
    }
    scenario = Scenario(
        cluster, tmp_path, rows=SPREAD, conf=conf | {"spark.executorEnv.HANG_ONCE": str(tmp_path / "hung")}
    )
    scenario.start()
    scenario.await_epoch(0)
    assert (tmp_path / "hung").exists()
    scenario.finish()
    scenario.compare()


@pytest.mark.prove
def test_executors_without_the_packages_are_refused_by_name(cluster, tmp_path):
    """As with a session of one's own whose PYSPARK_PYTHON is another Python."""
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without the packages of its environment
    bare.chmod(0o755)
    environment = dict(cluster.environment)
    cluster.environment["PYSPARK_PYTHON"] = str(bare)
    try:
        scenario = Scenario(cluster, tmp_path, rows=SMALL)
        assert scenario.start().wait(180) == 1
    finally:
        cluster.environment.clear()
        cluster.environment.update(environment)
    assert "EXECUTORS_DIFFER" in scenario.said()
    assert "No module named 'numpy'" in scenario.said()
    assert "docs/cluster.md" in scenario.said()
    assert "Traceback" not in scenario.said()
    assert "Stage" not in scenario.said(), "no progress bar of Spark's"
    shutil.rmtree(tmp_path / "app")
