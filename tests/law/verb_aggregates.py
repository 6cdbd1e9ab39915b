"""Aggregates of random programs of verbs: Spark SQL beside what they give for the rows of a group, in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import verb_values as g
from verb_values import ordered, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from verb_grammar import Programs
    from verb_values import Expression, Row

    Over = Callable[[list[Any]], Any]


class Aggregated(NamedTuple):
    """Spark SQL, the kind of its results, and what it gives for the rows of a group."""

    sql: str
    kind: str
    of: Callable[[list[Row]], Any]


def aggregate(programs: Programs, columns: dict[str, str], *, loose: bool) -> Aggregated:
    """Draw an aggregate; `loose` ones are doubles that are right but for the last digits."""
    dice = programs.dice
    kinds = sorted({kind for kind in columns.values() if kind in g.KINDS})
    draw = dice.random()
    if draw < 0.12 or not kinds:
        return _filtered(programs, columns, "count(*)", g.LONG, lambda _: 0, len)
    kind = dice.choice(kinds)
    value = programs.column(columns, kind)
    assert value is not None
    if draw < 0.2:
        by = programs.column(columns, dice.choice(kinds))
        assert by is not None
        return _by(programs, kind, value, by)
    word, result, over = dice.choice([*_words(kind), *(_loose(kind) if loose else ())])
    return _filtered(programs, columns, word.format(value.sql), result, value.of, over)


def _filtered(
    programs: Programs, columns: dict[str, str], sql: str, kind: str, of: Callable[[Row], Any], over: Over
) -> Aggregated:
    if programs.dice.random() < 0.75:
        return Aggregated(sql, kind, lambda rows: over([of(row) for row in rows]))
    test: Expression = programs.test(columns)
    inner = sql.removeprefix("CAST(").rpartition(" AS ") if sql.startswith("CAST(") else (sql, "", "")
    text = f"{inner[0]} filter (where {test.sql})"
    if inner[1]:
        text = f"CAST({text} AS {inner[2]}"
    return Aggregated(text, kind, lambda rows: over([of(row) for row in rows if test.of(row) is True]))


def _by(programs: Programs, kind: str, value: Expression, by: Expression) -> Aggregated:
    least = programs.dice.random() < 0.5
    chosen = min if least else max

    def of(rows: list[Row]) -> object:
        there = [(by.of(row), value.of(row)) for row in rows if by.of(row) is not None]
        key = lambda pair: (ordered(pair[0]), pair[1] is None, g.listed(pair[1]))  # noqa: E731 -- of equal ones null is greatest
        return chosen(there, key=key)[1] if there else None

    return Aggregated(f"{'min' if least else 'max'}_by({value.sql}, {by.sql})", kind, of)


def _there(over: Over) -> Over:
    return lambda values: over(found) if (found := [each for each in values if each is not None]) else None


def _distinct(values: list[Any]) -> list[Any]:
    return list({plain(each): each for each in values if each is not None}.values())


def _ordered(values: list[Any]) -> list[Any]:
    return sorted((each for each in values if each is not None), key=ordered)


def _listed(values: list[Any]) -> list[Any]:
    """Return values in the order of lists."""
    return sorted((each for each in values if each is not None), key=g.listed)


def _mode(values: list[Any]) -> object:
    often = Counter(map(plain, values))
    most = max(often.values())
    return _listed([each for each in values if often[plain(each)] == most])[0]


def _sum(values: list[Any]) -> object:
    if isinstance(values[0], float):
        return math.nan if any(map(math.isnan, values)) else math.fsum(values)
    return sum(values)


def _mean(values: list[Any]) -> object:
    return _sum(values) / len(values)


def _variance(values: list[Any], less: int) -> float | None:
    if any(isinstance(each, float) and math.isnan(each) for each in values):
        return math.nan if len(values) > less else None
    if len(values) <= less:
        return None
    exact = [Fraction(each) for each in values]
    mean = sum(exact) / len(exact)
    return float(sum((each - mean) ** 2 for each in exact) / (len(exact) - less))


def _percentile(values: list[Any], part: float) -> float:
    values = [float(each) for each in _ordered(values)]
    at = part * (len(values) - 1)
    low, high = values[math.floor(at)], values[math.ceil(at)]
    return low if math.floor(at) == math.ceil(at) else low + (high - low) * (at - math.floor(at))


def _words(kind: str) -> list[tuple[str, str, Over]]:
    """Return the aggregates of a kind whose results are exact."""
    found: list[tuple[str, str, Over]] = [
        ("min({0})", kind, _there(lambda values: _ordered(values)[0])),
        ("max({0})", kind, _there(lambda values: _ordered(values)[-1])),
        ("count({0})", g.LONG, lambda values: sum(each is not None for each in values)),
        ("count(distinct {0})", g.LONG, lambda values: len(_distinct(values))),
        ("mode({0})", kind, _there(_mode)),
    ]
    if kind == g.INT:
        found += [
            ("collect_list({0})", g.LIST, _ordered),
            ("collect_set({0})", g.LIST, lambda values: _ordered(_distinct(values))),
            ("sum({0})", g.LONG, _there(_sum)),
            ("sum(distinct {0})", g.LONG, _there(lambda values: _sum(_distinct(values)))),
            ("bit_and({0})", kind, _there(lambda values: _bits(values, int.__and__))),
            ("bit_or({0})", kind, _there(lambda values: _bits(values, int.__or__))),
            ("bit_xor({0})", kind, _there(lambda values: _bits(values, int.__xor__))),
            ("median({0})", g.REAL, _there(lambda values: _percentile(values, 0.5))),
            ("CAST(percentile_disc(0.6) within group (order by {0}) AS int)", kind,
             _there(lambda values: _ordered(values)[math.ceil(0.6 * len(values)) - 1])),
        ]  # fmt: skip
    if kind == g.REAL:
        found += [
            ("sum({0})", g.REAL, _there(_sum)),
            ("sum(distinct {0})", g.REAL, _there(lambda values: _sum(_distinct(values)))),
            ("median({0})", g.REAL, _there(lambda values: _percentile(values, 0.5))),
        ]
    if kind == g.MONEY:
        found += [
            ("CAST(sum({0}) AS decimal(10,2))", g.MONEY, _there(_sum)),
            ("CAST(avg({0}) AS decimal(10,2))", g.MONEY, _there(_money)),
        ]
    if kind == g.TRUTH:
        found += [
            ("bool_and({0})", kind, _there(all)),
            ("bool_or({0})", kind, _there(any)),
            ("count_if({0})", g.LONG, lambda values: sum(each is True for each in values)),
        ]
    if kind == g.TEXT:
        found += [
            ("listagg({0}, '-')", kind, _there(lambda values: "-".join(_ordered(values)))),
            ("listagg(distinct {0}, '-')", kind, _there(lambda values: "-".join(_ordered(_distinct(values))))),
            ("listagg({0}) within group (order by {0} desc)", kind,
             _there(lambda values: "".join(reversed(_ordered(values))))),
        ]  # fmt: skip
    return found


def _loose(kind: str) -> list[tuple[str, str, Over]]:
    """Return the aggregates of a kind whose last digits may differ, or whose type no other step knows."""
    found: list[tuple[str, str, Over]] = [
        ("collect_list({0})", g.LOOSE, _listed),
        ("collect_set({0})", g.LOOSE, lambda values: _listed(_distinct(values))),
    ]
    if kind in (g.INT, g.LONG, g.REAL, g.MONEY):
        found += [
            ("stddev({0})", g.LOOSE, _there(lambda values: _root(_variance(values, 1)))),
            ("var_pop({0})", g.LOOSE, _there(lambda values: _variance(values, 0))),
            ("percentile({0}, 0.3)", g.LOOSE, _there(lambda values: _percentile(values, 0.3))),
        ]
    if kind in (g.INT, g.LONG, g.REAL):
        found += [("avg({0})", g.LOOSE, _there(_mean)), ("avg(distinct {0})", g.LOOSE,
                   _there(lambda values: _mean(_distinct(values))))]  # fmt: skip
    return found


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def _bits(values: list[int], both: Callable[[int, int], int]) -> int:
    found = values[0]
    for each in values[1:]:
        found = both(found, each)
    return found


def _money(values: list[Decimal]) -> Decimal:
    mean = (sum(values, Decimal()) / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return mean.quantize(Decimal("0.01"), ROUND_HALF_UP)
