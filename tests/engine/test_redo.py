"""Small files of an epoch are durable by one redo log: a power cut takes nothing that was committed."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from test_storage import expected, outputs, row, two_lines

from headrace.engine import engine, redo
from headrace.engine.recovery.backup import backup, restore
from headrace.engine.recovery.verify import check, verify
from headrace.engine.spark.single_task import read_single_task
from headrace.engine.spark.tasks import Job
from headrace.engine.storage import Storage
from headrace.engine.watermarks import EpochTimes
from headrace.kernels import redo as logs_of_tasks
from headrace.testing import Driver, driver
from headrace.testing.simulation.machine import Machine

SYNCS = 8
"""Of an epoch: the redo log, the commit, their folder twice; the topic, its mark, the view, what was sent."""


@pytest.fixture(autouse=True)
def durable(monkeypatch):
    """Drivers write as an app in production does."""
    settings = driver.Settings
    monkeypatch.setattr(driver, "Settings", lambda **given: settings(**{**given, "sync": True}))


@dataclass
class Told:
    """A sink that is told of epochs, and knows of none."""

    epochs: list[int] = field(default_factory=list)
    name: str = "told"

    def write(self, epoch, rows):
        assert rows.num_rows
        self.epochs.append(epoch)


def two_lines_told(storage, told):
    app = two_lines(storage)
    app.stream("more", "id int").to(told)
    return app


def epochs(running, count, first=0):
    """Run epochs of two rows."""
    for epoch in range(first, first + count):
        running.send("in", row(2 * epoch), row(2 * epoch + 1))
        running.step()


def logs(storage):
    return redo.logs(storage)


def take(storage, *, torn=False):
    """Take from the disk what was not synced: files that a redo log has, or half of each."""
    for name in redo.contents(logs(storage)):
        path = storage / name
        if path.exists():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]) if torn else path.unlink()
            if not torn and not any(path.parent.iterdir()):
                path.parent.rmdir()


def test_an_epoch_waits_for_the_disk_a_few_times(tmp_path, monkeypatch):
    """However many steps and sinks it has: files and folders are not synced one by one."""
    real, counted = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda file: counted.append(file) or real(file))
    with Driver(two_lines(tmp_path), storage=tmp_path, shards=4) as running:
        epochs(running, 3)
        counted.clear()
        epochs(running, 1, first=3)
    assert 4 <= len(counted) <= SYNCS


def test_new_folders_of_state_are_on_the_disk(tmp_path, monkeypatch):
    """A task of Spark's that syncs its own file there later finds them, and does not sync their names."""
    real, synced = os.fsync, set()
    monkeypatch.setattr(os, "fsync", lambda file: synced.add(Path(f"/proc/self/fd/{file}").readlink()) or real(file))
    with Driver(two_lines(tmp_path), storage=tmp_path) as running:
        epochs(running, 1)
        folders = [path for path in (tmp_path / "state").rglob("*") if path.is_dir()]
        assert len(folders) > 1
        assert {path.parent for path in folders} <= synced


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("point", ["after_commit", "before_views", "after_sink"])
def test_files_that_a_power_cut_took_are_written_again_by_the_next_start(tmp_path, point, torn):
    with Driver(two_lines(tmp_path), storage=tmp_path) as running:
        epochs(running, 5)
        running.send("in", row(10), row(11))
        running.crash(at=point)
        take(tmp_path, torn=torn)
        running.restart()
        assert outputs(running) == expected(12)
        assert logs(tmp_path) == []  # what a start has written again is on the disk
        epochs(running, 1, first=6)
        assert outputs(running) == expected(14)


