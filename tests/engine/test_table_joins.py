"""Joins of tables: the vectors, what comes out when, all kinds of sides, skew, restarts and crashes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import headrace as hr
from headrace.testing import Driver, check_deltas

HOWS = ("inner", "left", "right", "full", "semi", "anti")


def at(second):
    return datetime(2026, 1, 1, tzinfo=UTC).replace(minute=second // 60, second=second % 60)


def pair(how, *, where=None, **options):
    """Two tables of one key, joined."""
    app = hr.App("pair")
    left = app.table("l", "k int, a string, at timestamp", key="k", event_time="at").select("k", "a")
    right = app.table("r", "k int, b string, at timestamp", key="k", event_time="at").select("k", "b")
    joined = left.join(right, on="k", how=how, where=where, **options)
    joined.to_view("joined")
    return app, joined


def said(deltas, *columns):
    """What came and went, in short: `+Aa` or `-Aa`, nulls as dots."""
    return [
        ("+" if row["_weight"] > 0 else "-") + "".join("." if row[c] is None else str(row[c]) for c in columns)
        for row in deltas
    ]


# ---- the vectors ----

SAME_KEY = [  # second, side, value; what inner, left and full then have
    (3, "l", "A", "", "A.", "A."),
    (4, "r", "a", "Aa", "Aa", "Aa"),
    (5, "l", "B", "Ba", "Ba", "Ba"),
    (6, "r", "b", "Bb", "Bb", "Bb"),
    (7, "l", None, "", "", ".b"),
    (8, "r", None, "", "", ""),
    (9, "l", "C", "", "C.", "C."),
    (10, "r", "c", "Cc", "Cc", "Cc"),
    (11, "r", None, "", "C.", "C."),
    (12, "l", None, "", "", ""),
    (14, "r", "d", "", "", ".d"),
    (15, "l", "D", "Dd", "Dd", "Dd"),
]


def send(driver, second, side, value):
    if value is None:
        driver.delete(side, k=1, at=at(second))
    else:
        driver.send(side, {"k": 1, ("a" if side == "l" else "b"): value, "at": at(second)})


@pytest.mark.parametrize(("how", "column"), [("inner", 3), ("left", 4), ("full", 5)])
def test_the_vector_of_tables_with_one_key(drive, how, column):
    """Each change shows at once, as the old row withdrawn and the new one given, at the time of the change."""
    app, joined = pair(how)
    checked = check_deltas(joined)
    driver, before = drive(app, shards=2), ""
    for row in SAME_KEY:
        send(driver, *row[:3])
        driver.step()
        expected = [f"-{before}"] * bool(before) + [f"+{row[column]}"] * bool(row[column])
        given = checked.read()
        assert said(given, "a", "b") == (expected if before != row[column] else [])
        assert {each["_time"] for each in given} <= {int(at(row[0]).timestamp() * 1e6)}
        before = row[column]
    assert joined.key == ("k",)


@pytest.mark.parametrize(("how", "column"), [("inner", 3), ("left", 4), ("full", 5)])
def test_the_vector_of_tables_with_one_key_in_one_epoch(how, column):
    """However many changes are in the epoch, what comes out is their net."""
    for until in range(1, len(SAME_KEY) + 1):
        app, joined = pair(how)
        checked = check_deltas(joined)
        with Driver(app, shards=2) as driver:
            for row in SAME_KEY[:until]:
                send(driver, *row[:3])
            driver.step()
            last = SAME_KEY[until - 1][column]
            assert said(checked.read(), "a", "b") == [f"+{last}"] * bool(last)


FOREIGN = [  # what is sent; what inner and left then give
    (("l", {"k": "k", "fk": 1}), [], ["+k1."]),
    (("r", {"id": 1, "v": "foo"}), ["+k1foo"], ["-k1.", "+k1foo"]),
    (("l", {"k": "k", "fk": 2}), ["-k1foo"], ["-k1foo", "+k2."]),
    (("r", {"id": 3, "v": "bar"}), [], []),
    (("l", {"k": "k", "fk": 3}), ["+k3bar"], ["-k2.", "+k3bar"]),
    (("l", {"k": "k", "fk": None}), ["-k3bar"], ["-k3bar", "+k.."]),
    (("l", {"k": "q", "fk": 10}, {"k": "r", "fk": 10}), [], ["+q10.", "+r10."]),
    (("r", {"id": 10, "v": "baz"}), ["+q10baz", "+r10baz"], ["-q10.", "-r10.", "+q10baz", "+r10baz"]),
    (("r", {"id": 10, "_deleted": True}), ["-q10baz", "-r10baz"], ["-q10baz", "-r10baz", "+q10.", "+r10."]),
]


def foreign(how):
    app = hr.App("foreign")
    joined = app.table("l", "k string, fk int", key="k").join(
        app.table("r", "id bigint, v string", key="id"), on={"fk": "id"}, how=how
    )
    joined.to_view("joined")
    return app, joined


@pytest.mark.parametrize(("how", "column"), [("inner", 1), ("left", 2)])
def test_the_vector_of_a_foreign_key(drive, how, column):
    """The keys have different types, int and bigint, and are spread over shards."""
    app, joined = foreign(how)
    checked = check_deltas(joined)
    driver = drive(app, shards=3)
    for row in FOREIGN:
        driver.send(row[0][0], *row[0][1:])
        driver.step()
        given = sorted(checked.read(), key=lambda each: (each["_weight"], each["k"]))
        assert said(given, "k", "fk", "v") == row[column]
    assert joined.key == ("k",)
    assert joined.columns == ["k", "fk", "id", "v"]


@pytest.mark.parametrize("how", HOWS)
def test_what_comes_out_in_one_epoch_is_what_comes_out_in_many(how):
    for until in range(1, len(FOREIGN) + 1):
        (app, joined), (again, _) = foreign(how), foreign(how)
        checked = check_deltas(joined)
        with Driver(app, shards=2) as driver, Driver(again, shards=2) as slow:
            for row in FOREIGN[:until]:
                for topic in (driver, slow):
                    topic.send(row[0][0], *row[0][1:])
                slow.step()
            driver.step()
            assert driver.view("joined") == slow.view("joined")
            assert {each["_weight"] for each in checked.read()} <= {1}
