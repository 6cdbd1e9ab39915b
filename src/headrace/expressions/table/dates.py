"""Dates: their parts, and moving them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions import kinds as k
from headrace.expressions.casts import cast
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

_PARTS = {
    "year": "year($1)",
    "quarter": "quarter($1)",
    "month": "month($1)",
    "week": "week($1)",
    "day": "day($1)",
    "doy": "dayofyear($1)",
    "dayofweek": "dayofweek($1) + 1",
    "dayofweek_iso": "isodow($1)",
}
_CLOCK = {"hour": "hour($1)", "minute": "minute($1)"}
_SAME = {"y": "year", "years": "year", "yr": "year", "yrs": "year", "qtr": "quarter", "mon": "month", "mons": "month",
         "months": "month", "w": "week", "weeks": "week", "d": "day", "days": "day", "dow": "dayofweek",
         "dow_iso": "dayofweek_iso", "h": "hour", "hours": "hour", "hr": "hour", "hrs": "hour", "m": "minute",
         "min": "minute", "mins": "minute", "minutes": "minute"}  # fmt: skip


def _part(sql: str) -> str:
    return f"CAST({sql} AS INTEGER)"


def _date_part(values: list[Value]) -> Value:
    name = str(values[0].constant).lower()
    name = _SAME.get(name, name)
    if name in ("second", "s", "sec", "secs", "seconds"):
        if not (values[1].type in (k.DATE, k.STRING, k.NULL) or k.is_timestamp(values[1].type)):
            raise Mismatch(f"extract does not know seconds of {k.shown(values[1].type)}")
        at = cast(values[1], k.TIMESTAMP)
        sql = f"CAST((epoch_us({at.sql}) % 60000000 + 60000000) % 60000000 * 0.000001 AS DECIMAL(8,6))"
        return Value("", sql, k.decimal(8, 6), raises=at.raises)
    template = _PARTS.get(name) or _CLOCK.get(name)
    if template is None or not (values[1].type in (k.DATE, k.STRING) or k.is_timestamp(values[1].type)):
        raise Mismatch(f"extract does not know {name} of {k.shown(values[1].type)}",
                       hint=f"It knows {', '.join([*_PARTS, *_CLOCK, 'second'])} of dates and timestamps.")  # fmt: skip
    value = cast(values[1], k.DATE if name in _PARTS and not k.is_timestamp(values[1].type) else k.TIMESTAMP)
    return Value("", _part(template.replace("$1", value.sql)), k.INT, raises=value.raises)


def _moved(sign: str) -> Callable[[Sequence[Value], pa.DataType], str]:
    def sql(values: Sequence[Value], _: pa.DataType) -> str:
        return f"({values[0].sql} {sign} {values[1].sql})"

    return sql


def _months_between(values: list[Value]) -> Value:
    """Whole months if both are the same day of the month or both its last day, else 31sts with the time of day."""
    if len(values) > 2 and not isinstance(values[2].constant, bool):  # noqa: PLR2004
        raise Mismatch("the third argument of months_between is true or false")
    rounded = len(values) < 3 or values[2].constant is True  # noqa: PLR2004
    a, b = (cast(value, k.TIMESTAMP).sql for value in values[:2])
    months = f"(((year({a}) - year({b})) * 12 + month({a}) - month({b}))::DOUBLE)"
    whole = f"(day({a}) = day({b}) OR (last_day({a}) = CAST({a} AS DATE) AND last_day({b}) = CAST({b} AS DATE)))"
    seconds = "(((day({0}) * 86400 + hour({0}) * 3600 + minute({0}) * 60 + CAST(floor(second({0})) AS BIGINT))))"
    apart = f"({seconds.format(a)} - {seconds.format(b)})"
    exact = f"({months} + {apart}::DOUBLE / 2678400::DOUBLE)"
    result = f"(round({exact} * 1e8::DOUBLE) / 1e8::DOUBLE)" if rounded else exact
    sql = f"(CASE WHEN {whole} THEN {months} ELSE {result} END)"
    return Value("", sql, k.DOUBLE, raises=any(value.raises for value in values))


ENTRIES: tuple[Function, ...] = (
    entry("year", "date", "int", _part("year($1)"), "year(day)", "year(at)", "year(s)"),
    entry("quarter", "date", "int", _part("quarter($1)"), "quarter(day)"),
    entry("month", "date", "int", _part("month($1)"), "month(day)", "month(at)"),
    entry("weekofyear", "date", "int", _part("week($1)"), "weekofyear(day)", notes="ISO weeks"),
    entry("day dayofmonth", "date", "int", _part("day($1)"), "day(day)", "dayofmonth(at)"),
    entry("dayofweek", "date", "int", _part("dayofweek($1) + 1"), "dayofweek(day)", notes="1 is Sunday"),
    entry("weekday", "date", "int", _part("isodow($1) - 1"), "weekday(day)", notes="0 is Monday"),
    entry("dayofyear", "date", "int", _part("dayofyear($1)"), "dayofyear(day)"),
    built(
        "date_part datepart",
        "word, any",
        _date_part,
        "extract(year from at)",
        "extract(week from day)",
        "date_part('second', at)",
        "extract(dow from day)",
        "extract(hour from at)",
        notes="also extract(part from x)",
    ),
    entry("last_day", "date", "date", "last_day($1)", "last_day(day)", "last_day(at)"),
    entry(
        "date_add dateadd",
        "date, days",
        "date",
        _moved("+"),
        "date_add(day, 1)",
        "date_add(day, b)",
        "date_add(at, -1)",
        raises=True,
    ),
    entry("date_sub", "date, days", "date", _moved("-"), "date_sub(day, 1)", "date_sub(day, b)", raises=True),
    entry(
        "datediff date_diff",
        "date, date",
        "int",
        "CAST(date_diff('day', $2, $1) AS INTEGER)",
        "datediff(day, day2)",
        "date_diff(at, day)",
    ),
    entry(
        "add_months",
        "date, int",
        "date",
        "CAST(($1 + to_months($2)) AS DATE)",
        "add_months(day, 1)",
        "add_months(day, b)",
        raises=True,
        notes="a date after the year 294246 raises",
    ),
    built(
        "months_between",
        "timestamp, timestamp, [any]",
        _months_between,
        "months_between(at, at2)",
        "months_between(day, day2)",
        "months_between(at, at2, false)",
    ),
    entry(
        "make_date",
        "int, int, int",
        "date",
        "make_date(CAST($1 AS BIGINT), CAST($2 AS BIGINT), CAST($3 AS BIGINT))",
        "make_date(2024, 2, 29)",
        "make_date(b + 2000, 2, 29)",
        raises=True,
    ),
    entry("date_from_unix_date", "int", "date", "(DATE '1970-01-01' + $1)", "date_from_unix_date(h)", raises=True),
    entry("unix_date", "=date", "int", "CAST(date_diff('day', DATE '1970-01-01', $1) AS INTEGER)", "unix_date(day)"),
)
