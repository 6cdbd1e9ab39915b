"""Connectors as a service: workers share them, and somebody pauses, restarts, checks and moves them."""

import json
import time
from dataclasses import dataclass

import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan, UnknownColumn
from headrace.base.outside import FeedFailed, FeedRunsElsewhere
from headrace.connect import files, mysql, postgres, redis, sqlite
from headrace.connect.feed import Feed
from headrace.engine.connectors.checking import NOT_ASKED, check_app
from headrace.engine.connectors.control import Control, Wishes, reported
from headrace.engine.connectors.offsets import forget_offset, offsets_of, set_offset
from headrace.engine.connectors.worker import Worker
from headrace.log import Log


@dataclass(frozen=True)
class Broken(Feed):
    """Fails until a file is there."""

    path: str

    @property
    def identity(self):
        return f"broken:{self.path}"

    def run(self, landing, stop):  # noqa: ARG002 -- of the protocol
        try:
            with open(self.path) as file:  # noqa: PTH123
                landing.append([{"id": int(file.read())}], position=b"done")
        except FileNotFoundError:
            raise InvalidPlan("it is broken") from None


def write(path, *ids):
    with path.open("a") as file:
        file.writelines(json.dumps({"id": number}) + "\n" for number in ids)


def app_of(tmp_path, names, *, follow=True, name="in"):
    app = hr.App(name, storage=tmp_path / name)
    for each in names:
        app.stream(each, "id int", source=files.lines(tmp_path / f"{each}.jsonl", follow=follow)).to_view(f"v_{each}")
    return app


def landed(app, topic):
    with Log(app.storage / "log") as log:
        return log.topic(topic).read(0, 0, 1000).column("id").to_pylist() if log.has_topic(topic) else []


def until(condition, *workers):
    deadline = time.monotonic() + 60
    while not condition():
        for worker in workers:
            worker.look()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def states(worker):
    return {name: state["state"] for name, state in worker.states().items()}


