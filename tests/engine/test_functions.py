"""Functions of the user's at work: in every verb, on both carriers, blamed precisely, and kept across restarts."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.base.errors import FunctionError, PlanChanged
from headrace.testing import Driver

ROWS = "k string, v int, at timestamp"


class _Span:
    """From the first to the last: a state of timestamps, text and a struct."""

    state = "first timestamp, last timestamp, seen struct<n: bigint, names: array<string>>"

    def init(self, count):
        empty = pa.array([{"n": 0, "names": []}] * count, self.seen)
        return {"first": pa.nulls(count, self.time), "last": pa.nulls(count, self.time), "seen": empty}

    time, seen = pa.timestamp("us", tz="UTC"), pa.struct([("n", pa.int64()), ("names", pa.list_(pa.string()))])

    def add(self, groups, at, name):
        assert at.type == self.time
        rows = pa.table({"g": groups, "at": at, "name": name}).group_by("g", use_threads=False)
        made = rows.aggregate([("at", "min"), ("at", "max"), ("name", "list"), ("name", "count")])
        seen = [
            {"n": n, "names": names}
            for n, names in zip(made["name_count"].to_pylist(), made["name_list"].to_pylist(), strict=True)
        ]
        return {"first": made["at_min"], "last": made["at_max"], "seen": pa.array(seen, self.seen)}

    def merge(self, left, right):
        pairs = zip(left["seen"].to_pylist(), right["seen"].to_pylist(), strict=True)
        seen = [{"n": a["n"] + b["n"], "names": a["names"] + b["names"]} for a, b in pairs]
        first = pc.if_else(pc.less(left["first"], right["first"]), left["first"], right["first"])
        last = pc.if_else(pc.greater(left["last"], right["last"]), left["last"], right["last"])
        return {"first": first, "last": last, "seen": pa.array(seen, self.seen)}

    def result(self, states):
        rows = [
            None if row["first"] is None else {**row, "seen": sorted(row["seen"]["names"])}
            for row in states.to_pylist()
        ]
        kind = pa.struct([("first", self.time), ("last", self.time), ("seen", pa.list_(pa.string()))])
        return pa.array(rows, kind)


SPAN = "struct<first: timestamp, last: timestamp, seen: array<string>>"


class _Total:
    """A sum; `wrong` names the method that fails."""

    state = "total bigint"

    def __init__(self, wrong=""):
        self.wrong = wrong

    def init(self, count):
        return {"total": np.zeros(count, np.int64)}

    def add(self, groups, values):
        if self.wrong == "add" and 13 in values.to_pylist():
            raise ValueError("13 is\nunlucky")
        rows = pa.table({"g": groups, "v": values}).group_by("g", use_threads=False).aggregate([("v", "sum")])
        return {"other" if self.wrong == "columns" else "total": pc.fill_null(rows["v_sum"], 0)}

    def merge(self, left, right):
        made = pc.add(left["total"], right["total"])
        return {"total": made.slice(1) if self.wrong == "merge" else made}

    def result(self, states):
        return states["total"].cast(pa.string()) if self.wrong == "result" else states["total"]


def at(ms):
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def app_of(*functions, **options):
    """An app with the functions `(name, fn, returns)`, and its stream."""
    app = hr.App("mine", **options)
    for name, fn, returns, *more in functions:
        app.function(name, fn, returns=returns, **(more[0] if more else {}))
    return app, app.stream("t", ROWS, event_time="at")


def sent(*values, step=1000):
    return [{"k": "abc"[i % 3], "v": v, "at": i * step} for i, v in enumerate(values)]


def half(values):
    return pc.divide(pc.cast(values, pa.float64()), 2)


# ---- scalar functions ----


@pytest.mark.on_spark
def test_a_function_stands_in_every_verb(drive):
    app, rows = app_of(("half", half, "double", {"takes": "double"}), ("loud", pc.utf8_upper, "string"))
    rows.select("k", x="half(v) + half(half(v))").to_topic("selected")
    rows.with_columns(k="loud(k)").where("half(v) > 1 and k = 'B'").to_topic("kept")
    parts = rows.branch(large="half(v) >= 2", b="loud(k) = 'B'")
    for name, part in parts.items():
        part.select("v").to_topic(f"part_{name}")
    rows.explode("array(half(v), -1)", "e").select("e").to_topic("exploded")
    rows.group_by(who="loud(k)").agg(n="count(*)", x="sum(half(v))", y="half(sum(v)) + 1").to_view("grouped")
    driver = drive(app, shards=2)
    driver.send("t", *sent(1, 2, 3, 4, None, 6))
    driver.run()
    assert [row["x"] for row in driver.read("selected")] == [0.75, 1.5, 2.25, 3.0, None, 4.5]
    assert [(row["k"], row["v"]) for row in driver.read("kept")] == []
    assert [[r["v"] for r in driver.read(f"part_{n}")] for n in ("large", "b", None)] == [[4, 6], [2, None], [1, 3]]
    assert max(row["e"] for row in driver.read("exploded") if row["e"] is not None) == 3.0
    assert [tuple(row.values()) for row in driver.view("grouped")] == [
        ("A", 2, 2.5, 3.5), ("B", 2, 1.0, 2.0), ("C", 2, 4.5, 5.5)]  # fmt: skip


KINDS = {
    "decimal(10,2)": [Decimal("1.50"), None],
    "timestamp": [at(1000), None],
    "date": [at(0).date(), None],
    "array<string>": [["a", None], []],
    "map<string,int>": [{"a": 1}, {}],
    "struct<a: timestamp, b: array<int>>": [{"a": at(5), "b": [1, None]}, None],
    "binary": [b"\0", None],
    "boolean": [True, None],
}


@pytest.mark.parametrize(("kind", "values"), KINDS.items(), ids=list(KINDS))
def test_values_of_every_type_go_in_and_come_out(kind, values):
    seen = []

    def same(given):
        seen.append(given)
        return given

    app = hr.App("kinds")
    app.function("same", same, returns=kind, takes=[kind])
    app.stream("t", f"i int, x {kind}").select("i", y="same(x)").to_topic("out")
    with Driver(app) as driver:
        driver.send("t", *({"i": i, "x": value} for i, value in enumerate(values)))
        driver.run()
        assert [row["y"] for row in driver.read("out")] == values
    assert [len(each) for each in seen] == [2]
    assert "tz=UTC" in str(seen[0].type) or "timestamp" not in kind


def test_a_function_is_called_once_for_a_batch_whatever_reads_it():
    calls, numbers = [], itertools.count()

    def draw(values):
        calls.append(len(values))
        return pa.array([next(numbers) for _ in values])

    app, rows = app_of(("draw", draw, "bigint", {"deterministic": False}))
    drawn = rows.with_columns(x="draw(v)", y="draw(v)", z="draw(v) * 0 + v").where("x >= 0")
    drawn.to_topic("one")
    drawn.where("y >= 0").to_topic("two")
    with Driver(app) as driver:
        driver.send("t", *sent(*range(5000), step=1))
        driver.run()
        one, two = driver.read("one"), driver.read("two")
    assert calls == [5000, 5000, 5000], "once for each that is written, none for those that read"
    assert one == two
    assert {row["x"] for row in one} | {row["y"] for row in one} < set(range(15_000))
    assert not {row["x"] for row in one} & {row["y"] for row in one}


def test_equal_calls_of_a_function_are_made_once():
    calls = []

    def counted(values):
        calls.append(len(values))
        return values

    app, rows = app_of(("counted", counted, "int"))
    rows.where("counted(v) > 1 and counted(v) < 4").with_columns(a="counted(v)", b="counted(v) + 1").to_topic("out")
    with Driver(app) as driver:
        driver.send("t", *sent(1, 2, 3, 4))
        driver.run()
        assert [(row["a"], row["b"]) for row in driver.read("out")] == [(2, 3), (3, 4)]
    assert calls == [4, 2]


def lossy(values):
    return pc.divide(pc.cast(values, pa.float64()), 2)


def failing(values):
    if pc.any(pc.equal(values, 13)).as_py():
        raise ValueError("13 is\nunlucky")
    return values


FAILURES = {
    "raises": (failing, "raised ValueError: 13 is unlucky", "The first row that fails: mine(13). It was called again"),
    "no array": (lambda values: values.to_pylist(), "gave list, not a pyarrow.Array", ""),
    "fewer": (lambda values: values.slice(1), "gave 5 values for 6 rows", ""),
    "text": (lambda values: values.cast(pa.string()), "gave string, not the int that returns= says", ""),
    "halves": (lossy, "gave double that does not fit int", "The first row that fails: mine(13)."),
    "of all rows": (lambda values: pa.array([1 / (len(values) < 6)]), "raised ZeroDivisionError", "No row of the 6"),
}


@pytest.mark.parametrize(("fn", "what", "detail"), FAILURES.values(), ids=list(FAILURES))
def test_a_function_that_fails_is_named_with_its_first_row(fn, what, detail):
    app, rows = app_of(("mine", fn, "int"))
    rows.with_columns(x="mine(v)").to_topic("out")
    with Driver(app) as driver:
        driver.send("t", *sent(2, 4, 13, 6, 13, 8))
        with pytest.raises(FunctionError) as error:
            driver.step()
        assert what in error.value.what
        assert "called as mine" in error.value.what
        assert "test_functions.py:" in error.value.what
        assert detail in error.value.detail
        assert error.value.detail.endswith("no input is lost.")
        assert driver.read("out") == []


def test_a_failure_arrives_once_on_both_carriers(drive):
    line = failing.__code__.co_firstlineno + 2
    app, rows = app_of(("mine", failing, "int"))
    rows.where("mine(v) > 0").to_topic("out")
    driver = drive(app)
    driver.send("t", *sent(*range(1, 20)))
    with pytest.raises(FunctionError) as error:
        driver.step()
    assert error.value.what.startswith('step "t_where": the function failing (')
    assert error.value.what.endswith(f"test_functions.py:{line}), called as mine, raised ValueError: 13 is unlucky")
    assert "The first row that fails: mine(13)." in error.value.detail


# ---- aggregates ----


def test_an_aggregate_keeps_any_state_and_survives_restarts(drive):
    app, rows = app_of(("span", _Span, SPAN))
    rows.group_by("k").agg(x="span(at, k)", late="span(at, k) filter (where v > 3)").to_view("all")
    window = rows.group_by("k").window(hr.hopping("4 s", "2 s", grace="1 s"), emit="final")
    window.agg(x="span(at, k)").named("windows").to_topic("windows")
    driver = drive(app, shards=2)
    driver.send("t", *sent(1, 2, 3, 4))
    driver.step()
    driver.restart()
    driver.send("t", *sent(1, 2, 3, 4, 5, 6, 7))
    driver.run()
    driver.finish()
    first, last, late = ({row["k"]: row[x] for row in driver.view("all")} for x in ("x", "x", "late"))
    assert first["a"] == {"first": at(0), "last": at(6000), "seen": ["a"] * 5}
    assert last["c"] == {"first": at(2000), "last": at(5000), "seen": ["c"] * 3}
    assert late["b"] == {"first": at(4000), "last": at(4000), "seen": ["b"]}
    assert late["c"] == {"first": at(5000), "last": at(5000), "seen": ["c"]}
    windows = {(row["k"], row["window_start"]): row["x"] for row in driver.read("windows")}
    assert windows["a", at(0)] == {"first": at(0), "last": at(3000), "seen": ["a"] * 4}
    assert windows["a", at(2000)] == {"first": at(3000), "last": at(3000), "seen": ["a"] * 2}


def test_a_group_in_which_no_row_counts_has_the_result_of_init():
    app, rows = app_of(("total", _Total, "bigint"))
    rows.group_by("k").agg(x="total(v) filter (where v > 3)").to_view("out")
    with Driver(app) as driver:
        driver.send("t", *sent(1, 2, 5))
        driver.run()
        assert [row["x"] for row in driver.view("out")] == [0, 0, 5]


def test_a_crash_in_the_middle_adds_nothing_twice():
    app, rows = app_of(("total", _Total, "bigint"))
    rows.group_by("k").agg(x="total(v)", y="sum(v)").to_view("out")
    with Driver(app, shards=2) as driver:
        driver.send("t", *sent(1, 2, 3))
        driver.step()
        for point in ("before_staging", "after_staging", "during_commit", "after_commit"):
            driver.send("t", *sent(1, 2, 3))
            driver.crash(at=point)
            driver.restart()
        driver.run()
        assert [(row["x"], row["y"]) for row in driver.view("out")] == [(5, 5), (10, 10), (15, 15)]


def test_many_groups_are_added_together():
    """Not a call for each group: DuckDB hands over some thousand at a time."""
    calls = []

    class Counted(_Total):
        def add(self, groups, values):
            calls.append(len(groups))
            return super().add(groups, values)

    app = hr.App("many")
    app.function("total", Counted(), returns="bigint")
    app.stream("t", "i int").group_by("i").agg(x="total(i)").to_view("out")
    with Driver(app) as driver:
        driver.send("t", *({"i": i % 5000} for i in range(10_000)))
        driver.run()
        assert {row["i"]: row["x"] for row in driver.view("out")} == {i: 2 * i for i in range(5000)}
    assert sum(calls) == 10_000
    assert len(calls) <= 4


METHODS = {
    "add": (r"test_functions.py:\d+\), add of the aggregate mine, raised ValueError: 13 is unlucky", "mine(13)."),
    "columns": ("add of the aggregate mine, gave the columns other, not those of its state: total", ""),
    "merge": ("merge of the aggregate mine, gave 2 values for 3 groups", ""),
    "result": ("result of the aggregate mine, gave string, not the bigint that returns= says", ""),
}


@pytest.mark.parametrize(("wrong", "what", "detail"), [(k, *v) for k, v in METHODS.items()], ids=list(METHODS))
def test_a_method_that_fails_is_named(wrong, what, detail):
    app, rows = app_of(("mine", _Total(wrong), "bigint"))
    rows.group_by("k").agg(x="mine(v)").named("totals").to_view("out")
    with Driver(app) as driver:
        driver.send("t", *sent(1, 2, 3))
        if wrong == "merge":
            driver.step()
        driver.send("t", *sent(1, 2, 13))
        with pytest.raises(FunctionError, match=what) as error:
            driver.step()
    assert error.value.what.startswith(f'step "totals": the function _Total.{wrong if wrong != "columns" else "add"} (')
    assert detail in error.value.detail


@pytest.mark.on_spark
def test_an_aggregate_that_fails_arrives_once_on_both_carriers(drive):
    app, rows = app_of(("mine", _Total("add"), "bigint"))
    rows.group_by("k").agg(x="mine(v)").named("totals").to_view("out")
    driver = drive(app)
    driver.send("t", *sent(1, 2, 3, 13, 13))
    with pytest.raises(FunctionError) as error:
        driver.step()
    assert re.fullmatch(
        r'step "totals": the function _Total.add \(.*test_functions.py:\d+\), add of the aggregate mine, '
        "raised ValueError: 13 is unlucky",
        error.value.what,
    )
    assert error.value.detail.startswith("The first row that fails: mine(13). It was called again")


def test_the_driver_goes_on_after_an_aggregate_that_failed_once():
    fails = iter([True])

    class Once(_Total):
        def merge(self, left, right):
            if next(fails, False):
                raise ValueError("the first time")
            return super().merge(left, right)

    app, rows = app_of(("total", Once(), "bigint"))
    rows.group_by("k").agg(x="total(v)").to_view("out")
    with Driver(app) as driver:
        driver.send("t", *sent(1, 2, 3))
        driver.run()
        driver.send("t", *sent(1, 2, 3))
        with pytest.raises(FunctionError, match="the first time") as error:
            driver.step()
        assert isinstance(error.value.__cause__, ValueError), "what was raised, with its trace"
        driver.run()
        assert [row["x"] for row in driver.view("out")] == [2, 4, 6]


def test_late_rows_have_no_column_of_a_call():
    app, rows = app_of(("half", half, "double"))
    table = rows.group_by("k").window(hr.tumbling("1 s", grace="0 s")).agg(x="sum(half(v))")
    table.to_view("out")
    table.late.to_topic("late")
    with Driver(app) as driver:
        driver.send("t", *sent(1, 2, 3, 4, 5))
        driver.run()
        driver.send("t", {"k": "a", "v": 7, "at": 5})
        driver.run()
        assert driver.read("late") == [{"k": "a", "v": 7, "at": at(5)}]


# ---- what is kept, and where functions are found ----


def test_another_version_or_state_is_another_aggregate(tmp_path):
    class Wider(_Total):
        state = "total decimal(20,0)"

    def start(fn=_Total, **options):
        app, rows = app_of(("total", fn, "bigint", options), ("half", half, "double", options))
        rows.group_by("k").agg(x="total(v)", y="sum(half(v))").named("totals").to_view("out")
        with Driver(app, storage=tmp_path) as driver:
            driver.send("t", *sent(2))
            driver.run()
            return [tuple(row.values()) for row in driver.view("out")]

    assert start() == [("a", 2, 1.0)]
    assert start() == [("a", 4, 2.0)], "code is not compared"
    with pytest.raises(PlanChanged) as error:
        start(version=2)
    assert "total version 2 keeps (total bigint)" in str(error.value)
    assert "half version 2(" in str(error.value)
    with pytest.raises(PlanChanged, match="decimal"):
        start(Wider)


MODULE = """
import pyarrow as pa
import pyarrow.compute as pc