def test_verify_says_that_the_start_mends_it_and_a_backup_has_all(tmp_path):
    storage, saved, again = tmp_path / "s", tmp_path / "saved", tmp_path / "again"
    with Driver(two_lines(storage), storage=storage) as running:
        epochs(running, 5)
        running.send("in", row(10), row(11))
        running.crash(at="after_commit")
        take(storage)
    found = [*verify(storage, storage / "log")]
    assert found
    assert {each.mend.split(":")[0] for each in found} == {"Start the app"}
    check(two_lines(storage))
    backup(two_lines(storage), saved)
    shutil.rmtree(storage)
    restore(saved, storage=again)
    with Driver(two_lines(again), storage=again) as running:
        assert outputs(running) == expected(12)


def test_what_is_published_is_not_handed_over_again(tmp_path):
    """A sink without a memory of its own hears of an epoch once, whenever the process ends after that."""
    told = Told()
    with Driver(two_lines_told(tmp_path, told), storage=tmp_path) as running:
        for number in range(3):
            running.send("more", {"id": number})
            running.step()
            assert logs(tmp_path)
            running.restart()
            running.restart()
        running.step()
        assert told.epochs == [0, 1, 2]


def test_rows_that_were_committed_and_lost_before_they_were_published_are_handed_over(tmp_path):
    told = Told()
    with Driver(two_lines_told(tmp_path, told), storage=tmp_path) as running:
        running.send("more", {"id": 1})
        running.crash(at="after_commit")
        take(tmp_path)
        assert not (tmp_path / "epochs" / f"{0:012d}").exists()
        running.restart()
        assert told.epochs == [0]


def test_an_older_commit_is_not_published_again_where_the_newest_is_lost(tmp_path):
    told = Told()
    with Driver(two_lines_told(tmp_path, told), storage=tmp_path) as running:
        for number in range(3):
            running.send("more", {"id": number})
            running.step()
        running._stop()  # noqa: SLF001 -- as a process that ends
        Storage(tmp_path, "shop").commit_path(2).unlink()
        running.restart()
        assert told.epochs == [0, 1, 2]
        assert not (tmp_path / "epochs" / f"{1:012d}").exists()


def test_a_small_epoch_on_spark_has_a_log_too(tmp_path):
    """The task that runs it all, here without Spark around it."""
    with Driver(two_lines(tmp_path), storage=tmp_path, shards=2) as running:
        epochs(running, 1)
        running.send("in", row(2), row(3))
        owner = running._engine  # noqa: SLF001 -- whose epoch it is
        before = {*logs(tmp_path)}
        job = Job(app_id="x", program=owner.program, storage=tmp_path, topics=None, sync=True, small=100, query="q",
                  inputs=owner.outside.inputs, fault=owner.settings.fault, base=0)  # fmt: skip
        planned = owner.begin()
        assert len([*read_single_task(job, planned.epoch, planned.ranges, EpochTimes(0))]) == 1
        written = redo.contents({*logs(tmp_path)} - before)
        assert {name.split("/")[0] for name in written} == {"state", "epochs"}
        assert all((tmp_path / name).read_bytes() == content.to_pybytes() for name, content in written.items())


