"""The hash that assigns records to partitions and state to shards: its answers may never change."""

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import InvalidSchema
from headrace.base.hashing import hash_column, hash_columns
from headrace.base.schema import parse_type

VECTORS = [
    ("bigint", 0, 0xE220A8397B1DCDAF),
    ("bigint", 1, 0x910A2DEC89025CC1),
    ("bigint", -1, 0xE4D971771B652C20),
    ("bigint", 2**63 - 1, 0x2A67D7552E039EA7),
    ("boolean", True, 0x910A2DEC89025CC1),
    ("double", 0.0, 0xE220A8397B1DCDAF),
    ("double", 1.5, 0xD6DAB18E1392608A),
    ("double", float("nan"), 0xC72971D82E15BB46),
    ("string", "", 0xE220A8397B1DCDAF),
    ("string", "a", 0x7BDE5135C80778AD),
    ("string", "abcdefgh", 0x93E1E9EB41A463AF),
    ("string", "abcdefghi", 0xFD77B7C5FB0EAAC9),
    ("string", "𝄞 unicode beyond the plane", 0xFEA9EE2650FC9C11),
    ("string", "x" * 1000, 0xFA7BE20E07828ADB),
    ("binary", b"\x00", 0x6E789E6AA1B965F4),
    ("binary", b"\x00\x00", 0x06C45D188009454F),
    ("date", date(1970, 1, 2), 0x910A2DEC89025CC1),
    ("timestamp", datetime(2024, 1, 1, tzinfo=UTC), 0x5D75056B25C734F1),
    ("decimal(10,2)", Decimal("12.34"), 0x1D3315C1E1D1EC4C),
    ("decimal(38,0)", Decimal(-(10**37)), 0x8907E3B346C7E898),
    ("array<int>", [1, None, 2], 0xA0A606D405567AEB),
    ("array<int>", [], 0xE220A8397B1DCDAF),
    ("map<string,int>", [("a", 1), ("b", None)], 0x3D0F570BFB281618),
    ("struct<a:int,b:string>", {"a": 1, "b": None}, 0x4173C00E0151519D),
    ("string", None, 0x6E756C6C5F726F77),
]

MAPS = pa.map_(pa.string(), pa.int32())


def hash_of(value, kind):
    return int(hash_column(pa.array([value], type=kind))[0])


@pytest.mark.parametrize(("kind", "value", "expected"), VECTORS)
def test_a_value_has_the_hash_it_always_had(kind, value, expected):
    assert hash_of(value, parse_type(kind)) == expected


def test_several_columns_have_the_hash_they_always_had():
    columns = [pa.array([7, None]), pa.array(["a", "b"]), pa.array([True, None])]
    assert [hex(h) for h in hash_columns(columns, 2)] == ["0x7ef182774f1d1439", "0xaed08af289ff3c02"]
    assert [hex(h) for h in hash_columns([], 2)] == ["0x6e6f5f636f6c756d"] * 2


def test_equal_integers_of_any_width_are_equal():
    for value in (-128, -1, 0, 5, 127):
        hashes = {hash_of(value, kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}
        assert len(hashes) == 1


def test_floats_are_equal_where_sql_says_so():
    assert hash_of(0.0, pa.float64()) == hash_of(-0.0, pa.float64()) == hash_of(-0.0, pa.float32())
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], dtype=np.uint64).view(np.float64)
    assert len(set(hash_column(pa.array(nans)))) == 1
    assert hash_of(1.5, pa.float32()) == hash_of(1.5, pa.float64())


def test_the_way_a_value_is_kept_does_not_count():
    words = ["", "a", None, "abcdefgh", "abcdefghi", "𝄞é", "x" * 300, "x" * 257]
    plain = hash_column(pa.array(words))
    for other in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.binary()):
        assert list(hash_column(pa.array(words).cast(other))) == list(plain)
    chunked = pa.chunked_array([words[:3], [], words[3:]], type=pa.string())
    assert list(hash_column(chunked)) == list(plain)
    assert hash_of(Decimal("1.50"), pa.decimal128(10, 2)) == hash_of(Decimal("1.50"), pa.decimal128(38, 2))
    at = datetime(2024, 1, 1, tzinfo=UTC)
    assert hash_of(at, pa.timestamp("ms", "UTC")) == hash_of(at, pa.timestamp("us", "Europe/Berlin"))


def test_a_map_has_no_order_and_a_list_has():
    maps = pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 2), ("b", 1)]], type=MAPS)
    first, second, third = hash_column(maps)
    assert first == second != third
    lists = hash_column(pa.array([[1, 2], [2, 1], [], [None], None, [0]], type=pa.list_(pa.int32())))
    assert len(set(lists)) == 6


def test_a_struct_of_null_is_not_a_null_struct():
    structs = pa.array([{"a": None}, None, {"a": 1}], type=pa.struct([("a", pa.int32())]))
    assert len(set(hash_column(structs))) == 3


def test_the_order_of_columns_counts():
    a, b = pa.array([1]), pa.array([2])
    assert hash_columns([a, b], 1) != hash_columns([b, a], 1)


COLUMNS = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "tinyint": st.integers(-128, 127),
    "boolean": st.booleans(),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=40),
    "binary": st.binary(max_size=300),
    "date": st.dates(),
    "decimal(20,3)": st.decimals(-(10**9), 10**9, places=3),
    "array<string>": st.lists(st.text(max_size=9) | st.none(), max_size=4),
    "array<array<int>>": st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3),
    "map<string,int>": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=3).map(
        lambda entries: list(entries.items())
    ),
    "struct<a:int,b:struct<c:string>>": st.fixed_dictionaries(
        {"a": st.integers(0, 9) | st.none(), "b": st.fixed_dictionaries({"c": st.text(max_size=3)}) | st.none()}
    ),
}


@pytest.mark.parametrize("kind", COLUMNS)
@given(data=st.data())
def test_a_slice_has_the_hashes_of_its_rows_alone(kind, data):
    values = data.draw(st.lists(COLUMNS[kind] | st.none(), max_size=12))
    array = pa.array(values, type=parse_type(kind))
    hashes = hash_column(array)
    start = data.draw(st.integers(0, len(values)))
    assert list(hash_column(array.slice(start))) == list(hashes[start:])
    assert [hash_of(value, array.type) for value in values] == list(hashes)


def test_hashes_of_a_run_of_numbers_spread_evenly():
    for column in (pa.array(np.arange(100_000)), pa.array([f"user-{i:09d}" for i in range(100_000)])):
        shards = np.bincount((hash_column(column) % np.uint64(64)).astype(int), minlength=64)
        assert 1562 * 0.85 < shards.min() <= shards.max() < 1562 * 1.15
        assert len(np.unique(hash_column(column))) == 100_000


def test_a_type_without_a_hash_is_refused():
    with pytest.raises(InvalidSchema, match="cannot be hashed"):
        hash_column(pa.array([None], type=pa.month_day_nano_interval()).slice(0, 0))
