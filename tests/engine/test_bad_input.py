"""Bad input: each error says what is wrong and what to do, and nothing that was accepted is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.errors import (
    FunctionError,
    HeadraceError,
    InvalidRows,
    StepFailed,
    StorageBusy,
    StorageOfAnother,
    TopicDiffers,
    UnknownTopic,
    UnknownView,
    UnreadableRecord,
)
from headrace.testing import Driver

SHOP = "user string, price double, qty int, tags array<string>, prices map<string,int>, at timestamp"


def said(error):
    """Return an error's lines: `[CONDITION] what`, then detail and hint."""
    return str(error.value if hasattr(error, "value") else error)


def shop():
    return hr.App("shop").stream("orders", SHOP, event_time="at")


UNKNOWN = {
    "select": (lambda s: s.select("usr"), "usr", "user"),
    "an expression": (lambda s: s.select(x="prise * 2"), "prise", "price"),
    "select … AS": (lambda s: s.select("prise * 2 AS x"), "prise", "price"),
    "with_columns": (lambda s: s.with_columns(x="qtty + 1"), "qtty", "qty"),
    "where": (lambda s: s.where("prise > 3"), "prise", "price"),
    "branch": (lambda s: s.branch(cheap="prise < 3"), "prise", "price"),
    "group_by": (lambda s: s.group_by("usr"), "usr", "user"),
    "group_by named": (lambda s: s.group_by(day="date_trunc('day', att)"), "att", "at"),
    "agg": (lambda s: s.group_by("user").agg(n="sum(prise)"), "prise", "price"),
    "drop": (lambda s: s.drop("usr"), "usr", "user"),
    "rename": (lambda s: s.rename(who="usr"), "usr", "user"),
    "explode": (lambda s: s.explode("tag", "t"), "tag", "tags"),
    "a topic's key": (lambda s: s.to_topic("out", key="usr"), "usr", "user"),
    "key": (lambda s: s._app.stream("more", SHOP, key="usr"), "usr", "user"),
    "event_time": (lambda s: s._app.stream("more", SHOP, event_time="att"), "att", "at"),
}


@pytest.mark.parametrize(("ask", "column", "near"), UNKNOWN.values(), ids=list(UNKNOWN))
def test_an_unknown_column_is_named_with_the_nearest(ask, column, near):
    with pytest.raises(HeadraceError) as error:
        ask(shop())
    assert f'has no column "{column}"' in said(error)
    assert said(error).startswith("[UNKNOWN_COLUMN] step ")
    assert "Its columns are: user, price, qty, tags, prices, at." in said(error)
    assert f'Did you mean "{near}"?' in said(error)


