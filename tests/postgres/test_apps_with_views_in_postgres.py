"""Apps whose views are tables of PostgreSQL: crashes, a server that is down, repair, moves, resets, commands."""

from __future__ import annotations

import json
import shutil
from urllib.parse import urlsplit

import pytest
from capturing import until
from click.testing import CliRunner

import headrace as hr
from headrace.base.errors import InvalidPlan, ViewsDamaged
from headrace.base.outside import SinkBehind, Unavailable
from headrace.cli.main import root
from headrace.connect.postgres.errors import LoginRefused
from headrace.connect.postgres.serving.store import ViewTaken
from headrace.connect.store import WriterFenced
from headrace.engine.program.reset import reset
from headrace.engine.recovery.backup import backup, restore
from headrace.engine.recovery.verify import repair_views, verify
from headrace.engine.served import ViewsMoved
from headrace.testing import POINTS, Driver
from headrace.testing.faults import TRANSACTION_POINTS

SECRET = "moneypenny"  # noqa: S105 -- of a role of this test
VIEW_POINTS = ("after_commit", "before_sink", "before_views", *TRANSACTION_POINTS, "after_sink", "before_acknowledge")
HERE = [point for point in VIEW_POINTS if point != "before_transaction_mark"]
"""Points that an epoch with views in PostgreSQL comes by."""
FILE = """
import headrace as hr

app = hr.App("shop", storage="storage", views="{url}", shards=1)
people = app.table("people", "id int, city string, score double", key="id")
people.to_view("people")
people.group_by("city").agg(n="count(*)", total="sum(score)").named("cities").to_view("cities")
"""


def program(storage, url=None, *, name="shop", more=False):
    app = hr.App(name, storage=storage, views=url, shards=2)
    people = app.table("people", "id int, city string, score double", key="id")
    people.to_view("people")
    people.where("score > 2").select("city").to_view("high")
    people.group_by("city").agg(n="count(*)", total="sum(score)").named("cities").to_view("cities")
    people.group_by().agg(n="count(*)").named("all").to_view("everybody")
    people.group_by("city").agg(n="count(*)").named("counted").to_topic("out")
    if more:
        people.where("id < 5").to_view("first_ones")
    return app


VIEWS = ["cities", "everybody", "high", "people"]


def change(driver, number):
    """Send changes: rows that are new, that change and that go."""
    driver.send(
        "people",
        *(
            {"id": i, "city": f"town {(i + number) % 3}" if i % 4 else None, "score": float(i % 4)}
            for i in range(number, number + 6)
        ),
    )
    if number:
        driver.delete("people", id=number - 1)


def seen(driver):
    return {name: driver.view(name) for name in VIEWS}


@pytest.fixture
def expected(tmp_path):
    """What views in SQLite have after so many changes."""

    def after(count):
        with Driver(program(tmp_path / f"sqlite{count}"), storage=tmp_path / f"sqlite{count}") as driver:
            for number in range(count):
                change(driver, number)
                driver.run()
            return seen(driver)

    return after


def ran(database, storage, count=3):
    """Run an app for so many changes, and return it."""
    app = program(storage, database.url)
    with Driver(app, storage=storage) as driver:
        for number in range(count):
            change(driver, number)
            driver.run()
    return app


def go_on(app, storage, number):
    with Driver(app, storage=storage) as driver:
        change(driver, number)
        driver.run()
        return seen(driver)


def test_a_crash_at_any_point_leaves_the_views_as_if_there_had_been_none(database, tmp_path, expected):
    with Driver(program(tmp_path / "s", database.url), storage=tmp_path / "s") as driver:
        for number, point in enumerate(HERE):
            change(driver, number)
            driver.crash(at=point)
            driver.restart()
            driver.run()
        assert seen(driver) == expected(len(HERE))
    assert [*verify(tmp_path / "s", tmp_path / "s" / "log")] == []


@pytest.mark.prove
@pytest.mark.parametrize("point", sorted({*POINTS} - {"during_snapshot", "between_topics", "before_mark"}))
def test_a_crash_at_any_point_of_all_is_none(database, tmp_path, expected, point):
    with Driver(program(tmp_path / "s", database.url), storage=tmp_path / "s") as driver:
        change(driver, 0)
        driver.run()
        change(driver, 1)
        driver.crash(at=point)
        driver.restart()
        driver.run()
        assert seen(driver) == expected(2)


def test_sql_sees_the_views_as_ordinary_tables(database, tmp_path):
    ran(database, tmp_path / "s")
    cities = database.query("SELECT city, n, total FROM cities ORDER BY city NULLS FIRST")
    assert cities == [
        (row["city"], row["n"], row["total"]) for row in program(tmp_path / "s").view("cities").to_pylist()
    ]
    joined = database.query("SELECT count(*) FROM people p JOIN cities c ON c.city IS NOT DISTINCT FROM p.city")
    assert joined == database.query("SELECT n FROM everybody")


