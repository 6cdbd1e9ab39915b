"""After a whole reset an app has all that it had, and its output topics get nothing again."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from disturbed import AROUND_THE_COMMIT, points
from test_fill import armed_at

import headrace as hr
from headrace.base.outside import OutputsNotKept
from headrace.engine.program.reset import reset, reset_impact
from headrace.log import Log
from headrace.testing import Driver
from headrace.testing.faults import Crash

MINUTE = hr.tumbling("1 minute", grace="0 seconds")


def app_of(*, least=0, aggregate="sum(n)", more=False):
    """An app that writes rows, late rows, windows and a table's changelog to topics; `least` drops rows of a table."""
    app = hr.App("kept")
    rows = app.stream("rows", "user string, n int, at timestamp", event_time="at")
    rows.where("n >= 0").to_view("all_rows")
    rows.where("n % 2 = 0").to_topic("even")
    users = rows.where(f"n >= {least}").group_by("user").agg(n=aggregate).named("users")
    users.to_view("users")
    users.to_topic("users_changes")
    windows = rows.group_by("user").window(MINUTE, emit="final").agg(n="count(*)").named("windows")
    windows.to_topic("windows_out")
    windows.late.to_topic("too_late")
    if more:
        rows.group_by().agg(n="count(*)").named("count").to_view("count")
    return app


TOPICS = "even", "users_changes", "windows_out", "too_late"


def fed(driver, *numbers):
    for n in numbers:
        driver.send("rows", {"user": f"u{n % 3}", "n": n, "at": 10_000 * n})
        driver.step(limit=2)
    driver.run()


@pytest.fixture
def storage(tmp_path):
    """Return the storage of the app after it has run some epochs, of which one had a late row."""
    with Driver(app_of(), storage=tmp_path) as driver:
        fed(driver, *range(20), 1)
    return tmp_path


def contents(driver):
    return {topic: driver.read(topic) for topic in TOPICS}


def latest(driver):
    """Return what the changelog has of each user."""
    found = {}
    for row in driver.read("users_changes"):
        found[row["user"]] = row
    return found


def keep(app, storage):
    return reset(app.plan(), storage, outputs="keep", sync=False)


def from_the_start(tmp_path, *numbers, **program):
    with Driver(app_of(**program), storage=tmp_path / "other") as driver:
        fed(driver, *range(20), 1)
        fed(driver, *numbers)
        return driver.view("users"), driver.view("all_rows")


def test_a_whole_reset_that_keeps_outputs_appends_nothing_again_and_goes_on(storage, tmp_path):
    with Driver(app_of(), storage=storage) as driver:
        before, offsets = contents(driver), driver.read("rows")
    assert len(before["too_late"]) == 1
    keep(app_of(), storage)
    with Driver(app_of(), storage=storage) as driver:
        assert contents(driver) == before
        assert (driver.view("users"), driver.view("all_rows")) == from_the_start(tmp_path)
        assert driver.read("rows") == offsets
        fed(driver, 20, 21, 40)
        after = contents(driver)  # what came since then
        assert [row["n"] for row in after["even"]] == [20, 40]
        windows = [(row["user"], row["window_start"]) for row in before["windows_out"] + after["windows_out"]]
        assert after["windows_out"]
        assert len({*windows}) == len(windows), "no window is published twice"
        assert driver.view("users") == from_the_start(tmp_path / "more", 20, 21, 40)[0]


def test_a_changed_program_appends_to_a_changelog_what_differs(storage):
    changed = app_of(least=17, aggregate="cast(max(n) as bigint)")
    keep(changed, storage)
    with Driver(changed, storage=storage) as driver:
        assert {user: row["n"] for user, row in latest(driver).items() if row["n"]} == {
            row["user"]: row["n"] for row in driver.view("users")
        }
        assert [row["n"] for row in driver.view("users")] == [18, 19, 17]


