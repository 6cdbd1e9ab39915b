"""`hash` (Murmur 3) and `xxhash64` as Spark computes them.

A value is its bytes, the lowest first: words of 4 bytes, the bytes that are left, and their number. Whole numbers up to
int, booleans and dates have 4 bytes, bigints, timestamps and decimals of up to 18 digits have 8. Nulls change nothing.
All arithmetic is of unsigned integers wider than the hash, cut to its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions.binding import bound
from headrace.expressions.functions import Function, built
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

_SEED = 42
_LOW = 0xFFFFFFFF
_ALL = f"{0xFFFFFFFFFFFFFFFF}::UHUGEINT"
_P1, _P2, _P3, _P4, _P5 = (
    f"{prime}::UHUGEINT"
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_LONG_DIGITS = 18

# ---- values as bytes: a list of structs (h, w, t, n) of words, bytes that are left, and the number of bytes ----


def _parts(sql: str, kind: pa.DataType, depth: int = 0) -> str:
    """Return SQL for the list of a value's parts; that of null is empty."""
    if k.is_array(kind):
        element = f"_headrace_h{depth}"
        inner = _parts(element, kind.value_type, depth + 1)
        return f"coalesce(flatten(list_transform({sql}, lambda {element}: {inner})), [])"
    if k.is_struct(kind):
        fields = [_parts(f"struct_extract({sql}, {literal(field.name)})", field.type, depth) for field in kind]
        return f"flatten([{', '.join(fields)}])"
    return f"CASE WHEN ({sql}) IS NULL THEN [] ELSE [{_part(sql, kind)}] END"


def _part(sql: str, kind: pa.DataType) -> str:
    if kind == k.STRING:
        return _bytes(f"encode({sql})")
    if kind == k.BINARY:
        return _bytes(sql)
    if kind == k.BOOLEAN or (k.is_integral(kind) and kind != k.BIGINT):
        return _word(f"CAST({sql} AS BIGINT)")
    if kind == k.BIGINT:
        return _words(sql)
    if pa.types.is_date(kind):
        return _word(f"CAST({sql} - DATE '1970-01-01' AS BIGINT)")
    if pa.types.is_timestamp(kind):
        return _words(f"epoch_us({sql})")
    if k.is_decimal(kind) and kind.precision <= _LONG_DIGITS:
        return _words(f"CAST(replace(CAST({sql} AS VARCHAR), '.', '') AS BIGINT)")
    if pa.types.is_floating(kind):
        return _floating(sql, kind)
    raise Mismatch(f"values of type {k.shown(kind)} have no hash here", hint="Cast it to string first.")


def _floating(sql: str, kind: pa.DataType) -> str:
    """-0.0 is 0.0, and all that is not a number has one pattern."""
    wide = kind == k.DOUBLE
    nan = 0x7FF8000000000000 if wide else 0x7FC00000
    bits = f"CAST('0x' || hex(CAST(CAST({sql} + 0 AS {k.sql_type(kind)}) AS BIT)::BLOB) AS UBIGINT)"
    bits = f"(CASE WHEN isnan({sql}) THEN {nan}::UBIGINT ELSE {bits} END)"
    return _struct(f"[{bits} & {_LOW}, {bits} >> 32]", "[]", "8") if wide else _struct(f"[{bits}]", "[]", "4")


def _word(sql: str) -> str:
    return _struct(f"[CAST(({sql}) & {_LOW} AS UBIGINT)]", "[]", "4")


def _words(sql: str) -> str:
    bits = f"CAST(CAST({sql} AS HUGEINT) & {2**64 - 1}::HUGEINT AS UBIGINT)"
    return _struct(f"[{bits} & {_LOW}, {bits} >> 32]", "[]", "8")


def _bytes(sql: str) -> str:
    def byte(at: str) -> str:
        return f"substr(_hex, CAST({at} AS INTEGER), 2)"

    word = " || ".join(byte(f"_i * 8 + {place}") for place in (7, 5, 3, 1))
    count = "(length(_hex) // 2)"
    words = f"list_transform(range(0, {count} // 4), lambda _i: CAST('0x' || {word} AS UBIGINT))"
    left = f"list_transform(range({count} // 4 * 4, {count}), lambda _i: CAST('0x' || {byte('_i * 2 + 1')} AS UBIGINT))"
    return bound("_hex", f"hex({sql})", _struct(words, left, count))


def _struct(words: str, left: str, count: str, h: str = "0") -> str:
    return f"struct_pack(h := {h}::UBIGINT, w := {words}::UBIGINT[], t := {left}::UBIGINT[], n := ({count})::UBIGINT)"


def _folded(values: list[Value], step: str) -> str:
    """Return SQL that goes through the parts of all values: `step` is the hash of `_p` after that of `_s`."""
    parts = ", ".join(_parts(value.sql, value.type) for value in values)
    seed = _struct("[]", "[]", "0", h=str(_SEED))
    after = _struct("_p.w", "_p.t", "_p.n", h=f"({step})")
    return f"list_reduce(list_prepend({seed}, flatten([{parts}])), lambda _s, _p: {after}).h"


# ---- Murmur 3 ----


def _turned(x: str, by: int, bits: int, every: str) -> str:
    return f"((({x} << {by}) | ({x} >> {bits - by})) & {every})"


