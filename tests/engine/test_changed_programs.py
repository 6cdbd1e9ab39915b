"""A changed program never mixes results: a chain of stateless steps over a table is a part of the state below it."""

from __future__ import annotations

import pytest

import headrace as hr
from budget import matrix
from headrace.base.errors import PlanChanged
from headrace.base.time import ManualClock
from headrace.engine.epoch import Settings
from headrace.engine.program.reset import reset
from headrace.engine.recovery.opening import open_engine
from headrace.testing import Driver
from headrace.testing.faults import START_POINTS, Crash, Faults

ACCOUNTS = "id int, user string, amount double"
ROWS = [{"id": 1, "user": "a", "amount": 1.0}, {"id": 2, "user": "a", "amount": 10.0}]


def table_app(build):
    app = hr.App("acc")
    build(app.table("acc", ACCOUNTS, key="id"), app)
    return app


def stream_app(build):
    app = hr.App("acc")
    build(app.stream("acc", ACCOUNTS))
    return app


def play(app, storage, *rows):
    with Driver(app, storage=storage) as driver:
        driver.send("acc", *rows)
        driver.run()
        return {name: driver.view(name) for name in driver.views()}


def summed(rows, app):
    del app
    totals = rows.group_by("user").agg(n="count(*)", s="sum(amount)", c="collect_list(amount)")
    totals.named("agg").to_view("v")


def test_a_filter_taken_away_above_an_aggregate_of_a_table_mixes_nothing(tmp_path):
    """Truth is two rows and 17.0; the state has seen the first row never, so its withdrawal would be one too many."""
    play(table_app(lambda o, app: summed(o.where("amount > 5"), app)), tmp_path, *ROWS)
    with Driver(table_app(summed), storage=tmp_path) as driver:
        (line,) = driver.changes.lines()
        assert line.startswith('the step "agg" is computed anew from what "acc_table" keeps, and with it v')
        assert 'It was "step acc_table, where amount > 5", and is "step acc_table"' in line
        assert driver.view("v") == [{"user": "a", "n": 2, "s": 11.0, "c": [1.0, 10.0]}]
        driver.delete("acc", id=1)
        driver.send("acc", {"id": 3, "user": "a", "amount": 7.0})
        driver.run()
        assert [(row["n"], row["s"], sorted(row["c"])) for row in driver.view("v")] == [(2, 17.0, [7.0, 10.0])]


CONSUMERS = {
    "an aggregate": summed,
    "a join": lambda o, app: (
        o.join(app.table("users", "user string, city string", key="user"), on="user").named("j").to_view("v")
    ),
    "a top": lambda o, _: o.group_by("user").top(1, by="amount desc, id").named("t").to_view("v"),
    "a view": lambda o, _: o.to_view("v"),
    "a topic": lambda o, _: o.to_topic("out"),
    "a lookup": lambda o, app: app.stream("clicks", "id int, url string").join(o, on="id").named("looked").to_view("v"),
}
CHANGES = {
    "where added": (lambda o: o, lambda o: o.where("amount > 5")),
    "where removed": (lambda o: o.where("amount > 5"), lambda o: o),
    "where changed": (lambda o: o.where("amount > 5"), lambda o: o.where("amount > 6")),
    "a column computed in another way": (
        lambda o: o.with_columns(amount="amount * 2"),
        lambda o: o.with_columns(amount="amount * 3"),
    ),
    "select in another way": (
        lambda o: o.select("id", "user", "amount"),
        lambda o: o.select("id", "user", amount="amount + 1"),
    ),
}


