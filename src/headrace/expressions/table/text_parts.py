"""Text: parts between delimiters, distances, formats."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions import letters
from headrace.expressions.casts import cast, raising
from headrace.expressions.coercion import implicit
from headrace.expressions.functions import Function, built, entry
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_DIRECTIVE = re.compile(r"%(?:(\d+)\$)?([-0,+ ]*)(\d*)([a-zA-Z%])")
_MOST_DIGITS = 15  # of a number whose digits a double holds


def _elt(values: list[Value]) -> Value:
    index, given = values[0], values[1:]
    if all(value.type == k.BINARY for value in given):
        kind, choices = k.BINARY, given
    else:
        kind, choices = k.STRING, [_text(value, "elt") for value in given]
    fail = raising("INVALID_ARRAY_INDEX", "the index is out of bounds: ", f"CAST({index.sql} AS VARCHAR)")
    branches = " ".join(f"WHEN {i} THEN {value.sql}" for i, value in enumerate(choices, 1))
    null = f"CAST(NULL AS {k.sql_type(kind)})"
    sql = f"(CASE WHEN {index.sql} IS NULL THEN {null} ELSE CASE {index.sql} {branches} ELSE {fail} END END)"
    return Value("", sql, kind, raises=True)


def _text(value: Value, what: str) -> Value:
    text = implicit(value, k.STRING)
    if text is None:
        raise Mismatch(f"{what} cannot take {k.shown(value.type)}")
    return text


def _substring_index(values: list[Value]) -> Value:
    text, mark, count = values
    if not isinstance(mark.constant, str):
        raise Mismatch("the delimiter of substring_index must be a constant text")
    ends = mark.constant
    if any(ends.startswith(ends[i:]) for i in range(1, len(ends))):
        raise Mismatch(
            f"the delimiter {ends!r} can overlap itself, which is not supported", hint="Use split and array_join."
        )
    if not ends:
        sql = f"(CASE WHEN {text.sql} IS NOT NULL AND {count.sql} IS NOT NULL THEN '' END)"
        return Value("", sql, k.STRING, raises=text.raises or count.raises)
    parts = f"string_split({text.sql}, {mark.sql})"
    first = f"array_to_string(list_slice({parts}, 1, {count.sql}), {mark.sql})"
    last = f"array_to_string(list_slice({parts}, len({parts}) + 1 + {count.sql}::BIGINT, len({parts})), {mark.sql})"
    sql = (
        f"(CASE WHEN {text.sql} IS NULL OR {count.sql} IS NULL THEN NULL WHEN {count.sql} = 0 THEN ''"
        f" WHEN abs({count.sql}::BIGINT) >= len({parts}) THEN {text.sql}"
        f" WHEN {count.sql} > 0 THEN {first} ELSE {last} END)"
    )
    return Value("", sql, k.STRING, raises=text.raises or count.raises)


def _overlay(values: Sequence[Value], _: pa.DataType) -> str:
    text, new, place = (value.sql for value in values[:3])
    given = values[3].sql if len(values) > 3 else "-1"  # noqa: PLR2004
    length = f"(CASE WHEN {given} >= 0 THEN {given}::BIGINT ELSE length({new}) END)"
    head = f"(CASE WHEN {place} > 1 THEN left({text}, {place}::BIGINT - 1) ELSE '' END)"
    start = f"({place}::BIGINT + {length})"
    # a start before the text counts from its end, as in substring
    tail = f"substring({text}, CASE WHEN {start} = 0 THEN 1 ELSE {start} END, 2147483647)"
    nulls = " OR ".join(f"{value.sql} IS NULL" for value in values)
    return f"(CASE WHEN {nulls} THEN NULL ELSE {head} || {new} || {tail} END)"


# one row of the table of distances after the other (Wagner and Fischer 1974); DuckDB's own counts bytes
_ROW = (
    "list_reduce(list_transform(range(1, len({b}) + 1), lambda __j: struct_pack(row := [0], j := __j)),"
    " lambda __r, __x: struct_pack(row := list_append(__r.row, least(__r.row[-1] + 1, __p.row[__x.j + 1] + 1,"
    " __p.row[__x.j] + CASE WHEN __q.c = {b}[__x.j] THEN 0 ELSE 1 END)), j := __x.j),"
    " struct_pack(row := [__p.row[1] + 1], j := 0)).row"
)
_A, _B = "string_split($1, '')", "string_split($2, '')"
_DISTANCE = (
    f"list_reduce(list_transform({_A}, lambda __c: struct_pack(row := [0::BIGINT], c := __c)),"
    f" lambda __p, __q: struct_pack(row := {_ROW.format(b=_B)}, c := __q.c),"
    f" struct_pack(row := range(0, len({_B}) + 1), c := '')).row[-1]"
)
_LEVENSHTEIN = (
    "CAST((CASE WHEN $1 IS NULL OR $2 IS NULL THEN NULL"
    " WHEN strlen($1) = length($1) AND strlen($2) = length($2) THEN levenshtein($1, $2)"
    f" WHEN $1 = '' OR $2 = '' THEN length($1) + length($2) ELSE {_DISTANCE} END) AS INTEGER)"
)


def _bounded(values: Sequence[Value], _: pa.DataType) -> str:
    left, right = values[0].sql, values[1].sql
    distance = _LEVENSHTEIN.replace("$1", left).replace("$2", right)
    if len(values) == 2:  # noqa: PLR2004
        return distance
    most = values[2].sql
    return (
        f"(CASE WHEN {left} IS NULL OR {right} IS NULL OR {most} IS NULL THEN NULL"
        f" WHEN {distance} <= {most} THEN {distance} ELSE -1 END)"
    )


def _format_number(values: list[Value]) -> Value:
    value, places = values[0], values[1].constant
    if not isinstance(places, int) or isinstance(places, bool) or not 0 <= places <= _MOST_DIGITS:
        raise Mismatch(f"the digits of format_number are a constant from 0 to {_MOST_DIGITS}")
    if k.is_fraction(value.type):
        raise Mismatch(
            f"format_number of {k.shown(value.type)} is not supported",
            hint=f"Say how many digits count: format_number(cast(x as decimal(18,{places})), {places}).",
        )
    if k.is_integral(value.type):
        digits, fraction = f"CAST(abs(CAST({value.sql} AS HUGEINT)) AS VARCHAR)", "0" * places
        sign = f"CASE WHEN {value.sql} < 0 THEN '-' ELSE '' END"
        tail = f" || '.{fraction}'" if places else ""
        return Value("", f"({sign} || {_grouped(digits)}{tail})", k.STRING, raises=value.raises)
    if value.type.scale > places:
        raise Mismatch(
            f"format_number of {k.shown(value.type)} with {places} digits would round half to even",
            hint=f"Round it first: format_number(round(x, {places}), {places}).",
        )
    text = f"CAST(abs({value.sql}) AS VARCHAR)"
    whole = f"coalesce(nullif(split_part({text}, '.', 1), ''), '0')"
    fraction = f"rpad(split_part({text}, '.', 2), {places}, '0')"
    sign = f"CASE WHEN {value.sql} < 0 THEN '-' ELSE '' END"
    tail = f" || '.' || {fraction}" if places else ""
    return Value("", f"({sign} || {_grouped(whole)}{tail})", k.STRING, raises=value.raises)


def _grouped(digits: str) -> str:
    """Return SQL for a text of digits with a comma before each three from the end."""
    padded = f"lpad({digits}, CAST((length({digits}) + 2) // 3 * 3 AS INTEGER), ' ')"
    return f"ltrim(regexp_replace({padded}, '(...)', ',\\1', 'g'), ', ')"


def _format_string(values: list[Value]) -> Value:
    pattern = values[0].constant
    if not isinstance(pattern, str):
        raise Mismatch("the format must be a constant text")
    parts, at, arguments_used = [], 0, 0
    for directive in _DIRECTIVE.finditer(pattern):
        parts.append(_verbatim(pattern[at : directive.start()], pattern))
        at = directive.end()
        number, flags, width, letter = directive.groups()
        if letter in "%n":
            if flags or width or number:
                raise _no_directive(directive[0])
            parts.append(literal("%" if letter == "%" else "\n"))
            continue
        arguments_used += not number
        index = int(number) if number else arguments_used
        if not 1 <= index < len(values):
            raise Mismatch(f"{directive[0]} of the format has no argument")
        parts.append(_directive(directive[0], flags, width, letter, values[index]))
    parts.append(_verbatim(pattern[at:], pattern))
    sql = " || ".join(part for part in parts if part != "''") or "''"
    return Value("", f"({sql})", k.STRING, raises=any(value.raises for value in values))


def _verbatim(text: str, pattern: str) -> str:
    if "%" in text:
        raise Mismatch(f"the format {pattern!r} is not supported", hint="It knows %s, %d, %x, %X, %% and widths.")
    return literal(text)


def _no_directive(text: str) -> Mismatch:
    return Mismatch(
        f"{text} is not supported in a format",
        hint="It knows %s of text, whole numbers and booleans, %d, %x, %X, %% and widths; round other numbers.",
    )


def _directive(text: str, flags: str, width: str, letter: str, value: Value) -> str:
    allowed = {"s": "-", "d": "-0,", "x": "-0", "X": "-0"}.get(letter)
    if allowed is None or set(flags) - set(allowed) or len(flags) > 1 or (flags in ("-", "0") and not width):
        raise _no_directive(text)
    whole = k.is_integral(value.type)
    if not whole and (letter != "s" or value.type not in (k.STRING, k.BOOLEAN, k.NULL)):
        raise _no_directive(f"{text} of {k.shown(value.type)}")
    sql = cast(value, k.STRING).sql
    if letter in "xX":  # the bits of a negative number, as wide as its type
        bits = f"(CAST({value.sql} AS HUGEINT) & {2**value.type.bit_width - 1}::HUGEINT)"
        sql = f"printf('%{letter}', CAST({bits} AS UBIGINT))"
    sign = f"CASE WHEN {value.sql} < 0 THEN '-' ELSE '' END" if letter == "d" else "''"
    digits = f"ltrim({sql}, '-')" if letter == "d" else sql
    if "," in flags:
        sql = f"({sign} || {_grouped(digits)})"
    if flags == "0":
        sql = f"({sign} || {_padded('lpad', digits, f'{width} - length({sign})', '0')})"
        null = _padded("lpad", "'NULL'" if letter == "X" else "'null'", width, " ")
        return f"(CASE WHEN {value.sql} IS NULL THEN {null} ELSE {sql} END)"
    sql = f"coalesce({sql}, '{'NULL' if letter == 'X' else 'null'}')"
    return _padded("rpad" if flags == "-" else "lpad", sql, width, " ") if width else sql


def _padded(name: str, sql: str, width: str, pad: str) -> str:
    """Return SQL for a text padded to a width; widths count UTF-16 units, as Java does."""
    more = f"repeat('{pad}', greatest({width} - {letters.units(sql)}, 0))"
    return f"({more} || {sql})" if name == "lpad" else f"({sql} || {more})"


_LUHN = (
    "(CASE WHEN $1 IS NULL THEN NULL WHEN NOT regexp_full_match($1, '[0-9]+') THEN false ELSE"
    " list_sum(list_transform(string_split(reverse($1), ''), lambda c, i: CASE WHEN i % 2 = 1 THEN ascii(c) - 48"
    " WHEN ascii(c) < 53 THEN 2 * (ascii(c) - 48) ELSE 2 * (ascii(c) - 48) - 9 END)) % 10 = 0 END)"
)
_FIND = (
    "CAST((CASE WHEN $1 IS NULL OR $2 IS NULL THEN NULL WHEN contains($1, ',') THEN 0"
    " ELSE coalesce(list_position(string_split($2, ','), $1), 0) END) AS INTEGER)"
)


ENTRIES: tuple[Function, ...] = (
    built("elt", "int, any...", _elt, "elt(1, s, t)", "elt(b, s, i)", "elt(i, bin, bin2)", order="all"),
    entry("find_in_set", "string, string", "int", _FIND, "find_in_set('b', s)", "find_in_set(t, 'a,,b,é')"),
    built(
        "substring_index",
        "string, string, int",
        _substring_index,
        "substring_index(s, ',', 1)",
        "substring_index(s, ' ', -1)",
        "substring_index(s, 'a', i)",
        "substring_index(s, '', 1)",
        notes="the delimiter is a constant that cannot overlap itself",
    ),
    entry(
        "overlay",
        "string, string, int, [int]",
        "string",
        _overlay,
        "overlay(s, 'xy', 2)",
        "overlay(s, t, b)",
        "overlay(s, t, b, 2)",
        "overlay(s, '_', 3, 0)",
        notes="written as a function, not with placing",
    ),
    entry(
        "levenshtein",
        "string, string, [int]",
        "int",
        _bounded,
        "levenshtein(s, t)",
        "levenshtein(s, 'kitten')",
        "levenshtein(s, t, 2)",
        notes="in code points",
    ),
    built(
        "format_number",
        "number, whole",
        _format_number,
        "format_number(i, 2)",
        "format_number(m, 2)",
        "format_number(l, 0)",
        "format_number(round(n, 3), 3)",
        notes="whole numbers, and decimals without rounding",
    ),
    built(
        "format_string printf",
        "string, any...",
        _format_string,
        "format_string('%s is %d', s, i)",
        "printf('%5d|%-5s|%05d|%,d', i, s, b, l)",
        "format_string('%2$s %1$s 100%%', p, s)",
        "format_string('%x %X', i, l)",
        notes="%s of text, whole numbers and booleans, %d %x %X, with widths",
        order="all",
    ),
    entry(
        "luhn_check",
        "string",
        "boolean",
        _LUHN,
        "luhn_check('79927398713')",
        "luhn_check(s)",
        "luhn_check('8112189876')",
    ),
    entry("quote", "string", "string", "('''' || replace($1, '''', '\\''') || '''')", "quote(s)", 'quote("don\'t")'),
)
