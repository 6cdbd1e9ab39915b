"""A backup that is made while the app runs is consistent: a restored app goes on to the right result."""

import json
import os
import shutil
import stat
from contextlib import suppress
from itertools import count
from random import Random

import pytest
from disturbed import AROUND_THE_COMMIT, points
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_storage import expected, goes_on, outputs, row, three_epochs, two_lines

import headrace as hr
from headrace.base.errors import DamagedFile, HeadraceError
from headrace.base.outside import BackupRefused
from headrace.engine.recovery.backup import backup, restore
from headrace.engine.recovery.verify import verify
from headrace.engine.storage import Storage
from headrace.log import copying
from headrace.testing import Crash, Driver
from headrace.testing.files import Files
from headrace.testing.power import PowerCuts

PARTS = ("storage", "views", "log")


def restored_and_gone_on(saved, place):
    """Restore a backup to another place, send what the input still lacks, and compare with what must be there."""
    restore(saved, storage=place)
    assert [*verify(place, place / "log")] in ([], [_behind(place)])
    with Driver(two_lines(place), storage=place) as driver:
        already = driver.log.topic("in").end_offsets()[0]
        driver.send("in", row(already), row(already + 1))
        driver.run()
        assert outputs(driver) == expected(already + 2)


def _behind(place):
    """What `verify` says of a backup whose log is newer than its commit, which the start mends."""
    return next(iter([each for each in verify(place, place / "log") if each.mend.startswith("Start the app")]), None)


@pytest.mark.parametrize("point", points(*AROUND_THE_COMMIT))
def test_a_backup_at_any_point_of_an_epoch_is_consistent(tmp_path, point):
    storage, saved = tmp_path / "s", tmp_path / "saved"
    app = two_lines(storage)
    with Driver(app, storage=storage) as driver:
        driver.send("in", row(0), row(1))
        driver.step()

        def fault(reached):
            if reached == point and not saved.exists():
                backup(app, saved)

        object.__setattr__(driver._engine.settings, "fault", fault)  # noqa: SLF001 -- where the epoch is
        driver._engine.publisher.fault = fault  # noqa: SLF001
        for group in driver._engine.publisher.groups:  # noqa: SLF001
            group.writer.fault = fault
        driver.send("in", row(2), row(3))
        driver.step()
        driver.send("in", row(4))
        driver.step()
    if not saved.exists():
        pytest.skip("an epoch of this app does not come by")
    restored_and_gone_on(saved, tmp_path / "other")


def test_epochs_that_run_while_the_log_is_looked_at_do_no_harm(tmp_path, monkeypatch):
    """Then it is looked at again: the journal would have an epoch whose input the topics lack, or the reverse."""
    storage, number = tmp_path / "s", iter(range(1000))
    with Driver(two_lines(storage), storage=storage) as driver:

        def step():
            driver.send("in", row(next(number)), row(next(number)))
            driver.step()

        step()
        looked, real = [], copying._add  # noqa: SLF001 -- between two partitions

        def look(*arguments):
            looked.append(real(*arguments))
            if len(looked) in (1, 2, 5):
                step()

        monkeypatch.setattr(copying, "_add", look)
        backup(two_lines(storage), tmp_path / "saved")
        assert len(looked) > 5
        step()
    restored_and_gone_on(tmp_path / "saved", tmp_path / "other")


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 3), min_size=len(PARTS), max_size=len(PARTS)), st.integers(0, 3), st.booleans())
def test_epochs_that_run_between_the_parts_of_a_backup_do_no_harm(tmp_path_factory, steps, before, unread):
    tmp_path = tmp_path_factory.mktemp("backup")
    storage, number = tmp_path / "s", iter(range(1000))
    app = two_lines(storage)
    with Driver(app, storage=storage) as driver:

        def step():
            driver.send("in", row(next(number)), row(next(number)))
            driver.step()

        driver.step()
        for _ in range(before):
            step()

        def progress(part):
            for _ in range(steps[PARTS.index(part)]):
                step()
            if unread:
                driver.send("in", row(next(number)))

        done = backup(app, tmp_path / "saved", progress=progress)
        assert done.epoch >= 0
        step()
    restored_and_gone_on(tmp_path / "saved", tmp_path / "other")
    shutil.rmtree(tmp_path)