@pytest.mark.parametrize(("below", "what"), matrix(CONSUMERS, CHANGES, depth=1))
def test_a_stateless_change_over_a_table_is_computed_anew_or_refused_whatever_is_below(tmp_path, below, what):
    """A topic would get rows again, and a lookup its stream; everything else is what it would be from the start."""
    (first, second), consumer = CHANGES[what], CONSUMERS[below]
    if below not in ("a topic", "a lookup"):
        more = [{"id": 2, "user": "b", "amount": 20.0}, {"id": 3, "user": "a", "amount": 5.5}]
        play(table_app(lambda o, app: consumer(first(o), app)), tmp_path / "changed", *ROWS)
        changed = play(table_app(lambda o, app: consumer(second(o), app)), tmp_path / "changed", *more)
        assert changed == play(table_app(lambda o, app: consumer(second(o), app)), tmp_path / "new", *ROWS, *more)
        return
    before = play(table_app(lambda o, app: consumer(first(o), app)), tmp_path, *ROWS)
    with pytest.raises(PlanChanged, match="has rows of another input than it would be fed with"):
        Driver(table_app(lambda o, app: consumer(second(o), app)), storage=tmp_path)
    assert play(table_app(lambda o, app: consumer(first(o), app)), tmp_path) == before, "nothing was touched"


SAME = {
    "other spaces": (lambda o: o.where("amount>5"), lambda o: o.where(" amount  >  5 ")),
    "two conditions in another order": (
        lambda o: o.where("amount > 5").where("id < 9"),
        lambda o: o.where("id < 9").where("amount > 5"),
    ),
    "a column that nobody reads": (lambda o: o, lambda o: o.with_columns(twice="amount * 2")),
    "a column renamed and back": (lambda o: o, lambda o: o.rename(who="user").rename(user="who")),
    "the name of a stateless step": (lambda o: o.where("id > 0"), lambda o: o.where("id > 0").named("positive")),
    "a column left out that nobody reads": (lambda o: o, lambda o: o.drop("id")),
}


@pytest.mark.parametrize("change", SAME.values(), ids=list(SAME))
def test_what_means_the_same_passes(tmp_path, change):
    first, second = change
    play(table_app(lambda o, app: summed(first(o), app)), tmp_path, *ROWS)
    with Driver(table_app(lambda o, app: summed(second(o), app)), storage=tmp_path) as driver:
        assert driver.changes.lines() == []
        driver.delete("acc", id=1)
        driver.run()
        assert [row["c"] for row in driver.view("v")] == [[10.0]]


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_over_a_stream_of_facts_the_change_passes_and_the_start_says_from_which_offset(tmp_path, change):
    first, second = change

    def counted(rows):
        rows.group_by("user").agg(s="sum(amount)", n="count(*)").named("agg").to_view("v")

    play(stream_app(lambda rows: counted(first(rows))), tmp_path, *ROWS)
    with Driver(stream_app(lambda rows: counted(second(rows))), storage=tmp_path) as driver:
        (line,) = driver.changes.lines()
        assert line.startswith('what the step "agg" is fed with has changed')
        assert 'The rows from offset 2 of "acc" on are computed in the new way' in line


def test_a_view_of_a_stream_takes_the_new_rows_in_the_new_way(tmp_path):
    play(stream_app(lambda rows: rows.where("amount > 5").to_view("v")), tmp_path, *ROWS)
    new = play(stream_app(lambda rows: rows.to_view("v")), tmp_path, {"id": 3, "user": "b", "amount": 2.0})
    assert sorted(row["id"] for row in new["v"]) == [2, 3]


def test_an_unchanged_program_has_nothing_to_say(tmp_path):
    play(table_app(summed), tmp_path, *ROWS)
    with Driver(table_app(summed), storage=tmp_path) as driver:
        assert driver.changes.lines() == []
        assert {(entry.part, entry.name) for entry in driver.changes.entries} == {
            ("step", "acc_table"),
            ("step", "agg"),
            ("view", "v"),
            ("source", "acc"),
        }


def test_a_view_that_was_left_out_for_some_epochs_is_filled_anew(tmp_path):
    """A row that was deleted meanwhile would stay in it."""

    def both(o, app):
        summed(o, app)
        o.to_view("all")

    play(table_app(both), tmp_path, *ROWS)
    play(table_app(summed), tmp_path)
    play(table_app(both), tmp_path)
    play(table_app(summed), tmp_path, {"id": 3, "user": "b", "amount": 2.0})
    with Driver(table_app(both), storage=tmp_path) as driver:
        driver.delete("acc", id=1)
        driver.run()
        assert [row["id"] for row in driver.view("all")] == [2, 3]