def test_an_older_process_of_the_app_writes_nothing(database, tmp_path, expected):
    """It was taken for dead, and another process runs on a copy of its storage that became the storage."""
    with Driver(program(tmp_path / "s", database.url), storage=tmp_path / "s") as old:
        change(old, 0)
        old.run()
        new = Driver(program(tmp_path / "s", database.url), storage=_copied(tmp_path / "s", tmp_path / "copy"))
        change(old, 1)
        with pytest.raises(WriterFenced):
            old.run()
        change(new, 1)
        new.run()
        assert seen(new) == expected(2)
        new.close()


def _copied(storage, to):
    return shutil.copytree(storage, to, ignore=shutil.ignore_patterns("lock", "lease"))


def test_the_app_waits_for_a_server_that_is_down_and_goes_on(breakable_database, tmp_path):
    """Down at the start, and in mid-stream: nothing ends, nothing is lost, nothing is there twice."""
    database, storage = breakable_database, tmp_path / "s"
    app = program(storage, database.url)
    database.server.kill()
    with pytest.raises(Unavailable, match="does not answer"):
        app.start(carrier="in-process")
    database.server.start()
    with app.start(carrier="in-process") as running:
        append(storage, 0, 100)
        until(lambda: everybody(database) == 100)
        database.server.kill()
        append(storage, 100, 200)
        until(
            lambda: (
                running.status()["epoch"] is not None and "does not answer" in json.dumps(running.status(), default=str)
            )
        )
        database.server.start()
        until(lambda: everybody(database) == 200)
        append(storage, 200, 300)
        until(lambda: everybody(database) == 300)
    assert database.query("SELECT sum(n)::int, count(*)::int FROM cities") == [(300, 3)]


def append(storage, first, last):
    with hr.Log(storage / "log") as log:
        log.topic("people").append([{"id": i, "city": f"town {i % 3}", "score": 1.0} for i in range(first, last)])


def everybody(database):
    try:
        found = database.query("SELECT n FROM everybody")
    except Exception:  # noqa: BLE001 -- it is not there yet, or the server is down
        return None
    return found[0][0] if found else 0


def test_a_wrong_password_is_said_and_not_shown(database, tmp_path, monkeypatch):
    database.execute(f"CREATE ROLE vera LOGIN PASSWORD '{SECRET}x'")
    monkeypatch.setenv("VIEWS_PASSWORD", SECRET)
    parts = urlsplit(database.url)
    url = f"postgresql://vera:env:VIEWS_PASSWORD@{parts.hostname}:{parts.port}{parts.path}"
    try:
        with pytest.raises(LoginRefused) as refused:
            Driver(program(tmp_path / "s", url), storage=tmp_path / "s")
        assert "vera" in str(refused.value)
        assert SECRET not in str(refused.value)
        assert SECRET not in (tmp_path / "s" / "views.json").read_text()
    finally:
        database.execute("DROP ROLE vera")


@pytest.mark.parametrize("url", [f"postgresql://ada:{SECRET}@db/shop", f"postgresql://db/shop?password={SECRET}"])
def test_an_address_with_a_password_is_refused_without_it(url):
    with pytest.raises(InvalidPlan, match="has a password") as refused:
        hr.App("shop", views=url)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("url", ["mysql://db/shop", "views.db", 3, "", f"mysql://ada:{SECRET}@db"])
def test_what_is_no_place_for_views_is_refused(url):
    with pytest.raises(InvalidPlan, match="not a place for views") as refused:
        hr.App("shop", views=url)
    assert SECRET not in str(refused.value)


def test_two_apps_on_one_database_must_not_have_a_view_of_one_name(database, tmp_path):
    ran(database, tmp_path / "s")
    before = database.query("SELECT * FROM cities ORDER BY city")
    with pytest.raises(ViewTaken, match='for the app "shop"'):
        Driver(program(tmp_path / "other", database.url, name="other"), storage=tmp_path / "other")
    assert database.query("SELECT * FROM cities ORDER BY city") == before


def test_a_table_that_is_not_ours_stops_the_start(database, tmp_path):
    database.execute("CREATE TABLE cities (city text)", "INSERT INTO cities VALUES ('theirs')")
    with pytest.raises(ViewTaken, match='the view "cities" cannot be served'):
        Driver(program(tmp_path / "s", database.url), storage=tmp_path / "s")
    assert database.query("SELECT * FROM cities") == [("theirs",)]


