"""A reset forgets what it says, all of it or none, and the app goes on from there."""

import json
from dataclasses import dataclass, field

import pytest

import headrace as hr
from headrace.base.errors import PlanChanged, PlanError, StorageBusy
from headrace.engine.program import reset as resets
from headrace.engine.program.reset import reset, reset_impact
from headrace.engine.storage import Storage
from headrace.testing import Driver
from headrace.views.sqlite import SqliteViews

AT = "2026-01-31 10:0{}"


def chain(*, per="user", window="1 minute", emit="changes", late=False):
    """An app of two steps on top of each other, and one beside them."""
    app = hr.App("chain")
    rows = app.stream("rows", "user string, team string, n bigint, at timestamp", event_time="at")
    if late:
        rows.where("n >= 0").to_view("all_rows")
    first = rows.group_by(per).window(hr.tumbling(window, grace="0 seconds"), emit=emit).agg(n="sum(n)").named("first")
    first.to_view("first")
    first.to_topic("first_changes")
    first.group_by(per).agg(best="max(n)").named("second").to_view("second")
    rows.group_by("team").agg(n="count(*)").named("beside").to_view("beside")
    return app


def row(user, n, minute, team="red"):
    return {"user": user, "team": team, "n": n, "at": AT.format(minute)}


@pytest.fixture
def storage(tmp_path):
    """Return the storage of a chain that has run two epochs."""
    with Driver(chain(), storage=tmp_path / "kept") as driver:
        driver.send("rows", row("ann", 1, 0), row("bob", 2, 0))
        driver.run()
        driver.send("rows", row("ann", 5, 3))
        driver.run()
    return tmp_path / "kept"


def numbers(driver, view, *columns):
    return [tuple(found[column] for column in columns) for found in driver.view(view)]


def test_what_would_be_lost_is_told_and_nothing_happens(storage):
    plan = chain().plan()
    before = sorted(path for path in storage.rglob("*"))
    loss = reset_impact(plan, storage, "first")
    assert sorted(loss.steps) == ["first", "second"]
    assert sorted(loss.views) == ["first", "second"]
    assert loss.topics == ("first_changes",)
    all_steps = reset_impact(plan, storage)
    assert sorted(all_steps.steps) == ["beside", "first", "second"]
    assert (all_steps.views["beside"], all_steps.rows_read) == (1, 3)
    assert before == sorted(path for path in storage.rglob("*"))


def test_a_changed_step_is_computed_again_and_goes_on_from_the_offsets_it_had(storage):
    changed = chain(window="2 minutes")
    with pytest.raises(PlanChanged):
        Driver(changed, storage=storage)
    reset(changed.plan(), storage, "first", sync=False)
    with Driver(changed, storage=storage) as driver:
        assert numbers(driver, "first", "user", "n") == [("ann", 1), ("ann", 5), ("bob", 2)]
        assert numbers(driver, "second", "user", "best") == [("ann", 5), ("bob", 2)]
        assert numbers(driver, "beside", "n") == [(3,)]
        driver.send("rows", row("ann", 7, 4), row("ann", 1, 5))
        driver.run()
        assert numbers(driver, "first", "user", "n") == [("ann", 1), ("ann", 5), ("ann", 8), ("bob", 2)]
        assert numbers(driver, "second", "user", "best") == [("ann", 8), ("bob", 2)]
        assert numbers(driver, "beside", "n") == [(5,)]


def test_the_watermark_stays_so_that_nothing_final_opens_again(tmp_path):
    app = chain(emit="final")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("rows", row("ann", 1, 0), row("ann", 1, 9))
        driver.run()
        assert numbers(driver, "first", "n") == [(1,)]
        mark = driver.watermark("first")
    reset(app.plan(), tmp_path, "first", sync=False)
    with Driver(app, storage=tmp_path) as driver:
        assert driver.watermark("first") == mark
        driver.send("rows", row("ann", 100, 0))
        driver.run()
        assert numbers(driver, "first", "n") == [(1,)]
        assert [late["n"] for late in driver.late("first")] == [100]


def test_a_step_below_a_table_is_reset_alone(storage):
    reset(chain().plan(), storage, "second", sync=False)
    with Driver(chain(), storage=storage) as driver:
        assert numbers(driver, "second", "user", "best") == [("ann", 5), ("bob", 2)]
        driver.send("rows", row("bob", 4, 4))
        driver.run()
        assert numbers(driver, "second", "user", "best") == [("ann", 5), ("bob", 4)]


def test_a_step_below_results_that_are_final_is_reset_alone(tmp_path):
    app = chain(emit="final")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("rows", row("ann", 9, 0), row("bob", 2, 3))
        driver.run()
    reset(app.plan(), tmp_path, "second", sync=False)
    with Driver(app, storage=tmp_path) as driver:
        assert numbers(driver, "second", "user", "best") == [("ann", 9)]
        driver.finish()
        assert numbers(driver, "second", "user", "best") == [("ann", 9), ("bob", 2)]


def counted(*, by_city=False):
    """A table, and what is counted of it."""
    app = hr.App("counted")
    users = app.table("users", "id int, city string", key="id")
    users.to_view("users")
    users.group_by().agg(n="count(*)").named("all").to_view("all")
    if by_city:
        users.where("id > 0").group_by("city").agg(n="count(*)").named("cities").to_view("cities")
    return app


