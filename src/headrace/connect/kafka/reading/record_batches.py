"""Record batches, as a fetch returns them, to Arrow: decompressed, parsed and filtered by compiled code."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.blame import OutsideError
from headrace.connect.format import HEADERS, HEADERS_TYPE, KEY, VALUE
from headrace.connect.kafka.reading import batch_kernels as kernels
from headrace.connect.kafka.reading.compression import decompress
from headrace.connect.kafka.reading.raw_columns import TIME, TYPES, OldFormat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    Longs = npt.NDArray[np.int64]

CHUNK_BYTES = 1 << 28
"""About how many bytes of records become one batch of Arrow's, whose offsets have 32 bits."""


class RecordsDamaged(OutsideError):
    """Bytes that a broker sent as records are none."""

    condition = "RECORDS_DAMAGED"

    def __init__(self, topic: str, partition: str, *, offset: int, why: str) -> None:
        super().__init__(
            f'topic "{topic}", partition {partition}: the batch of records at offset {offset} is damaged: {why}',
            detail="Nothing of it was taken. The broker's disk or the network has changed its bytes.",
            hint="Read it with Kafka's own tools (kafka-dump-log.sh, kafka-console-consumer.sh). If they fail too, "
            "restore the partition from another replica, or delete the records up to it (kafka-delete-records.sh).",
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where records are from, for errors."""

    topic: str
    partition: str

    def damaged(self, offset: int, why: str) -> RecordsDamaged:
        """Return the error of a batch that is damaged."""
        return RecordsDamaged(self.topic, self.partition, offset=offset, why=why)


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The whole batches of a fetch: their bytes, and a row for each with the fields of `batch_kernels`."""

    data: npt.NDArray[np.uint8]
    heads: Longs
    place: Place

    @property
    def next_offset(self) -> int | None:
        """The offset after the last batch; None where there is no batch."""
        return int(self.heads[-1, kernels.LAST]) + 1 if len(self.heads) else None

    def epoch(self, offset: int) -> int:
        """Return the epoch of the leader that wrote the batch with an offset; -1 where no batch has it."""
        at = int(np.searchsorted(self.heads[:, kernels.LAST], offset))
        if at == len(self.heads) or self.heads[at, kernels.BASE] > offset:
            return -1
        return int(self.heads[at, kernels.EPOCH])


def scanned(records: bytes | None, place: Place) -> FetchedBatches:
    """Return the batches of a fetch, with checksums verified. A last batch that was cut off is left out.

    Raises:
        RecordsDamaged: a checksum or a header is wrong.
        OldFormat: a batch has another format than 2.

    """
    data = np.frombuffer(records or b"", np.uint8)
    count = kernels.count_batches(data)
    first = int.from_bytes(bytes(data[:8]), "big", signed=True)
    if count < 0:
        raise place.damaged(first, "a batch says that it is shorter than its header")
    heads = np.empty((count, kernels.FIELDS), np.int64)
    wrong = kernels.scan(data, heads) if count else 0
    if wrong == kernels.OLD_FORMAT:
        raise OldFormat
    if wrong:
        why = "its checksum is wrong" if wrong == kernels.WRONG_CHECKSUM else "its header makes no sense"
        raise place.damaged(int(heads[0, kernels.BASE]), why)
    return FetchedBatches(data, heads, place)


def records_of(
    batches: FetchedBatches,
    aborted: Sequence[tuple[int, int]] | None,
    bounds: tuple[int, int],
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the records with offsets in `bounds` that a reader sees, with these columns of `raw_columns.TYPES`.

    `_appended` is the greatest time of a record so far; `raw_columns.of_range` makes it that of a range.

    Args:
        batches: what was fetched.
        aborted: the producer and the first offset of each aborted transaction; None to see their records, too.
        bounds: the first offset, and the one after the last.
        columns: the columns.

    Raises:
        RecordsDamaged: the records of a batch cannot be decompressed or parsed.

    """
    transactions = sorted(aborted or (), key=lambda each: each[1])
    shown = np.zeros(len(batches.heads), np.bool_)
    producers = np.array([producer for producer, _ in transactions], np.int64)
    firsts = np.array([first for _, first in transactions], np.int64)
    kernels.visible(batches.heads, producers, firsts, shown)
    heads = batches.heads
    shown &= (heads[:, kernels.LAST] >= bounds[0]) & (heads[:, kernels.BASE] < bounds[1])
    shown &= heads[:, kernels.COUNT] > 0
    for data, part in _payloads(batches, heads[shown]):
        rows = _parsed(data, part, bounds, columns, batches.place)
        if rows.num_rows:
            yield rows


def _payloads(batches: FetchedBatches, heads: Longs) -> Iterator[tuple[npt.NDArray[np.uint8], Longs]]:
    """Yield buffers with uncompressed records, and the batches that are in each."""
    if not len(heads):
        return
    if not (heads[:, kernels.ATTRIBUTES] & kernels.CODEC_BITS).any():
        yield from _split(batches.data, heads)
        return
    parts: list[bytes] = []
    moved, size, first = heads.copy(), 0, 0
    for number, row in enumerate(heads):
        payload = _payload(batches, row)
        if parts and size + len(payload) > CHUNK_BYTES:
            yield np.frombuffer(b"".join(parts), np.uint8), moved[first:number]
            parts, size, first = [], 0, number
        moved[number, kernels.POSITION], moved[number, kernels.END] = size, size + len(payload)
        parts.append(payload)
        size += len(payload)
    yield np.frombuffer(b"".join(parts), np.uint8), moved[first:]


def _split(data: npt.NDArray[np.uint8], heads: Longs) -> Iterator[tuple[npt.NDArray[np.uint8], Longs]]:
    sizes = np.cumsum(heads[:, kernels.END] - heads[:, kernels.POSITION])
    places = [0, *(np.flatnonzero(np.diff(sizes // CHUNK_BYTES)) + 1).tolist(), len(heads)]
    for start, end in pairwise(places):
        yield data, heads[start:end]


def _payload(batches: FetchedBatches, row: Longs) -> bytes:
    view = memoryview(batches.data[int(row[kernels.POSITION]) : int(row[kernels.END])])  # type: ignore[arg-type]
    codec = int(row[kernels.ATTRIBUTES]) & kernels.CODEC_BITS
    if not codec:
        return view  # type: ignore[return-value] # joined like bytes
    try:
        return decompress(codec, view)  # type: ignore[return-value] # joined like bytes
    except ValueError as error:
        raise batches.place.damaged(int(row[kernels.BASE]), str(error)) from error


class _Buffers:
    """Where a kernel writes variable parts of records: two columns of bytes and their ends."""

    def __init__(self, rows: int, first: int, second: int) -> None:
        self.first, self.second = np.empty(first, np.uint8), np.empty(second, np.uint8)
        self.first_ends, self.second_ends = np.zeros(rows + 1, np.int32), np.zeros(rows + 1, np.int32)
        self.nulls = np.zeros(rows, np.uint8)

    @property
    def parts(self) -> tuple[object, ...]:
        return self.first, self.first_ends, self.second, self.second_ends

    def first_array(self, rows: int, null_bit: int | None) -> pa.Array:
        return self._array(self.first, self.first_ends, rows, null_bit)

    def second_array(self, rows: int, null_bit: int | None) -> pa.Array:
        return self._array(self.second, self.second_ends, rows, null_bit)

    def _array(
        self, data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32], rows: int, null_bit: int | None
    ) -> pa.Array:
        validity, count = None, 0
        if null_bit is not None:
            nulls = self.nulls[:rows] & null_bit != 0
            count = int(nulls.sum())
            validity = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if count else None
        buffers = [validity, pa.py_buffer(ends[: rows + 1]), pa.py_buffer(data[: ends[rows]])]
        return pa.Array.from_buffers(pa.binary(), rows, buffers, count)


def _parsed(
    data: npt.NDArray[np.uint8], heads: Longs, bounds: tuple[int, int], columns: Sequence[str], place: Place
) -> pa.RecordBatch:
    size, capacity = int((heads[:, kernels.END] - heads[:, kernels.POSITION]).sum()), int(heads[:, kernels.COUNT].sum())
    if capacity > size:  # a record takes more than a byte
        raise place.damaged(int(heads[0, kernels.BASE]), "it says that it has more records than bytes")
    wanted = np.array([KEY in columns, VALUE in columns])
    buffers = _Buffers(capacity, size if wanted[0] else 0, size if wanted[1] else 0)
    fixed = np.empty((capacity, 4), np.int64)
    limits = np.array(bounds, np.int64)
    rows = kernels.parse(data, heads, limits, wanted, fixed, buffers.parts, buffers.nulls)
    if rows < 0:
        raise place.damaged(int(heads[0, kernels.BASE]), "a record does not fit into its batch")
    make = {
        KEY: lambda: buffers.first_array(rows, 1),
        VALUE: lambda: buffers.second_array(rows, 2),
        HEADERS: lambda: _headers(data, fixed[:rows], place),
        "_offset": lambda: pa.array(np.ascontiguousarray(fixed[:rows, 0])),
        "_time": lambda: _times(fixed[:rows, 1]),
        "_appended": lambda: _times(np.maximum.accumulate(fixed[:rows, 1])),
        "_deleted": lambda: pa.array(buffers.nulls[:rows] & 2 != 0),
    }
    fields = [(name, TYPES[name]) for name in columns]
    return pa.RecordBatch.from_arrays([make[name]() for name in columns], schema=pa.schema(fields))


def _times(millis: Longs) -> pa.Array:
    none = millis == kernels.NO_TIME
    return pa.array(millis * 1_000, pa.int64(), mask=none if none.any() else None).cast(TIME)


def _headers(data: npt.NDArray[np.uint8], fixed: Longs, place: Place) -> pa.Array:
    ends = np.zeros(len(fixed) + 1, np.int32)
    np.cumsum(fixed[:, 3], out=ends[1:])
    total = int(ends[-1])
    buffers = _Buffers(total, len(data) if total else 0, len(data) if total else 0)
    if total and kernels.parse_headers(data, fixed, buffers.parts, buffers.nulls) < 0:
        raise place.damaged(int(fixed[0, 0]), "a header does not fit into its record")
    pairs = pa.StructArray.from_arrays(
        [_text(buffers.first_array(total, None)), buffers.second_array(total, 1)], fields=list(HEADERS_TYPE.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(ends), pairs, type=HEADERS_TYPE)


def _text(names: pa.Array) -> pa.Array:
    """Return names as text; a broker does not check that they are UTF-8."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
