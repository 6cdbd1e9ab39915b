"""Damaged views are found, and built anew from the state of the steps above them."""

import shutil
import sqlite3
from types import SimpleNamespace

import pytest

import headrace as hr
from budget import matrix
from headrace.base.errors import StorageBusy, ViewsDamaged
from headrace.base.outside import AppDamaged, SinkBehind
from headrace.engine.program import reset
from headrace.engine.recovery import repair as engine
from headrace.engine.recovery.verify import check, repair_views, verify
from headrace.testing import Driver
from headrace.views.sqlite import SqliteViews

PEOPLE = "id int, city string, score double, at timestamp"

VIEWS = {
    "a table": lambda i: i.people,
    "a group": lambda i: i.people.group_by("city").agg(n="count(*)", s="sum(score)"),
    "a join": lambda i: i.people.join(i.cities, on="city", how="left"),
    "a top": lambda i: i.people.group_by("city").top(2, by="score desc", rank="place"),
    "a bag": lambda i: i.people.where("score > 2").select("city"),
    "groups of groups": lambda i: (
        i.people.group_by("city").agg(n="count(*)").named("of_city").group_by("n").agg(k="count(*)")
    ),
}


def program(storage, *, windows=False):
    app = hr.App("repaired", storage=storage, shards=2)
    people = app.table("people", PEOPLE, key="id", event_time="at")
    inputs = SimpleNamespace(people=people, cities=app.table("cities", "city string, country string", key="city"))
    for name, build in VIEWS.items():
        build(inputs).named(name.replace(" ", "_")).to_view(f"view_of_{name.replace(' ', '_')}")
    people.group_by("city").agg(n="count(*)").named("counted").to_topic("out")
    if windows:
        minute = hr.tumbling("1 minute", grace="0 seconds")
        visits = app.stream("visits", "id int, at timestamp", event_time="at")
        visits.group_by("id").window(minute).agg(n="count(*)").named("minutes").to_view("minutes")
    return app


def first_part(driver):
    for i in range(9):
        driver.send("people", {"id": i, "city": f"town {i % 4}" if i % 5 else None, "score": i * 0.7, "at": 1000 * i})
    driver.send("cities", *({"city": f"town {i}", "country": "x"} for i in (0, 1, 9)))
    driver.run()
    driver.delete("people", id=5)
    driver.send("people", {"id": 3, "city": "town 0", "score": 0.1, "at": 20_000})
    driver.run()


def second_part(driver):
    driver.delete("people", id=4)
    driver.send("people", {"id": 8, "city": "town 1", "score": 7.5, "at": 30_000})
    driver.delete("cities", city="town 0")
    driver.run()


def seen(driver):
    topic = driver.log.topic("out")
    rows = [row for p, end in topic.end_offsets().items() for row in topic.read(p, 0, end).to_pylist()]
    return {view: sorted(driver.view(view), key=str) for view in driver.views()}, sorted(rows, key=str)


def went_on(storage, **options):
    with Driver(program(storage, **options), storage=storage) as driver:
        before = seen(driver)
        second_part(driver)
        return before, seen(driver)


@pytest.fixture
def storage(tmp_path):
    with Driver(program(tmp_path / "s"), storage=tmp_path / "s") as driver:
        first_part(driver)
    return tmp_path / "s"


@pytest.fixture
def truth(storage, tmp_path):
    """What is seen without any damage, now and after more rows."""
    shutil.copytree(storage, tmp_path / "whole")
    return went_on(tmp_path / "whole")


def a_value(storage):
    path = storage / "views.db"
    raw = path.read_bytes()
    assert raw.count(b"town 1") > 3
    path.write_bytes(raw.replace(b"town 1", b"town 5"))


def every_page(storage):
    path = storage / "views.db"
    raw = bytearray(path.read_bytes())
    for at in range(4096, len(raw), 4096):
        raw[at : at + 8] = b"\xff" * 8
    path.write_bytes(raw)


def one_index(storage):
    with sqlite3.connect(storage / "views.db") as db:
        root = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name LIKE 'view%'"
        ).fetchone()
    path = storage / "views.db"
    raw = bytearray(path.read_bytes())
    raw[(root[0] - 1) * 4096 : (root[0] - 1) * 4096 + 8] = b"\xff" * 8
    path.write_bytes(raw)


def a_view_is_gone(storage):
    with sqlite3.connect(storage / "views.db") as db:
        db.execute("UPDATE headrace_views SET name = 'view_of_b_table' WHERE name = 'view_of_a_table'")


def its_epoch(storage):
    with sqlite3.connect(storage / "views.db") as db:
        db.execute("UPDATE headrace_epoch SET applied = applied + 1")


def damaged_schema(storage):
    with sqlite3.connect(storage / "views.db") as db:
        db.execute("UPDATE headrace_views SET schema = x'ffff', key = '[' WHERE name = 'view_of_a_table'")


DAMAGES = {
    "a value": a_value,
    "every page": every_page,
    "one index": one_index,
    "its epoch": its_epoch,
    "no database": lambda storage: (storage / "views.db").write_bytes(b"x" * 8192),
    "emptied": lambda storage: (storage / "views.db").write_bytes(b""),
    "lost": lambda storage: (storage / "views.db").unlink(),
    "a schema": damaged_schema,
}


@pytest.mark.parametrize(
    ("damage", "how"),
    matrix(DAMAGES, ("headrace verify --repair", "run --verify"), depth=1),
)
def test_damaged_views_are_found_and_built_anew(storage, truth, damage, how):
    DAMAGES[damage](storage)
    found = [*verify(storage, storage / "log")]
    assert found
    assert all("--repair" in each.mend for each in found)
    if how == "run --verify":
        check(program(storage))
    else:
        assert repair_views(program(storage))
        assert [*verify(storage, storage / "log")] == []
        assert repair_views(program(storage)) == []
    assert went_on(storage) == truth
    assert [*verify(storage, storage / "log")] == []


