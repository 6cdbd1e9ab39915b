"""A reader of some columns checks these alone: what it serves is what was written, whatever else is damaged."""

from __future__ import annotations

from random import Random
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from scripts import log_flips

from headrace.base.errors import CorruptBatch
from headrace.log import Log
from headrace.log.segments import column_sums
from headrace.log.segments.frame import HEADER_SIZE, SUMS, parse

ROWS = 40
TYPES = "id bigint, text string, nested struct<a: int, b: string>, many array<string>, none int, flag boolean"


def rows():
    return [
        {
            "id": i,
            "text": None if i % 5 == 0 else f"text {i}",
            "nested": {"a": i, "b": str(i)},
            "many": [str(i)] * (i % 3),
            "none": None,
            "flag": i % 2 == 0,
        }
        for i in range(ROWS)
    ]


@pytest.fixture(autouse=True)
def _tables(monkeypatch):
    """Every batch has a table, however small it is."""
    monkeypatch.setattr(column_sums, "LARGE", 0)


def written(path):
    with Log(path, fsync=False) as log:
        log.create_topic("a", TYPES).append(rows())
    (segment,) = path.rglob("*.segment")
    return segment


def read(path, *columns):
    with Log(path, fsync=False) as log:
        topic = log.topic("a")
        batches = topic.batches(0, 0, ROWS, columns=list(columns) or None)
        return pa.Table.from_batches(list(batches)).to_pylist()


def test_checksums_of_parts_are_that_of_the_whole():
    dice = np.random.default_rng(5)
    things = pa.list_(pa.struct([("x", pa.int32())]))
    for count in (0, 1, 2, 1000):
        table = pa.table({
            "a": pa.array(dice.integers(0, 9, count)),
            "b": pa.array([f"{value}" * 3 for value in range(count)], pa.string()),
            "c": pa.nulls(count),
            "d": pa.array([[{"x": value}] * (value % 3) for value in range(count)], things),
        })  # fmt: skip
        for batch in table.slice(count // 3).to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]:
            payload = batch.serialize()
            parts = column_sums.parts_of(payload, table.schema)
            assert len(parts) == 1 + table.num_columns
            assert parts[-1].end == payload.size
            assert column_sums.checksum_of(parts) == crc32(payload)


def test_a_flipped_bit_is_noticed_where_its_column_is_read_and_only_there(tmp_path):
    """Each byte of the segment in turn: wrong values are never served, and whoever reads all columns notices."""
    path = tmp_path / "log"
    segment = written(path)
    raw, dice = segment.read_bytes(), Random(3)  # noqa: S311 - a test that replays
    assert parse(raw, 0).flags & SUMS
    some = [{"id": row["id"], "many": row["many"]} for row in rows()]
    served = 0
    for at in range(len(raw)):
        segment.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << dice.randrange(8)]) + raw[at + 1 :])
        with pytest.raises(CorruptBatch):
            read(path)
        try:
            assert read(path, "id", "many") == some
            served += 1
        except CorruptBatch:
            pass
    assert 0.2 < served / len(raw) < 0.8


def test_columns_are_checked_once_and_others_when_they_are_read(tmp_path):
    path = tmp_path / "log"
    segment = written(path)
    raw = bytearray(segment.read_bytes())
    at = raw.index(b"text 7", HEADER_SIZE)
    raw[at] ^= 1
    segment.write_bytes(raw)
    with Log(path, fsync=False) as log:
        topic = log.topic("a")

        def some(*columns):
            return pa.Table.from_batches(list(topic.batches(0, 0, ROWS, columns=list(columns)))).to_pylist()

        for _ in range(2):
            assert some("id") == [{"id": row["id"]} for row in rows()]
            with pytest.raises(CorruptBatch):
                some("id", "text")
            assert some("flag", "_offset")[3] == {"flag": False, "_offset": 3}


def test_batches_with_tables_compact_verify_and_replay(tmp_path):
    path = tmp_path / "log"
    with Log(path, fsync=False, segment_bytes=3_000) as log:
        topic = log.create_topic("a", "id bigint, text string", key="id", cleanup="compact")
        for turn in range(8):
            topic.append([{"id": i % 7, "text": f"{turn} {i}" * 9} for i in range(20)])
        topic.compact()
        topic.evolve("id bigint, text string, more int", {"more": 5})
        assert [*log.verify()] == []
        end = topic.end_offsets()[0]
        found = {}
        for batch in topic.batches(0, 0, end, columns=["id", "more", "_offset"]):
            found |= {row["id"]: row["more"] for row in batch.to_pylist()}
        assert found == dict.fromkeys(range(7), 5)


def test_the_law_of_flips_holds_with_tables(tmp_path):
    assert log_flips.flips(tmp_path, seed=11, count=100).total() == 100
