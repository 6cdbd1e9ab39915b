"""The law on `over`: after every epoch each row has what a walk over the rows of its key gives, however cut."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.testing import Driver, check_deltas

SCHEMA = "id int, k string, v int, x double, s string, at timestamp"
START = 1_767_225_600_000
EVERY = {
    "n": "count(*)",
    "nv": "count(v)",
    "mean": "avg(v)",
    "total": "sum(x)",
    "half": "sum(v) filter (where s is not null)",
    "lo": "min(s)",
    "hi": "max(v)",
    "by": "max_by(s, v)",
    "either": "bool_or(v > 1)",
    "sd": "stddev_pop(v)",
    "nr": "row_number()",
    "before": "lag(v, 2, id)",
    "step": "v - lag(v)",
    "first": "first_value(v)",
    "known": "last_value(s, true)",
}
FRAMES = {
    "all": {},
    "one": {"rows": 1},
    "three": {"rows": 3},
    "before": {"rows": (2, 1)},
    "far": {"rows": (3, 3)},
    "moment": {"range": "0 seconds"},
    "seconds": {"range": "3 seconds"},
}

doubles = st.sampled_from([0.1, 1e16, -1e16, 1.5, 1e300, None])
contents = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.one_of(st.none(), st.integers(0, 3)),
    doubles,
    st.sampled_from(["x", "é", "", None]),
    st.integers(0, 12),
)
epochs = st.lists(st.lists(contents, max_size=6), min_size=1, max_size=6)


def nulls_first(value):
    return (0,) if value is None else (1, value)


def placed(rows):
    """Return the rows of each key, in order of time and then of the whole row."""
    keys = defaultdict(list)
    for row in rows:
        keys[row["k"]].append(row)
    order = ("at", "id", "k", "v", "x", "s")
    return [sorted(own, key=lambda row: tuple(nulls_first(row[name]) for name in order)) for own in keys.values()]


def counted(own, place, frame):
    """Return the rows that count for the row at a place."""
    if "range" in frame:
        seconds = int(frame["range"].split()[0])
        return [row for row in own if own[place]["at"] - seconds * 1000 <= row["at"] <= own[place]["at"]]
    rows = frame.get("rows", len(own))
    first, last = rows if isinstance(rows, tuple) else (rows - 1, 0)
    return own[max(0, place - first) : max(0, place - last + 1)]


def computed(own, place, frame):
    """Return the row at a place with all columns of `EVERY`, one after the other as SQL defines them."""
    rows, row = counted(own, place, frame), own[place]
    values = [each["v"] for each in rows if each["v"] is not None]
    some = [each["v"] for each in rows if each["s"] is not None and each["v"] is not None]
    doubles = [each["x"] for each in rows if each["x"] is not None]
    texts = [each["s"] for each in rows if each["s"] is not None]
    best = max(
        ((each["v"], each["s"] is None, each["s"] or "") for each in rows if each["v"] is not None), default=None
    )
    before = [each["v"] for each in own[:place]]
    return {
        **row,
        "n": len(rows),
        "nv": len(values),
        "mean": sum(values) / len(values) if values else None,
        "total": math.fsum(doubles) if doubles else None,
        "half": sum(some) if some else None,
        "lo": min(texts, default=None),
        "hi": max(values, default=None),
        "by": None if best is None or best[1] else best[2],
        "either": any(value > 1 for value in values) if values else None,
        "sd": None if not values else round(statistics.pstdev(values), 9),
        "nr": place + 1,
        "before": before[-2] if len(before) > 1 else row["id"],
        "step": None if not before or None in (before[-1], row["v"]) else row["v"] - before[-1],
        "first": rows[0]["v"] if rows else None,
        "known": texts[-1] if texts else None,
    }


def batch(rows, frame):
    return [computed(own, place, frame) for own in placed(rows) for place in range(len(own))]


def shown(rows):
    """Rows as a bag, times as milliseconds."""
    return Counter(
        repr({name: _plain(name, value) for name, value in row.items() if name not in ("_weight", "_time")})
        for row in rows
    )


def _plain(name, value):
    if name == "at" and not isinstance(value, int):
        return round(value.timestamp() * 1000)
    return round(value, 9) if name == "sd" and value is not None else value


def sent(nr, row):
    return dict(zip(("id", "k", "v", "x", "s", "at"), (nr, *row[:4], START + row[4] * 1000), strict=True))


@settings(max_examples=examples(6))
@given(parts=epochs, name=st.sampled_from(sorted(FRAMES)), same=st.booleans(), restart=st.booleans())
def test_final_and_corrected_results_are_those_of_a_walk(parts, name, same, restart):
    """Rows out of order, late ones, equal ones (`same`), of one time; sums of doubles are exact for every cut."""
    app, frame = hr.App("law", shards=2), FRAMES[name]
    rows = app.stream("t", SCHEMA, event_time="at", out_of_order="3 seconds", partitions=2)
    over = rows.group_by("k")
    final = over.over(**frame).agg(**EVERY).named("final")
    final.late.to_view("late")
    more = {} if "range" in frame else {"after": "lead(v)"}
    open_ = over.over(**frame, emit="changes").agg(**EVERY, **more).named("open")
    outputs = check_deltas(final), check_deltas(open_, net=False)
    came, late = [], []
    with Driver(app, shards=2) as driver:
        for number, part in enumerate(parts):
            moment = driver.watermark("final")
            watermark = -1 if moment is None else round(moment.timestamp() * 1000)
            for nr, each in enumerate(part):
                row = sent(7 if same else number * 10 + nr, each)
                driver.send("t", row, partition=nr % 2)
                (late if row["at"] < watermark else came).append(row)
            driver.step()
            expected = batch(came, frame)
            assert shown(outputs[0].rows) == shown(row for row in expected if row["at"] < watermark)
            assert shown(outputs[1].rows) == shown(with_next(came, frame))
            assert shown(driver.view("late")) == shown(late)
            if restart:
                driver.restart()
        driver.finish()
        assert shown(outputs[0].rows) == shown(batch(came, frame))
        assert shown(outputs[1].rows) == shown(with_next(came, frame))


def with_next(rows, frame):
    """The rows that are corrected: where frames are of rows, each also looks at the next row."""
    if "range" in frame:
        return batch(rows, frame)
    return [
        {**computed(own, place, frame), "after": own[place + 1]["v"] if place + 1 < len(own) else None}
        for own in placed(rows)
        for place in range(len(own))
    ]


@settings(max_examples=examples(3))
@given(
    parts=st.lists(st.lists(st.tuples(st.integers(1, 5), st.one_of(st.none(), contents)), max_size=6), max_size=5),
    name=st.sampled_from(sorted(FRAMES)),
    key=st.booleans(),
)
def test_over_a_table_all_rows_after_a_change_are_corrected(parts, name, key):
    """Upserts and deletes of rows anywhere in the order; with a key of the table, and as a bag of equal rows."""
    app, frame = hr.App("law", shards=2), FRAMES[name]
    table = app.table("t", SCHEMA, key="id", event_time="at")
    if not key:
        table = table.select("k", "v", "x", "s", "at", id="0")
    more = {} if "range" in frame else {"after": "lead(v)"}
    over = table.group_by("k").over(**frame, emit="changes").agg(**EVERY, **more)
    assert over.key == (("id",) if key else None)
    output, there = check_deltas(over, net=False), {}
    with Driver(app, shards=2) as driver:
        for part in parts:
            for nr, each in part:
                if each is None:
                    driver.delete("t", id=nr)
                    there.pop(nr, None)
                else:
                    driver.send("t", sent(nr, each))
                    there[nr] = sent(nr if key else 0, each)
            driver.step()
            expected = with_next(list(there.values()), frame)
            assert shown(dict(sorted(row.items())) for row in output.rows) == shown(
                dict(sorted(row.items())) for row in expected
            )
