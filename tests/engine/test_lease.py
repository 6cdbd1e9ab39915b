"""One process runs an app, also where files cannot be locked; one that was paused and replaced does no harm."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import leasing
import pytest
import supervising
from test_local import PATIENCE, expected, runs, wait_for

import headrace as hr
from headrace.base.errors import StorageBusy
from headrace.base.outside import Fenced, MayStillRun
from headrace.engine import lease
from headrace.engine.lease import Lease
from headrace.engine.storage import Storage
from headrace.testing import POINTS, Driver

PROGRAM = Path(leasing.__file__)


@contextmanager
def program(storage, *pause):
    """Run the app in a process of its own, without locks."""
    command = [sys.executable, "-X", "faulthandler", PROGRAM, storage, *pause]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def no_locks(monkeypatch):
    """Look at the storage as on a file system without locks."""
    monkeypatch.setattr("headrace.engine.storage.lock_file", lambda *_, **__: None)


def paused(process):
    """Whether a process is stopped by a signal."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def finished(storage):
    """Run the app until it has caught up: the watermark closes windows in an epoch of its own. Return its outputs."""
    with supervising.make(storage).start(carrier="in-process") as running:
        running.await_caught_up(timeout=PATIENCE)
    return supervising.outputs(storage)


def takes(process, storage, first, last):
    """Append rows, and wait until the process has published all up to the last."""
    supervising.append(storage, supervising.rows_of(first, last))
    wait_for(lambda: supervising.total(storage) == last, process)


def ended(process):
    """Wait for a process that was asked to stop, or fails; return what it printed."""
    _, err = process.communicate(timeout=PATIENCE)
    return err


@pytest.mark.usefixtures("no_locks")
def test_a_second_app_beside_a_live_one_is_refused_and_removes_nothing(tmp_path):
    storage = tmp_path / "storage"
    with program(storage) as first:
        wait_for(lambda: runs(storage), first)
        stray = storage / "epochs" / "000000000009"
        stray.mkdir(parents=True)
        (stray / "of-the-first.rows").touch()
        with program(storage) as second:
            err = ended(second)
        assert second.returncode == 1
        assert f"[STORAGE_BUSY] another process runs an app on the storage {storage} (process {first.pid} on" in err
        assert (stray / "of-the-first.rows").exists()
        takes(first, storage, 0, 300)
        first.send_signal(signal.SIGINT)
        ended(first)
    assert first.returncode == 0
    assert finished(storage) == expected(tmp_path, 300)


FAST = ("during_commit", "after_commit")
COME_BY = [point for point in POINTS if point != "between_topics"]
"""The points that an epoch of this app passes: it writes one topic."""


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point in FAST else pytest.mark.prove) for point in COME_BY]
)
def test_a_process_that_was_paused_and_replaced_does_no_harm(tmp_path, point):
    """It is paused in an epoch; another takes over, and goes on; then it comes back, and stops with our error."""
    storage, marker = tmp_path / "storage", tmp_path / "pause"
    with program(storage, point, marker) as first:
        wait_for(lambda: runs(storage), first)
        takes(first, storage, 0, 300)
        marker.touch()
        supervising.append(storage, supervising.rows_of(300, 600))
        if point != "during_snapshot":
            wait_for(lambda: paused(first), first)
        else:
            wait_for(lambda: supervising.total(storage) == 600, first)
            first.send_signal(signal.SIGSTOP)
        with program(storage) as second:
            wait_for(lambda: supervising.total(storage) == 600, second)
            takes(second, storage, 600, 900)
            first.send_signal(signal.SIGCONT)
            err = ended(first)
            assert first.returncode == 1
            assert f"[FENCED] the app on the storage {storage} is run by another process now ({second.pid} on" in err
            takes(second, storage, 900, 1200)
            second.send_signal(signal.SIGINT)
            ended(second)
    assert second.returncode == 0
    assert finished(storage) == expected(tmp_path, 1200)


def test_after_a_kill_the_next_start_waits_only_where_it_must(tmp_path, monkeypatch):
    """A process of the same kernel that is gone is known to be gone; one of another machine is watched."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.1)
    watched = []
    monkeypatch.setattr(Lease, "_watch", lambda *_: watched.append(1))
    gone = Lease(tmp_path)
    gone.take(locked=False)
    assert Lease(tmp_path).take(locked=True) is False
    assert watched == []
    monkeypatch.setattr(lease, "_kernel", lambda: "another")
    assert Lease(tmp_path).take(locked=True) is True
    assert watched == [1]


def test_of_two_that_take_over_at_once_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
    first, second = Lease(tmp_path), Lease(tmp_path)
    watch = Lease._watch  # noqa: SLF001 -- the moment at which the other one is quicker

    def slower(self, *arguments):
        watch(self, *arguments)
        if self is second:
            first.take(locked=False)

    Lease(tmp_path).take(locked=False)
    monkeypatch.setattr(lease, "_runs", lambda _: True)
    monkeypatch.setattr(Lease, "_watch", slower)
    with pytest.raises(StorageBusy):
        second.take(locked=False)
    first.check()


def test_a_storage_travels_to_tasks_without_its_claim(tmp_path):
    kept = Storage(tmp_path, "app")
    kept.acquire()
    kept.lease.keep()
    there = pickle.loads(pickle.dumps(Storage(tmp_path, "app")))  # noqa: S301 -- ours
    assert there.lease.generation is None
    assert pickle.loads(pickle.dumps(kept.lease)).lost is False  # noqa: S301 -- ours
    kept.release()


def test_a_released_lease_is_free_at_once(tmp_path):
    first = Lease(tmp_path)
    first.take(locked=False)
    first.release()
    assert Lease(tmp_path).take(locked=False) is False


def test_an_epoch_that_another_has_committed_is_an_error_of_ours(tmp_path):
    """Not FileExistsError: whoever committed it goes on."""
    app = supervising.make(tmp_path / "storage")
    with Driver(app, storage=tmp_path / "storage") as driver:
        driver.send("t", *supervising.rows_of(0, 10))
        driver.step()
        kept = Storage(tmp_path / "storage", app.name)
        commit = kept.read_commit(0)
        kept.commit_path(1).write_text("of another")
        driver.send("t", *supervising.rows_of(10, 20))
        with pytest.raises(Fenced):
            driver.step()
        kept.commit_path(1).unlink()
        assert kept.read_commit(0) == commit


@pytest.mark.usefixtures("no_locks")
def test_an_app_with_sources_of_sparks_is_not_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
    app = hr.App("rates", storage=tmp_path / "storage", shards=1)
    app.read("rate", "timestamp timestamp, value bigint").to_view("v")
    kept = Storage(tmp_path / "storage", "rates")
    kept.acquire()
    monkeypatch.setattr(lease, "_runs", lambda _: True)
    with pytest.raises(MayStillRun, match="Make sure"):
        app.start(carrier="in-process")
    assert app.status()["state"] == "failed"
    kept.release()
