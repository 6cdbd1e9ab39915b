"""One stable hash for rows: it assigns records to partitions and state to shards, so it may never change.

`hash_columns` is defined by values, not by memory: sliced arrays, chunks, int8 and int64 of the same value,
0.0 and -0.0, every NaN, `string` and `large_string` agree. All arithmetic is modulo 2**64:

- `mix(x)` is the finaliser of splitmix64 (Steele, Lea, Flood 2014) over `x + GOLDEN`
- integers, booleans, dates, times and instants: `mix` of the value as int64; floats: of the float64's bits
- decimals: `mix(mix(low word) * STEP + high word)` of the unscaled value, so the scale counts, the precision not
- text and binary: `mix(sum of stir(word k) * STEP**k + length * GOLDEN)` over little-endian words of 8 bytes
- lists: `mix(sum of hash(element k) * STEP**k + length * GOLDEN)`; maps: the same without `STEP**k`, as the
  entries of a map have no order; structs: `mix` of their fields as several columns
- null: the constant `NULL`; several columns: `mix(hash so far * STEP + hash of the column)`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.base.errors import InvalidSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
STEP = np.uint64(0xD1342543DE82EF95)
NULL = np.uint64(0x6E756C6C5F726F77)
EMPTY = np.uint64(0x6E6F5F636F6C756D)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_CHUNK = 1 << 14  # rows worked on at a time: the intermediate arrays stay in the processor's cache
_WORD = 8
_LONG = 256  # bytes: longer texts are summed one at a time, shorter ones word by word over all rows
_MINUS_ZERO, _INFINITY = np.uint64(1 << 63), np.uint64(0x7FF << 52)  # of a float64
_NAN = np.uint64(0xFFF << 51)
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(_WORD + 1)], dtype=np.uint64)


def hash_columns(columns: Sequence[pa.Array | pa.ChunkedArray], length: int) -> Hashes:
    """Return one uint64 a row over all columns, in their order; without columns all rows have one hash.

    Raises:
        InvalidSchema: a column's type has no hash (unions, intervals).

    """
    if not columns:
        return np.full(length, EMPTY, dtype=np.uint64)
    total = hash_column(columns[0])
    for column in columns[1:]:
        total = _mixed(total * STEP + hash_column(column))
    return total


def hash_column(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """Return one uint64 for each value of a column."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return hash_column(column.chunk(0))
        parts = [hash_column(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
    hashes = _values(column)
    if column.null_count:
        hashes[~_valid(column)] = NULL
    return hashes


def _values(array: pa.Array) -> Hashes:
    """Return hashes; only those of valid values count."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _dictionary(array)
    if pa.types.is_decimal(kind):
        return _decimals(array)
    if pa.types.is_map(kind):
        return _lists(array, pa.array([], kind.key_type), ordered=False)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, None, ordered=True)
    if pa.types.is_fixed_size_list(kind):
        return _values(array.cast(pa.list_(kind.value_type)))
    if pa.types.is_struct(kind):
        return _mixed(hash_columns([array.field(i) for i in range(kind.num_fields)], len(array)))
    if pa.types.is_null(kind):
        return np.full(len(array), NULL, dtype=np.uint64)
    if _is_bytes(kind):
        return _texts(array)
    return _mixed(_words(array))


def _words(array: pa.Array) -> Hashes:
    """Return each value of fixed width as one word."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return _buffer(array.cast(pa.uint8()), np.uint8).astype(np.uint64)
    if pa.types.is_floating(kind):
        bits = _buffer(array.cast(pa.float64()), np.uint64).copy()
        bits[bits == _MINUS_ZERO] = 0
        bits[bits & ~_MINUS_ZERO > _INFINITY] = _NAN
        return bits
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        array = array.cast(pa.timestamp("us", kind.tz), safe=False)
    signed = pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind)
    if not (signed or pa.types.is_unsigned_integer(kind)) or kind.bit_width not in (8, 16, 32, 64):
        raise InvalidSchema(f"a column of the Arrow type {kind} cannot be hashed, so it cannot be part of a key")
    width = np.dtype(f"{'i' if signed else 'u'}{array.type.bit_width // 8}")
    return _buffer(array, width).astype(np.int64 if signed else np.uint64).view(np.uint64)


def _buffer(array: pa.Array, dtype: Any) -> NDArray[Any]:
    if not len(array):
        return np.empty(0, dtype=dtype)
    return np.frombuffer(array.buffers()[1], dtype=dtype, count=len(array) + array.offset)[array.offset :]


def _valid(array: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def _mixed(words: Hashes) -> Hashes:
    """Return `mix` of each word; overwrites `words` if it is writable."""
    out = words if words.flags.writeable else words.copy()
    spare = np.empty(min(_CHUNK, len(out)), dtype=np.uint64)
    for at in range(0, len(out), _CHUNK):
        part = out[at : at + _CHUNK]
        shifted = spare[: len(part)]
        part += GOLDEN
        _fold(part, shifted, 30)
        part *= _FIRST
        _fold(part, shifted, 27)
        part *= _SECOND
        _fold(part, shifted, 31)
    return out


def _fold(words: Hashes, spare: Hashes, bits: int) -> None:
    np.right_shift(words, np.uint64(bits), out=spare)
    np.bitwise_xor(words, spare, out=words)


def _stir(words: Hashes) -> Hashes:
    """Spread a word's top bits, so that two of them cannot cancel in a sum; in place."""
    words ^= words >> np.uint64(32)
    words *= _FIRST
    words ^= words >> np.uint64(29)
    words *= _SECOND
    return words


def _decimals(array: pa.Array) -> Hashes:
    if array.type.bit_width != 128:  # noqa: PLR2004 - decimal32, 64 and 256 are no types of ours
        array = array.cast(pa.decimal128(min(array.type.precision, 38), array.type.scale))
    if not len(array):
        return np.empty(0, dtype=np.uint64)
    words = np.frombuffer(array.buffers()[1], dtype=np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
    return _mixed(_mixed(words[0::2].copy()) * STEP + words[1::2])


def _dictionary(array: pa.Array) -> Hashes:
    hashes = hash_column(array.dictionary)
    if not len(hashes):
        return np.full(len(array), NULL, dtype=np.uint64)
    indices = array.indices.fill_null(0) if array.indices.null_count else array.indices
    places: NDArray[np.int64] = indices.to_numpy(zero_copy_only=False)
    return hashes[places]


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or kind in (pa.string_view(), pa.binary_view())
    )


def _offsets(array: pa.Array, *, large: bool) -> NDArray[np.int64]:
    if not len(array):
        return np.zeros(1, dtype=np.int64)
    found = np.frombuffer(array.buffers()[1], dtype=np.int64 if large else np.int32)
    return found[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _texts(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        array = array.cast(pa.binary())
    elif kind == pa.string_view():
        array = array.cast(pa.string())
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    offsets = _offsets(array, large=large)
    data = array.buffers()[2] if len(array) else None
    text = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.empty(0, dtype=np.uint8)
    if len(text) < _WORD:
        text = np.concatenate([text, np.zeros(_WORD - len(text), dtype=np.uint8)])
    words: Hashes = np.ndarray((len(text) - _WORD + 1,), dtype="<u8", buffer=text, strides=(1,))
    out = np.empty(len(array), dtype=np.uint64)
    for at in range(0, len(array), _CHUNK):
        bounds = offsets[at : at + _CHUNK + 1]
        out[at : at + _CHUNK] = _sums(words, bounds[:-1], np.diff(bounds))
    out += np.diff(offsets).astype(np.uint64) * GOLDEN
    return _mixed(out)


def _sums(words: Hashes, firsts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    """Return the sum of `stir(word k) * STEP**k` for each text; `words[i]` is the word that starts at byte i."""
    out = np.zeros(len(firsts), dtype=np.uint64)
    power = np.uint64(1)
    short = np.minimum(lengths, np.where(lengths > _LONG, 0, _LONG))
    longest = int(short.max()) if len(short) else 0
    rows: Any = slice(None)
    for done in range(0, longest, _WORD):
        if done:
            rows = np.flatnonzero(short > done)
        left = short[rows] - done
        out[rows] += _stir(_load(words, firsts[rows] + done, left)) * power
        power = np.uint64((int(power) * int(STEP)) & 0xFFFFFFFFFFFFFFFF)
    for row in np.flatnonzero(lengths > _LONG):
        out[row] = _long_sum(words, int(firsts[row]), int(lengths[row]))
    return out


def _load(words: Hashes, at: NDArray[np.int64], left: NDArray[np.int64]) -> Hashes:
    """Return the word at each byte position, cut to the bytes that are left; never reads past the end."""
    safe = np.minimum(at, len(words) - 1)
    loaded = words[safe]
    behind = at - safe
    if behind.any():
        loaded >>= (np.minimum(behind, _WORD - 1) * 8).astype(np.uint64)
    loaded &= _MASKS[np.clip(left, 0, _WORD)]
    return loaded


def _long_sum(words: Hashes, first: int, length: int) -> np.uint64:
    at = np.arange(first, first + length, _WORD, dtype=np.int64)
    stirred = _stir(_load(words, at, first + length - at))
    return np.uint64((stirred * _powers(len(at))).sum(dtype=np.uint64))


def _powers(count: int) -> Hashes:
    factors = np.full(max(count, 1), STEP, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)[:count]


def _lists(array: pa.Array, keys: pa.Array | None, *, ordered: bool) -> Hashes:
    offsets = _offsets(array, large=pa.types.is_large_list(array.type))
    first, last = int(offsets[0]), int(offsets[-1])
    count = last - first
    if keys is None:
        inner = hash_column(array.values.slice(first, count))
    else:
        inner = hash_columns([array.keys.slice(first, count), array.items.slice(first, count)], count)
    lengths = np.diff(offsets)
    if ordered and count:
        place = np.arange(count, dtype=np.int64) - np.repeat(offsets[:-1] - first, lengths)
        inner = inner * _powers(int(lengths.max()))[place]
    running = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(inner, dtype=np.uint64)])
    sums = running[offsets[1:] - first] - running[offsets[:-1] - first]
    return _mixed(sums + lengths.astype(np.uint64) * GOLDEN)
