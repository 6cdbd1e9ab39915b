"""JSON records in columns: compiled code and the rules, one by one, agree."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from time import process_time

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.schema import as_schema
from headrace.connect.formats import FORMATS
from headrace.connect.formats.json_columns import Scanned
from headrace.connect.formats.json_exact import exact
from headrace.connect.formats.json_format import JsonFormat
from headrace.connect.formats.json_text import _with_numbers
from headrace.connect.formats.json_values import NO_OBJECT
from headrace.dsl.formats import FORMATS as NAMES
from headrace.testing import Driver

EVERY = as_schema(
    "id int, big bigint, at timestamp, wall timestamp_ntz, day date, xs array<timestamp>, m map<string,double>, "
    "days map<date,array<int>>, d decimal(10,2), wide decimal(38,10), t struct<a int, b string, c struct<d float>>, "
    "f boolean, x double, y float, s string, raw binary, raws array<binary>, small tinyint"
)
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
DAYS = st.integers(-(2**31), 2**31 - 1) | st.integers(-800_000, 3_000_000)
FLOATS = st.floats(width=32)
SHAPES = st.fixed_dictionaries(
    {
        name: st.none() | shape
        for name, shape in {
            "id": st.integers(-(2**31), 2**31 - 1),
            "big": st.integers(-(2**63), 2**63 - 1),
            "at": INT64 | st.integers(-(10**17), 10**17),
            "wall": INT64 | st.integers(-(10**17), 10**17),
            "day": DAYS,
            "xs": st.lists(st.none() | INT64, max_size=3),
            "m": st.dictionaries(st.text(max_size=3), st.none() | st.floats(), max_size=3).map(lambda m: [*m.items()]),
            "days": st.dictionaries(DAYS, st.lists(st.integers(-5, 5), max_size=2), max_size=2).map(
                lambda m: [*m.items()]
            ),
            "d": st.decimals(-1000, 1000, places=2),
            "wide": st.decimals(-(10**27), 10**27, places=10),
            "t": st.fixed_dictionaries(
                {
                    "a": st.none() | st.integers(-5, 5),
                    "b": st.none() | st.text(max_size=3),
                    "c": st.none() | st.fixed_dictionaries({"d": st.none() | FLOATS}),
                }
            ),
            "f": st.booleans(),
            "x": st.floats(),
            "y": FLOATS,
            "s": st.text(max_size=9),
            "raw": st.binary(max_size=5),
            "raws": st.lists(st.binary(max_size=5), max_size=2),
            "small": st.integers(-128, 127),
        }.items()
    }
)
BOTH = pytest.mark.parametrize("way", [lambda *given: Scanned(*given).formatted(), exact], ids=["compiled", "rules"])


def shown(values):
    """Return Arrow values as text: NaN and -0.0 then differ from others only, and no time is too late for Python."""
    return values.cast(pa.schema([(f.name, _with_numbers(f.type)) for f in values.schema])).to_pylist().__repr__()


@BOTH
@given(st.lists(SHAPES, max_size=5))
def test_what_was_encoded_is_decoded(way, rows):
    batch = pa.RecordBatch.from_arrays(
        [pa.array([row[field.name] for row in rows], field.type) for field in EVERY], names=EVERY.names
    )
    decoded = way(JsonFormat().encode(batch), EVERY)
    assert decoded.reasons.null_count == len(rows), decoded.reasons
    assert shown(decoded.rows) == shown(batch)


ODD = [
    *(
        "0",
        "-0",
        "-0.0",
        "1.5",
        "01",
        "1.",
        ".5",
        "1e5",
        "1E-3",
        "-1e400",
        "1e-400",
        "NaN",
        "Infinity",
        "-Infinity",
        "nan",
    ),
    *("9007199254740993", "9223372036854775808", "123456789012345678901234567890", "0.1234567890123456789012345"),
    *(
        "3.4028235677973366e38",
        "3.4028235e38",
        "127",
        "128",
        "7.0",
        "7e0",
        "70e-1",
        "1.005",
        "99999999.995",
        "1e999999999999",
    ),
    *(
        "true",
        "false",
        "null",
        "tru",
        "[]",
        "[1,2]",
        "[1,]",
        "{}",
        '{"a":1}',
        '{"a":"1","b":2,"c":{"d":1e39}}',
        '{"a":1,}',
    ),
    *(
        '{"a":1,"a":2}',
        '{"c":{"d":"x"}}',
        '{"\\u0061":3}',
        "[[[[]]]]",
        '"7"',
        '"+7"',
        '"007"',
        '" 7"',
        '"1_0"',
        '"1e2"',
    ),
    *('"NaN"', '"-inf"', '"1e400"', '"true"', '"T"', '"2026-01-31"', '"2026-02-29"', '"2024-02-29"', '"0000-03-01"'),
    *('"2026-01-31T10:00:00Z"', '"2026-01-31 24:00:00"', '"2026-01-31T10:00:00.1234567+05:30"', '"2026-01-31t10:00z"'),
    *('"+123456-01-01T00:00:00Z"', '"2026-01-31T10:00:60Z"', '"2026-12-31 23:59:59 +0200"', '"YWI="', '"YWI"', '"!!"'),
    *(
        '"a\\n\\u00e9\\ud83d\\ude00\\/"',
        '"\\ud83d"',
        '"\\ude00\\ud83d"',
        '"\\x"',
        '"\x01"',
        '"é😀"',
        '"\\u0000"',
        '"',
        '"a',
    ),
]
VALUES = st.sampled_from(ODD) | st.text(max_size=4) | st.integers().map(str) | st.floats().map(str)
TIMES = st.from_regex(
    r'"[-+]?[0-9]{4}-[01][0-9]-[0-3][0-9][ T]'
    r"[0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,8})?)?"
    r'(Z|[+-][0-9]{2}:?[0-9]{2})?"',
    fullmatch=True,
)
NAMES_OF_FIELDS = st.sampled_from(
    [*(f'"{name}"' for name in EVERY.names), '"other"', '"\\u0069d"', '"i\\d"', "id", '"é"']
)
FIELDS = st.tuples(NAMES_OF_FIELDS, VALUES | TIMES).map(":".join)
BLANKS = st.sampled_from(["", " ", "\n\t", "x"])
RECORDS = (
    st.tuples(BLANKS, st.lists(FIELDS, max_size=6).map(",".join), BLANKS).map(
        lambda p: f"{p[0]}{{{p[1]}}}{p[2]}".encode()
    )
    | VALUES.map(str.encode)
    | st.binary(max_size=6).map(lambda raw: b'{"s":"' + raw + b'"}')
    | st.binary(max_size=3)
    | st.none()
)


@settings(max_examples=300)
@example([b'{"id":0,"id":"\\ud83d"}'])
@given(st.lists(RECORDS, max_size=8))
def test_compiled_code_and_the_rules_agree_on_odd_records(records):
    """What is good, why the others are not, and every value."""
    values = pa.array(records, pa.binary())
    fast, slow = Scanned(values, EVERY).formatted(), exact(values, EVERY)
    assert fast.reasons.to_pylist() == slow.reasons.to_pylist()
    assert fast.good == slow.good
    assert shown(fast.rows) == shown(slow.rows)
    fast.rows.validate(full=True)


@given(st.integers(0, 5), st.integers(0, 5), st.lists(SHAPES, min_size=5, max_size=5))
def test_a_slice_of_records_is_read_as_they_are(start, length, rows):
    texts = JsonFormat().encode(pa.RecordBatch.from_pylist([{"id": row["id"]} for row in rows], as_schema("id int")))
    read = Scanned(texts.slice(start, length), as_schema("id int")).formatted().rows
    assert read.column("id").to_pylist() == [row["id"] for row in rows][start : start + length]


@BOTH
def test_exact_numbers_stay_exact(way):
    texts = ['{"d": 12345678901234567890.12345, "i": 9223372036854775807, "x": 0.1, "s": 1.50}']
    schema = as_schema("d decimal(38,5), i bigint, x double, s string")
    assert way(pa.array(texts), schema).rows.to_pylist() == [
        {"d": Decimal("12345678901234567890.12345"), "i": 2**63 - 1, "x": 0.1, "s": "1.50"}
    ]


@BOTH
def test_a_reason_names_the_field_inside_a_struct(way):
    read = way(pa.array(['{"t": {"c": {"d": "x"}}}', '{"t": 7}']), EVERY)
    assert read.reasons.to_pylist() == ['the field t.c.d is no number: "x"', "the field t is no object: 7"]


@BOTH
def test_of_fields_of_one_name_the_first_counts(way):
    read = way(pa.array(['{"a": 1, "t": {"b": 1}, "a": 2, "t": {"b": 2}}']), as_schema("a int, t struct<b int>")).rows
    assert read.to_pylist() == [{"a": 1, "t": {"b": 1}}]


def test_a_million_bad_records_cost_less_than_three_times_the_good_ones():
    """They are not looked at one by one: here a tenth of them, by the clock of the processor."""
    schema = as_schema("auction bigint, price double, url string, at timestamp")
    good = '{"auction": 17, "price": 1.5, "url": "https://www.nexmark.com/item.htm", "at": "2026-01-31T10:00:00Z"}'
    clean, half = pa.array([good] * 100_000), pa.array([good, good[:-1]] * 50_000)
    JsonFormat().decode(clean, schema)
    costs = []
    for records in (clean, half):
        tries = []
        for _ in range(3):
            begun = process_time()
            JsonFormat().decode(records, schema)
            tries.append(process_time() - begun)
        costs.append(min(tries))
    assert costs[1] < 3 * costs[0]


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


@pytest.mark.parametrize("kind", ["string", "int", "array<string>", "map<string,int>"])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_record_that_nests_deeply_is_read_or_a_dead_letter(opening, kind):
    """At any depth: never an error of the reader's, which would stop the app at that record."""
    schema = as_schema(f"s {kind}")
    deep = [opening * depth + end + ("]" if opening == "[" else "}") * depth for depth in (300, 480, 499, 501, 900)
            for end in ("1", '"\\u00e9"')]  # fmt: skip
    values = pa.array([f'{{"s":{text}}}'.encode() for text in [*deep, "1", "[1]"]])
    fast, slow = Scanned(values, schema).formatted(), exact(values, schema)
    assert fast.good.to_pylist() == slow.good.to_pylist()
    assert fast.reasons.to_pylist() == slow.reasons.to_pylist()
    assert fast.rows.equals(slow.rows)
    if kind == "string":
        assert fast.good.to_pylist() == [True] * 6 + [False] * 4 + [True] * 2
        assert fast.rows.column("s")[0].as_py() == deep[0]
