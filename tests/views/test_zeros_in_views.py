"""0.0 and -0.0 are equal numbers and different rows: a view has the one that its table has, and withdraws no other."""

from __future__ import annotations

import math

import pytest

import headrace as hr
from headrace.testing import Driver

KINDS = {
    "double": lambda x: x,
    "float": lambda x: x,
    "array<double>": lambda x: [x, None],
    "struct<a:int,x:array<float>>": lambda x: {"a": 1, "x": [x]},
    "map<string,double>": lambda x: {"a": x},
}


def shown(rows):
    return sorted(repr(row) for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_zero_that_gets_another_sign_is_another_row(kind):
    made = KINDS[kind]
    app = hr.App("zeros")
    items = app.table("items", f"id int, v {kind}", key="id")
    items.to_view("items")
    if not kind.startswith("map"):
        items.select("v").to_view("bag")
    kept = {}
    with Driver(app) as driver:
        for changes in (
            {0: -0.0, 1: 0.0, 2: 1.5},
            {0: 0.0, 1: -0.0},
            {0: 2.0, 2: math.nan},
            {1: 0.0, 2: -0.0},
            {2: None},
            {1: None},
            {0: None},
        ):
            for at, x in changes.items():
                kept[at] = x
                if x is None:
                    driver.delete("items", id=at)
                else:
                    driver.send("items", {"id": at, "v": made(x)})
            driver.run()
            kept = {at: x for at, x in kept.items() if x is not None}
            expected = [{"id": at, "v": made(x)} for at, x in kept.items()]
            assert shown([{**row, "v": plain(row["v"])} for row in driver.view("items")]) == shown(expected)
            if not kind.startswith("map"):
                assert len(driver.view("bag")) == len(kept)


def plain(value):
    """Return a map as a dict."""
    return dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value
