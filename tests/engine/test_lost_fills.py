"""Epochs that fill what is new, or take over a replay, and are lost: recovered, run again, or refused by name."""

from __future__ import annotations

import shutil

import pytest

import headrace as hr
from headrace.base.outside import EpochsLost
from headrace.engine.program.reset import reset
from headrace.testing import Driver


def app_of(*, more=False):
    """An app with a table, a count over a stream, and a topic for each; with `more` a step over the table."""
    app = hr.App("filled", shards=2)
    users = app.table("users", "user string, city string", key="user")
    users.to_view("users")
    if more:
        cities = users.group_by("city").agg(n="count(*)").named("cities")
        cities.to_view("cities")
        cities.to_topic("cities_changes")
    counts = app.stream("rows", "user string, n int").group_by("user").agg(n="sum(n)").named("counts")
    counts.to_view("counts")
    counts.to_topic("counts_changes")
    return app


def fed(driver, first):
    for n in range(first, first + 4):
        driver.send("users", {"user": f"u{n}", "city": f"c{n % 2}"})
        driver.send("rows", {"user": f"u{n % 3}", "n": n})
        driver.step()
    driver.run()


def added(storage):
    """Return the app with a step that it did not have."""
    del storage
    return app_of(more=True)


def reset_step(storage):
    reset(app_of().plan(), storage, "counts", sync=False)
    return app_of()


def reset_whole(storage):
    reset(app_of().plan(), storage, outputs="keep", sync=False)
    return app_of()


CHANGES = pytest.mark.parametrize("change", [added, reset_step, reset_whole])


def prepared(tmp_path, change):
    """Return a storage that a change was made to, a copy of it, and the app that is to start."""
    storage = tmp_path / "storage"
    with Driver(app_of(), storage=storage) as driver:
        fed(driver, 0)
    app = change(storage)
    shutil.copytree(storage, tmp_path / "copy", ignore=shutil.ignore_patterns("log"))
    return storage, app


def everything(driver):
    return {name: driver.view(name) for name in ("users", "counts")}


def topics(driver):
    return driver.log.topic("counts_changes").end_offsets()


@CHANGES
def test_the_commit_of_a_lost_fill_is_recovered(tmp_path, change):
    storage, app = prepared(tmp_path, change)
    with Driver(app, storage=storage) as driver:
        seen, published = everything(driver), topics(driver)
    max((storage / "epochs").glob("*.json")).unlink()
    with Driver(app, storage=storage) as driver:
        assert (everything(driver), topics(driver)) == (seen, published)
        fed(driver, 4)
        assert len(driver.view("users")) == 8
        assert sum(row["n"] for row in driver.view("counts")) == sum(range(8))


@CHANGES
def test_a_lost_fill_and_the_epochs_after_it_run_again(tmp_path, change):
    """The storage is restored from a copy that is older than the fill; the log is not."""
    storage, app = prepared(tmp_path, change)
    with Driver(app, storage=storage) as driver:
        fed(driver, 4)
        seen, published = everything(driver), topics(driver)
    for entry in [*storage.iterdir()]:
        if entry.name != "log":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(tmp_path / "copy", storage, dirs_exist_ok=True)
    with Driver(app, storage=storage) as driver:
        assert (everything(driver), topics(driver)) == (seen, published)
        assert sum(row["n"] for row in driver.view("counts")) == sum(range(8))
        if change is added:
            assert [row["n"] for row in driver.view("cities")] == [4, 4]
        driver.send("rows", {"user": "u0", "n": 100})
        driver.run()
        assert sum(row["n"] for row in driver.view("counts")) == sum(range(8)) + 100


def test_a_lost_fill_of_another_program_is_refused(tmp_path):
    storage, app = prepared(tmp_path, added)
    Driver(app, storage=storage).close()
    for path in (storage / "epochs").glob("*.json"):
        path.unlink()
    shutil.rmtree(storage / "state")
    shutil.copytree(tmp_path / "copy", storage, dirs_exist_ok=True)
    with pytest.raises(EpochsLost, match="another version of the program"):
        Driver(app_of(), storage=storage)


def timed_app():
    """An app of two steps that work with a watermark."""
    app = hr.App("timed")
    rows = app.stream("rows", "user string, n int, at timestamp", event_time="at")
    for name in ("first", "second"):
        minutes = rows.group_by("user").window(hr.tumbling("1 minute", grace="0 seconds"))
        minutes.agg(n="sum(n)").named(name).to_view(name)
    return app


def test_a_lost_fill_after_a_watermark_that_no_epoch_has_worked_with_is_recovered(tmp_path):
    """A fill reads nothing, so the steps that were there work with the watermark that they had."""
    with Driver(timed_app(), storage=tmp_path) as driver:
        driver.send("rows", {"user": "ann", "n": 1, "at": "2026-01-01 10:00"})
        driver.step()
    reset(timed_app().plan(), tmp_path, "second", sync=False)
    Driver(timed_app(), storage=tmp_path).close()
    (tmp_path / "epochs" / "000000000001.json").unlink()
    with Driver(timed_app(), storage=tmp_path) as driver:
        driver.run()
        assert driver.view("first") == driver.view("second")
        assert [row["n"] for row in driver.view("second")] == [1]