WINDOW = hr.tumbling("1 s", grace="0 s")
REFUSED = {
    "a condition that is none": (
        lambda s: s.where("price"),
        "[WRONG_TYPE] step \"orders_where\": the condition 'price' is double, not boolean",
        "Compare it with something, for example price is not null.",
    ),
    "a sum of arrays": (lambda s: s.group_by().agg(n="sum(tags)"), "sum does not take (array<string>)", "sum(number)"),
    "a comparison": (lambda s: s.where("tags > 3"), "[WRONG_TYPE]", "Cast them to one type."),
    "a cast": (lambda s: s.select(x="cast(tags as int)"), "array<string> cannot be cast to int", ""),
    "an event time": (
        lambda s: s._app.stream("more", SHOP, event_time="user"),
        '[WRONG_TYPE] step "more": the column "user" is of type string and cannot be the event time',
        "Needed is timestamp.",
    ),
    "a map as a key": (lambda s: s.group_by("prices"), "cannot be a key", "anything but a map"),
    "explode of a text": (lambda s: s.explode("user", "x"), "cannot be exploded", "an array or a map"),
    "explode of a map": (lambda s: s.explode("prices", "x"), "2 column(s), 1 named", 'as_=("key", "value")'),
    "a misspelt function": (
        lambda s: s.select(x="uper(user)"),
        '[UNKNOWN_FUNCTION] step "orders_select": there is no function "uper"',
        'Did you mean "upper"?',
    ),
    "an unknown function": (lambda s: s.select(x="frobnicate(price)"), "[UNKNOWN_FUNCTION]", "app.function(name, fn"),
    "the first way on": (lambda s: s.select(x="frobnicate(price)"), "frobnicate", ".map_batches(fn, schema)"),
    "the second way on": (lambda s: s.select(x="frobnicate(price)"), "frobnicate", "app.read(frame)"),
    "a function of Spark's": (
        lambda s: s.select(x="xpath(user, 'a')"),
        "[UNSUPPORTED_FUNCTION]",
        "app.function(name, fn, returns=…)",
    ),
    "an aggregate of Spark's": (
        lambda s: s.group_by().agg(x="percentile(price, 0.5)"),
        "[UNSUPPORTED_FUNCTION]",
        ".map_batches(fn, schema)",
    ),
    "chance": (lambda s: s.select(x="rand()"), "[NONDETERMINISTIC]", "a replay must give the same result"),
    "the clock": (lambda s: s.where("at < current_timestamp()"), "[NONDETERMINISTIC]", "Use the event time"),
    "an aggregate in where": (
        lambda s: s.where("sum(price) > 1"),
        "sum is an aggregate",
        "Aggregates stand in .group_by(…).agg(…) only.",
    ),
    "a window function": (lambda s: s.select(x="row_number() over (order by at)"), "is a window function", ".top(…)"),
    "a subquery": (lambda s: s.select(x="(select 1)"), "is a subquery", "Use a join instead."),
    "broken syntax": (lambda s: s.where("price >"), "[INVALID_EXPRESSION]", "something is missing"),
    "no text": (lambda s: s.where(None), "None is no expression", 'For example "price * 0.9".'),
    "an ungrouped column": (
        lambda s: s.group_by("user").agg(x="price"),
        "[UNGROUPED_COLUMN]",
        "Say which one: max(price)",
    ),
    "a name twice": (
        lambda s: s.group_by("user").agg(user="count(*)"),
        'makes the column "user" twice',
        "Give one of them another name.",
    ),
    "names that differ in case": (
        lambda s: s.select("user", User="upper(user)"),
        'differ in case alone: "user", "User"',
        "Give one of them another name.",
    ),
    "such names in a schema": (
        lambda s: s._app.stream("more", "k string, K string"),
        'differ in case alone: "k", "K"',
        "Give one of them another name.",
    ),
    "a reserved name in a schema": (lambda s: s._app.stream("m", "_time timestamp"), '"_time" is taken', ""),
    "a reserved name in select": (lambda s: s.select(_weight="1"), 'a column "_weight", a name that Headrace uses', ""),
    "a reserved name in rename": (lambda s: s.rename(_time="at"), 'a column "_time"', ""),
    "a reserved name in agg": (lambda s: s.group_by("user").agg(_offset="count(*)"), 'a column "_offset"', ""),
    "the window's own name": (
        lambda s: s.group_by("user").window(WINDOW).agg(window_start="count(*)"),
        'makes the column "window_start" twice',
        "Give one of them another name.",
    ),
    "grace that is none": (lambda _: hr.tumbling("1 minute", grace="soon"), "'soon' is not a grace", '"10 seconds"'),
    "grace below zero": (lambda _: hr.tumbling("1 minute", grace="-1 s"), "[INVALID_WINDOW]", 'Say "0 seconds"'),
    "no length": (lambda _: hr.tumbling("0 s", grace="0 s"), "a size and a hop above zero", '"10 minutes"'),
    "no hop": (lambda _: hr.hopping("1 m", "0 s", grace="0 s"), "a size and a hop above zero", '"10 minutes"'),
    "a month": (lambda _: hr.tumbling("1 month", grace="0 s"), "[INVALID_TIME] '1 month'", "A number and a unit"),
    "an emit": (
        lambda s: s.group_by().window(WINDOW, emit="end"),
        "emit='end' is not known",
        'emit="changes" or emit="final"',
    ),
    "a text as window": (lambda s: s.group_by().window("1 minute"), "is no window", 'hr.tumbling("1 minute"'),
    "late without windows": (
        lambda s: s.group_by("user").agg(n="count(*)").late,
        "has no late rows",
        "take .late right after .agg(…)",
    ),
    "out_of_order below zero": (lambda s: s._app.stream("m", SHOP, out_of_order="-3 s"), "is below zero", ""),
    "no partitions": (lambda s: s._app.stream("m", SHOP, partitions=0), "partitions=0", "above zero"),
    "on_error": (lambda s: s._app.stream("m", SHOP, on_error="x"), "on_error='x' is not known", '"dead_letter"'),
    "a view's name": (lambda s: s.to_view("my view"), "'my view' is not allowed as the name of a view", '"my_view"'),
    "a topic's name": (lambda s: s.to_topic("../x"), "'../x' is not allowed as the name of a topic", 'Try "x"'),
    "a step's name": (lambda s: s.named("1x"), "'1x' is not allowed as the name of a step", "first is no digit"),
    "an app's name": (lambda _: hr.App("my app"), "is not allowed as the name of", '"my_app"'),
    "a type": (lambda s: s._app.stream("m", "id bigit"), 'unknown type "bigit"', 'Did you mean "bigint"?'),
    "a sink": (lambda s: s.to(3), "3 cannot take rows", "write(epoch, rows)"),
    "a view twice": (
        lambda s: (s.to_view("v"), s.where("qty > 1").to_view("v")),
        'two steps write to the view "v"',
        "Give one of the views another name.",
    ),
    "a topic twice": (
        lambda s: (s.to_topic("v"), s.where("qty > 1").to_topic("v")),
        'two steps write to the topic "v"',
        ".union(…)",
    ),
    "state twice": (
        lambda s: (
            s.group_by("user").agg(n="count(*)").to_view("a"),
            s.where("qty > 1").group_by("user").agg(n="count(*)").to_view("b"),
        ),
        'two stateful steps are called "orders_agg_by_user"',
        '.named("another_name")',
    ),
    "a union of different columns": (
        lambda s: s.union(s.drop("qty")),
        "the streams have different columns",
        ".select(…)",
    ),
    "a union with another app": (lambda s: s.union(shop()), "is no stream of this app", ""),
    "an app without an end": (lambda s: s._app.plan(), "sends its rows nowhere", ".to_view(name)"),
}


