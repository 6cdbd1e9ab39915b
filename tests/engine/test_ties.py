"""Tops whose equal rows share a position, with a number of rows of each group's own; arrays of tables as rows."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.base.errors import InvalidPlan, WrongColumnType
from headrace.testing import Driver, check_deltas

SCHEMA = "id int, g int, v int, tags array<string>"

upserts = st.fixed_dictionaries(
    {
        "id": st.integers(1, 8),
        "g": st.sampled_from([1, 2, 3, None]),
        "v": st.one_of(st.none(), st.integers(0, 2)),
        "tags": st.sampled_from([None, [], ["x"], ["x", "x"], ["y", None]]),
    }
)
deletes = st.integers(1, 8).map(lambda key: {"id": key, "_deleted": True})
epochs = st.lists(st.lists(st.one_of(upserts, upserts, deletes), max_size=8), min_size=1, max_size=6)


def positions(rows, ties):
    """Return each row with its position among those of its group, the greatest value first and nulls last."""
    placed = []
    for row in rows:
        ahead = [other for other in rows if other["g"] == row["g"] and before(other["v"], row["v"])]
        values = {other["v"] for other in ahead}
        placed.append((row, 1 + len(ahead if ties == "rank" else values)))
    return placed


def before(value, other):
    return value is not None and (other is None or value > other)


@pytest.mark.parametrize("ties", ["rank", "dense_rank"])
@settings(max_examples=examples(6))
@given(parts=epochs, stream=st.booleans())
def test_rows_up_to_a_position_are_there_as_in_sql(ties, parts, stream):
    """Of a table under upserts and deletes, and of a stream; the number of rows is a constant or a key."""
    app = hr.App("ties", shards=2)
    rows = app.stream("t", SCHEMA) if stream else app.table("t", SCHEMA, key="id")
    best = rows.group_by("g").top(2, "v desc", rank="place", ties=ties).named("best")
    sized = rows.group_by("g").top("g", "v desc", ties=ties).named("sized")
    assert best.key == (None if stream else ("id",))
    outputs = check_deltas(best), check_deltas(sized)
    there = {}
    with Driver(app, shards=2) as driver:
        for part in parts:
            for row in part:
                if not row.get("_deleted"):
                    driver.send("t", row)
                    there[len(there) if stream else row["id"]] = row
                elif not stream:
                    driver.delete("t", id=row["id"])
                    there.pop(row["id"], None)
            driver.step()
            placed = positions(list(there.values()), ties)
            expected = [(row["id"], row["g"], row["v"], place) for row, place in placed if place <= 2]
            assert Counter((row["id"], row["g"], row["v"], row["place"]) for row in outputs[0].rows) == Counter(
                expected
            )
            expected = [row["id"] for row, place in placed if row["g"] is not None and place <= row["g"]]
            assert Counter(row["id"] for row in outputs[1].rows) == Counter(expected)


def test_windows_have_ties_too():
    app = hr.App("ties")
    rows = app.stream("t", "k string, v int, at timestamp", event_time="at")
    window = hr.tumbling("10 seconds", grace="0 seconds")
    rows.group_by().window(window, emit="final").top(1, "v", "place", ties="rank").select("k", "place").to_view("out")
    with Driver(app) as driver:
        driver.send("t", *({"k": k, "v": v, "at": at * 1000} for k, v, at in (("a", 3, 1), ("b", 3, 9), ("c", 2, 5))))
        driver.finish()
        assert driver.view("out") == [{"k": "a", "place": 1}, {"k": "b", "place": 1}]


@pytest.mark.parametrize(
    ("verb", "error", "message"),
    [
        (lambda rows: rows.group_by("g").top("v", "v"), InvalidPlan, 'group_by(…, "v").top("v", …)'),
        (lambda rows: rows.group_by("tags").top("tags", "v"), WrongColumnType, "an integer"),
        (lambda rows: rows.group_by("g").top(1, "v", ties="all"), InvalidPlan, "'dense_rank'"),
        (lambda rows: rows.group_by("g").top(0, "v"), InvalidPlan, "positive"),
        (lambda rows: rows.top(1, "v", "n", ties="rank").changes(), InvalidPlan, "share it"),
    ],
)
def test_what_makes_no_sense_is_refused(verb, error, message):
    rows = hr.App("ties").table("t", SCHEMA, key="id").select("g", "v", "tags")
    with pytest.raises(error) as raised:
        verb(rows)
    assert message in str(raised.value)


@settings(max_examples=examples(5))
@given(parts=epochs)
def test_the_elements_of_a_tables_arrays_follow_its_rows(parts):
    app = hr.App("tags", shards=2)
    table = app.table("t", SCHEMA, key="id")
    tags = check_deltas(table.explode("tags", "tag").select("id", "tag"), net=False)
    counts = check_deltas(table.explode("tags", "tag").group_by("tag").agg(n="count(*)"))
    there = {}
    with Driver(app, shards=2) as driver:
        for part in parts:
            for row in part:
                there.pop(row["id"], None)
                if row.get("_deleted"):
                    driver.delete("t", id=row["id"])
                else:
                    driver.send("t", row)
                    there[row["id"]] = row
            driver.step()
            expected = Counter((row["id"], tag) for row in there.values() for tag in row["tags"] or ())
            assert Counter((row["id"], row["tag"]) for row in tags.rows) == expected
            expected = Counter(tag for row in there.values() for tag in row["tags"] or ())
            assert Counter({row["tag"]: row["n"] for row in counts.rows}) == expected
