"""The values that expressions are tried on: nulls, limits, signs of zero, odd texts, the ends of time."""

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import product
from math import prod

import pyarrow as pa

from headrace.base.schema import parse

SCHEMA = parse(
    "i int, j int, l bigint, b tinyint, h smallint, f float, d double, e double, m decimal(10,2), n decimal(18,6),"
    "w decimal(38,10), u decimal(3,3), p boolean, q boolean, s string, t string, bin binary, bin2 binary,"
    "day date, day2 date,"
    "at timestamp, at2 timestamp, ntz timestamp_ntz, ints array<int>, texts array<string>, counts map<string,int>,"
    "pair struct<a:int,b:string>, reals array<double>, json string"
)
INTS = [None, 0, 1, -1, 2, 3, 7, -7, 100, 2_147_483_647, -2_147_483_648, 255]
LONGS = [None, 0, 1, -1, 1_700_000_000, 9_223_372_036_854_775_807, -9_223_372_036_854_775_808, 3_000_000_000, -86_401]
BYTES = [None, 0, 1, -1, 3, 12, 127, -128, 29]
SHORTS = [None, 0, 1, -1, 32_767, -32_768, 366]
FLOATS = [
    None,
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    3.4028234663852886e38,
    1.401298464324817e-45,
    float("nan"),
    float("inf"),
    float("-inf"),
    16_777_216.0,
    2.5,
]
DOUBLES = [
    None,
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    0.1,
    2.675,
    1e10,
    123_456.789,
    1e-4,
    12_345_678.9,
    1e300,
    5e-324,
    float("nan"),
    float("inf"),
    float("-inf"),
    9_223_372_036_854_775_807.0,
    -3.5,
    1e16,
]
PRICES = [
    None,
    *map(Decimal, ("0.00", "1.00", "-1.00", "2.50", "-2.55", "0.01", "99999999.99", "-99999999.99", "1234.56")),
]
FINES = [
    None,
    *map(Decimal, ("0", "1", "-1", "0.000001", "2.5", "-3.333333", "999999999999.999999", "-999999999999.999999")),
]
WIDES = [
    None,
    *map(
        Decimal,
        (
            "0",
            "1",
            "-1.5",
            "9999999999999999999999999999.9999999999",
            "-9999999999999999999999999999.9999999999",
            "0.0000000001",
        ),
    ),
]
TEXTS = [
    None, "", "a", "ab", " ab ", "b", "aBc dEf", "\xe9", "e\u0301a", "\U0001d4b3b", "\U0001f1e9\U0001f1eaa", "\xdf",
    "\u0130", "\u0391\u03a3", "\u01c6", "a\nb", "a\r\n", "1", "-7", " 12 ", "1.5", "1e3", "x%_\\y", "2024-02-29",
    "2023-02-29", "2024-02-29 10:11:12.5", "true", "NaN", "9223372036854775808", "a,b,,c", "\t a",
    "\u65e5\u672c\u8a9e", "\x00a", "ba", "1_000", "0x1F", "\uff11\uff12", "125e-2", "1e40", "-.5E+1", "9e-50", "1d",
    "+5", "2024-2-3", "2024-02-29T10:11:12Z", "2024-02-29 10:11:12.1234567+02:30", "0000-01-01",
    "+12345-06-07", "-0044-03-15 10:00:00", "316533",
]  # fmt: skip
JSON = [
    None, "", "  ", "{}", '{"a":1}', ' {"a" : "x"} ', '{"a":{"b":[1,2,{"c":null}]}}', '{"a":{"b":[0,"y"]}}',
    '{"a":1.50}', '{"a":1e5}', '{"a":0.00001}', '{"a":-0.0}', '{"a":12345678901234567890}', '{"a":true}',
    '{"a":null}', '{"a":[]}', '{"a" : [ 1 , "x" ]}', '{"a":1,"a":2}', "[1,2,3]", '[{"a":1},{"a":2}]', '"x"', "null",
    "{a:1}", '{"a":"\\u00e9\\n\\""}', '{"a":"\xe9\U0001d4b3"}', '{"A":1}', '{"a":1,}', "[1,2", '{"a":NaN}', '{"a":01}',
    '{"a":"/,}NaN"}', '\ufeff{"a":1}', '{"a":1',
]  # fmt: skip
SHORT_TEXTS = [None, "", "a", "b", " ", "é", "ab", "b\u0301", "\U0001d4b3", "%", "a_", ","]
BINARIES = [None, b"", b"a", b"\x00\xff", "é".encode(), b"abc"]
DAYS = [
    None,
    *map(
        date.fromisoformat,
        (
            "1970-01-01",
            "1969-12-31",
            "2024-02-29",
            "2023-12-31",
            "2021-01-01",
            "2020-12-31",
            "0001-01-01",
            "9999-12-31",
            "1900-02-28",
            "2024-01-31",
            "1582-10-15",
        ),
    ),
]
TIMES = [
    None,
    *(
        datetime.fromisoformat(text)
        for text in (
            "1970-01-01 00:00:00",
            "1969-12-31 23:59:59.999999",
            "2024-02-29 23:59:59.123456",
            "2023-12-31 12:00:00.5",
            "0001-01-01 00:00:00",
            "9999-12-31 23:59:59.999999",
            "2024-03-31 01:30:00",
            "1582-10-04 10:00:00",
            "2021-01-31 10:20:30",
        )
    ),
]
VALUES = {
    "i": INTS, "j": INTS, "l": LONGS, "b": BYTES, "h": SHORTS, "f": FLOATS, "d": DOUBLES, "e": DOUBLES[:17],
    "m": PRICES, "n": FINES, "w": WIDES, "u": [None, Decimal("0.000"), Decimal("0.050"), Decimal("-0.999")],
    "p": [None, True, False], "q": [None, True, False], "s": TEXTS, "t": SHORT_TEXTS, "bin": BINARIES,
    "bin2": BINARIES, "day": DAYS, "day2": DAYS, "at": TIMES, "at2": TIMES, "ntz": TIMES,
    "ints": [None, [], [1], [None], [3, 1, 2, 1, None], [2_147_483_647, -2_147_483_648]],
    "texts": [None, [], ["a"], [None], ["b", "a", "", None, "é", "a"], ["\U0001d4b3", "\u65e5"]],
    "counts": [None, [], [("a", 1)], [("a", None), ("b", 2)], [("", 0), ("é", -1)]],
    "json": JSON, "reals": [None, [], [0.0], [-0.0, 1.5, None], [float("nan"), 0.0, -0.0, float("inf"), float("nan")]],
    "pair": [None, {"a": 1, "b": "x"}, {"a": None, "b": None}],
}  # fmt: skip
_EPOCH = datetime.fromisoformat("1970-01-01")
MOST = 160  # rows a set of columns


def rows(columns):
    """Return the adversarial rows of some columns: all combinations, or a seeded choice; `_row` numbers them."""
    values = [VALUES[name] for name in columns]
    if prod(map(len, values)) > MOST:
        chance = random.Random("-".join(columns))  # noqa: S311 a seeded choice
        combined = [tuple(chance.choice(column_values) for column_values in values) for _ in range(MOST)]
    else:
        combined = list(product(*values))
    arrays = [pa.array(list(range(len(combined))), pa.int32())]
    fields = [pa.field("_row", pa.int32())]
    for place, name in enumerate(columns):
        kind = SCHEMA.field(name).type
        arrays.append(_array([row[place] for row in combined], kind))
        fields.append(pa.field(name, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _array(values, kind):
    if not pa.types.is_timestamp(kind):
        return pa.array(values, kind)
    micros = [None if value is None else (value - _EPOCH) // timedelta(microseconds=1) for value in values]
    return pa.array(micros, pa.int64()).cast(kind)
