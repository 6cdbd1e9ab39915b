"""Whole numbers in few bytes: the table that comes back is the one that was given."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headrace.kernels.files import COMPRESSED_FROM, decode, encode, in_few_bytes, read_tables, write_tables
from headrace.kernels.narrow import narrowed, widened

EDGES = [-(2**63), 2**63 - 1]
COLUMNS = {
    "near": pa.array([2**62 + at for at in range(100)]),
    "least": pa.array([-(2**63) + at * 7 for at in range(100)]),
    "greatest": pa.array([2**63 - 1 - at * 655 for at in range(100)]),
    "span of 256": pa.array([-128 + at % 2 * 255 for at in range(100)]),
    "span of 257": pa.array([-128 + at % 2 * 256 for at in range(100)]),
    "span of 2**32": pa.array([at % 2 * (2**32 - 1) for at in range(100)]),
    "too far": pa.array([at % 2 * 2**32 for at in range(100)]),
    "both ends": pa.array([EDGES[at % 2] for at in range(100)]),
    "nulls": pa.array([None, *range(99)]),
    "times": pa.array(range(10**15, 10**15 + 100), pa.timestamp("us", "UTC")),
    "seconds": pa.array(range(100), pa.timestamp("s")),
    "sums": pa.array([Decimal(at - 50) for at in range(100)], pa.decimal128(38, 0)),
    "prices": pa.array([Decimal(at - 50).scaleb(-2) for at in range(100)], pa.decimal128(12, 2)),
    "wide sums": pa.array([Decimal(2**64 * (at - 50)) for at in range(100)], pa.decimal128(38, 0)),
    "small": pa.array(range(100), pa.int32()),
    "unsigned": pa.array(range(100), pa.uint8()),
    "doubles": pa.array([0.5] * 100),
    "texts": pa.array(["a"] * 100),
    "lists": pa.array([[1, 2]] * 100),
}
NARROW = {
    "near",
    "least",
    "greatest",
    "span of 256",
    "span of 257",
    "span of 2**32",
    "times",
    "seconds",
    "sums",
    "prices",
}


def table():
    given = pa.table(COLUMNS)
    fields = [field.with_metadata({"of": field.name}) for field in given.schema]
    return given.cast(pa.schema(fields, metadata={"about": "numbers"}))


@pytest.mark.parametrize("cut", [(0, 100), (3, 40), (99, 1), (5, 0)])
def test_a_table_comes_back(cut):
    given = table().slice(*cut)
    back = widened(narrowed(given))
    assert back.equals(given, check_metadata=True)
    back.validate(full=True)


def test_columns_of_several_chunks_come_back():
    given = pa.concat_tables([table().slice(0, 30), table().slice(70, 20)])
    assert widened(narrowed(given)).equals(given, check_metadata=True)


def test_parts_of_a_narrow_table_come_back():
    given = pa.concat_tables([table().slice(0, 30), table().slice(0, 0), table().slice(70, 20)])
    for first, count in ((0, 0), (29, 2), (40, 10)):
        back = widened(narrowed(given).slice(first, count))
        back.validate(full=True)
        assert back.equals(given.slice(first, count), check_metadata=True)


def test_what_is_near_becomes_narrow_and_nothing_else():
    narrow = narrowed(table())
    assert set(narrow.column_names) == (set(COLUMNS) - NARROW) | {f"narrow {name}" for name in NARROW}
    assert all(narrow.schema.field(name).type == kind.type for name, kind in COLUMNS.items() if name not in NARROW)
    assert narrow.schema.field("narrow span of 256").type == pa.uint8()
    assert narrow.schema.field("narrow span of 257").type == pa.uint16()


def large():
    numbers = np.arange(COMPRESSED_FROM // 8, dtype=np.int64)
    return pa.table({"k": numbers % 1000, "at": pa.array(numbers + 10**15, pa.timestamp("us"))})


def test_large_blobs_and_files_are_small(tmp_path):
    given = large()
    blob = encode(given)
    assert blob.size < given.nbytes / 2
    assert decode(blob).equals(given)
    size = write_tables(tmp_path / "x", {"rows": in_few_bytes(given)}, {}, sync=False)
    assert size < given.nbytes / 2
    assert read_tables(tmp_path / "x")[0]["rows"].equals(given)


def test_small_tables_are_left_as_they_are():
    given = large().slice(0, 100)
    assert in_few_bytes(given) is given
    assert decode(encode(given)).equals(given)


def test_texts_are_compressed_beside_narrow_numbers():
    given = large().append_column("s", pa.array(["a text that repeats"] * len(large())))
    blob = encode(given)
    assert blob.size < given.nbytes / 4
    assert decode(blob).equals(given)