@pytest.fixture
def ran(tmp_path):
    return three_epochs(tmp_path / "s")


def test_a_backup_goes_back_to_where_it_was_made(ran, tmp_path):
    done = backup(two_lines(ran), tmp_path / "saved")
    assert (done.app, done.epoch) == ("shop", 2)
    assert goes_on(ran) == expected(8)
    with pytest.raises(BackupRefused, match="exists"):
        restore(tmp_path / "saved")
    shutil.rmtree(ran)
    restore(tmp_path / "saved")
    assert [*verify(ran, ran / "log")] == []
    assert goes_on(ran) == expected(8)


def test_the_storage_alone_is_restored_beside_a_log_that_went_on(ran, tmp_path):
    backup(two_lines(ran), tmp_path / "saved")
    assert goes_on(ran) == expected(8)
    for entry in ran.iterdir():
        if entry.name != "log":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    restore(tmp_path / "saved", keep_log=True)
    assert goes_on(ran, already=8) == expected(10)


def test_a_log_that_does_not_fit_is_refused(ran, tmp_path):
    backup(two_lines(ran), tmp_path / "saved")
    for other in ("empty", "another"):
        log = hr.Log(tmp_path / other / "log")
        log.create_topic("in", "id int")
        log.close()
        with pytest.raises(BackupRefused, match="does not know this app"):
            restore(tmp_path / "saved", storage=tmp_path / other, keep_log=True)
    shutil.copytree(ran / "log", tmp_path / "third" / "log")
    hr.Log(tmp_path / "third" / "log").delete_topic("in")
    with pytest.raises(BackupRefused, match='what the step "in" has read'):
        restore(tmp_path / "saved", storage=tmp_path / "third", keep_log=True)
    assert sorted(path.name for path in (tmp_path / "third").iterdir()) == ["log"]


def test_a_log_that_grew_from_an_older_copy_is_refused(ran, tmp_path):
    """Its topic has as many records as the backup has read, and others."""
    shutil.copytree(ran / "log/topics/in", tmp_path / "in")
    assert goes_on(ran) == expected(8)
    backup(two_lines(ran), tmp_path / "saved")
    shutil.copytree(ran / "log", tmp_path / "third/log")
    shutil.rmtree(tmp_path / "third/log/topics/in")
    (tmp_path / "in").rename(tmp_path / "third/log/topics/in")
    with hr.Log(tmp_path / "third/log", fsync=False) as log:
        for number in range(20, 26):
            log.topic("in").append([row(number)])
    with pytest.raises(BackupRefused, match='what the step "in" has read'):
        restore(tmp_path / "saved", storage=tmp_path / "third", keep_log=True)


