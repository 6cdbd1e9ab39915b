"""Whatever value a public call is given for one of its arguments: it is taken, or refused by an error of ours."""

from __future__ import annotations

import datetime as dt

import pytest

import headrace as hr
from headrace.base.errors import HeadraceError, InternalError
from headrace.testing import Driver, check_deltas

ODD = [3, 3.5, float("nan"), None, True, b"x", [], [3], [None], (), {"a": 3}, {3: "a"}, object(), "", "\0", "\ud800"]
AT = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)
SHOP = "user string, price double, qty int, tags array<string>, prices map<string,int>, at timestamp"
WINDOW = hr.tumbling("1 minute", grace="1 s")


class Parts:
    """What the calls below are made on: an app's streams and tables, a log with a topic, a driver."""

    def __init__(self, folder):
        self.folder, self.app = folder, hr.App("odd", storage=folder / "storage")
        self.orders = self.app.stream("orders", SHOP, event_time="at")
        self.clicks = self.app.stream("clicks", "user string, at timestamp", event_time="at")
        self.users = self.app.table("users", "id int, user string, at timestamp", key="id", event_time="at")
        self.orders.agg(n="count(*)").named("all").to_view("v")
        self.log = hr.Log(folder / "log", fsync=False)
        self.topic = self.log.create_topic("t", "a string, b timestamp", partitions=2, key="a", event_time="b")
        self.driver = Driver(self.app)

    def close(self):
        self.driver.close()
        self.log.close()

    def grouped(self):
        return self.orders.group_by("user")

    def send(self, topic, row, partition, sequence):
        with self.log.producer() as producer:
            producer.send(topic, row, partition=partition, sequence=sequence).result(5)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    made = Parts(tmp_path_factory.mktemp("odd"))
    yield made
    made.close()


CALLS = {
    "App": (lambda _, **k: hr.App("x", **k), {"storage": "s", "topics": None, "shards": 2, "on_error": None}),
    "stream": (
        lambda p, **k: p.app.stream("n", "a string, b timestamp", **k),
        {"key": "a", "event_time": "b", "out_of_order": "1 s", "idle_after": "1 s", "source": None, "format": None}
        | {"partitions": 2, "private": None, "sent_time": None, "on_error": None},
    ),
    "function": (
        lambda _, **k: hr.App("f").function("f", **k),
        {"fn": lambda x: x, "returns": "int", "takes": "int"},
    ),
    "select": (lambda p, x, y: p.orders.select(x, y=y), {"x": "user", "y": "price + 1"}),
    "explode": (lambda p, **k: p.orders.explode(**k), {"column": "tags", "as_": "tag"}),
    "explode a map": (lambda p, x, y: p.orders.explode("prices", (x, y)), {"x": "k", "y": "v"}),
    "map_batches": (lambda p, **k: p.orders.map_batches(**k), {"fn": lambda x: x, "schema": "a int"}),
    "union": (lambda p, x: p.orders.union(x), {"x": None}),
    "dedupe": (lambda p, k, within: p.orders.dedupe(k, within=within), {"k": "user", "within": "1 s"}),
    "join of streams": (
        lambda p, **k: p.orders.join(p.clicks, **k),
        {"on": "user", "within": "1 s", "how": "left", "grace": "1 s", "where": None, "suffix": "_r"},
    ),
    "lookup": (lambda p, **k: p.orders.join(p.users, **k), {"on": "user", "how": "left", "suffix": "_r"}),
    "as_of": (
        lambda p, **k: p.orders.join(p.users, on={"qty": "id"}, **k),
        {"as_of": "at", "grace": "1 s", "suffix": "_r"},
    ),
    "join with what": (lambda p, x: p.orders.join(x, on="user"), {"x": None}),
    "window": (lambda p, **k: p.grouped().window(**k), {"window": WINDOW, "emit": "final"}),
    "agg": (lambda p, n: p.grouped().agg(n=n), {"n": "count(*)"}),
    "top": (lambda p, **k: p.grouped().top(**k), {"n": 3, "by": "price desc", "rank": "r"}),
    "to_topic": (lambda p, **k: p.orders.to_topic(**k), {"topic": "../x", "key": "user"}),
    "to_view": (lambda p, **k: p.orders.to_view(**k), {"view": ".."}),
    "tumbling": (lambda _, **k: hr.tumbling(**k), {"size": "1 m", "grace": "1 s", "offset": "1 s", "timezone": None}),
    "Restart": (lambda _, **k: hr.Restart(**k), {"tries": 2, "within": "1 h", "first": "1 s", "most": "1 m"}),
    "view": (lambda p, x: p.app.view(x), {"x": "nothing"}),
    "Log": (lambda _, x: hr.Log(x), {"x": "log"}),
    "create_topic": (
        lambda p, **k: p.log.create_topic("t", "a string, b timestamp", **k),
        {"partitions": 2, "key": "a", "event_time": "b", "retention": "1 h", "cleanup": "delete", "archive": None}
        | {"retention_bytes": 5, "delete_retention": "1 h", "archive_after": None, "private": None},
    ),
    "append": (
        lambda p, **k: p.topic.append(**k),
        {"rows": [{"a": "x", "b": AT}], "partition": 0, "producer": "p", "sequence": 1},
    ),
    "read": (lambda p, **k: p.topic.read(**k), {"partition": 0, "offset": 0, "max_rows": 5}),
    "batches": (lambda p, **k: list(p.topic.batches(**k)), {"partition": 0, "start": 0, "end": 0, "columns": None}),
    "max_time": (lambda p, **k: p.topic.max_time(**k), {"partition": 0, "start": 0, "end": 0}),
    "evolve": (lambda p, **k: p.topic.evolve(**k), {"schema": "a string, b timestamp", "defaults": None}),
    "alter": (lambda p, **k: p.topic.alter(**k), {"retention": "1 h", "archive": None}),
    "send": (Parts.send, {"topic": "t", "row": {"a": "x", "b": AT}, "partition": 0, "sequence": None}),
    "producer": (lambda p, **k: p.log.producer(**k).close(), {"producer": "p", "linger": "1 ms", "batch_bytes": 9}),
    "Driver": (lambda _, app, **k: Driver(app, **k).close(), {"app": 1, "storage": 2, "carrier": 3, "shards": 4}),
    "the driver's send": (lambda p, x, y: p.driver.send(x, y), {"x": "orders", "y": {"user": "a", "at": AT}}),
    "the driver's view": (lambda p, x: p.driver.view(x), {"x": "v"}),
    "the driver's clock": (lambda p, x: p.driver.advance(x), {"x": 1}),
    "check_deltas": (lambda _, **k: check_deltas(**k), {"step": None, "key": "user"}),
}


