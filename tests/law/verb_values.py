"""What random programs of verbs are about: the tables, values of every type, and how these are compared."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

INT, LONG, TEXT, REAL, MONEY, TIME, DAY, TRUTH = "int", "bigint", "string", "double", "decimal(10,2)", "timestamp", \
    "date", "boolean"  # fmt: skip
STRUCT, LIST, MAP, LOOSE = "struct<a: int, b: string>", "array<int>", "map<string,int>", "loose"
PLAIN = (INT, LONG, TEXT, REAL, MONEY, TIME, DAY, TRUTH)
KINDS = (*PLAIN, STRUCT, LIST)
ORDERED = PLAIN
TABLES = {
    "t": ({"id": INT, "k": INT, "v": LONG, "s": TEXT, "f": REAL, "m": MONEY, "o": TRUTH, "r": STRUCT}, ("id",)),
    "u": ({"k": INT, "s": TEXT, "w": LONG, "f": REAL, "at": TIME, "xs": LIST}, ("k", "s")),
    "p": ({"r": STRUCT, "day": DAY, "v": INT, "k": LONG, "m": MONEY}, ("r",)),
    "b": ({"k": INT, "v": LONG, "s": TEXT, "f": REAL, "o": TRUTH, "day": DAY}, None),
    "c": ({"id": INT, "k": LONG, "m": MONEY, "at": TIME, "r": STRUCT, "xs": LIST}, None),
    "d": ({"k": INT, "s": TEXT, "mp": MAP, "f": REAL}, None),
    "l": ({"k": INT, "s": TEXT, "at": TIME, "v": INT, "f": REAL}, ("k", "s")),
    "h": ({"id": INT, "k": INT, "at": TIME, "s": TEXT, "v": LONG, "f": REAL}, ("id",)),
    "x": ({"k": INT, "s": TEXT, "v": INT, "f": REAL, "m": MONEY, "at": TIME, "o": TRUTH}, None),
    "y": ({"id": INT, "at": TIME, "k": LONG, "v": LONG, "r": STRUCT, "xs": LIST, "s": TEXT}, None),
}
"""Columns and key; those without a key are streams that are read as growing tables: they have equal rows. `l` is the
latest of a stream."""
LATEST = "l"
EVENTS = {"x": 60, "y": 0, "h": 30}
"""Streams, and a table, with event time in `at`, and by how many seconds their rows may be out of order."""
PARTITIONS = {"x": 2}
"""How many partitions topics have; others have one."""
HIDDEN = ("_at", "_epoch", "_nr", "_place")
"""What rows of these carry along in steps of streams: their time, their epoch, and when and in which partition they
arrived."""
DAYS = tuple(date(2026, 1, day) for day in (1, 2, 3))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DOMAINS: dict[str, tuple] = {
    INT: (0, 1, 2, 3, -1),
    LONG: (0, 1, 2, 3, 5, 2**33),
    TEXT: ("x", "y", "Z", "", "é"),
    REAL: (0.0, -0.0, 1.0, 2.5, -1.0, math.nan),
    MONEY: (Decimal("0.00"), Decimal("1.00"), Decimal("2.50"), Decimal("-1.25")),
    TIME: tuple(NOON.replace(minute=minute) for minute in range(3)),
    DAY: DAYS,
    TRUTH: (True, False),
    STRUCT: tuple({"a": a, "b": b} for a in (0, 1, None) for b in ("p", "q")),
    LIST: ([], [1], [1, 2], [2, 2, 3], [None, 1]),
    MAP: ({}, {"x": 1}, {"x": 1, "y": None}, {"y": 2}),
}
CONSTANTS = {
    INT: ("0", "1", "2"),
    LONG: ("0L", "1L", "2L"),
    TEXT: ("'x'", "'y'", "''"),
    REAL: ("0D", "1D", "2.5D"),
    MONEY: ("CAST(1 AS decimal(10,2))", "CAST(2.5 AS decimal(10,2))"),
    TIME: ("timestamp'2026-01-01 12:01:00'",),
    DAY: ("date'2026-01-02'",),
    TRUTH: ("true", "false"),
}
VALUES = {
    "0": 0, "1": 1, "2": 2, "0L": 0, "1L": 1, "2L": 2, "'x'": "x", "'y'": "y", "''": "", "0D": 0.0, "1D": 1.0,
    "2.5D": 2.5, CONSTANTS[MONEY][0]: Decimal(1), CONSTANTS[MONEY][1]: Decimal("2.5"),
    CONSTANTS[TIME][0]: NOON.replace(minute=1), CONSTANTS[DAY][0]: DAYS[1], "true": True, "false": False,
}  # fmt: skip
Row = dict[str, Any]


class Expression(NamedTuple):
    """Spark SQL, and what it gives for a row."""

    sql: str
    of: Callable[[Row], Any]


def plain(value: object) -> object:
    """Return what stands for a value: equal for equal ones, NaN and the signs of zero included."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.9g}") + 0.0
    if isinstance(value, Decimal):
        return value.normalize() + 0
    if isinstance(value, dict) and set(value) != {"a", "b"}:
        return tuple(sorted(value.items()))
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return tuple(sorted(value))
    if isinstance(value, dict):
        return tuple(plain(each) for each in value.values())
    return tuple(map(plain, value)) if isinstance(value, list) else value


def compared(one: Any, other: Any, inside: int = 1) -> int:
    """Return the order of two values: nulls first, NaN last, fields and elements one after the other.

    `inside` -1: nulls in fields and elements are last, as where rows are ordered.
    """
    if one is None or other is None:
        return (one is not None) - (other is not None)
    if isinstance(one, dict) and set(one) | set(other) != {"a", "b"}:
        one, other = ([dict(zip("ab", each, strict=True)) for each in sorted(both.items())] for both in (one, other))
    if isinstance(one, dict):
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list):
        each = next((found for a, b in zip(one, other, strict=False) if (found := _inside(a, b, inside))), 0)
        return each or (len(one) > len(other)) - (len(one) < len(other))
    if isinstance(one, float) and isinstance(other, float) and (math.isnan(one) or math.isnan(other)):
        return math.isnan(one) - math.isnan(other)
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    return (one > other) - (one < other)


def _inside(one: Any, other: Any, inside: int) -> int:
    found = compared(one, other, inside)
    return inside * found if one is None or other is None else found


ordered = cmp_to_key(compared)
listed = cmp_to_key(lambda one, other: compared(one, other, -1))
"""The order of lists, and of values that are the least of equally good ones: nulls inside of them are last."""


def hidden(row: Row) -> Row:
    """Return what a row of a stream carries along."""
    return {name: row[name] for name in HIDDEN if name in row}


def hashed(row: Row, names: Sequence[str]) -> tuple:
    """Return the values of columns, to be compared as keys."""
    return tuple(plain(row[name]) for name in names)