@pytest.fixture
def worker(tmp_path):
    opened = []

    def open_one(*apps, **options):
        opened.append(Worker(apps, tmp_path / "group", **options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def test_workers_share_connectors_and_the_others_get_those_of_one_that_leaves(tmp_path, worker):
    names = ["a", "b", "c", "d"]
    for name in names:
        write(tmp_path / f"{name}.jsonl", 1)
    app = app_of(tmp_path, names)
    one, two = worker(app), worker(app)
    until(lambda: all(landed(app, name) == [1] for name in names), one, two)
    until(lambda: sorted(states(two).values()) == ["elsewhere"] * 2 + ["running"] * 2, one, two)
    assert {name for name in names if states(one)[f"in/{name}"] == states(two)[f"in/{name}"]} == set()
    two.close()
    until(lambda: set(states(one).values()) == {"running"}, one)
    write(tmp_path / "d.jsonl", 2)
    until(lambda: landed(app, "d") == [1, 2], one)
    assert set(reported(app.storage)) == set(names)


def test_connectors_of_several_apps_are_run_together(tmp_path, worker):
    write(tmp_path / "a.jsonl", 1)
    apps = [app_of(tmp_path, ["a"], name=name, follow=False) for name in ("x", "y")]
    both = worker(*apps)
    until(lambda: both.ended, both)
    assert states(both) == {"x/a": "ended", "y/a": "ended"}
    assert [landed(app, "a") for app in apps] == [[1], [1]]


def test_a_paused_connector_lands_nothing_and_a_resumed_one_goes_on(tmp_path, worker):
    write(tmp_path / "a.jsonl", 1)
    write(tmp_path / "b.jsonl")
    app = app_of(tmp_path, ["a", "b"])
    one = worker(app)
    until(lambda: landed(app, "a") == [1], one)
    control = Control(app.storage)
    control.pause(["a"], paused=True)
    until(lambda: states(one) == {"in/a": "paused", "in/b": "running"}, one)
    write(tmp_path / "a.jsonl", 2)
    write(tmp_path / "b.jsonl", 3)
    until(lambda: landed(app, "b") == [3], one)
    assert landed(app, "a") == [1]
    assert Wishes(app.storage).paused("a")
    control.pause(["a"], paused=False)
    until(lambda: landed(app, "a") == [1, 2], one)
    control.close()


def test_a_pause_holds_in_an_app_that_runs_its_own_feeds(tmp_path):
    write(tmp_path / "a.jsonl", 1)
    app = app_of(tmp_path, ["a"])
    control = Control(app.storage)
    control.pause(["a"], paused=True)
    with app.start(carrier="in-process") as running:
        until(lambda: running.status()["feeds"]["a"]["state"] == "paused")
        assert landed(app, "a") == []
        control.pause(["a"], paused=False)
        until(lambda: landed(app, "a") == [1])
    control.close()


def test_a_failed_connector_waits_for_a_restart_and_the_others_go_on(tmp_path, worker):
    write(tmp_path / "a.jsonl")
    app = app_of(tmp_path, ["a"])
    app.stream("b", "id int", source=Broken(str(tmp_path / "there"))).to_view("v_b")
    one = worker(app)
    until(lambda: states(one) == {"in/a": "running", "in/b": "failed"}, one)
    assert one.states()["in/b"]["error"] == "it is broken"
    (tmp_path / "there").write_text("7")
    write(tmp_path / "a.jsonl", 1)
    until(lambda: landed(app, "a") == [1], one)
    assert landed(app, "b") == []
    control = Control(app.storage)
    control.restart(["b"])
    until(lambda: states(one)["in/b"] == "ended", one)
    assert landed(app, "b") == [7]
    control.close()


def test_a_failed_feed_still_ends_an_app(tmp_path):
    app = hr.App("in", storage=tmp_path / "in")
    app.stream("b", "id int", source=Broken(str(tmp_path / "there"))).to_view("v_b")
    with app.start(carrier="in-process") as running, pytest.raises(FeedFailed, match="it is broken"):
        running.await_caught_up(300)


def test_offsets_are_listed_moved_and_forgotten(tmp_path, worker):
    write(tmp_path / "a.jsonl", 1, 2)
    app = app_of(tmp_path, ["a"], follow=False)
    assert offsets_of(app) == {"a": None}
    one = worker(app)
    until(lambda: one.ended, one)
    one.close()
    size = (tmp_path / "a.jsonl").stat().st_size
    after = offsets_of(app)["a"]
    assert json.loads(after)["bytes"] == size
    set_offset(app, "a", json.dumps(json.loads(after) | {"bytes": size // 2}))
    two = worker(app)
    until(lambda: two.ended, two)
    assert landed(app, "a") == [1, 2, 2]
    two.close()
    forget_offset(app, "a")
    assert offsets_of(app) == {"a": None}
    three = worker(app)
    until(lambda: three.ended, three)
    assert landed(app, "a") == [1, 2, 2, 1, 2]


def test_offsets_of_a_feed_that_runs_are_not_moved(tmp_path, worker):
    write(tmp_path / "a.jsonl", 1)
    app = app_of(tmp_path, ["a"])
    one = worker(app)
    until(lambda: landed(app, "a") == [1], one)
    assert offsets_of(app)["a"] is not None
    for move in (lambda: forget_offset(app, "a"), lambda: set_offset(app, "a", "{}")):
        with pytest.raises(FeedRunsElsewhere):
            move()


def test_an_app_without_state_is_run_for_its_sinks(tmp_path, worker):
    write(tmp_path / "a.jsonl", 1, 2, 3)
    app = hr.App("out", storage=tmp_path / "out")
    source = files.lines(tmp_path / "a.jsonl", follow=False)
    app.stream("a", "id int", source=source).where("id > 1").to_topic("copies")
    one = worker(app, sinks=True, until_ended=True)
    until(lambda: one.ended, one)
    assert one.states()["out/out"]["kind"] == "app"
    assert sorted(landed(app, "copies")) == [2, 3]


def test_a_check_says_what_is_wrong_and_creates_nothing(tmp_path):
    write(tmp_path / "a.jsonl", 1)
    app = app_of(tmp_path, ["a"])
    app.table("t", "id int, name string", key="id", source=sqlite.table(tmp_path / "no.db", "t")).to_view("v_t")
    found = dict(check_app(app))
    assert found["a"] is None
    assert "no.db" in found["t"]
    assert not (tmp_path / "in").exists()


def test_a_check_compares_the_columns_with_those_of_the_topic(tmp_path):
    app = app_of(tmp_path, ["a"])
    with Log(app.storage / "log") as log:
        log.create_topic("a", "id bigint")
    assert dict(check_app(app)) == {"a": 'the topic "a" has bigint in the column "id", and the program says int'}


def test_records_are_filtered_and_changed_before_they_land(tmp_path, worker):
    rows = [
        {"path": "/a", "status": "200"},
        {"path": "/b", "status": "500"},
        {"path": "/c", "status": "no"},
        {"path": "/d", "status": "503"},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    errors = (
        hr.feed(files.lines(tmp_path / "log.jsonl", follow=False), "path string, status string")
        .with_columns(status="cast(status as int)")
        .where("status >= 500")
        .with_columns(server="status div 100 = 5", upper="upper(path)")
        .drop("path")
        .rename(path="upper")
    )
    app = hr.App("in", storage=tmp_path / "in")
    app.stream("errors", source=errors).to_view("v")
    one = worker(app)
    until(lambda: one.ended, one)
    with Log(app.storage / "log") as log:
        found = log.topic("errors").read(0, 0, 10).select(["status", "server", "path"]).to_pylist()
        dead = log.topic("errors.dead").read(0, 0, 10).to_pylist()
    assert found == [{"status": 500, "server": True, "path": "/B"}, {"status": 503, "server": True, "path": "/D"}]
    (letter,) = dead
    assert json.loads(letter["record"]) == {"path": "/c", "status": "no"}
    assert "with_columns before landing fails at cast(status as int)" in letter["reason"]
    assert one.states()["in/errors"]["dead"] == 1


def test_a_step_before_landing_is_checked_where_it_is_declared(tmp_path):
    feed = files.lines(tmp_path / "log.jsonl")
    with pytest.raises(UnknownColumn):
        hr.feed(feed, "path string").where("paths = ''")
    with pytest.raises(InvalidPlan, match="nobody knows the columns"):
        hr.feed(feed)
    with pytest.raises(InvalidPlan, match="no feed"):
        hr.feed("feed", "path string")
    with pytest.raises(InvalidPlan, match="follows a table"):
        hr.feed(sqlite.table(tmp_path / "a.db", "t"), "id int")


def test_a_pause_between_two_appends_of_a_transformed_feed_loses_nothing(tmp_path, worker):
    write(tmp_path / "a.jsonl", *range(10))
    app = hr.App("in", storage=tmp_path / "in")
    app.stream("even", source=hr.feed(files.lines(tmp_path / "a.jsonl"), "id int").where("id % 2 = 0")).to_view("v")
    one = worker(app)
    until(lambda: landed(app, "even") == [0, 2, 4, 6, 8], one)
    control = Control(app.storage)
    control.restart(["even"])
    write(tmp_path / "a.jsonl", 10, 11, 12)
    until(lambda: landed(app, "even") == [0, 2, 4, 6, 8, 10, 12], one)
    control.close()


def test_a_check_asks_sinks_where_they_can_tell_and_says_where_they_cannot(tmp_path):
    app = hr.App("out", storage=tmp_path / "out")
    stream = app.stream("a", "id int")
    stream.to(files.rolling(tmp_path / "files"))
    table = stream.latest("id")
    for needed, sink in (
        ("psycopg", lambda: postgres.upsert("postgresql://ada@127.0.0.1:1/shop", "items")),
        ("pymysql", lambda: mysql.upsert("mysql://ada@127.0.0.1:1/shop", "items")),
        ("redis", lambda: redis.keys("redis://127.0.0.1:1/0", "item:")),
    ):
        pytest.importorskip(needed)
        table.to(sink())
    found = {name.partition(":")[2][:5]: problem for name, problem in check_app(app)}
    assert found.pop("files") == NOT_ASKED
    assert len(found) == 3
    assert all(str(problem).startswith("[UNAVAILABLE]") for problem in found.values()), found
    assert not (tmp_path / "files").exists()