def _murmur() -> str:
    def times(x: str, factor: int) -> str:
        return f"(({x} * {factor}) & {_LOW})"

    def turned(x: str, by: int) -> str:
        return _turned(x, by, 32, str(_LOW))

    mixed = times(turned(times("_k", 0xCC9E2D51), 15), 0x1B873593)
    word = f"(({turned(f'xor(_h, {mixed})', 13)} * 5 + {0xE6546B64}) & {_LOW})"
    left = f"list_transform(_p.t, lambda _b: _b + CASE WHEN _b > 127 THEN {0xFFFFFF00} ELSE 0 END)"  # bytes have signs
    every = f"list_prepend(_s.h, list_concat(_p.w, {left}))"
    end = "xor(_e, _p.n)"
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        end = times(f"xor({end}, {end} >> {shift})", factor)
    return bound("_e", f"list_reduce({every}, lambda _h, _k: {word})", f"xor({end}, {end} >> 16)")


def _hash(values: list[Value]) -> Value:
    unsigned = _folded(values, _murmur())
    signed = f"CASE WHEN _r >= {2**31} THEN CAST(_r AS BIGINT) - {2**32} ELSE CAST(_r AS BIGINT) END"
    return Value("", f"CAST({bound('_r', unsigned, signed)} AS INTEGER)", k.INT)


# ---- xxHash 64 ----


def _times(x: str, factor: str) -> str:
    return f"(({x} * {factor}) & {_ALL})"


def _sum(x: str, y: str) -> str:
    return f"(({x} + {y}) & {_ALL})"


def _left(x: str, by: int) -> str:
    return _turned(x, by, 64, _ALL)


def _round(k8: str) -> str:
    return _times(_left(_times(k8, _P2), 31), _P1)


def _reduced(first: str, others: str, step: str) -> str:
    return f"list_reduce(list_prepend({first}, {others}), lambda _h, _k: {step})"


_CHUNKS = (
    "list_transform(range(1, len(_p.w) // 2 + 1), "
    "lambda _i: _p.w[_i * 2 - 1]::UHUGEINT + _p.w[_i * 2]::UHUGEINT * 4294967296::UHUGEINT)"
)


def _lanes() -> str:
    """Return SQL for the hash of all blocks of 32 bytes."""
    seed = "_s.h::UHUGEINT"
    begins = (
        _sum(_sum(seed, _P1), _P2),
        _sum(seed, _P2),
        seed,
        f"(({seed} + {_ALL} + 1::UHUGEINT - {_P1}) & {_ALL})",
    )
    step = _times(_left(_sum("_h", _times("_k", _P2)), 31), _P1)
    lanes = [
        _reduced(begin, f"list_transform(range(0, CAST(_p.n // 32 AS BIGINT)), lambda _i: _c[_i * 4 + {lane}])", step)
        for lane, begin in enumerate(begins, 1)
    ]
    turned = " + ".join(_left(f"_v[{lane}]", by) for lane, by in enumerate((1, 7, 12, 18), 1))
    joined = _sum(_times(f"xor(_h, {_round('_k')})", _P1), _P4)
    return bound("_v", f"[{', '.join(lanes)}]", _reduced(f"(({turned}) & {_ALL})", "_v", joined))


def _xx() -> str:
    begin = f"CASE WHEN _p.n < 32 THEN {_sum('_s.h::UHUGEINT', _P5)} ELSE {_lanes()} END"
    begin = _sum(f"({begin})", "_p.n::UHUGEINT")
    eights = "_c[CAST(_p.n // 32 * 4 + 1 AS BIGINT):]"
    four = "CAST(_p.w[CAST(_p.n // 8 * 2 + 1 AS BIGINT):] AS UHUGEINT[])"
    ones = "CAST(_p.t AS UHUGEINT[])"
    h = _reduced(begin, eights, _sum(_times(_left(f"xor(_h, {_round('_k')})", 27), _P1), _P4))
    h = _reduced(h, four, _sum(_times(_left(f"xor(_h, {_times('_k', _P1)})", 23), _P2), _P3))
    h = _reduced(h, ones, _times(_left(f"xor(_h, {_times('_k', _P5)})", 11), _P1))
    end = "_e"
    for shift, factor in ((33, _P2), (29, _P3)):
        end = _times(f"xor({end}, {end} >> {shift})", factor)
    end = bound("_e", h, f"xor({end}, {end} >> 32)")
    return bound("_c", _CHUNKS, end)


def _xxhash64(values: list[Value]) -> Value:
    unsigned = f"CAST({_folded(values, _xx())} AS HUGEINT)"
    signed = f"CASE WHEN _r >= {2**63}::HUGEINT THEN _r - {2**64}::HUGEINT ELSE _r END"
    return Value("", f"CAST({bound('_r', unsigned, signed)} AS BIGINT)", k.BIGINT)


def _guarded(build: Callable[[list[Value]], Value]) -> Callable[[list[Value]], Value]:
    def hashed(values: list[Value]) -> Value:
        if any(k.contains(value.type, k.is_map) for value in values):
            raise Mismatch("a map has no hash, since its order means nothing", hint="Hash map_entries of it, sorted.")
        result = build(values)
        return result.to(result.sql, result.type, raises=any(value.raises for value in values))

    return hashed


_NOTE = "as in Spark, seed 42; decimals of up to 18 digits"
_EXAMPLES = ("i", "l", "b, h", "f", "d, e", "m", "s", "bin", "day, at", "ints", "texts, p", "pair", "s, i, t", "ntz")
ENTRIES: tuple[Function, ...] = (
    built("hash", "any...", _guarded(_hash), *(f"hash({each})" for each in _EXAMPLES), notes=_NOTE, order="all"),
    built(
        "xxhash64",
        "any...",
        _guarded(_xxhash64),
        *(f"xxhash64({each})" for each in _EXAMPLES),
        notes=_NOTE,
        order="all",
    ),
)
