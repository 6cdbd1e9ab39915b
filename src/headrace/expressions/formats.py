"""Date patterns (`yyyy-MM-dd HH:mm:ss`): the common letters, written and read; all others are refused."""

from __future__ import annotations

import re

from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions.casts import raising
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']+")
_YEAR, _SHORT_YEAR = "%Y", "%-Y"
_WRITTEN = {
    "yyyy": _YEAR, "yy": "%y", "y": _SHORT_YEAR, "MM": "%m", "M": "%-m", "MMM": "%b", "MMMM": "%B", "dd": "%d",
    "d": "%-d", "HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S",
    "a": "%p", "E": "%a", "EEE": "%a", "EEEE": "%A", "DDD": "%j", "SSSSSS": "%f", "SSS": "%g",
}  # fmt: skip
_ONE, _TWO = "([0-9]{1,2})", "([0-9]{2})"
_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_YEARS, _MONTH, _DAY, _HOUR, _MINUTE, _SECOND, _FRACTION, _NAMED, _CLOCK, _HALF, _SHIFT, _IN_CENTURY = range(1, 13)
_READ = {
    "yyyy": ("([0-9]{4}|[+][0-9]{5,6}|-[0-9]{4,6})", _YEARS), "yy": (_TWO, _IN_CENTURY),
    "MM": (_TWO, _MONTH), "M": (_ONE, _MONTH), "MMM": (f"({'|'.join(name[:3] for name in _NAMES)})", _NAMED),
    "MMMM": (f"({'|'.join(_NAMES)})", _NAMED), "dd": (_TWO, _DAY), "d": (_ONE, _DAY), "HH": (_TWO, _HOUR),
    "H": (_ONE, _HOUR), "hh": (_TWO, _CLOCK), "h": (_ONE, _CLOCK), "a": ("(am|pm)", _HALF), "mm": (_TWO, _MINUTE),
    "m": (_ONE, _MINUTE), "ss": (_TWO, _SECOND), "s": (_ONE, _SECOND),
    **{"S" * count: (f"([0-9]{{1,{count}}})", _FRACTION) for count in range(1, 10)},
    "XXX": ("(Z|[+-][0-9]{2}:[0-9]{2})", _SHIFT), "XX": ("(Z|[+-][0-9]{4})", _SHIFT),
    "X": ("(Z|[+-][0-9]{2}(?:[0-9]{2})?)", _SHIFT), "xxx": ("([+-][0-9]{2}:[0-9]{2})", _SHIFT),
    "xx": ("([+-][0-9]{4})", _SHIFT), "x": ("([+-][0-9]{2}(?:[0-9]{2})?)", _SHIFT), "Z": ("([+-][0-9]{4})", _SHIFT),
}  # fmt: skip


def _tokens(pattern: str) -> list[tuple[str, bool]]:
    """Return the pattern's parts, and whether each is letters with a meaning."""
    parts, at = [], 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if not found:
            raise Mismatch(f"the format {pattern!r} has a quote that is never closed")
        if found[1] is not None:
            parts.append((found[1].replace("''", "'") or "'", False))
        else:
            parts.append((found[0], bool(found[2])))
        at = found.end()
    return parts


def _refused(pattern: str, letters: str, known: list[str]) -> Mismatch:
    return Mismatch(
        f"the letters {letters!r} of the format {pattern!r} are not supported",
        hint=f"Supported are {', '.join(known)}, other characters, and 'text in quotes'.",
    )


def formatted(value: Value, pattern: str) -> Value:
    """Return a timestamp written by a pattern."""
    parts = []
    for part, meant in _tokens(pattern):
        if (meant and part not in _WRITTEN) or (not meant and re.search(r"[\[\]{}#]", part)):
            raise _refused(pattern, part, list(_WRITTEN))
        parts.append(_WRITTEN[part] if meant else part.replace("%", "%%"))
    sql = f"strftime({value.sql}, {literal(''.join(parts))})"
    if _YEAR in parts or _SHORT_YEAR in parts:
        sql = _with_years(value.sql, parts, sql)
    return Value("", sql, k.STRING, raises=value.raises)


def _with_years(sql: str, parts: list[str], usual: str) -> str:
    """Return a timestamp written where DuckDB writes its year otherwise: years of more digits have a sign."""
    year = f"year({sql})"
    sign = f"CASE WHEN {year} < 0 THEN '-' WHEN {year} > 9999 THEN '+' ELSE '' END"
    digits = f"CAST(abs({year}) AS VARCHAR)"
    years = {
        _YEAR: f"({sign} || repeat('0', CAST(greatest(4 - length({digits}), 0) AS INTEGER)) || {digits})",
        _SHORT_YEAR: f"CAST({year} AS VARCHAR)",
    }
    written = " || ".join(years.get(part) or f"strftime({sql}, {literal(part)})" for part in parts)
    if _SHORT_YEAR in parts:
        return f"({written})"
    return f"(CASE WHEN {year} BETWEEN 1 AND 9999 THEN {usual} ELSE {written} END)"


