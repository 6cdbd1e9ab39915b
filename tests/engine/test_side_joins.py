"""Lookups in small bounded tables: computed where the rows are, as the lookup with an exchange and state does."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

import headrace as hr
from budget import matrix
from headrace.base.errors import InvalidPlan, StepFailed
from headrace.connect import bounded
from headrace.kernels.joins import side_join
from headrace.plan.nodes import SideJoin
from headrace.testing import Driver

START = datetime(2026, 1, 1, tzinfo=UTC)
OF = {
    "int": lambda n: n,
    "string": lambda n: f"k{n}",
    "date": lambda n: date(2026, 1, 1) + timedelta(days=n),
    "timestamp": lambda n: START + timedelta(seconds=n),
    "boolean": lambda n: n % 2 == 0,
}


def rows_of(kind, count, last=7):
    """Return rows of a stream; some have no key, some one that the table does not have."""
    return [{"k": None if n % 6 == 5 else OF[kind](n % last), "c": n % 2, "n": n, "at": n * 1000} for n in range(count)]


def app_of(kind, how, table, *, on="k", key="k", wider=False):
    app = hr.App("side")
    side = app.table("side", f"k {'bigint' if wider else kind}, c int, city string", key=key, values=table)
    stream = app.stream("stream", f"k {kind}, c int, n int, at timestamp", event_time="at")
    joined = stream.join(side, on=on, how=how).named("joined")
    joined.to_topic("joined")
    joined.group_by("city").window(hr.tumbling("5 seconds", grace="0 seconds")).agg(n="sum(n)").named("w").to_view("w")
    return app


def outputs(app, cut, rows, shards=2):
    with Driver(app, shards=shards) as driver:
        for at in range(0, len(rows), cut):
            driver.send("stream", *rows[at : at + cut])
            driver.step()
        driver.run()
        return driver.read("joined"), sorted(map(str, driver.view("w")))


def both_ways(monkeypatch, make, cut, rows):
    """Return the outputs of both ways, the one without an exchange first; rows of the other come in any order."""
    side = make()
    assert any(isinstance(node, SideJoin) for node in side.plan().nodes)
    found = outputs(side, cut, rows)
    with monkeypatch.context() as patch:
        patch.setattr(SideJoin, "instead_of", lambda _: None)
        looked_up = make()
        assert not any(isinstance(node, SideJoin) for node in looked_up.plan().nodes)
        other = outputs(looked_up, cut, rows)
    assert sorted(map(str, found[0])) == sorted(map(str, other[0]))
    assert found[1] == other[1]
    return found


@pytest.mark.parametrize(("kind", "how"), matrix(OF, ["inner", "left"], depth=1))
def test_it_is_the_lookup_for_every_type_of_key(monkeypatch, kind, how):
    """Of equal keys the last row counts, null matches nothing, and the order is the stream's."""
    table = [{"k": OF[kind](n), "c": n % 2, "city": f"c{n}"} for n in (3, 1, 2, 1, 0)] + [
        {"k": OF[kind](2), "c": None, "city": None}
    ]
    for cut, few in ((20, 4), (3, 4), (3, 0)):
        monkeypatch.setattr(side_join, "FEW", few)
        joined, _ = both_ways(monkeypatch, lambda: app_of(kind, how, table), cut, rows_of(kind, 20))
        assert [row["n"] for row in joined] == sorted(row["n"] for row in joined)
        assert {row["city"] for row in joined} >= ({"c0"} if kind != "boolean" else {None, "c1"} - {"c0"})


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize(("on", "key"), [("c", "k"), (("k", "c"), "k"), (("k", "c"), ("c", "k")), ("c", ("k", "c"))])
def test_rows_with_several_matches_and_keys_of_several_columns(monkeypatch, on, key, how):
    table = [{"k": n, "c": n % 3 or None, "city": f"c{n}"} for n in range(6) if key == "k" or n % 3]
    table += [{"k": 4, "c": 1, "city": "again"}]
    joined, _ = both_ways(monkeypatch, lambda: app_of("int", how, table, on=on, key=key), 7, rows_of("int", 20))
    assert joined


def test_whole_numbers_of_different_widths_match(monkeypatch):
    table = [{"k": n, "c": 0, "city": f"c{n}"} for n in (1, 1 << 40)]
    for cut in (20, 2):
        both_ways(monkeypatch, lambda: app_of("int", "left", table, wider=True), cut, rows_of("int", 20))


def test_a_table_without_rows_matches_nothing(monkeypatch):
    assert both_ways(monkeypatch, lambda: app_of("int", "inner", []), 7, rows_of("int", 9))[0] == []
    assert len(both_ways(monkeypatch, lambda: app_of("int", "left", []), 7, rows_of("int", 9))[0]) == 9