def test_a_new_step_over_a_table_that_has_rows_is_filled_with_them(tmp_path):
    """It would count what comes from now on, and take away what came before."""
    with Driver(counted(), storage=tmp_path) as driver:
        driver.send("users", *({"id": i, "city": "a"} for i in range(1, 6)))
        driver.run()
    with Driver(counted(by_city=True), storage=tmp_path) as driver:
        assert numbers(driver, "cities", "city", "n") == [("a", 5)]
        driver.delete("users", id=1)
        driver.send("users", {"id": 2, "city": "b"}, {"id": 7, "city": "a"})
        driver.run()
        assert numbers(driver, "cities", "city", "n") == [("a", 4), ("b", 1)]
        assert numbers(driver, "all", "n") == [(5,)]


def test_a_new_step_over_a_table_without_rows_begins_with_it(tmp_path):
    with Driver(counted(), storage=tmp_path) as driver:
        driver.run()
    with Driver(counted(by_city=True), storage=tmp_path) as driver:
        driver.send("users", {"id": 1, "city": "a"})
        driver.run()
        assert numbers(driver, "cities", "city", "n") == [("a", 1)]


def test_a_step_that_only_the_storage_knows_can_be_forgotten(storage):
    app = hr.App("chain")
    rows = app.stream("rows", "user string, team string, n bigint, at timestamp", event_time="at")
    rows.group_by("team").agg(n="count(*)").named("beside").to_view("beside")
    reset(app.plan(), storage, "second", sync=False)
    assert sorted(json.loads((storage / "plan.json").read_text())["steps"]) == ["beside", "first"]
    with pytest.raises(PlanError, match='there is no step "thrid"'):
        reset(app.plan(), storage, "thrid")
    with pytest.raises(PlanError, match='the step "rows" keeps no state'):
        reset(app.plan(), storage, "rows")


def test_a_whole_reset_reads_from_the_start_and_appends_again(storage):
    """A new id: the log must not take what is appended again for a retry."""
    identity = json.loads((storage / "app.json").read_text())["id"]
    with Driver(chain(), storage=storage) as driver:
        changes = driver.read("first_changes")
    before, keys = len(changes), {(row["user"], row["window_start"]) for row in changes}
    reset(chain().plan(), storage, sync=False)
    assert sorted(entry.name for entry in storage.iterdir()) == ["app.json", "lease", "lock", "log"]
    assert json.loads((storage / "app.json").read_text())["id"] != identity
    with Driver(chain(window="2 minutes"), storage=storage, shards=2) as driver:
        driver.run()
        assert numbers(driver, "first", "user", "n") == [("ann", 1), ("ann", 5), ("bob", 2)]
        assert len(driver.read("first_changes")) == before + len(keys) + 3, "a tombstone for each key"


def test_an_app_that_runs_is_not_reset(storage):
    with Driver(chain(), storage=storage), pytest.raises(StorageBusy):
        reset(chain().plan(), storage)
    assert not (storage / resets.NOTE).exists()


def test_an_app_that_never_ran_has_nothing_to_lose(tmp_path):
    assert reset(chain().plan(), tmp_path / "none").nothing
    assert not (tmp_path / "none").exists()


def test_a_commit_not_yet_published_is_not_published_into_a_view_that_is_gone(tmp_path):
    with Driver(chain(), storage=tmp_path) as driver:
        driver.send("rows", row("ann", 1, 0))
        driver.crash(at="before_views")
    reset(chain(window="2 minutes").plan(), tmp_path, "first", sync=False)
    with Driver(chain(window="2 minutes"), storage=tmp_path) as driver:
        assert numbers(driver, "first", "n") == [(1,)]
        assert numbers(driver, "beside", "n") == [(1,)]
        driver.send("rows", row("ann", 4, 2))
        driver.run()
        assert numbers(driver, "first", "n") == [(1,), (4,)]


class Died(BaseException):
    """The process died in the middle of a reset."""


@dataclass
class Dying:
    """Counts the changes that a reset makes on disk, and dies at one of them."""

    at: int
    changes: list[str] = field(default_factory=list)

    def wrap(self, name, function):
        """Return the function, counted, and deadly when its turn has come."""

        def run(*arguments, **named):
            self.changes.append(name)
            if len(self.changes) == self.at:
                raise Died
            return function(*arguments, **named)

        return run


@pytest.mark.parametrize("step", [None, "first"])
@pytest.mark.parametrize("at", range(2, 9))
def test_a_reset_that_dies_is_finished_at_the_next_start(storage, monkeypatch, step, at):
    """Wherever it dies after its note was written, the outcome is that of a reset that did not."""
    dying = Dying(at)
    monkeypatch.setattr(resets.shutil, "rmtree", dying.wrap("rmtree", resets.shutil.rmtree))
    monkeypatch.setattr(SqliteViews, "drop", dying.wrap("drop", SqliteViews.drop))
    monkeypatch.setattr(Storage, "_write_aside", dying.wrap("write", Storage._write_aside))  # noqa: SLF001 -- where it dies
    try:
        reset(chain().plan(), storage, step, sync=False)
    except Died:
        assert (storage / resets.NOTE).exists()
    monkeypatch.undo()
    with Driver(chain(), storage=storage) as driver:
        assert not (storage / resets.NOTE).exists()
        driver.send("rows", row("ann", 4, 4))
        driver.run()
        all_steps = [("ann", 1), ("ann", 5), ("ann", 4), ("bob", 2)]
        assert sorted(numbers(driver, "first", "user", "n")) == sorted(all_steps)
        assert numbers(driver, "beside", "n") == [(4,)]
