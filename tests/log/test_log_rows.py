"""Rows of users: what is accepted, what is refused, and with which error."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headrace.base.errors import InvalidRows
from headrace.base.schema import parse
from headrace.log import rows_to_table

SCHEMA = parse("id bigint not null, name string, price double, at timestamp, day date, tags array<string>")
AT = datetime(2024, 1, 31, 10, 0, tzinfo=UTC)


def refused(rows, schema=SCHEMA):
    with pytest.raises(InvalidRows) as error:
        rows_to_table(rows, schema)
    return str(error.value)


@pytest.mark.parametrize(
    "time",
    [
        "2024-01-31 10:00:00",
        "2024-01-31T11:00:00+01:00",
        AT,
        AT.replace(tzinfo=None),
        AT.astimezone(timezone(timedelta(hours=5))),
        1_706_695_200_000,
    ],
)
def test_a_time_may_be_text_a_datetime_or_milliseconds(time):
    for given in ([{"id": 1, "at": time}], [{"id": 1, "at": time}, {"id": 2, "at": AT}]):
        table = rows_to_table(given, SCHEMA)
        assert table.column("at").cast(pa.int64())[0].as_py() == 1_706_695_200_000_000


def test_a_date_may_be_text_a_date_or_a_time():
    given = ["2024-01-31", date(2024, 1, 31), AT, 1_706_695_200_000, None]
    table = rows_to_table([{"id": 1, "day": day} for day in given], SCHEMA)
    assert table.column("day").to_pylist() == [date(2024, 1, 31)] * 4 + [None]


def test_missing_columns_are_null_and_the_order_is_the_schemas():
    table = rows_to_table([{"name": "a", "id": 1}, {"id": 2}], SCHEMA)
    assert table.schema == SCHEMA
    assert table.select(["id", "name", "price"]).to_pylist() == [
        {"id": 1, "name": "a", "price": None},
        {"id": 2, "name": None, "price": None},
    ]


def test_no_rows_are_an_empty_table():
    assert rows_to_table([], SCHEMA).schema == SCHEMA
    assert rows_to_table(iter(()), SCHEMA).num_rows == 0


def test_a_generator_of_dicts_is_taken():
    assert rows_to_table(({"id": i} for i in range(3)), SCHEMA).column("id").to_pylist() == [0, 1, 2]


def test_an_unknown_column_is_named_with_the_nearest():
    text = refused([{"id": 1}, {"id": 2, "prize": 3.0}])
    assert text == (
        "[INVALID_ROWS] rows[1]: there is no column 'prize'\n"
        "Detail: The columns are: id, name, price, at, day, tags.\n"
        'Hint: Did you mean "price"?'
    )
    assert "leave _offset out" in refused([{"id": 1, "_offset": 3}])


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("id", "7", "expects bigint, got '7' (str)"),
        ("id", 2.5, "expects bigint, got 2.5 (float)"),
        ("id", True, "expects bigint, got True (bool)"),
        ("id", 2**63, "expects bigint, got 9223372036854775808 (int)"),
        ("name", 7, "expects string, got 7 (int)"),
        ("name", b"x", "expects string, got b'x' (bytes)"),
        ("name", "\ud800", r"expects string, got '\ud800' (str)"),
        ("price", "3.5", "expects double, got '3.5' (str)"),
        ("price", True, "expects double, got True (bool)"),
        ("at", "soon", "expects timestamp, got 'soon' (str)"),
        ("at", True, "expects timestamp, got True (bool)"),
        ("at", 10**30, "expects timestamp, got 1000000000000000000000000000000 (int)"),
        ("day", "tomorrow", "expects date, got 'tomorrow' (str)"),
        ("tags", "abc", "expects array<string>, got 'abc' (str)"),
        ("tags", ["a", 1], "expects array<string>, got ['a', 1] (list)"),
    ],
)
def test_a_wrong_type_names_row_column_type_and_value(column, value, expected):
    good = {"id": 1, "name": "a", "price": 1.0, "at": AT, "tags": []}
    assert f'rows[2]: column "{column}" {expected}' in refused([good, good, {**good, column: value}])


def test_numbers_of_numpy_and_whole_numbers_in_a_double_are_taken():
    table = rows_to_table([{"id": np.int32(3), "price": 2}, {"id": 4, "price": np.float32(0.5)}], SCHEMA)
    assert table.column("price").to_pylist() == [2.0, 0.5]


def test_decimals_are_taken_exactly_or_not_at_all():
    schema = parse("d decimal(6,2)")
    table = rows_to_table([{"d": d} for d in (Decimal("1.5"), 2, "3.25", 4.75, None)], schema)
    assert [str(d) for d in table.column("d").to_pylist()] == ["1.50", "2.00", "3.25", "4.75", "None"]
    for wrong in ("1.234", Decimal(10**5), "x", float("nan"), True):
        assert 'rows[0]: column "d" expects decimal(6,2)' in refused([{"d": wrong}], schema)


def test_nested_values_are_checked_to_the_bottom():
    schema = parse("s struct<a:int,at:timestamp>, m map<string,struct<x:double>>, l array<array<date>>")
    row = {"s": {"a": 1, "at": "2024-01-31 10:00"}, "m": {"k": {"x": 1}, "n": None}, "l": [["2024-01-31"], None, []]}
    table = rows_to_table([row, {}, {"s": {}, "m": {}, "l": []}], schema)
    assert table.to_pylist() == [
        {
            "s": {"a": 1, "at": AT},
            "m": [("k", {"x": 1.0}), ("n", None)],
            "l": [[date(2024, 1, 31)], None, []],
        },
        {"s": None, "m": None, "l": None},
        {"s": {"a": None, "at": None}, "m": [], "l": []},
    ]
    assert 'there is no field "b". Did you mean "a"?' not in refused([{"s": {"q": 1}}], schema)
    assert 'there is no field "q"' in refused([{"s": {"q": 1}}], schema)
    assert "a map's key may not be null" in refused([{"m": {None: None}}], schema)


def test_a_null_where_none_may_be_is_refused_unless_the_row_is_deleted():
    assert 'rows[1]: column "id" is null, but it was declared not null' in refused([{"id": 1}, {"name": "a"}])
    assert rows_to_table([{"name": "a", "_deleted": True}], SCHEMA).num_rows == 1
    table = pa.table({"id": pa.array([1, None])})
    assert 'rows[1]: column "id" is null' in refused(table)


def test_a_single_dict_or_a_text_is_no_list_of_rows():
    assert "Hint: For a single row write [row]." in refused({"id": 1})
    assert "rows must be a list of dicts" in refused("id")
    assert "rows must be a list of dicts" in refused(7)
    assert "rows[1] is no dict: 5 (int)" in refused([{"id": 1}, 5])


def test_an_arrow_table_is_fitted_where_no_value_changes():
    table = pa.table(
        {
            "name": pa.array(["a", "b"]).dictionary_encode(),
            "id": pa.array([1, 2], pa.int8()),
            "price": pa.array([1, 2], pa.int32()),
            "at": pa.array([AT, None], pa.timestamp("ms", "Europe/Berlin")),
            "tags": pa.array([["x"], None], pa.large_list(pa.large_string())),
        }
    )
    table_of_schema = rows_to_table(table, SCHEMA)
    assert table_of_schema.schema == SCHEMA
    assert table_of_schema.to_pylist()[0] == {"id": 1, "name": "a", "price": 1.0, "at": AT, "day": None, "tags": ["x"]}
    assert rows_to_table(table.to_batches()[0], SCHEMA) == table_of_schema


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"id": ["1"]}, 'column "id" expects bigint, got Arrow\'s string'),
        ({"id": [1], "at": [1]}, 'column "at" expects timestamp, got Arrow\'s int64'),
        ({"id": [1, 2], "price": ["x", "y"]}, 'column "price" expects double'),
        ({"id": [1.0, 2.5]}, 'rows[1]: column "id" expects bigint, got 2.5'),
        ({"id": [1], "nam": ["x"]}, 'Did you mean "name"?'),
        ({"id": [1], "_offset": [0]}, "drop _offset"),
    ],
)
def test_an_arrow_table_that_does_not_fit_is_refused(columns, expected):
    assert expected in refused(pa.table(columns))


def test_a_table_with_a_column_twice_is_refused():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    assert 'has the column "id" twice' in refused(table)


def test_system_columns_may_be_given():
    table = rows_to_table([{"id": 1, "_time": 5, "_headers": {"a": "b"}}, {"id": 2, "_deleted": True}], SCHEMA)
    assert table.column_names == [*SCHEMA.names, "_time", "_deleted", "_headers"]
    assert table.column("_time").cast(pa.int64()).to_pylist() == [5000, None]