def test_a_view_that_comes_later_is_filled(database, tmp_path, expected):
    ran(database, tmp_path / "s")
    with Driver(program(tmp_path / "s", database.url, more=True), storage=tmp_path / "s") as driver:
        driver.run()
        assert driver.view("first_ones") == [row for row in driver.view("people") if row["id"] < 5]
        assert seen(driver) == expected(3)


def test_rows_that_somebody_changed_are_found_and_built_anew(database, tmp_path, expected):
    app = ran(database, tmp_path / "s")
    database.execute("UPDATE people SET score = 100 WHERE id = 3", "DELETE FROM everybody")
    found = {damage.part for damage in verify(tmp_path / "s", tmp_path / "s" / "log")}
    assert found == {'view "people"', 'view "everybody"'}
    assert repair_views(app) == ["everybody", "people"]
    assert [*verify(tmp_path / "s", tmp_path / "s" / "log")] == []
    assert go_on(app, tmp_path / "s", 3) == expected(4)


def test_a_table_that_somebody_dropped_is_named_and_built_anew(database, tmp_path, expected):
    app = ran(database, tmp_path / "s")
    database.execute("DROP TABLE cities")
    for _ in range(2):
        with pytest.raises(ViewsDamaged, match="the views cities are gone") as damaged:
            Driver(app, storage=tmp_path / "s")
    assert "postgresql://" in str(damaged.value)
    assert repair_views(app) == ["cities"]
    assert go_on(app, tmp_path / "s", 3) == expected(4)


def test_a_database_that_was_restored_or_lost_is_filled_anew(database, tmp_path, expected):
    app = ran(database, tmp_path / "s")
    database.execute("DROP SCHEMA headrace CASCADE", *(f"DROP TABLE {name}" for name in VIEWS))
    with pytest.raises(SinkBehind):
        Driver(app, storage=tmp_path / "s")
    assert repair_views(app) == VIEWS
    assert go_on(app, tmp_path / "s", 3) == expected(4)


@pytest.mark.parametrize("there", [True, False], ids=["to PostgreSQL", "to SQLite"])
def test_views_move_to_another_store(database, tmp_path, expected, there):
    storage = tmp_path / "s"
    before, after = program(storage, None if there else database.url), program(storage, database.url if there else None)
    with Driver(before, storage=storage) as driver:
        for number in range(3):
            change(driver, number)
            driver.run()
    with pytest.raises(ViewsMoved) as moved:
        Driver(after, storage=storage)
    assert "headrace verify FILE --repair" in moved.value.hint
    assert repair_views(after) == VIEWS
    assert go_on(after, storage, 3) == expected(4)


def test_a_reset_forgets_the_views_and_computes_them_again(database, tmp_path, expected):
    app = ran(database, tmp_path / "s")
    reset(app.plan(), tmp_path / "s", "cities")
    assert go_on(app, tmp_path / "s", 3) == expected(4)
    reset(app.plan(), tmp_path / "s")
    assert database.query("SELECT to_regclass('people')") == [(None,)]
    assert go_on(app, tmp_path / "s", 4) == expected(5)


def test_a_restored_app_fills_its_views_anew(database, tmp_path, expected):
    app = ran(database, tmp_path / "s")
    backup(app, tmp_path / "saved")
    go_on(app, tmp_path / "s", 3)
    restore(tmp_path / "saved", storage=tmp_path / "back")
    again = program(tmp_path / "back", database.url)
    with pytest.raises(ViewsMoved, match="its storage was restored"):
        Driver(again, storage=tmp_path / "back")
    assert repair_views(again) == VIEWS
    assert go_on(again, tmp_path / "back", 3) == expected(4)


def test_the_commands_show_views_wherever_they_are(database, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(FILE.format(url=database.url))
    call = CliRunner().invoke
    shown = call(root, ["views", "show", "cities", "--app", "shop.py", "--json"])
    assert json.loads(shown.stdout)["rows"] == []
    names = {}
    exec(FILE.format(url=database.url), names)  # noqa: S102 -- our own text
    with Driver(names["app"], storage=tmp_path / "storage") as driver:
        driver.send("people", {"id": 1, "city": "Oslo", "score": 2.5}, {"id": 2, "city": None, "score": 1.0})
        driver.run()
    rows = [{"city": None, "n": 1, "total": 1.0}, {"city": "Oslo", "n": 1, "total": 2.5}]
    for place in (["--app", "shop.py"], ["--storage", "storage"]):
        listed = json.loads(call(root, ["views", "list", "--json", *place]).stdout)
        assert [(view["view"], view["rows"]) for view in listed] == [("cities", 2), ("people", 2)]
        assert json.loads(call(root, ["views", "show", "cities", "--json", *place]).stdout)["rows"] == rows
    assert names["app"].view("cities").to_pylist() == rows
    assert call(root, ["verify", "shop.py"]).exit_code == 0
