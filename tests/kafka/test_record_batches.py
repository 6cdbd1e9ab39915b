"""Record batches are parsed as they were written, and damaged ones are refused."""

from __future__ import annotations

import struct

import cramjam
import numpy as np
import pyarrow as pa
import pytest
from batch_encoder import (
    APPEND_TIME,
    GZIP,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    Record,
    batch,
    crc32c,
    marker,
    record,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from budget import examples
from headrace.connect.kafka.crc32c import crc32c as fast_crc32c
from headrace.connect.kafka.crc32c import crc32c_by_tables
from headrace.connect.kafka.reading.raw_columns import TYPES, OldFormat
from headrace.connect.kafka.reading.record_batches import Place, RecordsDamaged, records_of, scanned

PLACE = Place("t", "0")
ALL = tuple(TYPES)
FOREVER = (0, 1 << 62)


def read(data, *, aborted=(), bounds=FOREVER, columns=ALL):
    """Return the rows that a reader sees."""
    found = list(records_of(scanned(data, PLACE), aborted, bounds, columns))
    return [row for each in found for row in pa.Table.from_batches([each]).to_pylist()]


def offsets(data, **options):
    return [row["_offset"] for row in read(data, columns=["_offset"], **options)]


texts = st.none() | st.binary(max_size=40) | st.integers(100, 3_000).map(lambda size: b"x" * size)
header = st.tuples(st.text(max_size=10).map(str.encode), st.none() | st.binary(max_size=10))


@st.composite
def batches(draw):
    """Draw batches with gaps, in any codec, and the rows that they have."""
    data, rows, at = b"", [], draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(1, 5))):
        count, first = draw(st.integers(0, 8)), draw(st.integers(0, 1 << 41))
        deltas = sorted(draw(st.sets(st.integers(0, 2_000), min_size=count, max_size=count)))
        records = [
            Record(
                delta,
                draw(texts),
                draw(texts),
                draw(st.integers(0, 1 << 33)),
                tuple(draw(st.lists(header, max_size=3))),
            )
            for delta in deltas
        ]
        last = at + (deltas[-1] if deltas else 0) + draw(st.integers(0, 5))
        logged = draw(st.booleans())
        attributes = (APPEND_TIME if logged else 0) | (GZIP if draw(st.booleans()) else 0)
        data += batch(at, records, attributes=attributes, first_time=first, last=last, last_time=first + (1 << 34))
        for each in records:
            time = first + (1 << 34) if logged else first + each.passed
            rows.append((at + each.delta, time, each.key, each.value, each.headers))
        at = last + draw(st.integers(1, 10))
    return data, rows


@settings(max_examples=examples(60))
@given(batches(), st.data())
def test_what_was_written_is_read(drawn, data):
    """Any batches, a cut last one, and any bounds: keys, values, headers, times and offsets are those written."""
    written, rows = drawn
    low = data.draw(st.integers(0, rows[-1][0] + 2)) if rows else 0
    high = data.draw(st.integers(low, rows[-1][0] + 2)) if rows else 10
    tail = batch(1 << 50, [Record(0, b"", b"cut off")])[: data.draw(st.integers(0, 60))]
    expected = [row for row in rows if low <= row[0] < high]
    found = read(written + tail, bounds=(low, high))
    assert [(row["_offset"], row["_key"], row["value"]) for row in found] == [(o, k, v) for o, _, k, v, _ in expected]
    assert [round(row["_time"].timestamp() * 1_000) for row in found] == [time for _, time, *_ in expected]
    assert [row["_deleted"] for row in found] == [row[3] is None for row in expected]
    names = [[(each["name"].encode(), each["value"]) for each in row["_headers"]] for row in found]
    assert names == [list(row[4]) for row in expected]


