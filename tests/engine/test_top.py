"""Top: the n first rows of each group, kept right under additions, withdrawals and ties; only changes come out."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime

import disturbed
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.base.errors import (
    InvalidExpression,
    InvalidName,
    InvalidPlan,
    PlanChanged,
    UnknownColumn,
    WrongType,
)
from headrace.engine.program.reset import reset
from headrace.kernels import first_rows
from headrace.testing import Driver

SCHEMA = "k string, g int, v int, x double, at timestamp"
COLUMNS = ("k", "g", "v", "x", "at")


def row(k, v, *, g=1, x=None, second=0):
    return {"k": k, "g": g, "v": v, "x": x, "at": second * 1000}


class Deltas:
    """A sink that sums the deltas it is given, and keeps the last one."""

    def __init__(self, name):
        self.name = name
        self.sum = Counter()
        self.last = []

    def write(self, epoch, rows):  # noqa: ARG002 -- the words of a sink
        """Add a delta."""
        self.last = [(each.pop("_weight"), each.pop("_time"), plain(each)) for each in rows.to_pylist()]
        for weight, _, each in self.last:
            self.sum[each] += weight
        assert min(self.sum.values()) >= 0
        self.sum = +self.sum


def plain(each):
    """A row as text by which equal ones are equal: NaN is, zeros are, and one instant in two zones is."""
    return repr([_plain(value) for value in each.values()])


def _plain(value):
    if isinstance(value, datetime):
        return value.timestamp()
    return value + 0.0 if isinstance(value, float) else value


def ranking(rank="place", *, table=False, keys=("g",), by="v desc, k asc", n=2):
    """An app with one ranking, `best`, at the view and the sink of that name."""
    app = hr.App("top", shards=2)
    rows = app.stream("t", SCHEMA, event_time="at")
    source = rows.group_by("k").agg(g="max(g)", v="sum(v)") if table else rows
    best = source.group_by(*keys).top(n, by, rank).named("best")
    best.to_view("best")
    sink = Deltas("best")
    best.to(sink)
    return app, sink


def places(driver):
    return [(each["g"], each["place"], each["k"], each["v"]) for each in driver.view("best")]


@pytest.mark.on_spark
def test_only_rows_that_enter_leave_or_move_come_out(drive):
    app, sink = ranking()
    driver = drive(app)
    driver.send("t", row("a", 5), row("b", 3), row("c", 4), row("d", 9, g=2))
    driver.step()
    assert places(driver) == [(1, 1, "a", 5), (1, 2, "c", 4), (2, 1, "d", 9)]
    driver.send("t", row("e", 5, second=7), row("f", 1), row("g", 1, g=2, second=3))
    driver.step()
    assert places(driver) == [(1, 1, "a", 5), (1, 2, "e", 5), (2, 1, "d", 9), (2, 2, "g", 1)]
    times = Counter((weight, time // 1_000_000) for weight, time, _ in sink.last)
    assert times == {(-1, 7): 1, (1, 7): 1, (1, 3): 1}, "at the time of the row that made the change"
    sink.last = None
    driver.send("t", row("z", 0), row("z", -1, g=2))
    driver.step()
    assert not sink.last


def test_the_next_row_takes_the_place_of_one_that_goes():
    """Over a table: sums go down, keys change their group, and a group that is left is gone."""
    app, _ = ranking(table=True)
    with Driver(app) as driver:
        driver.send("t", row("a", 5), row("b", 3), row("c", 4), row("d", 9, g=2))
        driver.step()
        driver.send("t", row("a", -4))
        driver.step()
        assert places(driver) == [(1, 1, "c", 4), (1, 2, "b", 3), (2, 1, "d", 9)]
        driver.send("t", row("c", 0, g=3))
        driver.step()
        assert places(driver) == [(1, 1, "b", 3), (1, 2, "a", 1), (2, 1, "d", 9), (3, 1, "c", 4)]
        driver.send("t", row("d", 0, g=3))
        driver.step()
        assert places(driver) == [(1, 1, "b", 3), (1, 2, "a", 1), (3, 1, "d", 9), (3, 2, "c", 4)]


def test_a_term_without_a_direction_counts_down_and_ties_go_by_the_whole_row_ascending():
    app, _ = ranking(by="v", n=3)
    with Driver(app) as driver:
        driver.send("t", row("c", 5), row(None, 5), row("b", 5), row("a", None), row("z", 4))
        driver.step()
        assert [each[2] for each in places(driver)] == [None, "b", "c"]


@pytest.mark.parametrize(
    ("by", "first"),
    [
        ("v", [9, 1, None]),
        ("v desc", [9, 1, None]),
        ("v asc", [None, 1, 9]),
        ("v nulls first", [None, 9, 1]),
        ("v desc nulls first", [None, 9, 1]),
        ("v asc nulls last", [1, 9, None]),
        ("v ASC NULLS FIRST", [None, 1, 9]),
        ("coalesce(-v, 0) desc", [None, 1, 9]),
        ("`v` % 2, -v asc", [9, 1, None]),
    ],
)
def test_nulls_stand_as_in_spark_unless_it_is_said(by, first):
    app, _ = ranking(by=by, n=3)
    with Driver(app) as driver:
        driver.send("t", row("a", 1), row("b", 9), row("c", None))
        driver.step()
        assert [each[3] for each in places(driver)] == first


def test_equal_rows_take_a_place_each():
    app, sink = ranking(n=3)
    with Driver(app) as driver:
        driver.send("t", row("a", 5), row("a", 5), row("b", 4))
        driver.step()
        driver.send("t", row("a", 5), row("a", 5))
        driver.step()
        assert places(driver) == [(1, 1, "a", 5), (1, 2, "a", 5), (1, 3, "a", 5)]
        assert len(sink.last) == 2, "b goes, one a comes"


def test_of_rows_that_only_come_no_more_than_the_first_are_kept():
    app, _ = ranking()
    with Driver(app, shards=2) as driver:
        for start in range(0, 300, 50):
            driver.send("t", *(row(f"{n}", n % 31, g=n % 5) for n in range(start, start + 50)))
            driver.step()
        assert driver.counts("best")["state_rows"] == 10
        assert driver.counts("best")["rows_in"] == 300


def test_one_ranking_of_a_table_is_made_of_the_rankings_of_its_shards():
    """So few rows meet in one place; the step of the shards' rankings is named after it."""
    app, _ = ranking(table=True, keys=())
    steps = {step["name"]: step for step in app.explain().data["steps"]}
    assert (steps["best_parts"]["level"], steps["best_parts"]["exchange"]) == (1, False)
    assert (steps["best"]["level"], steps["best"]["exchange"]) == (2, True)
    assert steps["best"]["key"] == ["place"]
    assert "first 2 of each shard by v desc nulls last, k asc nulls first" in str(app.explain())
    with Driver(app, shards=3) as driver:
        driver.send("t", *(row(f"{n:02}", n) for n in range(40)))
        driver.step()
        driver.step()
        assert [each["k"] for each in driver.view("best")] == ["39", "38"]
        assert driver.counts("best")["rows_in"] <= 6