def more(values):
    import beside_later
    return pc.add(values, beside_later.MORE)

def kept(table):
    return table.drop_columns(["at"])

class Total:
    state = "total bigint"
    def init(self, count):
        return {"total": [0] * count}
    def add(self, groups, values):
        rows = pa.table({"g": groups, "v": values}).group_by("g", use_threads=False)
        return {"total": rows.aggregate([("v", "sum")])["v_sum"]}
    def merge(self, left, right):
        return {"total": pc.add(left["total"], right["total"])}
    def result(self, states):
        return states["total"]
"""
PROGRAM = """
import sys
import headrace as hr
import beside

app = hr.App("beside", storage=sys.argv[1])
app.function("more", beside.more, returns="int")
app.function("total", beside.Total, returns="bigint")
rows = app.stream("t", "k string, v int, at timestamp", event_time="at").with_columns(v="more(v)")
rows.map_batches(beside.kept, "k string, v int").group_by("k").agg(x="total(v)").to_view("out")
if __name__ == "__main__":
    with app.start() as running:
        hr.Log(sys.argv[1] + "/log").topic("t").append([{"k": "a", "v": i, "at": i} for i in range(10)])
        running.await_caught_up(timeout=300)
        print(app.view("out").to_pylist())
"""


@pytest.mark.spark
@pytest.mark.xdist_group("functions_beside")
def test_functions_of_modules_beside_a_program_reach_the_workers(tmp_path):
    (tmp_path / "beside.py").write_text(MODULE)
    (tmp_path / "beside_later.py").write_text("MORE = 1")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, program, tmp_path / "storage"], capture_output=True, text=True, check=False, timeout=200
    )
    assert ran.stdout == "[{'k': 'a', 'x': 55}]\n", ran.stderr[-2000:]


def test_functions_of_modules_that_other_machines_lack_travel_whole(tmp_path, monkeypatch):
    pytest.importorskip("pyspark")
    from pyspark import cloudpickle

    from headrace.engine.spark.imports import by_value, own_folders

    (tmp_path / "beside_whole.py").write_text(
        "SCALE = 3\ndef scaled(values):\n    return [SCALE * v for v in values]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import beside_whole

    assert tmp_path in own_folders()
    by_value([tmp_path])
    try:
        sent_ = cloudpickle.dumps(beside_whole.scaled)
    finally:
        cloudpickle.unregister_pickle_by_value(beside_whole)
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())([1, 2]))"
    ran = subprocess.run([sys.executable, "-c", code], input=sent_, capture_output=True, check=False, cwd="/")
    assert ran.stdout == b"[3, 6]\n", ran.stderr
