"""Numbers in JSON keep their digits, as Spark's reader keeps them."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import Driver

READ = {
    "one": "get_json_object(body, '$.n')",
    "field": "from_json(body, 'n string').n",
    "value": "from_json(body, 'map<string,string>')['n']",
    "exact": "from_json(body, 'n decimal(38,0)').n",
}


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        ("12345678901234567890123", "12345678901234567890123"),
        ("-12345678901234567890123", "-12345678901234567890123"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "18446744073709551616"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("1e22", "1.0E22"),
        ("12345678.50", "1.23456785E7"),
    ],
)
def test_a_whole_number_of_more_than_64_bits_keeps_its_digits(number, shown):
    app = hr.App("digits")
    app.stream("t", "body string").select(**READ).group_by(*READ).agg(n="count(*)").to_view("out")
    with Driver(app) as driver:
        driver.send("t", {"body": f'{{"n": {number}}}'})
        driver.run()
        (row,) = driver.view("out")
    assert (row["one"], row["field"], row["value"]) == (shown, shown, shown)
    if shown == number:
        assert str(row["exact"]) == shown


def test_those_within_objects_and_arrays_keep_them_too():
    app = hr.App("digits")
    app.stream("t", "body string").select(v="get_json_object(body, '$.a')").group_by("v").agg(n="count(*)").to_view(
        "out"
    )
    with Driver(app) as driver:
        driver.send("t", {"body": '{"a": [12345678901234567890123, {"b": 7}]}'})
        driver.run()
        assert driver.view("out") == [{"v": '[12345678901234567890123,{"b":7}]', "n": 1}]


def test_a_number_that_is_too_large_for_a_float_is_infinite():
    app = hr.App("large")
    read = "from_json(body, 'n float').n"
    app.stream("t", "body string").select(v=f"cast({read} as string)").group_by("v").agg(n="count(*)").to_view("out")
    with Driver(app) as driver:
        driver.send("t", {"body": '{"n": 1e300}'}, {"body": '{"n": -1e300}'}, {"body": '{"n": 1.5}'})
        driver.run()
        assert sorted(row["v"] for row in driver.view("out")) == ["-Infinity", "1.5", "Infinity"]