@pytest.mark.parametrize("damage", ["a value", "no database", "one index"])
def test_a_repair_after_a_crash_between_commit_and_views_is_right(storage, tmp_path, damage):
    with Driver(program(storage), storage=storage) as driver:
        driver.delete("people", id=2)
        driver.send("people", {"id": 1, "city": "town 9", "score": 9.0, "at": 21_000})
        driver.crash(at="before_views")
    shutil.copytree(storage, tmp_path / "whole")
    DAMAGES[damage](storage)
    repair_views(program(storage))
    assert went_on(storage) == went_on(tmp_path / "whole")


@pytest.mark.parametrize(
    ("damage", "after"), matrix(["a value", "no database"], ["the note", "the commit", "the new file"], depth=1)
)
def test_a_repair_that_a_crash_cuts_short_is_finished_by_the_next_start(storage, truth, damage, after, monkeypatch):
    class Died(BaseException):
        pass

    calls = []

    def die(*arguments):
        calls.append(arguments)
        if len(calls) > (after == "the note"):  # a repair begins with what an earlier one left
            raise Died

    DAMAGES[damage](storage)
    place = {
        "the note": (engine, "resume"),
        "the commit": (reset, "_drop_views"),
        "the new file": (reset, "_note_done"),
    }
    monkeypatch.setattr(*place[after], die)
    with pytest.raises(Died):
        repair_views(program(storage))
    monkeypatch.undo()
    assert went_on(storage) == truth


def test_views_that_are_whole_move_to_the_new_file(tmp_path):
    """One damaged table of the file costs no view of closed windows, which no state keeps."""
    storage = tmp_path / "s"
    with Driver(program(storage, windows=True), storage=storage) as driver:
        first_part(driver)
        for at in (0, 1, 70, 200):
            driver.send("visits", {"id": 1, "at": at * 1_000_000})
            driver.run()
    shutil.copytree(storage, tmp_path / "whole")
    one_index(storage)
    assert "minutes" not in repair_views(program(storage, windows=True))
    assert went_on(storage, windows=True) == went_on(tmp_path / "whole", windows=True)


def test_a_view_of_closed_windows_cannot_be_built_anew_and_what_mends_it_is_named(tmp_path):
    storage = tmp_path / "s"
    with Driver(program(storage, windows=True), storage=storage) as driver:
        driver.send("visits", {"id": 77, "at": 0}, {"id": 77, "at": 70_000_000})
        driver.run()
    with sqlite3.connect(storage / "views.db") as db:
        db.execute("UPDATE minutes SET n = n + 1")
    before = {path: path.read_bytes() for path in [*storage.glob("*.json"), *storage.glob("epochs/*.json")]}
    with pytest.raises(AppDamaged, match='"minutes" does not keep all of its rows') as error:
        repair_views(program(storage, windows=True))
    assert "headrace reset FILE --step minutes" in error.value.hint
    assert {path: path.read_bytes() for path in before} == before
    DAMAGES["no database"](storage)
    with pytest.raises(AppDamaged) as error:
        check(program(storage, windows=True))
    assert "headrace restore DIR" in error.value.hint
    assert not (storage / "views.db.new").exists()


def test_a_repair_is_refused_while_the_app_runs_and_beside_other_damage(storage):
    a_value(storage)
    with Driver(program(storage), storage=storage), pytest.raises(StorageBusy):
        repair_views(program(storage))
    path = max(storage.glob("state/a_group/*/*"))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(AppDamaged, match='state of step "a_group"'):
        repair_views(program(storage))


def test_a_start_without_verifying_refuses_what_it_cannot_miss(storage):
    """A view that is gone would begin anew, empty; a file that is no database is no failure that may pass."""
    shutil.copy(storage / "views.db", storage / "kept")
    a_view_is_gone(storage)
    with pytest.raises(ViewsDamaged, match="view_of_a_table are gone") as error:
        Driver(program(storage), storage=storage)
    assert "headrace verify FILE --repair" in error.value.hint
    for damage, expected in (("no database", ViewsDamaged), ("a schema", ViewsDamaged), ("lost", SinkBehind)):
        shutil.copy(storage / "kept", storage / "views.db")
        DAMAGES[damage](storage)
        with pytest.raises(expected) as refused:
            Driver(program(storage), storage=storage)
        assert "headrace verify FILE --repair" in refused.value.hint


def test_damage_of_which_the_error_is_no_text_is_named_too(storage):
    path = storage / "views.db"
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CRE\xe8TE TABLE", 1))
    with pytest.raises(ViewsDamaged) as refused:
        Driver(program(storage), storage=storage)
    assert "headrace verify FILE --repair" in refused.value.hint


def test_each_start_refuses_a_view_that_is_gone(tmp_path):
    """The first refusal does not create it: the next start would go on without its rows."""
    app = program(tmp_path)
    with Driver(app, storage=tmp_path) as driver:
        first_part(driver)
        rows = driver.view("view_of_a_group")
    with SqliteViews(tmp_path / "views.db") as views:
        views.drop("view_of_a_group")
    for _ in range(2):
        with pytest.raises(ViewsDamaged, match="the views view_of_a_group are gone"):
            Driver(app, storage=tmp_path)
    assert repair_views(app) == ["view_of_a_group"]
    with Driver(app, storage=tmp_path) as driver:
        driver.run()
        assert driver.view("view_of_a_group") == rows
