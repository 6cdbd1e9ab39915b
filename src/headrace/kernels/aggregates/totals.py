"""Totals and means in the types that Spark has for them, as SQL."""

from __future__ import annotations


def scale(kind: str) -> int:
    """Return the digits behind the point of a decimal type."""
    return int(kind.rstrip(")").rpartition(",")[2])


def decimal_mean(total: str, count: str, of_type: str, kind: str) -> str:
    """Divide exactly, half up, in whole numbers of the result's last digit: DuckDB would divide as doubles.

    A total of 38 digits has no room for more places, so they are those of what is left of a division without them.
    """
    places = scale(kind)
    digits = f"CAST(replace(({total})::VARCHAR, '.', '') AS HUGEINT)"
    more = f"{10 ** (places - scale(of_type))}::HUGEINT"
    left = f"(abs({digits}) % {count}) * {more}"
    half = f"(abs({digits}) // {count} * {more} + ({left} * 2 + {count}) // (2 * {count}))"
    text = f"lpad({half}::VARCHAR, greatest({places + 1}, length({half}::VARCHAR))::INTEGER, '0')"
    sign = f"CASE WHEN {digits} < 0 THEN '-' ELSE '' END"
    if places == 0:
        return f"({sign} || {text})::{kind}"
    return f"({sign} || left({text}, length({text}) - {places}) || '.' || right({text}, {places}))::{kind}"


def total_of_type(total: str, kind: str) -> str:
    """Return SQL for a total in its type; a bigint that cannot hold it raises under Spark's condition."""
    if kind != "BIGINT":
        return f"({total})::{kind}"
    message = "[ARITHMETIC_OVERFLOW] the sum does not fit into a bigint; sum(cast(x as decimal(38,0))) holds it"
    fits = f"({total}) BETWEEN {-(2**63)}::HUGEINT AND {2**63 - 1}::HUGEINT"
    return f"CASE WHEN {fits} THEN ({total})::BIGINT ELSE error('{message}') END"
