"""Exact sums of doubles in whole numbers: what DuckDB calls for them, whole columns at a time.

It is a superaccumulator (Kulisch 1971; Neal 2015) of two digits that are nearly always enough, `hi` and `lo`, and a
sparse rest of *buckets*: bucket b counts in units of 2**(9 b), and a double goes into the lowest one in which all of
its digits are whole. A bucket is a pair (b, s), and is gone where its sum s is 0. NaN and the infinities are counted,
in buckets of their own. The parts hold the sums of 10**12 rows.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from headrace.kernels.duck import Duck

    Doubles = NDArray[np.float64]
    Words = NDArray[np.int64]

WIDTH = 9
"""Bits from one bucket to the next: a double's 53 digits, moved to its bucket, stay below 2**61."""
HI_BUCKET, LO_BITS = -2, 63
"""The bucket in whose units `hi` counts, and how many bits below it `lo` does: a whole number of buckets."""
REST = "STRUCT(b SMALLINT, s HUGEINT)[]"
_PARTS = f"STRUCT(hi HUGEINT, lo HUGEINT, rest {REST})"
_LO_BUCKET = HI_BUCKET - LO_BITS // WIDTH
_HI_POWER, _LO_POWER = WIDTH * HI_BUCKET, WIDTH * _LO_BUCKET
_NAN, _INF, _MINUS_INF = 1000, 1001, 1002
_DIGITS = 53
_WHOLE = pa.decimal128(38, 0)
_BUCKET = pa.struct([("b", pa.int16()), ("s", _WHOLE)])
_MASK = (1 << LO_BITS) - 1


def define(duck: Duck) -> None:
    """Make the functions callable in SQL."""
    duck.define("exact_bucketed", bucketed, ["STRUCT(x DOUBLE, w INTEGER)[]"], REST)
    duck.define("exact_together", together, [REST], REST)
    duck.define("exact_total", total, [_PARTS], "DOUBLE")
    duck.define(
        "exact_distances", distances, [f"STRUCT(n BIGINT, x {_PARTS}, y {_PARTS}, p {_PARTS}, e {_PARTS})"], "DOUBLE"
    )


# ---- the rest ----


def bucketed(rows: Any) -> pa.Array:
    """Put lists of doubles x, each counting w times, into buckets."""
    lists = _array(rows)
    x, w = lists.flatten().flatten()
    doubles = x.to_numpy(zero_copy_only=False)
    fraction, exponent = np.frexp(doubles)
    finite = np.isfinite(doubles)
    digits = np.ldexp(np.where(finite, fraction, 0.0), _DIGITS).astype(np.int64)
    bucket, up = np.divmod(exponent.astype(np.int64) - _DIGITS, WIDTH)
    named = np.select([np.isnan(doubles), doubles == np.inf, doubles == -np.inf], [_NAN, _INF, _MINUS_INF], bucket)
    whole = pa.array(np.where(finite, digits << up, 1)).cast(pa.decimal128(19, 0))
    sums = pc.multiply(whole, w.cast(pa.decimal128(10, 0)))
    return _added(lists, pa.array(named.astype(np.int16)), sums)


def together(parts: Any) -> pa.Array:
    """Add up what is in the same bucket of each list."""
    lists = _array(parts)
    buckets, sums = lists.flatten().flatten()
    return _added(lists, buckets, sums)


def _added(lists: Any, buckets: pa.Array, sums: pa.Array) -> pa.Array:
    """Return lists of buckets, in order, without those that are 0; a list without any is null."""
    rows = np.repeat(np.arange(len(lists)), pc.fill_null(pc.list_value_length(lists), 0).to_numpy())
    every = pa.table({"row": rows, "b": buckets, "s": sums.cast(_WHOLE)})
    added = every.group_by(["row", "b"]).aggregate([("s", "sum")]).sort_by([("row", "ascending"), ("b", "ascending")])
    left = added.filter(pc.not_equal(added["s_sum"], pa.scalar(0, _WHOLE)))
    counts = np.bincount(left["row"].to_numpy(), minlength=len(lists))
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    pairs = pa.StructArray.from_arrays(
        [_flat(left["b"]), _flat(left["s_sum"]).cast(_WHOLE)], fields=[_BUCKET.field(0), _BUCKET.field(1)]
    )
    return pa.ListArray.from_arrays(pa.array(ends), pairs, mask=pa.array(counts == 0))


# ---- reading ----


def total(parts: Any) -> pa.Array:
    """Return the double nearest to each sum; a sum beyond all doubles is infinite."""
    return pa.array(_read(_array(parts))[0])


