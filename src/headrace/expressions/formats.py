"""Date patterns (`yyyy-MM-dd HH:mm:ss`): the common letters, written and read; all others are refused."""

from __future__ import annotations

import re

from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions.casts import raising
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']+")
_WRITTEN = {
    "yyyy": "%Y", "yy": "%y", "y": "%-Y", "MM": "%m", "M": "%-m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "d": "%-d",
    "HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S", "a": "%p",
    "E": "%a", "EEE": "%a", "EEEE": "%A", "DDD": "%j", "SSSSSS": "%f", "SSS": "%g",
}  # fmt: skip
_ONE, _TWO = "([0-9]{1,2})", "([0-9]{2})"
_READ = {
    "yyyy": ("([0-9]{4}|[+][0-9]{5,6}|-[0-9]{4,6})", 1),
    "MM": (_TWO, 2), "M": (_ONE, 2), "dd": (_TWO, 3), "d": (_ONE, 3), "HH": (_TWO, 4),
    "H": (_ONE, 4), "mm": (_TWO, 5), "m": (_ONE, 5), "ss": (_TWO, 6), "s": (_ONE, 6), "SSS": ("([0-9]{3})", 7),
    "SSSSSS": ("([0-9]{6})", 7),
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
    text = ""
    for part, meant in _tokens(pattern):
        if meant and part not in _WRITTEN:
            raise _refused(pattern, part, list(_WRITTEN))
        if not meant and re.search(r"[\[\]{}#]", part):
            raise _refused(pattern, part, list(_WRITTEN))
        text += _WRITTEN[part] if meant else part.replace("%", "%%")
    sql = f"strftime({value.sql}, {literal(text)})"
    if "%Y" in text:  # years of more digits have a sign
        year = f"year({value.sql})"
        sign = f"CASE WHEN {year} < 0 THEN '-' WHEN {year} > 9999 THEN '+' ELSE '' END"
        digits = f"CAST(abs({year}) AS VARCHAR)"
        whole = f"({sign} || repeat('0', CAST(greatest(4 - length({digits}), 0) AS INTEGER)) || {digits})"
        parts = [f"strftime({value.sql}, {literal(part)})" if part else "''" for part in text.split("%Y")]
        sql = f"(CASE WHEN {year} BETWEEN 1 AND 9999 THEN {sql} ELSE {f' || {whole} || '.join(parts)} END)"
    return Value("", sql, k.STRING, raises=value.raises)


def parsed(value: Value, pattern: str, *, lenient: bool = False) -> Value:
    """Return the timestamp that a pattern reads; a text that does not fit raises, or is null if `lenient`."""
    regex = ""
    groups: dict[int, int] = {}
    for part, meant in _tokens(pattern):
        if meant and part not in _READ:
            raise _refused(pattern, part, list(_READ))
        if meant:
            text, place = _READ[part]
            regex += text
            groups[place] = len(groups) + 1
        else:
            regex += re.escape(part)
    field = {
        place: f"CAST(regexp_extract({value.sql}, {literal(regex)}, {groups[place]}) AS BIGINT)"
        if place in groups
        else str(default)
        for place, default in ((1, 1970), (2, 1), (3, 1), (4, 0), (5, 0), (6, 0))
    }
    micros = "0"
    if 7 in groups:  # noqa: PLR2004 the fraction
        digits = f"rpad(regexp_extract({value.sql}, {literal(regex)}, {groups[7]}), 6, '0')"
        micros = f"CAST({digits} AS BIGINT)"
    whole = f"make_timestamp({', '.join(field[i] for i in range(1, 6))}, {field[6]}::DOUBLE)"
    parts = f"make_timestamp(epoch_us({whole}) + {micros})"
    fail = raising(
        "CANNOT_PARSE_TIMESTAMP", f"this text does not fit the format {pattern}: ", value.sql, lenient=lenient
    )
    clock = f"{field[4]} < 24 AND {field[5]} < 60 AND {field[6]} < 60"
    sql = (
        f"(CASE WHEN regexp_full_match({value.sql}, {literal(regex)}) AND {clock} THEN {parts}"
        f" WHEN {value.sql} IS NOT NULL THEN {fail} END)"
    )
    sql = f"TRY({sql})" if lenient else sql
    return Value("", sql, k.TIMESTAMP, raises=value.raises or not lenient)
