"""Bad input: each error says what is wrong and what to do, and nothing that was accepted is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.errors import (
    FunctionError,
    InvalidRows,
    RecordsGone,
    StepFailed,
    StorageBusy,
    StorageOfAnother,
    TopicDiffers,
    UnknownTopic,
    UnknownView,
    UnreadableRecord,
)
from headrace.engine.engine import Engine
from headrace.testing import Driver


def said(error):
    """Return an error's lines: `[CONDITION] what`, then detail and hint."""
    return str(error.value if hasattr(error, "value") else error)


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
from headrace.engine.engine import Engine
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


@pytest.mark.on_spark
def test_a_function_that_raises_is_shown_with_its_file_and_line(carrier, tmp_path):

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


@pytest.mark.on_spark
def test_records_without_an_event_time_become_dead_letters_and_are_counted(carrier):
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
        assert driver.counts("t")["dead"] == 2


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


@pytest.mark.on_spark
def test_on_error_fail_stops_and_nothing_is_lost_when_it_is_switched_back(carrier, tmp_path):
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


# ---- retention ----


def overtaken(driver):
    """Let retention take two records that the app has not read, and append one more."""
    topic = driver.log.topic("t")
    driver.send("t", {"k": "a", "at": 1})
    driver.step()
    driver.send("t", {"k": "a", "at": 2}, {"k": "b", "at": 3})
    topic.alter(retention="1 hour")
    driver.advance(7200)
    topic.clean()
    assert topic.start_offsets() == {0: 3}
    driver.send("t", {"k": "c", "at": 4})


def test_records_that_retention_took_before_they_were_read_are_counted(tmp_path):
    with Driver(counting(), storage=tmp_path) as driver:
        overtaken(driver)
        driver.run()
        assert counts(driver) == {"a": 1, "c": 1}
    app = counting()
    app.storage = tmp_path
    assert app.status()["sources"]["t"]["lost"] == 2


def test_a_partition_that_several_tasks_read_has_lost_nothing(monkeypatch):
    """Spark cuts a large range into one for each task: the second begins behind what the epoch before had read."""
    begin = Engine.begin

    def cut(engine, **options):
        (whole,) = (work := begin(engine, **options)).ranges
        return replace(work, ranges=tuple(whole.split(2)))

    with Driver(counting()) as driver:
        driver.send("t", {"k": "a", "at": 1})
        driver.run()
        driver.send("t", *({"k": "a", "at": at} for at in range(2, 6)))
        monkeypatch.setattr(Engine, "begin", cut)
        driver.step()
        assert driver.counts("t")["lost"] == 0
        assert counts(driver) == {"a": 5}


def test_on_error_fail_stops_where_retention_was_faster(tmp_path):
    with Driver(counting(on_error="fail"), storage=tmp_path) as driver:
        overtaken(driver)
        with pytest.raises(RecordsGone) as error:
            driver.step()
        assert 'topic "t", partition 0: the records 1 to 2 were deleted before the app read them' in said(error)
        assert counts(driver) == {"a": 1}


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


@pytest.mark.parametrize("total", ["sum(9223372036854775800L + v)", "sum(distinct 9223372036854775800L + v)"])
def test_a_sum_that_no_bigint_holds_says_so(total, tmp_path):
    app = counting(lambda rows: rows.group_by("at").agg(n=total).named("totals"))
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", {"k": "a", "v": 1, "at": 1}, {"k": "a", "v": 2, "at": 1})
        with pytest.raises(StepFailed) as error:
            driver.step()
    assert said(error).startswith('[STEP_FAILED] step "totals" failed: ')
    assert "[ARITHMETIC_OVERFLOW] the sum does not fit into a bigint" in said(error)


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


@pytest.mark.on_spark
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