def test_a_key_that_is_gone_gets_a_tombstone_and_an_equal_row_nothing(storage):
    with Log(storage / "log", fsync=False) as log:
        before = sum(log.topic("users_changes").end_offsets().values())
    changed = app_of(least=18)
    keep(changed, storage)
    with Driver(changed, storage=storage) as driver, Log(storage / "log", fsync=False) as log:
        topic = log.topic("users_changes")
        rows = [row for number in topic.end_offsets() for row in topic.read(number, 0, 1000).to_pylist()]
        new = sorted(((row["user"], row["n"], row["_deleted"]) for row in rows), key=repr)
        assert len(rows) == before + 3
        assert ("u2", None, True) in new
        assert {("u0", 18, False), ("u1", 19, False)} <= {*new}
        assert [row["user"] for row in driver.view("users")] == ["u0", "u1"]


def test_steps_views_and_shards_may_change_with_a_whole_reset(storage):
    changed = app_of(more=True)
    keep(changed, storage)
    with Driver(changed, storage=storage, shards=3) as driver:
        assert driver.view("count") == [{"n": 21}]
        fed(driver, 22)
        assert driver.view("count") == [{"n": 22}]
    with Driver(changed, storage=storage, shards=3) as driver:
        assert driver.view("count") == [{"n": 22}]


@pytest.mark.parametrize("point", points(*AROUND_THE_COMMIT))
def test_a_start_after_a_reset_that_crashes_at_any_point_appends_once(storage, point, monkeypatch):
    changed = app_of(least=18)
    keep(changed, storage)
    with monkeypatch.context() as armed:
        armed.setattr("headrace.testing.driver.Faults", lambda: armed_at(point))
        with nullcontext() if point == "between_topics" else pytest.raises(Crash, match=point):
            Driver(changed, storage=storage).close()
    with Driver(changed, storage=storage) as driver:
        changes = driver.read("users_changes")
        assert [row["user"] for row in driver.view("users")] == ["u0", "u1"]
    with Driver(changed, storage=storage) as driver:
        assert driver.read("users_changes") == changes
    with Log(storage / "log", fsync=False) as log:
        topic = log.topic("users_changes")
        rows = [row for number in topic.end_offsets() for row in topic.read(number, 0, 1000).to_pylist()]
        assert sum(row["_deleted"] for row in rows) == 1


def test_it_is_said_how_far_back_the_topics_go(storage):
    impact = reset_impact(app_of().plan(), storage, outputs="keep")
    assert impact.outputs == "keep"
    assert impact.replayed == {"rows": {"0": {"first": 0, "read": 21}}}


def test_what_cannot_be_kept_is_refused_before_anything_is_forgotten(storage):
    kept = sorted(path for path in storage.rglob("*"))
    with Log(storage / "log", fsync=False) as log:
        log.delete_topic("rows")
        log.create_topic("rows", "user string, n int, at timestamp")
    (storage / "epochs/000000000000.json").touch()
    with pytest.raises(OutputsNotKept, match="was deleted and created again") as raised:
        keep(app_of(), storage)
    assert "headrace reset FILE --outputs again" in raised.value.hint
    assert {path for path in kept if "log" not in path.parts} <= {*storage.rglob("*")}
    reset(app_of().plan(), storage, sync=False)
    with Driver(app_of(), storage=storage) as driver:
        fed(driver, 2)
        assert [row["n"] for row in driver.view("users")] == [2]


def test_a_source_under_another_name_is_refused(storage):
    app = hr.App("kept")
    app.stream("rows", "user string, n int, at timestamp", event_time="at").named("renamed").to_topic("even")
    with pytest.raises(OutputsNotKept, match='was read as "rows", and is read as "renamed"'):
        keep(app, storage)


def test_epochs_that_are_lost_are_recovered_before_a_reset(storage):
    commits = sorted((storage / "epochs").glob("*.json"))
    commits[-1].unlink()
    with pytest.raises(OutputsNotKept, match="Start the app once"):
        keep(app_of(), storage)


def test_an_app_that_writes_views_only_reads_from_the_start(tmp_path):
    def counted():
        app = hr.App("views")
        app.stream("rows", "n int").group_by().agg(n="count(*)").to_view("v")
        return app

    with Driver(counted(), storage=tmp_path) as driver:
        driver.send("rows", {"n": 1})
        driver.run()
    assert keep(counted(), tmp_path).outputs == "again"
    with Driver(counted(), storage=tmp_path) as driver:
        assert driver.view("v") == []
        driver.run()
        assert driver.view("v") == [{"n": 1}]