@pytest.mark.parametrize(("call", "good"), CALLS.values(), ids=list(CALLS))
def test_a_value_of_the_wrong_type_is_taken_or_refused_by_an_error_of_ours(call, good, parts):
    for argument in good:
        for odd in ODD:
            given = {**good, argument: odd}
            if call is CALLS["Driver"][0] and argument != "app":
                given = {"app": parts.app, argument: odd}
                if argument == "storage" and odd in (None, ""):
                    continue
            if call is CALLS["check_deltas"][0] and argument != "step":
                given["step"] = parts.orders
            try:
                call(parts, **given)
            except HeadraceError as error:
                assert not isinstance(error, InternalError), (argument, odd)  # noqa: PT017 - most are taken


NAMED = {
    "as_": lambda p: p.orders.explode("tags", 3),
    "takes": lambda _: hr.App("f").function("f", lambda x: x, returns="int", takes=3),
    "suffix": lambda p: p.orders.join(p.users, on="user", suffix=3),
    "grace": lambda p: p.orders.join(p.clicks, on="user", within="1 s", grace=""),
    "within": lambda _: hr.Restart(within="-1 hour"),
    "partitions": lambda p: p.app.stream("n", "a int", partitions=True),
    "storage": lambda _: hr.App("x", storage="a\0b"),
    "path": lambda _: hr.Log(3),
    "key": lambda p: p.log.create_topic("n", "a string", key=[None]),
    "archive": lambda p: p.log.create_topic("n", "a string", archive=3),
    "max_rows": lambda p: p.topic.read(0, 0, None),
    "offsets": lambda p: p.topic.batches(0, 0, 2.5),
    "columns": lambda p: p.topic.batches(0, 0, 0, columns=3),
    "defaults": lambda p: p.topic.evolve("a string", 3),
    "app": lambda _: Driver("app.py"),
    "carrier": lambda p: Driver(p.app, carrier="sparc"),
    "shards": lambda p: Driver(p.app, shards=0),
    "seconds": lambda p: p.driver.advance(None),
    "step": lambda _: check_deltas("orders"),
}


@pytest.mark.parametrize(("argument", "call"), NAMED.items(), ids=list(NAMED))
def test_a_refused_argument_is_named(argument, call, parts):
    with pytest.raises(HeadraceError, match=argument):
        call(parts)


@pytest.mark.parametrize("name", ["", "\0", "a\0"], ids=ascii)
def test_what_is_no_name_is_refused_as_a_column(name, parts):
    for make in (
        lambda: parts.orders.explode("tags", name),
        lambda: parts.orders.select(**{name: "price"}),
        lambda: parts.orders.rename(**{name: "price"}),
        lambda: parts.orders.group_by("user").agg(**{name: "count(*)"}),
    ):
        with pytest.raises(HeadraceError, match="is no name"):
            make()