def test_a_lookup_below_it_still_knows_when_a_row_arrived():
    """A row that was joined passes its arrival on: a table that changes is as it was then, for every cut."""

    def make():
        app = hr.App("side")
        side = app.table("side", "k int, c int, city string", key="k", values=[{"k": 1, "c": 1, "city": "x"}])
        prices = app.table("prices", "city string, price int", key="city")
        stream = app.stream("stream", "k int, n int")
        stream.join(side, on="k").join(prices, on="city", how="left").select("n", "price").to_topic("out")
        return app

    for cut in (1, 3, 9):
        with Driver(make(), shards=2) as driver:
            for n in range(4):
                driver.send("stream", {"k": 1, "n": 2 * n})
                driver.advance(1)
                driver.send("prices", {"city": "x", "price": n})
                driver.advance(1)
                driver.send("stream", {"k": 1, "n": 2 * n + 1})
                driver.advance(1)
            for _ in range(14):
                driver.step(limit=cut)
            driver.run()
            found = {row["n"]: row["price"] for row in driver.read("out")}
            assert found == {0: None, 1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2, 7: 3}


def test_the_record_on_which_a_step_below_fails_is_named():
    app = hr.App("side")
    side = app.table("side", "k int, c int", key="k", values=[{"k": n, "c": n} for n in range(3)])
    app.stream("stream", "k int, n int").join(side, on="k").select(q="1 div (n - c)").to_topic("out")
    with Driver(app) as driver:
        driver.send("stream", {"k": 1, "n": 5}, {"k": 9, "n": 9}, {"k": 2, "n": 2})
        with pytest.raises(StepFailed, match="offset 2"):
            driver.step()


def test_tables_that_are_large_or_have_rows_without_a_key_or_change_are_kept_as_state(monkeypatch, tmp_path):
    def joins(table=None, **more):
        app = hr.App("side")
        given = {"values": table} if table is not None else more
        side = app.table("side", "k int, city string", key="k", **given)
        app.stream("stream", "k int").join(side, on="k").to_topic("out")
        return [type(node).__name__ for node in app.plan().nodes if node.verb == "join"]

    assert joins([{"k": 1, "city": "a"}]) == ["SideJoin"]
    assert joins([{"k": None, "city": "a"}]) == ["LookupJoin"]
    assert joins() == ["LookupJoin"]
    (tmp_path / "x.csv").write_text("k,city\n1,a\n")
    assert joins(path=tmp_path / "x.csv") == ["SideJoin"]
    (tmp_path / "y.csv").write_text("k,city\n,a\n")
    assert joins(path=tmp_path / "y.csv") == ["LookupJoin"]
    monkeypatch.setattr(bounded, "SIDE_BYTES", 1)
    assert joins([{"k": 1, "city": "a"}]) == ["LookupJoin"]
    (tmp_path / "z.csv").write_text("k\n1\n")
    monkeypatch.undo()
    with pytest.raises(InvalidPlan, match="cannot be read as declared"):
        joins(path=tmp_path / "z.csv")


def test_explain_says_that_every_task_has_the_table():
    text = str(app_of("int", "inner", [{"k": 1, "c": 1, "city": "a"}]).explain())
    assert "inner, on k, with side, a bounded table that every task has" in text
    assert "[latest]" not in text


def test_another_content_is_another_meaning_of_a_step_without_state(tmp_path):
    """What is below keeps what it has: it is told from where on the rows mean something else."""
    make = lambda city: app_of("int", "inner", [{"k": 1, "c": 1, "city": city}])  # noqa: E731 -- twice, below
    seen = []
    for city in ("a", "b"):
        with Driver(make(city), storage=tmp_path) as driver:
            driver.send("stream", {"k": 1, "c": 0, "n": 1, "at": 1000})
            driver.run()
            seen = [row["city"] for row in driver.read("joined")]
    assert seen == ["a", "b"]


def test_rows_of_arrow_with_zones_and_small_numbers_come_out_as_declared(monkeypatch):
    table = pa.table({
        "k": pa.array([1, 2], pa.int16()),
        "seen": pa.array([START, None], pa.timestamp("us", "UTC")),
        "many": pa.array([["a"], None], pa.list_(pa.string())),
    })  # fmt: skip

    def make():
        app = hr.App("side")
        side = app.table("side", key="k", values=table)
        app.stream("stream", "k smallint, n int").join(side, on="k", how="left").to_topic("joined")
        app.stream("other", "k smallint").to_view("w")
        return app

    rows = [{"k": n, "n": n} for n in range(4)]
    joined, _ = both_ways(monkeypatch, make, 2, rows)
    assert [(row["n"], row["seen"], row["many"]) for row in joined] == [
        (0, None, None),
        (1, START, ["a"]),
        (2, None, None),
        (3, None, None),
    ]
