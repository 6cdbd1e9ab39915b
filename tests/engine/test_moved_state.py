"""A step that gets another name: refused where it would begin anew, and with `renamed_from` its state moves."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.base.errors import DamagedFile, InvalidPlan, PlanChanged
from headrace.base.outside import EpochsLost
from headrace.base.time import ManualClock
from headrace.engine.engine import Engine
from headrace.engine.epoch import Settings
from headrace.testing import Driver
from headrace.testing.faults import START_POINTS, Crash, Faults

ROWS = "k string, v int, at timestamp"


def app_of(name, old=None, *, place="view", top=False, below=False):
    app = hr.App("moved")
    rows = app.stream("t", ROWS, event_time="at").group_by("k")
    kept = rows.top(1, by="v desc") if top else rows.agg(n="count(*)", s="sum(v)")
    kept = kept.named(name, renamed_from=old)
    if below:
        kept = kept.group_by().agg(most="max(n)").named("below")
    kept.to_view("out") if place == "view" else kept.to_topic("out")
    return app


FIRST = [{"k": "a", "v": 1, "at": 1000}, {"k": "a", "v": 2, "at": 2000}, {"k": "b", "v": 3, "at": 3000}]
SECOND = [{"k": "a", "v": 4, "at": 4000}]


def play(app, storage, rows):
    with Driver(app, storage=storage) as driver:
        driver.send("t", *rows)
        driver.run()
        return driver.view("out") if "out" in driver.views() else driver.read("out")


@pytest.mark.parametrize("place", ["view", "topic"])
def test_a_renamed_step_that_feeds_the_same_place_is_refused_and_told_how_to_move_its_state(tmp_path, place):
    """It would count from zero, and its first results would replace right ones: three became one."""
    play(app_of("old", place=place, top=False), tmp_path, FIRST)
    with pytest.raises(PlanChanged) as error:
        Driver(app_of("new", place=place), storage=tmp_path)
    assert f'the {place} "out" has the results of step "old" and would be fed by the new step "new"' in str(error.value)
    assert 'Say .named("new", renamed_from="old"), which moves the state' in str(error.value)


def test_a_renamed_step_above_another_step_is_refused_too(tmp_path):
    play(app_of("old", below=True), tmp_path, FIRST)
    with pytest.raises(PlanChanged, match='the step "below" has the results of step "old"'):
        Driver(app_of("new", below=True), storage=tmp_path)
    assert play(app_of("new", "old", below=True), tmp_path, SECOND) == [{"most": 3}]


def test_renamed_from_moves_the_state(tmp_path):
    play(app_of("old"), tmp_path, FIRST)
    with Driver(app_of("new", "old"), storage=tmp_path) as driver:
        assert driver.changes.lines() == ['the state of step "old" moves to step "new"']
        assert driver.counts("new")["rows_in"] == 3
        driver.send("t", *SECOND)
        driver.run()
        assert driver.view("out") == [{"k": "a", "n": 3, "s": 7}, {"k": "b", "n": 1, "s": 3}]
    assert play(app_of("new", "old"), tmp_path, []) == [{"k": "a", "n": 3, "s": 7}, {"k": "b", "n": 1, "s": 3}]
    assert play(app_of("new"), tmp_path, SECOND)[0]["n"] == 4, "renamed_from may be taken out again"
    with pytest.raises(PlanChanged, match=r'has the results of step "new"'):
        Driver(app_of("old"), storage=tmp_path)


def test_a_top_moves_with_the_step_that_ranks_its_parts(tmp_path):
    def best(name, old=None):
        app = hr.App("moved")
        rows = app.stream("t", ROWS, event_time="at").group_by().top(2, by="v desc")
        rows.named(name, renamed_from=old).to_view("out")
        return app

    play(best("old"), tmp_path, FIRST)
    found = play(best("new", "old"), tmp_path, SECOND)
    assert sorted(row["v"] for row in found) == [3, 4]


def test_state_never_moves_onto_other_state(tmp_path):
    app = hr.App("moved")
    rows = app.stream("t", ROWS, event_time="at").group_by("k")
    rows.agg(n="count(*)").named("old").to_view("first")
    rows.agg(n="count(*)").named("new").to_view("out")
    play(app, tmp_path, FIRST)
    with pytest.raises(PlanChanged, match='the state of step "old" cannot move to step "new"'):
        Driver(app_of("new", "old"), storage=tmp_path)


def test_only_a_step_with_state_is_renamed_from_another():
    rows = hr.App("moved").stream("t", ROWS).where("v > 1")
    with pytest.raises(InvalidPlan, match="keeps no state that could move"):
        rows.named("new", renamed_from="old")


@pytest.mark.parametrize("point", START_POINTS)
@pytest.mark.parametrize("next_program", [("new", "old"), ("new", None)], ids=["renamed_from", "without"])
def test_a_crash_at_any_step_of_the_move_loses_and_doubles_nothing(tmp_path, point, next_program):
    play(app_of("old"), tmp_path, FIRST)
    faults = Faults()
    faults.arm(point)
    settings = Settings(storage=tmp_path, topics=None, shards=1, clock=ManualClock(), sync=False, fault=faults)
    with pytest.raises(Crash):
        Engine(app_of("new", "old").plan(), settings)
    if next_program == ("new", None) and point == "before_adopting":
        next_program = ("new", "old")  # nothing was written: the state is under its old name
    found = play(app_of(*next_program), tmp_path, SECOND)
    assert found == [{"k": "a", "n": 3, "s": 7}, {"k": "b", "n": 1, "s": 3}]


def test_a_crash_in_the_move_before_the_old_program_starts_again_is_told(tmp_path):
    """The move was written down, so it is finished; the old program is told how to move the state back."""
    play(app_of("old"), tmp_path, FIRST)
    faults = Faults()
    faults.arm("after_moving")
    settings = Settings(storage=tmp_path, topics=None, shards=1, clock=ManualClock(), sync=False, fault=faults)
    with pytest.raises(Crash):
        Engine(app_of("new", "old").plan(), settings)
    with pytest.raises(PlanChanged, match=r'renamed_from="new"'):
        Driver(app_of("old"), storage=tmp_path)
    assert play(app_of("old", "new"), tmp_path, SECOND)[0] == {"k": "a", "n": 3, "s": 7}


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("harm", ["lost", "emptied"])
def test_a_commit_that_is_lost_right_after_the_move_is_refused_by_name(tmp_path, lost, harm):
    """Older commits and the journal have the old name, and the state is under the new one."""
    play(app_of("old"), tmp_path, FIRST)
    play(app_of("old"), tmp_path, [{"k": "c", "v": 1, "at": 4000}])
    settings = Settings(storage=tmp_path, topics=None, shards=1, clock=ManualClock(), sync=False)
    Engine(app_of("new", "old").plan(), settings).close()
    newest = sorted(tmp_path.glob("epochs/*.json"))[-lost:]
    kept = {path: path.read_bytes() for path in newest}
    for path in newest:
        path.unlink() if harm == "lost" else path.write_bytes(b"")
    for program in (app_of("new", "old"), app_of("new"), app_of("old")):
        with pytest.raises((EpochsLost, PlanChanged, DamagedFile)) as error:
            Driver(program, storage=tmp_path)
        assert error.value.hint
    for path, content in kept.items():
        path.write_bytes(content)
    assert play(app_of("new"), tmp_path, SECOND)[0]["n"] == 3