def test_a_function_of_the_users_may_order():
    app = hr.App("scored")
    app.function("score", pc.negate, returns="int")
    app.stream("t", SCHEMA, event_time="at").group_by().top(1, "score(v)", "place").to_view("best")
    with Driver(app) as driver:
        driver.send("t", row("a", 5), row("b", 3), row("c", 4))
        driver.step()
        assert driver.view("best")[0]["k"] == "b"


def test_columns_of_any_type_and_name():
    schema = "c0 map<string,int>, o0 struct<a:int>, _n array<string>, d decimal(9,2), at timestamp"
    app = hr.App("types")
    app.stream("t", schema, event_time="at").group_by("o0").top(1, "d * 2 desc", rank="c1").to_view("best")
    one = {"c0": {"z": 1}, "o0": {"a": 1}, "_n": ["x", None], "d": "1.50", "at": 0}
    with Driver(app) as driver:
        driver.send("t", one, {**one, "c0": {"a": 1}}, {**one, "o0": None})
        driver.step()
        driver.restart()
        driver.send("t", one, {**one, "d": "1.60"})
        driver.step()
        assert [(each["o0"], str(each["d"]), each["c1"]) for each in driver.view("best")] == [
            (None, "1.50", 1),
            ({"a": 1}, "1.60", 1),
        ]