def test_a_topic_that_was_left_out_for_some_epochs_is_refused(tmp_path):
    """What was deleted meanwhile has no tombstone in it."""

    def both(o, app):
        summed(o, app)
        o.to_topic("all")

    play(table_app(both), tmp_path, *ROWS)
    play(table_app(summed), tmp_path, {"id": 3, "user": "b", "amount": 2.0})
    with pytest.raises(PlanChanged, match='the topic "all" was not in the app when epoch'):
        Driver(table_app(both), storage=tmp_path)


def test_a_storage_of_an_older_version_opens(tmp_path):
    """It has no chains to compare; from now on it has."""
    from headrace.engine.storage import Storage

    play(table_app(summed), tmp_path, *ROWS)
    storage = Storage(tmp_path, "acc")
    stored = storage.read_json("plan.json")
    storage.write_json("plan.json", {part: stored[part] for part in ("format", "shards", "steps")})
    play(table_app(lambda o, app: summed(o.where("amount > 5"), app)), tmp_path)
    with Driver(table_app(summed), storage=tmp_path) as driver:
        assert [entry.outcome for entry in driver.changes.changed] == ["rebuilt"]


def test_a_renamed_source_does_not_bring_its_rows_again(tmp_path):
    play(stream_app(lambda rows: rows.to_view("v")), tmp_path, *ROWS)
    with pytest.raises(PlanChanged, match='would get them again from "x"') as error:
        Driver(stream_app(lambda rows: rows.named("x").to_view("v")), storage=tmp_path)
    assert '.named("acc")' in str(error.value)


def test_after_a_reset_of_the_table_the_changed_program_starts_and_has_every_row(tmp_path):
    play(table_app(lambda o, app: summed(o.where("amount > 5"), app)), tmp_path, *ROWS)
    changed = table_app(summed)
    reset(changed.plan(), tmp_path, "acc_table", sync=False)
    with Driver(changed, storage=tmp_path) as driver:
        driver.send("acc", {"id": 3, "user": "a", "amount": 7.0})
        driver.run()
        assert [(row["n"], row["s"]) for row in driver.view("v")] == [(3, 18.0)]


def test_an_aggregate_more_over_a_table_is_computed_from_the_table_and_the_view_gets_its_column(tmp_path):
    play(table_app(summed), tmp_path, *ROWS)

    def more(o, app):
        del app
        o.group_by("user").agg(n="count(*)", most="max(amount)").named("agg").to_view("v")

    with Driver(table_app(more), storage=tmp_path) as driver:
        assert driver.view("v") == [{"user": "a", "n": 2, "most": 10.0}]
        driver.delete("acc", id=2)
        driver.run()
        assert driver.view("v") == [{"user": "a", "n": 1, "most": 1.0}]


def test_what_is_below_a_step_that_is_computed_anew_is_so_too(tmp_path):
    def chain(o):
        per_user = o.group_by("user").agg(s="sum(amount)").named("agg")
        per_user.to_view("v")
        per_user.group_by().agg(most="max(s)").named("all").to_view("all")

    play(table_app(lambda o, _: chain(o)), tmp_path, *ROWS)
    with Driver(table_app(lambda o, _: chain(o.where("amount > 5"))), storage=tmp_path) as driver:
        assert driver.changes.rebuilt_steps == {"agg", "all"}
        assert driver.view("all") == [{"most": 10.0}]
        driver.send("acc", {"id": 2, "user": "a", "amount": 6.0}, {"id": 1, "user": "a", "amount": 8.0})
        driver.run()
        assert driver.view("all") == [{"most": 14.0}]


@pytest.mark.parametrize("point", [*START_POINTS, "before_views", "during_commit", "after_commit", "after_staging"])
def test_a_crash_while_a_step_is_computed_anew_loses_and_doubles_nothing(tmp_path, point):
    """The columns of the view change too, so it is dropped and made again."""
    play(table_app(summed), tmp_path, *ROWS)
    app = table_app(
        lambda o, _: o.where("amount > 0").group_by("user").agg(most="max(amount)").named("agg").to_view("v")
    )
    faults = Faults()
    faults.arm(point)
    settings = Settings(storage=tmp_path, topics=None, shards=1, clock=ManualClock(), sync=False, fault=faults)
    with pytest.raises(Crash):
        open_engine(app.plan(), settings)
    with Driver(app, storage=tmp_path) as driver:
        assert driver.view("v") == [{"user": "a", "most": 10.0}]
        driver.delete("acc", id=2)
        driver.run()
        assert driver.view("v") == [{"user": "a", "most": 1.0}]


