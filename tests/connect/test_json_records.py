"""JSON records in columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.base.schema import as_schema
from headrace.connect.formats import FORMATS
from headrace.connect.json_records import NO_OBJECT, JsonFormat
from headrace.dsl.formats import FORMATS as NAMES
from headrace.testing import Driver

EVERY = as_schema(
    "id int, big bigint, at timestamp, day date, xs array<int>, m map<string,int>, d decimal(10,2), "
    "t struct<a int, b string>, f boolean, x double, s string"
)
SHAPES = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**31), 2**31 - 1),
        "big": st.none() | st.integers(-(2**63), 2**63 - 1),
        "at": st.none() | st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 -- hypothesis adds the zone
        "day": st.none() | st.dates(date(1800, 1, 1), date(2200, 1, 1)),
        "xs": st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
        "m": st.none()
        | st.dictionaries(st.text(min_size=1, max_size=3), st.integers(-5, 5), max_size=3).map(lambda m: [*m.items()]),
        "d": st.none() | st.decimals(-1000, 1000, places=2),
        "t": st.none()
        | st.fixed_dictionaries({"a": st.none() | st.integers(-5, 5), "b": st.none() | st.text(max_size=3)}),
        "f": st.none() | st.booleans(),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(max_size=5),
    }
)


@given(st.lists(SHAPES, max_size=5))
def test_what_was_encoded_is_decoded(rows):
    batch = pa.RecordBatch.from_pylist(rows, schema=EVERY)
    decoded = JsonFormat().decode(JsonFormat().encode(batch), EVERY)
    assert decoded.reasons.null_count == len(rows), decoded.reasons
    assert decoded.rows.to_pylist() == batch.to_pylist()


def decode(*records, schema="id int, at timestamp, s string"):
    return JsonFormat().decode(pa.array(records, pa.string()), as_schema(schema))


def test_a_bad_record_leaves_the_others_and_says_why():
    decoded = decode(
        '{"id": 1}', "{", None, '{"id": 2.5}', "[1]", '{"id": 3, "other": [1, {}]}', '{"at": "soon"}', '"x"'
    )
    assert decoded.rows.column("id").to_pylist() == [1, 3]
    assert decoded.good.to_pylist() == [True, False, False, False, False, True, False, False]
    reasons = decoded.reasons.to_pylist()
    assert [reasons[at] for at in (1, 2, 4, 7)] == [NO_OBJECT] * 4
    assert "the field id is no whole number: 2.5" in reasons[3]
    assert "soon" in reasons[6]


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ('"2026-01-31T10:00:00Z"', datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ('"2026-01-31 12:00:00+02:00"', datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ('"2026-01-31 10:00:00"', datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("1769853600000", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("null", None),
    ],
)
def test_times_are_iso_text_or_milliseconds(text, instant):
    assert decode(f'{{"at": {text}}}').rows.column("at").to_pylist() == [instant]


def test_fields_are_converted_where_that_loses_nothing():
    decoded = decode('{"id": "7", "s": 7}', '{"id": 7.0, "s": true}', '{"id": 7, "s": {"a": 1}}')
    assert decoded.rows.column("id").to_pylist() == [7, 7, 7]
    assert decoded.rows.column("s").to_pylist() == ["7", "true", '{"a":1}']


def test_no_records_and_odd_names_of_columns():
    assert decode().rows.num_rows == 0
    odd = as_schema("`a.b` int, `it's` int, `q\"q` int")
    assert JsonFormat().decode(pa.array(['{"a.b": 1, "it\'s": 2, "q\\"q": 3}']), odd).rows.to_pylist() == [
        {"a.b": 1, "it's": 2, 'q"q': 3}
    ]


def test_decimals_keep_their_digits():
    assert decode('{"d": "1.10"}', schema="d decimal(10,2)").rows.to_pylist() == [{"d": Decimal("1.10")}]


def test_the_words_know_the_formats_that_there_are():
    assert tuple(FORMATS) == NAMES


def test_a_number_out_of_range_is_a_dead_letter_and_no_infinity():
    """What is called infinity is one; a record without its event time is a dead letter with the reason."""
    app = hr.App("numbers")
    app.stream("t", "k double, f float, at timestamp", format="json", event_time="at").to_topic("out")
    texts = [
        '{"k": 1e400, "at": 1}',
        '{"f": -1e300, "at": 1}',
        "{}",
        '{"k": 1, "at": null}',
        '{"k": "Infinity", "at": 1}',
    ]
    with Driver(app) as driver:
        driver.send("t", *({"value": text} for text in texts))
        driver.step()
        assert [row["k"] for row in driver.read("out")] == [float("inf")]
        reasons = {row["offset"]: row["reason"] for row in driver.read("t.dead")}
        assert "the field k is out of the range of DOUBLE: 1e400" in reasons[0]
        assert "the field f is out of the range of FLOAT: -1e300" in reasons[1].replace("1e+300", "1e300")
        assert reasons[2] == reasons[3] == 'the event time "at" is null'