# ---- after every epoch, what the batch query gives ----


def up(value):
    """Ascending, nulls first, NaN last: a key to sort by."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def down(value):
    """Descending, nulls last."""
    kind, number = up(value)
    return (-kind, -number)


def first(rows, n, *, keys, order, rank):
    """Return the rows that a ranking has, as text, with their positions."""
    groups = {}
    for each in rows:
        groups.setdefault(tuple(each[key] for key in keys), []).append(each)
    made = []
    for group in groups.values():
        ordered = sorted(group, key=lambda r: (order(r), [up(value) for value in r.values()]))
        made += [{**each, **({rank: place + 1} if rank else {})} for place, each in enumerate(ordered[:n])]
    return Counter(map(plain, made))


def totals(rows):
    """Return the table that is ranked: one row a key, which goes down, changes its group, and is null."""
    made = {}
    for each in rows:
        made.setdefault(each["k"], []).append(each)
    table = []
    for k, group in made.items():
        total = [each["v"] for each in group if each["v"] is not None]
        latest = [each["g"] for each in group if each["g"] is not None]
        table.append({"k": k, "n": len(group), "v": sum(total) if total else None, "g": sum(latest) % 3})
    return table


RANKINGS = {
    "stream": {
        "n": 2,
        "keys": ("g",),
        "by": "v desc, k asc",
        "order": lambda r: (down(r["v"]), up(r["k"])),
        "rank": "r",
    },
    "whole": {"n": 3, "keys": (), "by": "x asc, v", "order": lambda r: (up(r["x"]), down(r["v"])), "rank": None},
    "table": {"n": 2, "keys": ("g",), "by": "v, n asc", "order": lambda r: (down(r["v"]), up(r["n"])), "rank": "r"},
    "bag": {"n": 1, "keys": ("g",), "by": "v", "order": lambda r: down(r["v"]), "rank": None},
    "global": {"n": 3, "keys": (), "by": "n, v", "order": lambda r: (down(r["n"]), down(r["v"])), "rank": "r"},
}
OF_TABLE = ("table", "bag", "global")


def every_ranking():
    """An app with all of them, their sinks by name, and an aggregate on top of one."""
    app = hr.App("every", shards=2)
    rows = app.stream("t", SCHEMA, event_time="at", partitions=2)
    table = rows.group_by("k").agg(n="count(*)", v="sum(v)", groups="sum(coalesce(g, 0))").named("totals")
    table = table.select("k", "n", "v", g="cast(groups % 3 as int)")
    sinks = {}
    for name, r in RANKINGS.items():
        best = (table if name in OF_TABLE else rows).group_by(*r["keys"]).top(r["n"], r["by"], r["rank"]).named(name)
        sinks[name] = Deltas(name)
        best.to(sinks[name])
        if name == "table":
            above = best.group_by("g").agg(m="sum(v)", c="count(*)").named("above")
            sinks["above"] = Deltas("above")
            above.to(sinks["above"])
    return app, sinks


def expected(rows):
    """Return what each sink's deltas sum to."""
    rows = [{**each, "at": datetime.fromtimestamp(each["at"] / 1000, tz=UTC)} for each in rows]
    kept = {}
    for name, r in RANKINGS.items():
        source = totals(rows) if name in OF_TABLE else rows
        kept[name] = first(source, r["n"], keys=r["keys"], order=r["order"], rank=r["rank"])
    return kept


values = st.one_of(st.none(), st.integers(-3, 3))
doubles = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -2.0, math.nan, math.inf]))
events = st.builds(
    row, st.sampled_from(["a", "b", "c", "é", None]), values, g=st.one_of(st.none(), st.integers(0, 2)), x=doubles,
    second=st.integers(0, 3),
)  # fmt: skip


