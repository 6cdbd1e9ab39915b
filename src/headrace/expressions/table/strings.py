"""Text: cases, lengths, parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions import kinds as k
from headrace.expressions import letters
from headrace.expressions.coercion import implicit, unify
from headrace.expressions.functions import Function, built, entry, expand
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa


def _concat(values: list[Value]) -> Value:
    if not values:
        return Value("", "''", k.STRING)
    if all(k.is_array(value.type) or value.type == k.NULL for value in values) and any(
        k.is_array(v.type) for v in values
    ):
        operands = unify(values, what="concat")
        # list_concat takes a null for an empty list, || does not
        missing = " OR ".join(f"{value.sql} IS NULL" for value in operands)
        joined = f"list_concat({', '.join(value.sql for value in operands)})" if len(operands) > 1 else operands[0].sql
        return Value(
            "",
            f"(CASE WHEN NOT ({missing}) THEN {joined} END)",
            operands[0].type,
            raises=any(v.raises for v in operands),
        )
    if all(value.type == k.BINARY for value in values):
        operands, kind = values, k.BINARY
    else:
        operands, kind = [_text(value) for value in values], k.STRING
    return Value(
        "", f"({' || '.join(value.sql for value in operands)})", kind, raises=any(value.raises for value in operands)
    )


def _text(value: Value) -> Value:
    text = implicit(value, k.STRING)
    if text is None:
        raise Mismatch(f"concat cannot take {k.shown(value.type)}")
    return text


def _concat_ws(values: list[Value]) -> Value:
    operands = [values[0], *(value if k.is_array(value.type) else _text(value) for value in values[1:])]
    for value in operands:
        if k.is_array(value.type) and value.type.value_type not in (k.STRING, k.NULL):
            raise Mismatch(
                f"concat_ws cannot take {k.shown(value.type)}", hint="Say transform(xs, x -> cast(x as string))."
            )
    raises, mark = any(value.raises for value in operands), operands[0].sql
    if not any(k.is_array(value.type) for value in operands):
        return Value("", f"concat_ws({', '.join(value.sql for value in operands)})", k.STRING, raises=raises)
    lists = [f"CAST({v.sql} AS VARCHAR[])" if k.is_array(v.type) else f"[{v.sql}]" for v in operands[1:]]
    texts = f"list_filter(list_concat({', '.join([*lists, '[]'])}), lambda __t: __t IS NOT NULL)"
    sql = f"(CASE WHEN {mark} IS NOT NULL THEN {joined(texts, values[0])} END)"
    return Value("", sql, k.STRING, raises=raises)


def joined(texts: str, mark: Value) -> str:
    """Return SQL for the texts of a list as one, with a text between them; without any it is empty."""
    if mark.is_constant:
        return f"coalesce(array_to_string({texts}, {mark.sql}), '')"
    marked = f"list_transform({texts}, lambda __x: {mark.sql} || __x)"  # DuckDB needs a constant between the parts
    return f"coalesce(substring(array_to_string({marked}, ''), length({mark.sql}) + 1), '')"


def _chars(template: str, returns: pa.DataType = k.STRING) -> Callable[[list[Value]], Value]:
    """Return the rule of a function that Spark has for binary too, and we for text only."""

    def build(values: list[Value]) -> Value:
        if values[0].type == k.BINARY:
            raise Mismatch("binary is not supported here", hint="Cast it to string.")
        text = implicit(values[0], k.STRING)
        if text is None:
            raise Mismatch(f"this takes text, not {k.shown(values[0].type)}")
        arguments = [text, *values[1:]]
        return Value("", expand(template, arguments, returns), returns, raises=any(value.raises for value in arguments))

    return build


def _substring(values: list[Value]) -> Value:
    start, length = values[1], values[2] if len(values) > 2 else None  # noqa: PLR2004
    first = "$2" if isinstance(start.constant, int) and start.constant != 0 else "(CASE WHEN $2 = 0 THEN 1 ELSE $2 END)"
    if length is None:  # Spark takes 2147483647 characters, which shows where the start is far before the text
        return _chars(f"substring($1, {first}, 2147483647)")(values)
    if isinstance(length.constant, int):
        return _chars(
            f"substring($1, {first}, $3)" if length.constant > 0 else "(CASE WHEN $2 IS NOT NULL THEN left($1, 0) END)"
        )(values)
    empty = "WHEN $3 <= 0 AND $1 IS NOT NULL AND $2 IS NOT NULL THEN ''"
    return _chars(f"(CASE {empty} ELSE substring($1, {first}, $3) END)")(values)


def _side(name: str) -> Callable[[Sequence[Value], pa.DataType], str]:
    def sql(values: Sequence[Value], _: pa.DataType) -> str:
        text, count = values
        if isinstance(count.constant, int) and count.constant > 0:
            return f"{name}({text.sql}, {count.sql})"
        return (
            f"(CASE WHEN {count.sql} <= 0 AND {text.sql} IS NOT NULL THEN '' ELSE {name}({text.sql}, {count.sql}) END)"
        )

    return sql


def _pad(name: str) -> Callable[[list[Value]], Value]:
    def build(values: list[Value]) -> Value:
        pad = values[2].sql if len(values) > 2 else "' '"  # noqa: PLR2004
        nulls = "$1 IS NULL OR $2 IS NULL" + (f" OR {pad} IS NULL" if len(values) > 2 else "")  # noqa: PLR2004
        return _chars(
            f"(CASE WHEN {nulls} THEN NULL WHEN $2 <= 0 THEN '' WHEN {pad} = '' THEN left($1, $2)"
            f" ELSE {name}($1, $2, {pad}) END)"
        )(values)

    return build


_ASCII = "strlen($1) = length($1)"
_LETTERS = "string_split($1, '')"

ENTRIES: tuple[Function, ...] = (
    entry("upper ucase", "string", "string", lambda v, _: letters.upper(v[0].sql), "upper(s)", "ucase(i)"),
    entry("lower lcase", "string", "string", lambda v, _: letters.lower(v[0].sql), "lower(s)"),
    built(
        "length char_length character_length len",
        "any",
        _chars("CAST(length($1) AS INTEGER)", k.INT),
        "length(s)",
        "char_length(t)",
        notes="in code points",
    ),
    entry("octet_length", "=binary", "int", "CAST(octet_length($1) AS INTEGER)", "octet_length(bin)"),
    entry("bit_length", "=binary", "int", "CAST(octet_length($1) * 8 AS INTEGER)", "bit_length(bin)"),
    entry("octet_length", "string", "int", "CAST(strlen($1) AS INTEGER)", "octet_length(s)"),
    entry("bit_length", "string", "int", "CAST(strlen($1) * 8 AS INTEGER)", "bit_length(s)"),
    built(
        "concat",
        "[any...]",
        _concat,
        "concat(s, t)",
        "concat(s, i, p)",
        "concat(s, null)",
        "concat(ints, ints)",
        "concat(s)",
        order="all",
    ),
    built("||", "any, any", _concat, "s || t", "s || i", "bin || bin2", order="all"),
    built(
        "concat_ws",
        "string, any...",
        _concat_ws,
        "concat_ws(',', s, t)",
        "concat_ws(s, t, i)",
        "concat_ws('-', texts)",
        "concat_ws(t, s, texts, i, texts)",
        "concat_ws(',', array())",
        notes="nulls are skipped, also in arrays of strings",
        order="all",
    ),
    built(
        "substring substr",
        "any, int, [int]",
        _substring,
        "substring(s, 2, 3)",
        "substr(s, i, j)",
        "substring(s, -3, 2)",
        "substring(s, 0)",
        "substring(s, i)",
        "substring(s from 2 for 1)",
    ),
    entry("left", "string, int", "string", _side("left"), "left(s, 2)", "left(s, i)"),
    entry("right", "string, int", "string", _side("right"), "right(s, 2)", "right(s, i)"),
    entry("trim", "string", "string", "trim($1, ' ')", "trim(s)", "trim(both from s)", notes="spaces only"),
    entry("ltrim", "string", "string", "ltrim($1, ' ')", "ltrim(s)"),
    entry("rtrim", "string", "string", "rtrim($1, ' ')", "rtrim(s)"),
    entry(
        "btrim",
        "string, [string]",
        "string",
        lambda v, _: f"trim({v[0].sql}, {v[1].sql if len(v) > 1 else chr(39) + ' ' + chr(39)})",
        "btrim(s)",
        "btrim(s, 'ab ')",
        "trim(both 'a' from s)",
        "trim(t from s)",
    ),
    entry("ltrim-from", "string, string", "string", "ltrim($1, $2)", "trim(leading 'a' from s)"),
    entry("rtrim-from", "string, string", "string", "rtrim($1, $2)", "trim(trailing 'a' from s)"),
    built("lpad", "any, int, [string]", _pad("lpad"), "lpad(s, 5, 'xy')", "lpad(s, b, t)", "lpad(s, 4)"),
    built("rpad", "any, int, [string]", _pad("rpad"), "rpad(s, 5, 'xy')", "rpad(s, 4, '')"),
    built(
        "reverse",
        "array",
        lambda v: Value("", f"list_reverse({v[0].sql})", v[0].type, raises=v[0].raises),
        "reverse(ints)",
    ),
    built(
        "reverse",
        "any",
        _chars(
            f"(CASE WHEN {_ASCII} THEN reverse($1) ELSE list_aggregate(list_reverse({_LETTERS}), 'string_agg', '') END)"
        ),
        "reverse(s)",
        notes="by code points",
    ),
    entry("repeat", "string, int", "string", "repeat($1, $2)", "repeat(s, 2)", "repeat(s, b % 4)"),
    entry("initcap", "string", "string", lambda v, _: letters.title(v[0].sql), "initcap(s)", notes="blanks part words"),
    entry("space", "int", "string", "repeat(' ', $1)", "space(b % 5)"),
)