def _read(parts: Any) -> tuple[Doubles, Doubles]:
    """Return the double nearest to each sum, and what it lacks."""
    hi, lo, rest = parts.flatten()
    (hi_low, hi_high), (lo_low, lo_high) = _words(hi), _words(lo)
    carried = hi_low + ((lo_high << 1) | (lo_low >> LO_BITS & 1))
    below = lo_low & _MASK
    fits = (hi_high == hi_low >> LO_BITS) & (np.abs(hi_high) <= 1) & (lo_high == lo_high << 2 >> 2)
    fits &= (np.abs(hi_low) < 1 << 61) & (np.abs(lo_high) < 1 << 60)
    plain = fits & ~np.asarray(rest.is_valid())
    doubles, lacks = _nearest(np.where(plain, carried, 0), np.where(plain, below, 0))
    for row in np.flatnonzero(~plain & np.asarray(parts.is_valid()) & np.asarray(hi.is_valid())):
        whole = [(HI_BUCKET, int(hi[row].as_py())), (_LO_BUCKET, int(lo[row].as_py()))]
        doubles[row], lacks[row] = _far(
            [*whole, *((bucket["b"], int(bucket["s"])) for bucket in rest[row].as_py() or ())]
        )
    return doubles, lacks


def _nearest(carried: Words, below: Words) -> tuple[Doubles, Doubles]:
    """Round carried * 2**63 + below, in units of `lo`.

    All is cut to some 61 bits, of which the last is set where anything was cut off: so the cast rounds, and once.
    """
    negative = carried < 0
    c = np.where(negative, -carried - (below > 0), carried)
    f = np.where(negative & (below > 0), (_MASK - below) + 1, below)
    length = np.frexp(c.astype(np.float64))[1].astype(np.int64)
    up = np.clip(LO_BITS - 2 - length, 0, None)
    cut = LO_BITS - up
    lost = f & ((1 << cut) - 1)
    whole = np.where(c == 0, f, (c << up) | (f >> cut))
    lost = np.where(c == 0, 0, lost)
    power = np.where(c == 0, _LO_POWER, _HI_POWER - up)
    bits = (whole | (lost > 0)).astype(np.float64)
    sign = np.where(negative, -1.0, 1.0)
    lacks = np.ldexp((whole - bits.astype(np.int64)).astype(np.float64), power) + np.ldexp(
        lost.astype(np.float64), _LO_POWER
    )
    return sign * np.ldexp(bits, power), sign * lacks


def _far(buckets: Iterable[tuple[int, int]]) -> tuple[float, float]:
    """Round the sum of buckets, whatever its size."""
    sums = list(buckets)
    kinds = {bucket for bucket, _ in sums}
    if _NAN in kinds or {_INF, _MINUS_INF} <= kinds:
        return math.nan, 0.0
    if kinds & {_INF, _MINUS_INF}:
        return math.inf if _INF in kinds else -math.inf, 0.0
    lowest = min(kinds)
    exact = Fraction(sum(s << WIDTH * (bucket - lowest) for bucket, s in sums)) * Fraction(2) ** (WIDTH * lowest)
    try:
        h = exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf, 0.0
    return h, float(exact - Fraction(h))


# ---- sums of products of distances ----

SPLIT = 2.0**27 + 1
"""Cuts a double in two halves of 26 bits (Veltkamp), whose products are exact."""
NOTHING = 2.0**-97
ERRORS_UP = 45
"""Powers of two by which the errors of products are moved up, to where most fit into `hi` and `lo`."""


def distances(sums: Any) -> pa.Array:
    """Return the sum of the products of the distances of x and y from their means; NaN where that is not finite.

    Of `n` pairs there are the sums of x, of y, of the products p, and of what rounding took from these, e. The
    subtraction n p - x y is done in twice the digits of a double; what is less than 2**-97 of its terms is 0.
    """
    n, x, y, p, e = _array(sums).flatten()
    count = n.to_numpy(zero_copy_only=False).astype(np.float64)
    with np.errstate(all="ignore"):
        (xh, xl), (yh, yl), (ph, pl), (eh, el) = map(_read, (x, y, p, e))
        eh, el = np.ldexp(eh, -ERRORS_UP), np.ldexp(el, -ERRORS_UP)
        more, more_error = _product(count, ph)
        less, less_error = _product(xh, yh)
        apart, apart_error = _difference(more, less)
        low = (more_error + count * (pl + (eh + el))) - (less_error + (xh * yl + xl * yh))
        whole = apart + (apart_error + low)
        whole = np.where(np.abs(whole) < (np.abs(more) + np.abs(less)) * NOTHING, 0.0, whole)
        return pa.array(np.where(np.isfinite(more) & np.isfinite(less), whole / count, np.nan))


def _product(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    """Return a product and what rounding took from it (Dekker 1971)."""
    product = x * y
    x_high, y_high = SPLIT * x - (SPLIT * x - x), SPLIT * y - (SPLIT * y - y)
    x_low, y_low = x - x_high, y - y_high
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, error


def _difference(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    """Return a difference and what rounding took from it (Knuth)."""
    difference = x - y
    back = difference - x
    return difference, (x - (difference - back)) - (y + back)


# ---- arrays ----


def _array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _flat(column: pa.ChunkedArray) -> pa.Array:
    flat = column.combine_chunks()
    return flat if isinstance(flat, pa.Array) else pa.concat_arrays(flat.chunks)


def _words(column: pa.Array) -> tuple[Words, Words]:
    """Return the lower and the upper half of whole numbers of 128 bits."""
    halves = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    halves = halves[column.offset : column.offset + len(column)]
    return halves[:, 0], halves[:, 1]