@settings(max_examples=examples(4))
@given(
    epochs=st.lists(st.lists(events, max_size=9), min_size=1, max_size=5),
    restarts=st.sets(st.integers(0, 4), max_size=1),
    many=st.sampled_from([(0, 0), (0, first_rows.SAMPLE), (first_rows.MANY, 0)]),
)
def test_after_every_epoch_the_deltas_sum_to_the_batch_query_and_hold_nothing_more(epochs, restarts, many):
    """Nulls, ties, duplicates, withdrawals, groups that change, disorder, empty epochs, rebuilt caches; as if many."""
    app, sinks = every_ranking()
    sent, before = [], {name: Counter() for name in RANKINGS}
    with pytest.MonkeyPatch.context() as patch, Driver(app, shards=2) as driver:
        patch.setattr(first_rows, "MANY", many[0])
        patch.setattr(first_rows, "SAMPLE", many[1])
        for number, rows in enumerate(epochs):
            if number in restarts:
                driver.restart()
            for sink in sinks.values():
                sink.last = []
            driver.send("t", *rows)
            driver.step()
            sent += rows
            now = expected(sent)
            for name, kept in now.items():
                assert sinks[name].sum == kept, (name, number)
                moved = (kept - before[name]) + (before[name] - kept)
                assert Counter(each for _, _, each in sinks[name].last) == moved, (name, number)
            before = now
            assert sum(sinks["above"].sum.values()) == len({each["g"] for each in totals(sent)})


