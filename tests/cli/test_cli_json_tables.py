"""Lines that are read at once give what they give one by one."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import InvalidRows
from headrace.base.schema import parse
from headrace.cli import json_tables
from headrace.cli.json_tables import JsonTables
from headrace.cli.values import from_json
from headrace.log.rows import rows_to_table

SCHEMA = parse("i int, l bigint, d double, s string, b boolean, at timestamp")
TEXTS = {
    "i": ["1", "-2147483648", "2147483648", "-0", "1.0", "1e2", "01", '"3"', "null", "true", "[1]"],
    "l": ["9223372036854775807", "9223372036854775808", "0", "null", "3.5"],
    "d": [
        "0.1", "-0.0", "1e400", "1e-400", "NaN", "Infinity", "-Infinity", '"nan"', "5", "null", "1e22",
        "0.30000000000000004",
    ],
    "s": ['"a"', '""', '"\\u0000"', '"\\ud800"', '"\\ud83d\\ude00"', '"é"', '"\\/"', "7", "null", '"a\tb"', "{}"],
    "b": ["true", "false", "1", '"true"', "null", "True"],
    "at": [
        '"2026-01-31"', '"2026-01-31 10:00"', '"2026-01-31T10:00:00Z"', '"2026-01-31T10:00:00.123456+02:00"',
        '"2026-01-31T10:00:00.1234567Z"', '"2026-1-31"', '"0001-01-01"', '"9999-12-31T23:59:59.999999"',
        '"10000-01-01"',
        "1769853600000", "null", '""', '"24:00"', '"2026-01-31T24:00:00"', '"2026-01-31T10:00:60Z"', '"2026-02-30"',
        '"2026-01-31t10:00:00z"', '" 2026-01-31"', '"2026-01-31T10"', '"20260131"', '"2026-01-31T10:00:00 Z"',
        '"2026-01-31T10:00:00+0230"', '"2026-01-31T10:00:00+02"', '"2026-W05-6"',
    ],
}  # fmt: skip
FIELD = st.sampled_from([*TEXTS]).flatmap(
    lambda name: st.sampled_from(TEXTS[name]).map(lambda value: f"{json.dumps(name)}:{value}")
)
OBJECT = st.lists(FIELD, max_size=4).map(lambda fields: "{" + ",".join(fields) + "}")
LINE = st.one_of(
    OBJECT, OBJECT, OBJECT, st.sampled_from(["", " ", "[]", "7", '{"x":1}', '{"i":1}{"i":2}', '{"i":1} ', "{ }"])
)


def one_by_one(lines):
    """What the command makes of each line by itself."""
    rows = []
    for line in lines:
        values = json.loads(line)
        if not isinstance(values, dict) or not values:
            raise ValueError(line)
        for field in SCHEMA:
            convert = from_json(field.type)
            if convert is not None and field.name in values:
                values[field.name] = convert(values[field.name])
        rows.append(values)
    return rows_to_table(rows, SCHEMA)


@given(st.lists(LINE, min_size=1, max_size=4))
def test_what_is_read_at_once_is_what_each_line_is(lines):
    """It may decline any lines, and never reads one otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_tables, "LEAST_LINES", 1)
        read = JsonTables(SCHEMA, None).table([f"{line}\n".encode() for line in lines])
    if read is not None:
        try:
            expected = one_by_one(lines)
        except (ValueError, TypeError, InvalidRows, pa.ArrowException) as error:
            raise AssertionError(f"{lines} are bad one by one") from error
        assert repr(read.to_pylist()) == repr(expected.select(SCHEMA.names).to_pylist())


def test_common_lines_are_read_at_once():
    lines = [
        b'{"i": %d, "l": 2, "d": 0.5, "s": "x", "b": true, "at": "2026-01-31T10:00:00Z"}\n' % n for n in range(100)
    ]
    assert JsonTables(SCHEMA, "at").table(lines).num_rows == 100
    assert JsonTables(SCHEMA, "at").table([*lines, b'{"i": 1}\n']) is None, "a row without event time"


def test_a_bad_line_among_many_is_named_and_the_lines_before_it_are_there(headrace):
    headrace("topics", "create", "t", "--schema", "n int, at timestamp", "--event-time", "at")
    good = [f'{{"n": {n}, "at": "2026-01-31"}}' for n in range(300)]
    lines = [*good[:250], '{"n": "x", "at": "2026-01-31"}', *good[250:]]
    failed = headrace("topics", "produce", "t", stdin="\n".join(lines))
    assert failed.code == 1
    assert "line 251" in failed.err
    assert "250 rows" in failed.err
    skipped = headrace("topics", "produce", "t", "--skip-bad", "--json", stdin="\n".join(lines))
    assert json.loads(skipped.out) == {"topic": "t", "appended": 300, "bad": 1}


def test_a_row_that_the_topic_refuses_ends_the_command(headrace):
    """A topic that is compacted takes no row without a key."""
    headrace("topics", "create", "t", "--schema", "k string, n int", "--key", "k", "--cleanup", "compact")
    lines = [f'{{"k": "a{n}", "n": 1}}' for n in range(100)]
    lines[70] = '{"k": null, "n": 1}'
    failed = headrace("topics", "produce", "t", stdin="\n".join(lines))
    assert failed.code == 1
    assert "has no key" in failed.err