@settings(max_examples=examples(30))
@given(batches(), st.data())
def test_a_changed_bit_is_refused(drawn, data):
    """A flip anywhere behind the checksum's field is found; in the first 21 bytes it changes no record that is read."""
    written, rows = drawn
    bit = data.draw(st.integers(0, len(written) * 8 - 1))
    changed = bytearray(written)
    changed[bit // 8] ^= 1 << bit % 8
    try:
        found = read(bytes(changed))
    except (RecordsDamaged, OldFormat):
        return
    written_rows = iter([(key, value) for _, _, key, value, _ in rows])
    kept = [(row["_key"], row["value"]) for row in found]
    # in order; an offset that is out of bounds, or a length that cuts the end off, leaves records out
    assert all(each in written_rows for each in kept)


@settings(max_examples=examples(100))
@given(st.binary(max_size=300), st.integers(0, 9), st.integers(0, 63))
def test_records_that_make_no_sense_are_refused(payload, count, attributes):
    """Whatever the bytes are, with a valid checksum: an error, or rows that are inside the buffer."""
    body = batch(5, [Record(at, b"k", b"v") for at in range(count)], attributes=attributes & ~7, payload=payload)
    try:
        for row in read(body):
            assert len(row["_key"] or b"") + len(row["value"] or b"") <= len(payload)
    except RecordsDamaged:
        return


@pytest.mark.parametrize(
    ("codec", "compress"),
    [
        (GZIP, lambda data: bytes(cramjam.gzip.compress(data))),
        (LZ4, lambda data: bytes(cramjam.lz4.compress(data))),
        (ZSTD, lambda data: bytes(cramjam.zstd.compress(data))),
        (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
        (SNAPPY, lambda data: xerial(data, 100)),
    ],
)
def test_every_codec_is_read(codec, compress):
    records = [Record(at, b"k%d" % at, b"value " * at) for at in range(50)]
    payload = compress(b"".join(record(each) for each in records))
    data = batch(10, records, attributes=codec, payload=payload) + batch(60, [Record(0, None, b"plain")])
    found = read(data, columns=["_offset", "_key", "value"])
    assert [row["_offset"] for row in found] == list(range(10, 61))
    assert [row["value"] for row in found] == [b"value " * at for at in range(50)] + [b"plain"]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD, 5, 7])
def test_what_no_codec_wrote_is_refused(codec):
    data = batch(10, [Record(0, None, b"v")], attributes=codec, payload=b"this is not compressed")
    with pytest.raises(RecordsDamaged, match="offset 10"):
        read(data)


def xerial(data: bytes, size: int) -> bytes:
    """Return Java's frame of snappy blocks."""
    blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + size])) for at in range(0, len(data), size)]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


def written(base, producer, count=2):
    return batch(base, [Record(at, None, b"v") for at in range(count)], attributes=TRANSACTIONAL, producer=producer)


def test_aborted_transactions_are_not_seen():
    """Two producers at the same time, one aborts, then it commits: only what it aborted is left out."""
    data = written(0, 1) + written(2, 2) + written(4, 1) + marker(6, 1, abort=True) + written(7, 1)
    data += marker(9, 2, abort=False) + marker(10, 1, abort=False) + batch(11, [Record(0)])
    assert offsets(data, aborted=[(1, 0)]) == [2, 3, 7, 8, 11]
    assert offsets(data, aborted=None) == [0, 1, 2, 3, 4, 5, 7, 8, 11]


def test_a_transaction_that_was_aborted_twice_is_left_out_twice():
    data = written(0, 1) + marker(2, 1, abort=True) + written(3, 1) + marker(5, 1, abort=False)
    data += written(6, 1) + marker(8, 1, abort=True)
    assert offsets(data, aborted=[(1, 6), (1, 0)]) == [3, 4]


def test_a_fetch_that_begins_inside_an_aborted_transaction_leaves_it_out():
    data = written(4, 1) + marker(6, 1, abort=True) + written(7, 1)
    assert offsets(data, aborted=[(1, 0)]) == [7, 8]


def test_a_control_batch_that_compaction_emptied_is_no_marker():
    empty = batch(2, [], attributes=TRANSACTIONAL | 0x20, producer=1)
    assert offsets(written(0, 1) + empty + written(3, 1), aborted=[(1, 0)]) == []


def test_the_arrival_ascends_and_an_unknown_time_is_null():
    data = batch(0, [Record(0, passed=5), Record(1, passed=2), Record(2, passed=9)], first_time=100)
    data += batch(3, [Record(0)], first_time=-1)
    rows = read(data, columns=["_time", "_appended"])
    assert [row["_appended"].timestamp() for row in rows] == pytest.approx([0.105, 0.105, 0.109, 0.109])
    assert [row["_time"] and row["_time"].microsecond for row in rows] == [105_000, 102_000, 109_000, None]


def test_records_of_an_old_format_are_for_another_reader():
    with pytest.raises(OldFormat):
        scanned(batch(0, [Record(0)], magic=1), PLACE)


def test_a_checksum_that_is_wrong_is_named_with_its_offset():
    data = bytearray(batch(0, [Record(0, None, b"first")]) + batch(1, [Record(0, None, b"second")]))
    data[-2] ^= 1
    with pytest.raises(RecordsDamaged, match='topic "t", partition 0: the batch of records at offset 1 is damaged'):
        scanned(bytes(data), PLACE)


def test_a_header_name_that_is_not_text_is_shown_with_replacements():
    data = batch(0, [Record(0, headers=((b"a\xff", b"1"),))])
    assert read(data, columns=["_headers"]) == [{"_headers": [{"name": "a�", "value": b"1"}]}]


@given(st.binary(max_size=100))
def test_the_checksum_is_that_of_every_implementation(data):
    array = np.frombuffer(data, np.uint8)
    assert fast_crc32c(array, 0, len(data)) == crc32c_by_tables(array, 0, len(data)) == crc32c(data)