@pytest.mark.parametrize(("ask", "what", "then"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_is_refused_where_it_is_said(ask, what, then):
    with pytest.raises(HeadraceError) as error:
        ask(shop())
    assert what in said(error)
    assert then in said(error)


def test_a_column_may_be_called_as_a_function_without_parentheses():
    """As in Spark: `user` is the column where there is one."""
    app = hr.App("names")
    rows = app.stream("t", "user string, current_date int")
    rows.select(big="upper(user)", next="current_date + 1").to_view("v")
    with Driver(app) as driver:
        driver.send("t", {"user": "ann", "current_date": 1})
        driver.run()
        assert driver.view("v") == [{"big": "ANN", "next": 2}]


# ---- while it runs ----

ROWS = "k string, v int, at timestamp"


def counting(build=lambda rows: rows, **options):
    """An app that counts rows by key, and hands what `build` makes of them to the view `out`."""
    app = hr.App("counting")
    rows = app.stream("t", ROWS, event_time="at", **options)
    rows.group_by("k").agg(n="count(*)").to_view("counts")
    build(rows).to_view("out")
    return app


def counts(driver):
    return {row["k"]: row["n"] for row in driver.view("counts")}


def test_a_missing_topic_is_named_with_the_nearest(tmp_path):
    with Driver(counting()) as driver:
        with pytest.raises(UnknownTopic) as error:
            driver.send("tt", {"k": "a"})
        assert 'has no topic "tt"' in said(error)
        assert 'Did you mean "t"?' in said(error)
        with pytest.raises(UnknownTopic):
            driver.read("tt")
        with pytest.raises(UnknownView, match='Did you mean "counts"'):
            driver.view("count")
    with pytest.raises(UnknownTopic, match="It has no topics yet"):
        hr.Log(tmp_path).topic("t")


BAD_ROWS = {
    "another type": ({"k": 1}, 'rows[1]: column "k" expects string, got 1 (int)'),
    "an unknown column": ({"key": "a"}, "rows[1]: there is no column 'key'"),
    "no time": ({"k": "a", "at": "yesterday"}, "Give ISO text"),
    "too big": ({"v": 2**31}, 'column "v" expects int'),
    "rounded": ({"v": 1.5}, 'column "v" expects int, got 1.5 (float)'),
    "a system column": ({"k": "a", "_offset": 3}, "The log gives offsets itself"),
}


@pytest.mark.parametrize(("row", "what"), BAD_ROWS.values(), ids=list(BAD_ROWS))
def test_rows_that_do_not_fit_are_refused_whole_and_the_others_stay(row, what):
    with Driver(counting()) as driver:
        driver.send("t", {"k": "a", "at": 1})
        with pytest.raises(InvalidRows) as error:
            driver.send("t", {"k": "b", "at": 2}, row)
        assert what in said(error)
        driver.send("t", {"k": "a", "at": 3})
        driver.run()
        assert counts(driver) == {"a": 2}


def test_the_storage_of_another_app_is_refused(tmp_path):
    with Driver(counting(), storage=tmp_path) as driver:
        driver.send("t", {"k": "a", "at": 1})
        driver.run()
    other = hr.App("other")
    other.stream("x", "k string").to_view("v")
    with pytest.raises(StorageOfAnother) as error:
        Driver(other, storage=tmp_path)
    assert 'belongs to the app "counting", not to "other"' in said(error)
    assert 'Call this app "counting", or give it a storage of its own: hr.App("other", storage=…).' in said(error)
    with Driver(counting(), storage=tmp_path) as driver:
        assert counts(driver) == {"a": 1}


PROGRAM = """
import sys
import headrace as hr
from headrace.testing import Driver

app = hr.App("counting")
app.stream("t", "k string, v int, at timestamp", event_time="at").group_by("k").agg(n="count(*)").to_view("counts")
try:
    Driver(app, storage=sys.argv[1])
except hr.HeadraceError as error:
    sys.exit(str(error))
"""


def test_two_apps_on_one_storage_are_refused_also_from_another_process(tmp_path):
    with Driver(counting(), storage=tmp_path) as driver:
        driver.send("t", {"k": "a", "at": 1})
        with pytest.raises(StorageBusy) as error:
            Driver(counting(), storage=tmp_path)
        assert "[STORAGE_BUSY] another process runs an app on the storage" in said(error)
        done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "[STORAGE_BUSY]" in done.stderr
        assert "Stop it first, or give this app a storage of its own" in done.stderr
        driver.run()
        assert counts(driver) == {"a": 1}


def test_a_topic_with_another_schema_is_refused(tmp_path):
    with Driver(counting(), storage=tmp_path) as driver:
        driver.send("t", {"k": "a", "at": 1})
    app = hr.App("counting")
    app.stream("t", "k int, at timestamp", event_time="at").to_view("counts")
    with pytest.raises(TopicDiffers) as error:
        Driver(app, storage=tmp_path)
    assert 'the topic "t" has no column "k" of the declared type' in said(error)
    assert f"It has: {ROWS}. Declared: k int, at timestamp." in said(error)
    assert "Declare the columns that the topic has" in said(error)
    with Driver(counting(), storage=tmp_path) as driver:
        driver.run()
        assert counts(driver) == {"a": 1}


def test_fewer_columns_than_the_topic_has_are_enough(tmp_path):
    with Driver(counting(), storage=tmp_path) as driver:
        driver.send("t", {"k": "a", "v": 3, "at": 1})
    app = hr.App("counting")
    app.stream("t", "at timestamp, v int", event_time="at").to_view("few")
    with Driver(app, storage=tmp_path) as driver:
        driver.run()
        assert [row["v"] for row in driver.view("few")] == [3]


# ---- functions of the user's ----


@pytest.mark.parametrize("carrier", ["in process", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_function_that_raises_is_shown_with_its_file_and_line(carrier, request, tmp_path):
    if carrier == "spark":
        request.getfixturevalue("spark")

    def broken(table):
        if "bad" in table.column("k").to_pylist():
            raise ValueError("no such thing")
        return table.drop_columns(["at"])

    line = broken.__code__.co_firstlineno + 2
    app = counting(lambda rows: rows.map_batches(broken, "k string, v int").named("mine"))
    with Driver(app, storage=tmp_path, carrier=carrier) as driver:
        driver.send("t", {"k": "a", "at": 1})
        driver.run()
        driver.send("t", {"k": "b", "at": 2}, {"k": "bad", "at": 3})
        with pytest.raises(FunctionError) as error:
            driver.step()
        assert said(error).startswith('[FUNCTION_FAILED] step "mine": the function test_a_function_that_raises_is_')
        assert f"test_bad_input.py:{line}) raised ValueError: no such thing" in said(error)
        assert "no input is lost" in said(error)
        assert counts(driver) == {"a": 1}, "the epoch has not happened"
    mended = counting(lambda rows: rows.map_batches(lambda table: table.drop_columns(["at"]), "k string, v int"))
    with Driver(mended, storage=tmp_path, carrier=carrier) as driver:
        driver.run()
        assert counts(driver) == {"a": 1, "b": 1, "bad": 1}
        assert sorted(row["k"] for row in driver.view("out")) == ["a", "b", "bad"]


def test_the_driver_goes_on_after_a_function_that_failed_once():
    failing = iter([True, False])

    def once(table):
        if next(failing, False):
            raise ValueError("the first time")
        return table.select(["k"])

    app = hr.App("once")
    rows = app.stream("t", ROWS, event_time="at")
    table = rows.group_by("k").agg(n="count(*)")
    table.to_view("counts")
    table.changes().map_batches(once, "k string").to_topic("out")
    with Driver(app) as driver:
        driver.send("t", {"k": "a", "at": 1})
        with pytest.raises(FunctionError):
            driver.step()
        assert counts(driver) == {}
        driver.run()
        assert counts(driver) == {"a": 1}
        driver.send("t", {"k": "a", "at": 2})
        driver.run()
        assert counts(driver) == {"a": 2}
        assert [row["k"] for row in driver.read("out")] == ["a", "a", "a"]


def _with_times(table, times):
    return table.set_column(table.column_names.index("_time"), "_time", times)


WRONG = {
    "no table": (lambda _: [1], "gave list, not a pyarrow.Table"),
    "a batch": (lambda table: table.to_batches()[0], "gave RecordBatch, not a pyarrow.Table"),
    "nothing": (lambda _: None, "gave NoneType, not a pyarrow.Table"),
    "a column less": (lambda table: table.drop_columns(["v"]), "do not fit the schema"),
    "another type": (
        lambda table: table.set_column(1, "v", pa.array(["x"] * table.num_rows)),
        "Promised: k string, v int.",
    ),
    "fewer rows": (
        lambda table: table.slice(0, 1).drop_columns(["_time"]),
        "gave 1 rows for 2, without their times",
    ),
    "null times": (
        lambda table: _with_times(table, pa.nulls(table.num_rows, pa.timestamp("us", tz="UTC"))),
        "gave 2 rows whose event time _time is null",
    ),
    "times that are none": (
        lambda table: _with_times(table, pa.array(["x"] * table.num_rows)),
        "gave a column _time that is no event time",
    ),
}


@pytest.mark.parametrize(("function", "what"), WRONG.values(), ids=list(WRONG))
def test_a_function_that_gives_something_else_is_refused(function, what):
    app = counting(lambda rows: rows.map_batches(function, "k string, v int").named("mine"))
    with Driver(app) as driver:
        driver.send("t", {"k": "a", "v": 1, "at": 1}, {"k": "b", "v": 2, "at": 2})
        with pytest.raises(FunctionError) as error:
            driver.step()
        assert said(error).startswith('[FUNCTION_FAILED] step "mine": the function <lambda> (')
        assert "test_bad_input.py:" in said(error)
        assert what in said(error)
        assert counts(driver) == {}


# ---- event times ----


@pytest.mark.parametrize("carrier", ["in process", pytest.param("spark", marks=pytest.mark.spark)])
def test_records_without_an_event_time_become_dead_letters_and_are_counted(carrier, request):
    if carrier == "spark":
        request.getfixturevalue("spark")
    with Driver(counting(), carrier=carrier) as driver:
        driver.send("t", {"k": "a", "at": 1}, {"k": "lost é😀", "v": 7, "at": None}, {"k": "a", "at": 2})
        driver.run()
        assert counts(driver) == {"a": 2}
        (dead,) = driver.read("t.dead")
        assert json.loads(dead.pop("record")) == {"k": "lost é😀", "v": 7, "at": None}
        assert dead == {"topic": "t", "partition": 0, "offset": 1, "reason": 'the event time "at" is null'}
        driver.send("t", {"k": None, "at": None})
        driver.run()
        assert len(driver.read("t.dead")) == 1
        assert driver._engine.last.totals["t"]["dead"] == 2


def test_the_status_counts_dead_letters(tmp_path):
    with Driver(counting(), storage=tmp_path) as driver:
        driver.send("t", {"k": "a", "at": 1}, {"k": "b"}, {"k": "c"})
        driver.run()
    app = counting()
    app.storage = tmp_path
    status = app.status()
    assert status["sources"]["t"]["dead"] == 2
    assert status["sources"]["t"]["rows"] == 3
    assert status["lag"] == 0


@pytest.mark.parametrize("carrier", ["in process", pytest.param("spark", marks=pytest.mark.spark)])
def test_on_error_fail_stops_and_nothing_is_lost_when_it_is_switched_back(carrier, request, tmp_path):
    if carrier == "spark":
        request.getfixturevalue("spark")
    with Driver(counting(on_error="fail"), storage=tmp_path, carrier=carrier) as driver:
        driver.send("t", {"k": "a", "at": 1})
        driver.run()
        driver.send("t", {"k": "a", "at": 2}, {"k": "b", "at": None})
        with pytest.raises(UnreadableRecord) as error:
            driver.step()
        assert 'the topic "t" has a record that cannot be read: the event time "at" is null' in said(error)
        assert 'partition 0, offset 2: {"k": "b", "v": null, "at": null}' in said(error)
        assert 'With on_error="dead_letter" such records go to the topic "t.dead"' in said(error)
        assert counts(driver) == {"a": 1}
    with Driver(counting(), storage=tmp_path, carrier=carrier) as driver:
        driver.run()
        assert counts(driver) == {"a": 2}
        assert [row["offset"] for row in driver.read("t.dead")] == [2]


# ---- errors of expressions ----

ANSI = {
    "division": (lambda rows: rows.with_columns(x="10 / v").named("shares"), "DIVIDE_BY_ZERO", "shares"),
    "a cast": (lambda rows: rows.select(x="cast(k as int)").named("numbers"), "CAST_INVALID_INPUT", "numbers"),
    "where": (lambda rows: rows.where("10 % v = 0").named("even"), "ZERO", "even"),
    "below an aggregate": (
        lambda rows: rows.group_by("at").agg(n="sum(v)").where("1 / n > 0").named("big"),
        "DIVIDE_BY_ZERO",
        "big",
    ),
    "an aggregate": (lambda rows: rows.group_by("at").agg(n="1 / sum(v)").named("parts"), "DIVIDE_BY_ZERO", "parts"),
}


@pytest.mark.parametrize(("build", "condition", "step"), ANSI.values(), ids=list(ANSI))
def test_an_expression_that_fails_on_a_row_names_its_step(build, condition, step, tmp_path):
    app = counting(build)
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", {"k": "1", "v": 1, "at": 1})
        driver.run()
        before = counts(driver), driver.view("out")
        driver.send("t", {"k": "x", "v": 0, "at": 2})
        for _ in range(2):
            with pytest.raises(StepFailed) as error:
                driver.step()
            assert said(error).startswith(f'[STEP_FAILED] step "{step}" failed: ')
            assert condition in said(error)
            assert "no input is lost" in said(error)
            assert "Guard the expression" in said(error)
            assert (counts(driver), driver.view("out")) == before
        if step not in {"big", "parts"}:
            return
        driver.send("t", {"k": "x", "v": 5, "at": 2})  # together the rows of one epoch are no failure
        driver.run()
        assert counts(driver) == {"1": 1, "x": 2}


def test_after_a_failed_expression_a_guarded_one_goes_on(tmp_path):
    with Driver(counting(lambda rows: rows.select(x="10 / v")), storage=tmp_path) as driver:
        driver.send("t", {"k": "a", "v": 5, "at": 1})
        driver.run()
        driver.send("t", {"k": "a", "v": 0, "at": 2})
        with pytest.raises(StepFailed):
            driver.step()
    with Driver(counting(lambda rows: rows.select(x="10 / nullif(v, 0)")), storage=tmp_path) as driver:
        driver.run()
        assert counts(driver) == {"a": 2}
        assert {row["x"] for row in driver.view("out")} == {2.0, None}


# ---- odd, and right ----


def test_odd_names_and_values_come_through(drive):
    app = hr.App("odd")
    rows = app.stream(
        "t", '`naïve "col"` string, `sel.ect` int, `a``b` string, `\'` string, at timestamp', event_time="at"
    )
    named = {"😀 n": "sum(`sel.ect`)", "x y": "max(`a``b`)"}
    rows.group_by('naïve "col"', "'").agg(**named).to_view("v")
    rows.where("`sel.ect` > 1").to_topic("out", key="a`b")
    row = {'naïve "col"': "'\"\n\0;--", "sel.ect": 3, "a`b": "日本 é e\u0301 😀", "'": "", "at": 1}
    driver = drive(app)
    driver.send("t", row, {**row, "sel.ect": 1})
    driver.run()
    kept = {'naïve "col"': "'\"\n\0;--", "'": ""}
    assert driver.view("v") == [{**kept, "😀 n": 4, "x y": "日本 é e\u0301 😀"}]
    assert driver.read("out") == [{**row, "at": datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)}]


def test_empty_input_gives_nothing(drive):
    app = counting(lambda rows: rows.map_batches(lambda table: table.select(["k"]), "k string"))
    driver = drive(app)
    driver.step()
    driver.send("t")
    driver.run()
    driver.finish()
    assert driver.view("counts") == []
    assert driver.view("out") == []


def test_a_clock_that_jumps_back_does_no_harm():
    """Rows get their time from the log where they bring none; a watermark never goes back."""
    app = hr.App("clock")
    rows = app.stream("t", "k string")
    table = rows.group_by("k").window(hr.tumbling("10 s", grace="0 s")).agg(n="count(*)").named("counts")
    table.to_view("counts")
    with Driver(app) as driver:
        driver.send("t", {"k": "a"})
        driver.run()
        driver.advance(60)
        driver.send("t", {"k": "a"})
        driver.run()
        before = driver.watermark("t")
        driver.advance(-3600)
        driver.send("t", {"k": "a"})
        driver.run()
        assert driver.watermark("t") >= before
        taken = sum(row["n"] for row in driver.view("counts"))
        assert taken + len(driver.late("counts")) == 3
        driver.restart()
        driver.advance(7200)
        driver.send("t", {"k": "a"})
        driver.run()
        assert sum(row["n"] for row in driver.view("counts")) + len(driver.late("counts")) == 4