@pytest.mark.parametrize("harm", ["flipped", "missing", "no manifest"])
def test_a_damaged_backup_is_refused_and_nothing_is_written(ran, tmp_path, harm):
    saved = tmp_path / "saved"
    backup(two_lines(ran), saved)
    path = saved / "manifest.json" if harm == "no manifest" else max(saved.glob("log/topics/in/0/*.segment"))
    if harm == "flipped":
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)
    else:
        path.unlink()
    with pytest.raises((DamagedFile, BackupRefused), match=r"cannot be used|not complete"):
        restore(saved, storage=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_backup_needs_an_app_that_ran_and_a_new_folder(ran, tmp_path):
    with pytest.raises(BackupRefused, match="has never run"):
        backup(two_lines(tmp_path / "nothing"), tmp_path / "saved")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(BackupRefused, match="is not empty"):
        backup(two_lines(ran), tmp_path / "full")
    assert Storage(ran, "shop").last_epoch() == 2
    backup(two_lines(ran), tmp_path / "saved")
    manifest = json.loads((tmp_path / "saved" / "manifest.json").read_text())
    there = {str(path.relative_to(tmp_path / "saved")) for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    assert set(manifest["files"]) | {"manifest.json"} == there


@pytest.mark.parametrize("place", ["s/saved", "s/log/saved", "s"])
def test_a_backup_inside_what_it_copies_is_refused(ran, tmp_path, place):
    with pytest.raises(BackupRefused, match="is inside"):
        backup(two_lines(ran), tmp_path / place)
    assert not (tmp_path / "s" / "saved").exists()


def test_keys_of_private_columns_are_of_their_owner_alone_in_a_backup_and_restored(tmp_path):
    app = hr.App("shop", storage=tmp_path / "s")
    app.stream("in", "id int, user string, mail string", private={"mail": "user"}).to_view("v")
    before = os.umask(0o022)
    try:
        with Driver(app, storage=tmp_path / "s") as driver:
            driver.send("in", {"id": 1, "user": "a", "mail": "a@b"})
            driver.run()
        backup(app, tmp_path / "saved")
        for keys in (tmp_path / "saved").rglob("private.keys"):
            assert stat.S_IMODE(keys.stat().st_mode) == 0o600
            keys.chmod(0o644)  # as earlier versions left it
        restore(tmp_path / "saved", storage=tmp_path / "r")
    finally:
        os.umask(before)
    (keys,) = (tmp_path / "r").rglob("private.keys")
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("keep_log", [False, True])
def test_what_was_restored_survives_a_power_cut(ran, tmp_path, seed, keep_log):
    backup(two_lines(ran), tmp_path / "saved")
    disk, left = tmp_path / "disk", tmp_path / "left"
    disk.mkdir()
    if keep_log:
        shutil.copytree(ran / "log", disk / "s" / "log")
    files = Files(disk)
    power = PowerCuts(files)
    with files.watched():
        restore(tmp_path / "saved", storage=disk / "s", keep_log=keep_log)
        power.cut(0, Random(seed), left)  # noqa: S311 -- replayed
        with pytest.raises(Crash):
            (disk / "next").mkdir()
    assert [*verify(left / "s", left / "s" / "log")] == []
    assert goes_on(left / "s") == expected(8)


def test_a_restore_that_finds_the_disk_full_leaves_nothing(ran, tmp_path):
    backup(two_lines(ran), tmp_path / "saved")
    files = Files(tmp_path)
    files.fail(80, "ENOSPC")
    with files.watched(), pytest.raises(OSError, match="No space left"):
        restore(tmp_path / "saved", storage=tmp_path / "other")
    assert {path.name for path in tmp_path.iterdir()} == {"s", "saved"}
    restore(tmp_path / "saved", storage=tmp_path / "other")


@pytest.mark.parametrize("where", ["inside", "apart", "mounted"])
def test_an_app_that_is_started_after_a_restore_that_was_killed_publishes_nothing_twice(ran, tmp_path, where):
    """It is as the backup was, or refused: never is a log there without the app's own files."""
    backup(two_lines(ran), tmp_path / "saved")
    for call in count():
        place = tmp_path / str(call)
        place.mkdir()
        if where == "mounted":
            (place / "s").mkdir()
        log = place / "log" if where == "apart" else None
        app = two_lines(place / "s", topics=f"log:{log}" if log else None)
        files = Files(place)
        files.fail(call, "crash")
        with files.watched():
            try:
                restore(tmp_path / "saved", storage=place / "s", log=log)
            except Crash:
                pass
            else:
                break
        if any(path.is_file() and ".restoring-" not in str(path) for path in place.rglob("*")):
            with suppress(HeadraceError), Driver(app, storage=place / "s") as driver:
                driver.run()
                assert outputs(driver) == expected(6), f"killed at {files.hit}"
        shutil.rmtree(place)
    assert call > 30
