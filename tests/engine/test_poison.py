"""Rows on which an expression or a function fails: named with their record, or taken out of the app."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.base.errors import FunctionError, StepFailed
from headrace.engine.pace import add_counts
from headrace.testing import Driver

ROWS = "k string, v int, t string, at timestamp"


def inverse(on_error=None, build=None):
    """An app with a view of 100 / v and a count of all rows by key."""
    app = hr.App("poison", on_error=on_error)
    app.function("picky", picky, returns="int", takes="int")
    rows = app.stream("t", ROWS, event_time="at", key="k")
    rows.group_by("k").agg(n="count(*)").to_view("counts")
    (build or (lambda rows: rows.select(k="k", w="100 div v").named("inverse")))(rows).to_view("out")
    return app


def picky(values):
    if 13 in values.to_pylist():
        raise ValueError("thirteen")
    return pc.add(values, 1)


def row(k, v, *, t="1", at=1):
    return {"k": k, "v": v, "t": t, "at": at}


def dead(driver, topic="t.dead"):
    return [{**letter, "record": json.loads(letter["record"])} for letter in driver.read(topic)]


FAILING = {
    "a division by zero": (lambda rows: rows.select(k="k", w="100 div v").named("x"), {"v": 0}, "v = 0"),
    "a bad cast": (lambda rows: rows.select(k="k", w="cast(t as int)").named("x"), {"t": "abc"}, "t = 'abc'"),
    "an overflow": (lambda rows: rows.select(k="k", w="v * v * v").named("x"), {"v": 99999}, "v = 99999"),
    "a condition": (lambda rows: rows.where("cast(t as int) > 0").named("x"), {"t": "abc"}, "t = 'abc'"),
    "an argument of an aggregate": (
        lambda rows: rows.group_by("k").agg(s="sum(100 div v)").named("x"), {"v": 0}, "v = 0"),
    "an explode": (lambda rows: rows.explode("transform(array(v), e -> 6 div e)", "e").named("x"), {"v": 0}, "v = 0"),
    "a function of the user's": (lambda rows: rows.select(k="k", w="picky(v)").named("x"), {"v": 13}, "picky(13)"),
    "an argument of a function": (
        lambda rows: rows.select(k="k", w="picky(100 div v)").named("x"), {"v": 0}, ""),
    "the order of a top": (lambda rows: rows.group_by("k").top(1, by="100 div v desc").named("x"), {"v": 0}, "v = 0"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "bad", "values"), FAILING.values(), ids=list(FAILING))
def test_a_row_that_fails_is_named_by_topic_partition_offset_and_values(build, bad, values):
    with Driver(inverse(build=build)) as driver:
        driver.send("t", row("a", 1), row("b", 2))
        driver.run()
        driver.send("t", row("a", 3), row("b", 4), row("c", 5) | bad, row("d", 6) | bad)
        with pytest.raises((StepFailed, FunctionError)) as error:
            driver.step()
        assert 'step "x"' in error.value.what
        assert 'topic "t", partition 0, offset 4: ' in error.value.detail
        assert values in error.value.detail
        assert "no input is lost" in error.value.detail
        assert [row["n"] for row in driver.view("counts")] == [1, 1], "the epoch has not happened"


@pytest.mark.parametrize(("build", "bad", "values"), FAILING.values(), ids=list(FAILING))
def test_a_record_that_fails_is_taken_out_whole_and_the_others_go_on(build, bad, values):
    del values
    with Driver(inverse("dead_letter", build)) as driver, Driver(inverse(build=build)) as clean:
        rows = [row("a", 1), row("b", 2), row("c", 5) | bad, row("d", 3), row("e", 6) | bad, row("a", 4)]
        driver.send("t", *rows)
        driver.run()
        clean.send("t", rows[0], rows[1], rows[3], rows[5])
        clean.run()
        assert driver.view("out") == clean.view("out")
        assert driver.view("counts") == clean.view("counts"), "no step saw the records"
        letters = dead(driver)
        assert [(letter["topic"], letter["partition"], letter["offset"]) for letter in letters] == [
            ("t", 0, 2), ("t", 0, 4)]  # fmt: skip
        assert all(letter["reason"].startswith('step "x" fails at ') for letter in letters)
        assert [letter["record"]["k"] for letter in letters] == ["c", "e"]
        assert driver.counts("t")["dead"] == 2


def test_which_records_are_taken_out_does_not_depend_on_the_cut():
    """A column that nobody reads, and a row that a later filter drops, fail in the same way in every epoch."""
    rows = [row("a", 0), row("b", 1), row("c", 0, t="x"), row("d", 2, t="x"), row("e", 3)]

    def build(rows):
        return rows.select(k="k", w="100 div v", n="cast(t as int)").select(k="k", w="w").where("k > 'b'")

    def outcome(cuts):
        with Driver(inverse("dead_letter", build)) as driver:
            driver.send("t", *rows)
            for _ in range(cuts):
                driver.step(limit=-(-len(rows) // cuts))
            driver.run()
            return driver.view("out"), driver.view("counts"), [letter["offset"] for letter in dead(driver)]

    assert outcome(1) == outcome(5)
    assert outcome(1)[2] == [0, 2, 3]


def test_a_table_row_that_fails_is_taken_out_and_comes_back_when_it_is_mended():
    app = hr.App("tables", on_error="dead_letter")
    table = app.table("t", "id int, v int", key="id")
    table.select(id="id", w="100 div v").named("inverse").to_view("out")
    table.group_by("v").agg(n="count(*)").to_view("counts")
    with Driver(app) as driver:
        driver.send("t", {"id": 1, "v": 10}, {"id": 2, "v": 0})
        driver.run()
        assert driver.view("out") == [{"id": 1, "w": 10}]
        assert driver.view("counts") == [{"v": 0, "n": 1}, {"v": 10, "n": 1}], "only the step that fails leaves it out"
        driver.send("t", {"id": 1, "v": 0}, {"id": 2, "v": 20})
        driver.run()
        assert driver.view("out") == [{"id": 2, "w": 5}]
        driver.delete("t", id=1)
        driver.run()
        assert driver.view("out") == [{"id": 2, "w": 5}]
        letters = dead(driver)
        assert [(letter["offset"], letter["record"]) for letter in letters] == [
            (-1, {"id": 2, "v": 0}), (-1, {"id": 1, "v": 0})]  # fmt: skip
        assert "inverse" in letters[0]["reason"]
        assert driver.counts("t")["dead"] == 0


def test_a_computed_row_that_fails_is_named_by_step_and_values():
    app = hr.App("deep")
    counts = app.stream("t", ROWS, event_time="at").group_by("k").agg(n="count(*)")
    counts.select(k="k", w="100 div (n - 2)").named("deep").to_view("out")
    with Driver(app) as driver:
        driver.send("t", row("a", 1))
        driver.run()
        driver.send("t", row("a", 1))
        with pytest.raises(StepFailed) as error:
            driver.step()
        assert 'step "deep" failed' in error.value.what
        assert "100 div (n - 2) fails for n = 2." in error.value.detail


def test_an_expression_that_reads_no_column_fails_for_no_values():
    app = hr.App("constant")
    app.stream("t", ROWS, event_time="at").select(w="1 / 0").to_view("out")
    with Driver(app) as driver:
        driver.send("t", row("a", 1))
        with pytest.raises(StepFailed, match=r"offset 0: 1 / 0 fails\. The epoch"):
            driver.step()


def test_a_computed_row_that_fails_is_taken_out_of_its_step_until_it_is_corrected():
    app = hr.App("deep", on_error="dead_letter")
    app.function("picky", picky, returns="int", takes="int")
    counts = app.stream("t", ROWS, event_time="at").group_by("k").agg(n="count(*)")
    counts.select(k="k", w="100 div (n - 2)", p="picky(cast(n + 10 as int))").named("deep").to_view("out")
    with Driver(app) as driver:
        seen = []
        for _ in range(5):
            driver.send("t", row("a", 1))
            driver.run()
            seen.append(driver.view("out"))
    assert seen == [
        [{"k": "a", "w": -100, "p": 12}], [], [], [{"k": "a", "w": 50, "p": 15}], [{"k": "a", "w": 33, "p": 16}]
    ]  # fmt: skip


def test_every_row_of_a_batch_may_fail():
    with Driver(inverse("dead_letter")) as driver:
        driver.send("t", *(row("a", 0, at=i) for i in range(5000)))
        driver.send("t", row("a", 1))
        driver.run()
        assert driver.view("counts") == [{"k": "a", "n": 1}]
        assert driver.counts("t")["dead"] == 5000


def test_a_function_that_fails_only_for_a_whole_batch_stops_the_app():
    """No row is to blame, so none is taken out."""

    def together(values):
        if len(values) > 1:
            raise ValueError("one at a time")
        return values

    app = hr.App("together", on_error="dead_letter")
    app.function("together", together, returns="int", takes="int")
    app.stream("t", ROWS, event_time="at").select(w="together(v)").to_view("out")
    with Driver(app) as driver:
        driver.send("t", row("a", 1), row("a", 2))
        with pytest.raises(FunctionError, match="one at a time"):
            driver.step()


def test_a_batch_function_loses_only_the_rows_that_it_fails_on():
    def doubled(table):
        if 13 in table.column("v").to_pylist():
            raise ValueError("thirteen")
        return table.select(["k", "v"])

    app = hr.App("batches", on_error="dead_letter")
    app.stream("t", ROWS, event_time="at").map_batches(doubled, "k string, v int").named("mine").to_view("out")
    with Driver(app) as driver:
        driver.send("t", row("a", 1), row("b", 13), row("c", 2))
        driver.run()
        assert [row["k"] for row in driver.view("out")] == ["a", "c"]
        (letter,) = dead(driver)
        assert "ValueError: thirteen" in letter["reason"]
        assert letter["record"]["v"] == 13


def test_an_aggregate_that_fails_stops_the_app_by_name():
    class Fails:
        state = "n bigint"

        def init(self, count):
            return {"n": np.zeros(count, np.int64)}

        def add(self, groups, values):
            raise ValueError(f"{len(groups)} and {len(values)}")

        def merge(self, left, right):
            return {"n": pc.add(left["n"], right["n"])}

        def result(self, states):
            return states["n"]

    app = hr.App("fails", on_error="dead_letter")
    app.function("fails", Fails, returns="bigint", takes="int")
    app.stream("t", ROWS, event_time="at").group_by("k").agg(n="fails(v)").named("mine").to_view("out")
    with Driver(app) as driver:
        driver.send("t", row("a", 1))
        with pytest.raises(FunctionError, match='step "mine"'):
            driver.step()


@pytest.mark.parametrize("point", ["before_staging", "after_staging", "after_commit", "before_sink", "after_sink"])
def test_a_crash_neither_loses_nor_doubles_a_dead_letter(point, tmp_path):
    with Driver(inverse("dead_letter"), storage=tmp_path) as driver:
        driver.send("t", row("a", 0), row("b", 1))
        driver.crash(point)
        driver.restart()
        driver.run()
        assert [letter["offset"] for letter in dead(driver)] == [0]
        assert driver.view("counts") == [{"k": "b", "n": 1}]


def test_the_status_says_why_records_are_dead_letters():
    app = inverse("dead_letter", lambda rows: rows.select(k="k", w="100 div v", n="cast(t as int)").named("x"))
    with Driver(app) as driver:
        driver.send("t", row("a", 1), row("a", 0), row("a", 0), row("a", 1, t="u"), row("a", 1, t="v"), row("a", 0))
        driver.send("t", row("a", 1) | {"at": None})
        driver.step(limit=2)
        driver.run()
        assert driver.status()["dead"] == {
            "t": {
                "rows": 6,
                "reasons": {
                    'step "x" fails at 100 div v': 3,
                    'step "x" fails at cast(t as int)': 2,
                    'the event time "at" is null': 1,
                },
            }
        }


def test_the_causes_that_are_counted_are_few():
    totals = {}
    for number in range(100):
        totals = add_counts(totals, {"dead:t": {f"cause {number}": number}})
    assert len(totals["dead:t"]) == 20
    assert totals["dead:t"]["cause 99"] == 99


@pytest.mark.on_spark
@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_both_carriers_name_and_take_out_the_same_record(on_error, carrier):
    app = inverse(on_error, lambda rows: rows.select(k="k", w="100 div v", p="picky(v)").named("x"))
    with Driver(app, carrier=carrier) as driver:
        driver.send("t", row("a", 1), row("b", 0), row("c", 13), row("d", 2))
        if on_error == "fail":
            with pytest.raises((StepFailed, FunctionError)) as error:
                driver.step()
            assert 'topic "t", partition 0, offset ' in error.value.detail
        else:
            driver.run()
            assert [letter["offset"] for letter in dead(driver)] == [1, 2]
            assert [row["k"] for row in driver.view("out")] == ["a", "d"]


def test_the_record_of_a_dead_letter_is_json_whatever_its_values_are():
    app = hr.App("poison", on_error="dead_letter")
    schema = "id int, w double, ws array<float>, b binary, s struct<b:binary>, name string"
    app.stream("t", schema).select("id", q="1 div id").to_view("v")
    letters = "topic string, partition int, offset bigint, reason string, record string"
    dead_rows = app.stream("t.dead", letters).select(id="get_json_object(record, '$.id')")
    dead_rows.to_view("ids")
    with Driver(app) as driver:
        driver.send("t", {"id": 0, "w": float("nan"), "ws": [float("-inf"), 1.5, None], "b": b"\xff\x00", "name": "é"})
        driver.send("t", {"id": 0, "s": {"b": b"a"}})
        driver.run()
        driver.run()
        first, second = (json.loads(letter["record"], parse_constant=pytest.fail) for letter in driver.read("t.dead"))
        given = {name: first[name] for name in ("id", "w", "ws", "b", "s", "name")}
        assert given == {"id": 0, "w": "nan", "ws": ["-inf", 1.5, None], "b": "/wA=", "s": None, "name": "é"}
        assert second["s"] == {"b": "YQ=="}
        assert driver.view("ids") == [{"id": "0"}, {"id": "0"}]