def test_after_every_epoch_spark_gives_the_same(spark):
    """`row_number() over (…) <= n` over all that was sent."""
    app, sinks = every_ranking()
    sent = []
    kinds = [
        ("k", pa.string()),
        ("g", pa.int32()),
        ("v", pa.int32()),
        ("x", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
    ties = ", ".join(f"{name} asc nulls first" for name in COLUMNS)
    queries = {
        "stream": f"select {', '.join(COLUMNS)}, r from (select *, row_number() over (partition by g order by v desc, "
        f"k asc, {ties}) r from t) where r <= 2",
        "whole": f"select {', '.join(COLUMNS)} from (select *, row_number() over (order by x asc, v desc, {ties}) r "
        "from t) where r <= 3",
        "global": "select k, n, v, g, r from (select *, row_number() over (order by n desc, v desc, k asc, g asc) r "
        "from (select k, count(*) n, sum(v) v, cast(sum(coalesce(g, 0)) % 3 as int) g from t group by k)) where r <= 3",
    }
    with Driver(app, shards=2) as driver:
        for epoch in range(3):
            rows = [
                row(
                    [*"abcdefg", None][n * 5 % 8], [n * 7 % 11 - 5, None][n % 9 == 0], g=[n % 3, None][n % 7 == 0],
                    x=[math.nan, None, 0.5, -1.0][n % 4], second=n % 5,
                )
                for n in range(epoch * 40, epoch * 40 + 40)
            ]  # fmt: skip
            driver.send("t", *rows)
            driver.step()
            sent += [{**each, "at": each["at"] * 1000} for each in rows]
            spark.createDataFrame(pa.Table.from_pylist(sent, schema=pa.schema(kinds))).createOrReplaceTempView("t")
            for name, query in queries.items():
                assert sinks[name].sum == Counter(map(plain, spark.sql(query).toArrow().to_pylist())), (name, epoch)


# ---- crashes ----


def outputs(step=disturbed.quietly):
    """All that anyone can see after some epochs, of which some crash."""
    app = hr.App("crashing", shards=2)
    table = app.stream("t", SCHEMA, event_time="at").group_by("k").agg(g="max(g)", v="sum(v)")
    best = table.group_by().top(3, "v", rank="place").named("best")
    best.to_topic("best")
    best.to_view("best")
    table.group_by("g").top(2, "v asc", rank="place").named("least").to_topic("least")
    with Driver(app, shards=2) as driver:
        for number in range(4):
            driver.send(
                "t", *(row(f"{n * 7 % 23}", n * 5 % 17 - 8, g=n % 3) for n in range(number * 30, number * 30 + 30))
            )
            step(driver, number)
        return driver.read("best"), driver.read("least"), driver.view("best")


@pytest.fixture(scope="module")
def undisturbed():
    return outputs()


@pytest.mark.parametrize("point", disturbed.points("after_staging", "before_views"))
def test_a_crash_leaves_no_trace(point, undisturbed):
    """Byte for byte what a run gives that never crashed."""
    assert outputs(disturbed.crashing(point, (0, 2))) == undisturbed


def test_a_ranking_of_a_table_that_was_reset_is_filled_from_the_table(tmp_path):
    """The rows that do not change are in it."""
    made = ranking(table=True, n=3)[0]
    with Driver(made, storage=tmp_path) as driver:
        driver.send("t", row("a", 5), row("b", 3), row("c", 4))
        driver.step()
    reset(made.plan(), tmp_path, "best")
    with Driver(made, storage=tmp_path) as driver:
        driver.send("t", row("d", 6))
        driver.step()
        assert [place[2] for place in places(driver)] == ["d", "a", "c"]


def test_a_ranking_of_a_stream_that_was_reset_is_replayed_from_the_topic(tmp_path):
    made = ranking(n=2)[0]
    with Driver(made, storage=tmp_path) as driver:
        driver.send("t", row("a", 5), row("b", 3))
        driver.step()
    reset(made.plan(), tmp_path, "best")
    with Driver(made, storage=tmp_path) as driver:
        driver.send("t", row("c", 1))
        driver.step()
        assert [place[2] for place in places(driver)] == ["a", "b"]


# ---- bad input ----


def stream():
    return hr.App("bad").stream("t", SCHEMA + ", m map<string,int>", event_time="at")


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda s: s.group_by("k").top(0, "v"), InvalidPlan, "a positive number of rows"),
        (lambda s: s.group_by("k").top("3", "v"), UnknownColumn, 'has no column "3"'),
        (lambda s: s.group_by("k").top(1.5, "v"), InvalidPlan, "a positive number of rows"),
        (lambda s: s.group_by("k").top(1, ""), InvalidExpression, "is no order"),
        (lambda s: s.group_by("k").top(1, None), InvalidExpression, "is no order"),
        (lambda s: s.group_by("k").top(1, "vv"), UnknownColumn, 'Did you mean "v"'),
        (lambda s: s.group_by("k").top(1, "v limit 3"), InvalidExpression, "cannot read the order"),
        (lambda s: s.group_by("k").top(1, "v desc desc"), InvalidExpression, "cannot read the order"),
        (lambda s: s.group_by("k").top(1, "v; select 1"), InvalidExpression, "cannot read the order"),
        (lambda s: s.group_by("k").top(1, "2 desc"), InvalidExpression, "orders nothing"),
        (lambda s: s.group_by("k").top(1, "m"), WrongType, "by which rows are not ordered"),
        (lambda s: s.group_by("k").top(1, "v", rank="k"), InvalidPlan, 'the column "k" twice'),
        (lambda s: s.group_by("k").top(1, "v", rank="_time"), InvalidPlan, "Headrace uses itself"),
        (lambda s: s.group_by("k").top(1, "v", rank="no name"), InvalidName, "no name"),
        (lambda s: s.group_by("k").top(1, "v").to_topic("o"), InvalidPlan, 'rank="position"'),
        (lambda s: s.group_by().window(hr.session("1 s", grace="0 s")).top(1, "v"), InvalidPlan, "cannot be ranked"),
        (lambda s: s.group_by("k").top(1, "v").late, InvalidPlan, "no late rows"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_said(make, error, said):
    with pytest.raises(error) as caught:
        make(stream())
    assert said in str(caught.value)


@pytest.mark.parametrize("changed", [{"n": 3}, {"by": "v asc"}, {"rank": "r"}, {"keys": ("k",)}])
def test_another_ranking_is_another_step(tmp_path, changed):
    with Driver(ranking()[0], storage=tmp_path) as driver:
        driver.send("t", row("a", 1))
        driver.step()
    with pytest.raises(PlanChanged), Driver(ranking(**changed)[0], storage=tmp_path):
        pass