def parsed(value: Value, pattern: str, *, lenient: bool = False, zoned: bool = True) -> Value:
    """Return the timestamp that a pattern reads; a text that does not fit raises, or is null if `lenient`.

    Without `zoned`, the zone is not applied.
    """
    regex, groups = _regex(pattern)
    text = value.sql

    def found(place: int) -> str:
        parts = (f"nullif(regexp_extract({text}, {literal(regex)}, {group}), '')" for group in groups[place])
        return f"coalesce({', '.join(parts)}, NULL)"

    def number(place: int, default: int) -> str:
        return f"coalesce(CAST({found(place)} AS BIGINT), {default})" if place in groups else str(default)

    year, month, hour = number(_YEARS, 1970), number(_MONTH, 1), number(_HOUR, 0)
    clock = f"{hour} < 24 AND {number(_MINUTE, 0)} < 60 AND {number(_SECOND, 0)} < 60"
    if _IN_CENTURY in groups:
        year = f"(2000 + {number(_IN_CENTURY, 0)})"
    if _NAMED in groups:
        names = literal("".join(name[:3] for name in _NAMES))
        month = f"((strpos({names}, lower(left({found(_NAMED)}, 3))) + 2) // 3)"
    if _CLOCK in groups:
        half = f"CASE WHEN lower({found(_HALF)}) = 'pm' THEN 12 ELSE 0 END" if _HALF in groups else "0"
        hour = f"({number(_CLOCK, 12)} % 12 + {half})"
        clock += f" AND {number(_CLOCK, 12)} BETWEEN 1 AND 12"
    micros = f"CAST(left(rpad(coalesce({found(_FRACTION)}, '0'), 6, '0'), 6) AS BIGINT)" if _FRACTION in groups else "0"
    if _SHIFT in groups and zoned:
        shift = f"replace(coalesce({found(_SHIFT)}, ''), ':', '')"
        hours, minutes = (f"CAST('0' || substring({shift}, {at}, 2) AS BIGINT)" for at in (2, 4))
        micros += f" - CASE WHEN {shift} LIKE '-%' THEN -1 ELSE 1 END * ({hours} * 60 + {minutes}) * 60000000"
        clock += f" AND {hours} * 60 + {minutes} <= 1080 AND {minutes} < 60"
    day = f"{year}, {month}, {number(_DAY, 1)}"
    whole = f"make_timestamp({day}, {hour}, {number(_MINUTE, 0)}, CAST({number(_SECOND, 0)} AS DOUBLE))"
    fail = raising("CANNOT_PARSE_TIMESTAMP", f"this text does not fit the format {pattern}: ", text, lenient=lenient)
    sql = (
        f"(CASE WHEN regexp_matches({text}, {literal(regex)}) AND {clock}"
        f" THEN make_timestamp(epoch_us({whole}) + {micros}) WHEN {text} IS NOT NULL THEN {fail} END)"
    )
    sql = f"TRY({sql})" if lenient else sql
    return Value("", sql, k.TIMESTAMP, raises=value.raises or not lenient)


def _regex(pattern: str) -> tuple[str, dict[int, list[int]]]:
    """Return a regular expression for a pattern, and by kind of part which of its groups have one."""
    regex, depth, count = "", 0, 0
    groups: dict[int, list[int]] = {}
    for part, meant in _tokens(pattern):
        if meant and part not in _READ:
            raise _refused(pattern, part, list(_READ))
        if meant:
            text, place = _READ[part]
            if place == _FRACTION and regex.endswith(")"):  # behind other digits it has all of its own
                text = text.replace("1,", "")
            regex, count = regex + text, count + 1
            groups.setdefault(place, []).append(count)
            continue
        for sign in part:
            depth += (sign == "[") - (sign == "]")
            if sign in "{}#" or depth < 0:
                raise _refused(pattern, sign, list(_READ))
            regex += {"[": "(?:", "]": ")?"}.get(sign, re.escape(sign))
    if depth:
        raise Mismatch(f"the format {pattern!r} has a [ that is never closed")
    for place, other in ((_HALF, _CLOCK), (_CLOCK, _HOUR), (_NAMED, _MONTH), (_YEARS, _IN_CENTURY)):
        if place in groups and (other in groups) == (place != _HALF):
            raise Mismatch(f"the format {pattern!r} has parts that are not read together")
    return f"(?i)^{regex}$", groups
