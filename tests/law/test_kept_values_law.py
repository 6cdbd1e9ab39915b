"""What groups keep of their values, counts and extremes: after every epoch that of the rows that are there."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import Deltas

import headrace as hr
from budget import examples
from headrace.base.errors import PlanChanged
from headrace.engine.storage import Storage
from headrace.kernels.state.keyed import KeyedState
from headrace.testing import Driver

ROWS = "id int, k string, a int, b string, x double, at timestamp"
COUNTS = {
    "n": "count(*)",
    "kinds": "count(distinct a)",
    "pairs": "count(distinct a, b)",
    "few": "count(distinct a % 2)",
}
ENDS = {"least": "min(a)", "most": "max(a)", "first": "min(b)", "x": "max(x)", "again": "min(distinct a)"}
MORE = COUNTS | ENDS | {"all": "sort_array(collect_set(a))"}
MINUTE = 60_000

records = st.fixed_dictionaries(
    {
        "id": st.integers(1, 6),
        "k": st.sampled_from(["x", "y", None]),
        "a": st.sampled_from([0, 1, 2, None]),
        "b": st.sampled_from(["s", "", None]),
        "x": st.sampled_from([0.5, -1.0, float("inf"), None]),
        "at": st.integers(0, 5).map(lambda minute: 1_767_225_600_000 + minute * MINUTE),
    }
)
deletes = st.integers(1, 6).map(lambda key: {"id": key, "_deleted": True})
epochs = st.lists(st.lists(st.one_of(records, records, deletes), max_size=6), min_size=1, max_size=6)


def end(function, values):
    return function((each for each in values if each is not None), default=None)


EXPECTED = {
    "n": len,
    "kinds": lambda rows: len({row["a"] for row in rows} - {None}),
    "pairs": lambda rows: len({(row["a"], row["b"]) for row in rows if None not in (row["a"], row["b"])}),
    "few": lambda rows: len({row["a"] % 2 for row in rows if row["a"] is not None}),
    "least": lambda rows: end(min, (row["a"] for row in rows)),
    "most": lambda rows: end(max, (row["a"] for row in rows)),
    "first": lambda rows: end(min, (row["b"] for row in rows)),
    "x": lambda rows: end(max, (row["x"] for row in rows)),
    "again": lambda rows: end(min, (row["a"] for row in rows)),
    "all": lambda rows: sorted({row["a"] for row in rows} - {None}),
}


def computed(rows, by, aggregates):
    """What aggregates are of rows, by group."""
    groups = defaultdict(list)
    for row in rows:
        groups[by(row)].append(row)
    return {group: [EXPECTED[name](found) for name in aggregates] for group, found in groups.items()}


def shown(view, by, aggregates):
    return {by(row): [row[name] for name in aggregates] for row in view}


@settings(max_examples=examples(8), deadline=None)
@given(epochs, st.sampled_from([COUNTS, ENDS, COUNTS | ENDS, MORE]), st.booleans())
def test_of_rows_that_change_and_go(sent, aggregates, of_all):
    app, deltas = hr.App("law"), Deltas()
    keys = [] if of_all else ["k"]
    table = app.table("t", ROWS, key="id").group_by(*keys).agg(**aggregates)
    table.to_view("out")
    table.to(deltas)
    there = {}
    with Driver(app, shards=2) as driver:
        for changes in sent:
            for row in changes:
                there.pop(row["id"], None)
                if "_deleted" not in row:
                    there[row["id"]] = row
                driver.send("t", row)
            driver.run()
            expected = computed(there.values(), lambda row: None if of_all else row["k"], aggregates)
            assert shown(driver.view("out"), lambda row: row.get("k"), aggregates) == expected
    assert sum(deltas.sum.values()) == len(expected)


@settings(max_examples=examples(6), deadline=None)
@given(st.lists(st.lists(records, max_size=8), min_size=1, max_size=5), st.sampled_from([COUNTS, MORE]))
@pytest.mark.parametrize("emit", ["changes", "final"])
def test_of_windows_and_late_rows(emit, sent, aggregates):
    app = hr.App("law")
    rows = app.stream("t", ROWS, event_time="at", out_of_order="0 s")
    rows.group_by("k").window(hr.tumbling("2 minutes", grace="1 minute"), emit=emit).agg(**aggregates).to_view("out")
    taken, newest = [], 0
    with Driver(app, shards=2) as driver:
        for some in sent:
            taken += [row for row in some if row["at"] // (2 * MINUTE) * 2 * MINUTE + 3 * MINUTE > newest]
            newest = max([newest, *(row["at"] for row in some)])
            driver.send("t", *some)
            driver.run()
        if emit == "final":
            driver.finish()
        found = driver.view("out")
    by = shown(found, lambda row: (row["k"], int(row["window_start"].timestamp() * 1000)), aggregates)
    assert by == computed(taken, lambda row: (row["k"], row["at"] // (2 * MINUTE) * 2 * MINUTE), aggregates)


@pytest.fixture
def rows_read(monkeypatch):
    """How many rows of state are looked up."""
    read, find = [], KeyedState.find

    def watched(*args, **options):
        found = find(*args, **options)
        read.append(sum(part.num_rows for part in found))
        return found

    monkeypatch.setattr(KeyedState, "find", watched)
    return read


def test_an_epoch_looks_at_the_values_that_come_alone(rows_read):
    """What a group has counted already is not counted again: the cost of an epoch follows what changes."""
    app = hr.App("law")
    app.stream("t", "k string, a int").group_by("k").agg(n="count(distinct a)").to_view("out")
    with Driver(app) as driver:
        driver.send("t", *({"k": "x", "a": number} for number in range(5_000)))
        driver.run()
        rows_read.clear()
        driver.send("t", *({"k": "x", "a": number} for number in range(4_995, 5_005)))
        driver.run()
        assert driver.view("out") == [{"k": "x", "n": 5_005}]
    assert 0 < sum(rows_read) < 100


def test_values_are_looked_at_where_an_extreme_goes_and_none_comes_in_its_place(rows_read):
    app = hr.App("law")
    table = app.table("t", "id int, k string, a int", key="id")
    table.group_by("k").agg(least="min(a)", most="max(a)").to_view("out")
    with Driver(app) as driver:
        driver.send("t", *({"id": number, "k": "x", "a": number} for number in range(5_000)))
        driver.run()
        for row, least, most, looks in (
            ({"id": 7, "k": "x", "a": 8}, 0, 4_999, False),
            ({"id": 0, "k": "x", "a": -1}, -1, 4_999, False),
            ({"id": 4_999, "k": "x", "a": 70}, -1, 4_998, True),
            ({"id": 0, "_deleted": True}, 1, 4_998, True),
        ):
            rows_read.clear()
            driver.send("t", row)
            driver.run()
            assert driver.view("out") == [{"k": "x", "least": least, "most": most}]
            assert (sum(rows_read) > 4_000) == looks
            assert looks or sum(rows_read) < 100


def test_state_of_a_release_that_counted_them_anew_is_refused(tmp_path):
    app = hr.App("law")
    app.stream("t", "k string, a int").group_by("k").agg(n="count(distinct a)").named("kinds").to_view("out")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", {"k": "x", "a": 1})
        driver.run()
    storage = Storage(tmp_path, "law")
    stored = storage.read_json("plan.json")
    assert stored["steps"]["kinds"].pop("results of values") == "kept"
    storage.write_json("plan.json", stored)
    with pytest.raises(PlanChanged, match="results of values: was None, is kept"):
        Driver(app, storage=tmp_path)