def test_large_files_are_synced_by_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(logs_of_tasks, "SMALL_BYTES", 0)
    synced, plain = [], os.fsync

    def fsync(handle):
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        plain(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with Driver(two_lines(tmp_path), storage=tmp_path) as running:
        epochs(running, 2)
        assert logs(tmp_path) == []
        state = [path for path in tmp_path.glob("state/*/*/000000000001-*") if path in synced]
        staged = [path for path in synced if path.suffix == ".rows" and path.parent.name == "000000000001"]
        assert state
        assert staged
        last = max(synced.index(path) for path in (*state, *staged))
        names = {folder for path in (*state, *staged) for folder in path.parents if folder.is_relative_to(tmp_path)}
        after = synced[last + 1 : last + 1 + len(names)]
        assert sorted(after) == sorted(names), "each folder once, and before anything else"
        running.crash(at="before_bounds")
        running.restart()
        assert outputs(running) == expected(4)


def test_a_log_takes_so_many_bytes_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(logs_of_tasks, "MOST_BYTES", 1500)
    with Driver(two_lines(tmp_path), storage=tmp_path) as running:
        epochs(running, 3)
        assert all(log.stat().st_size < 2500 for log in logs(tmp_path))
        assert 0 < len(redo.contents(logs(tmp_path))) < 9
        running._stop()  # noqa: SLF001 -- as a process that ends
        take(tmp_path)
        running.restart()
        epochs(running, 1, first=3)
        assert outputs(running) == expected(8)


@pytest.mark.parametrize("then", [9, 11])
def test_a_file_that_is_written_again_is_in_the_log_as_it_is_or_not_at_all(tmp_path, monkeypatch, then):
    """Level 0 stages its rows again, under the same names, without records that a later step fails on."""
    monkeypatch.setattr(logs_of_tasks, "MOST_BYTES", 10)
    log, file = logs_of_tasks.RedoLog(tmp_path, 0, "a"), tmp_path / "epochs" / "0.rows"
    for content in (b"a" * 8, b"b" * then):
        file.write_bytes(content)
        log.add(file, len(content))
    log.write()
    found = {name: content.to_pybytes() for name, content in redo.contents(logs(tmp_path)).items()}
    assert found == ({"epochs/0.rows": b"b" * 9} if then == 9 else {})
    redo.restore(tmp_path, {}, [file], redo.contents(logs(tmp_path)))
    assert file.read_bytes() == b"b" * then


def test_logs_are_settled_now_and_then_and_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(redo, "MOST_LOGS", 3)
    monkeypatch.setattr(engine, "LOOK_AT_LOGS", 2)
    with Driver(two_lines(tmp_path), storage=tmp_path) as running:
        for epoch in range(9):
            epochs(running, 1, first=epoch)
            assert len(logs(tmp_path)) <= 5
    with two_lines(tmp_path).start(carrier="in-process") as running:
        running.await_caught_up(timeout=300)
    assert logs(tmp_path) == []


def test_an_owner_that_was_replaced_removes_no_log(tmp_path):
    with Driver(two_lines(tmp_path), storage=tmp_path) as running:
        epochs(running, 2)
        owner = running._engine  # noqa: SLF001 -- which is replaced
        (tmp_path / "lease" / f"{9:012d}.json").write_text("{}")
        owner.settle()
        assert len(logs(tmp_path)) == 2


def test_a_damaged_log_is_as_good_as_none(tmp_path):
    with Driver(two_lines(tmp_path), storage=tmp_path) as running:
        epochs(running, 2)
        for log in logs(tmp_path):
            log.write_bytes(log.read_bytes()[:-3])
        running.restart()
        epochs(running, 1, first=2)
        assert outputs(running) == expected(6)


@pytest.mark.parametrize("settles", [True, False])
@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.prove) for n in range(1, 12))])
def test_the_power_is_cut_anywhere_and_nothing_committed_is_lost(tmp_path, monkeypatch, first, settles):
    """Epochs in a row, each cut before another call; logs are settled after each of them, or never."""
    monkeypatch.setattr(redo, "MOST_LOGS", 0 if settles else 1000)
    monkeypatch.setattr(engine, "LOOK_AT_LOGS", 1)
    machine = Machine(tmp_path / "disk", carrier="in process", shards=2, durable=True, seed=first)
    app = two_lines(tmp_path / "unused")
    with machine.watched():
        machine.start(app)
        for number in range(8):
            machine.log.topic("in").append([row(2 * number), row(2 * number + 1)])
            if number % 3 == 2 and machine.cut((first * 7 + number * 5) % 45, seed=first * 100 + number):
                machine.start(app)
            machine.run()
        rows = sorted(machine.running.views.read("totals").to_pylist(), key=lambda each: each["user"])
        ids = [
            each
            for p, end in machine.log.topic("out").end_offsets().items()
            for each in machine.log.topic("out").read(p, 0, end).column("id").to_pylist()
        ]
        machine.stop()
    assert (sorted(ids), rows) == expected(16)