def test_over_a_stream_a_changed_step_is_still_refused(tmp_path):
    """The rows that it would be computed from are in no step's state."""
    build = lambda rows, what: rows.group_by("user").agg(x=what).named("agg").to_view("v")  # noqa: E731
    play(stream_app(lambda rows: build(rows, "count(*)")), tmp_path, *ROWS)
    with pytest.raises(PlanChanged, match='"acc" does not keep all of its rows'):
        Driver(stream_app(lambda rows: build(rows, "count(amount)")), storage=tmp_path)


TOTALS = lambda rows: rows.group_by("user").agg(s="sum(amount)").named("agg")  # noqa: E731
OF_A = "user = 'a'"
MOVED = {
    "added": (lambda rows: TOTALS(rows).to_view("v"), lambda rows: TOTALS(rows).where(OF_A).to_view("v")),
    "changed": (
        lambda rows: TOTALS(rows).where(OF_A).to_view("v"),
        lambda rows: TOTALS(rows).where("user = 'b'").to_view("v"),
    ),
    "taken away": (lambda rows: TOTALS(rows).where(OF_A).to_view("v"), lambda rows: TOTALS(rows).to_view("v")),
    "of a top": (
        lambda rows: rows.group_by("user").top(1, "amount").named("agg").where(OF_A).to_view("v"),
        lambda rows: rows.group_by("user").top(1, "amount").named("agg").to_view("v"),
    ),
    "of a join of bags": (
        lambda rows: rows.as_table().join(rows.as_table(), on="user").named("agg").where(OF_A).to_view("v"),
        lambda rows: rows.as_table().join(rows.as_table(), on="user").named("agg").to_view("v"),
    ),
}


@pytest.mark.parametrize("change", MOVED)
def test_a_condition_that_is_met_above_the_step_before_it_is_a_part_of_its_state(tmp_path, change):
    """The step meant all users and has the rows of some: it went on, without those of before, and said nothing."""
    was, becomes = MOVED[change]
    play(stream_app(was), tmp_path, *ROWS, {"id": 3, "user": "b", "amount": 5.0})
    with pytest.raises(PlanChanged, match="has other rows than the program needs"):
        Driver(stream_app(becomes), storage=tmp_path)


def test_a_step_that_lacks_rows_for_a_condition_below_it_is_computed_again_for_another_reader(tmp_path):
    def app(*, more):
        def build(rows):
            totals = TOTALS(rows)
            totals.where(OF_A).to_view("v")
            if more:
                totals.to_view("more")

        return stream_app(build)

    play(app(more=False), tmp_path, *ROWS, {"id": 3, "user": "b", "amount": 5.0})
    with pytest.raises(PlanChanged, match="headrace reset FILE --step agg"):
        Driver(app(more=True), storage=tmp_path)
    reset(app(more=True).plan(), tmp_path, "agg", sync=False)
    views = play(app(more=True), tmp_path, {"id": 4, "user": "b", "amount": 1.0})
    assert sorted(row["s"] for row in views["more"]) == [6.0, 11.0]
    assert views["v"] == [{"user": "a", "s": 11.0}]


def test_a_condition_with_a_name_stays_below_and_changes_freely(tmp_path):
    build = lambda rows, where: TOTALS(rows).where(where).named("some").to_view("v")  # noqa: E731
    play(stream_app(lambda rows: build(rows, OF_A)), tmp_path, *ROWS, {"id": 3, "user": "b", "amount": 5.0})
    views = play(stream_app(lambda rows: build(rows, "user = 'b'")), tmp_path)
    assert views["v"] == [{"user": "b", "s": 5.0}]
