"""Patterns: LIKE, and Java's regular expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions import letters
from headrace.expressions.binding import bound
from headrace.expressions.casts import raising
from headrace.expressions.functions import Function, built
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.regex import Regex, translate
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

import re

import pyarrow as pa

_ENDS = "the pattern must be a constant"
_NOTE = "Java's dialect, computed by RE2: no look-around, no back-references; the pattern is a constant"


def _like(*, fold: bool) -> Callable[[list[Value]], Value]:
    def build(values: list[Value]) -> Value:
        text, pattern = values[0].sql, values[1]
        escape = values[2].constant if len(values) > 2 else "\\"  # noqa: PLR2004
        if not isinstance(escape, str) or len(escape) != 1:
            raise Mismatch("the escape of like must be one character")
        wanted, raises = pattern.sql, False
        if isinstance(pattern.constant, str):
            _check_like(pattern.constant, escape)
        elif pattern.constant is not None:
            e = re.escape(escape)
            fail = raising("INVALID_FORMAT.ESC_IN_THE_MIDDLE", "this pattern of like has a wrong escape: ", wanted)
            good = f"regexp_full_match({wanted}, {literal(f'(?s)(?:[^{e}]|{e}[%_{e}])*')})"
            good = f"{good} OR {wanted} IS NULL OR {text} IS NULL"
            wanted, raises = f"CASE WHEN {good} THEN {wanted} ELSE {fail} END", True
        if fold:
            text, wanted = letters.lower(text), letters.lower(wanted)
        sql = f"({text} LIKE ({wanted}) ESCAPE {literal(escape)})"
        return Value("", sql, k.BOOLEAN, raises=raises or any(value.raises for value in values))

    return build


def _check_like(pattern: str, escape: str) -> None:
    e = re.escape(escape)
    if not re.fullmatch(f"(?s)(?:[^{e}]|{e}[%_{e}])*", pattern):
        raise Mismatch(
            f"the pattern {pattern!r} is wrong: {escape!r} escapes only %, _ and itself",
            hint=f"Write {escape * 2} for {escape}.",
        )


def _constant(value: Value, what: str) -> str:
    if not isinstance(value.constant, str):
        raise Mismatch(f"{what} must be a constant text")
    return value.constant


def _null_if_null(value: Value) -> bool:
    return value.constant is None


def _rlike(values: list[Value]) -> Value:
    if _null_if_null(values[1]):
        return Value("", "CAST(NULL AS BOOLEAN)", k.BOOLEAN)
    pattern = translate(_constant(values[1], "the pattern"))
    return Value("", f"regexp_matches({values[0].sql}, {literal(pattern.text)})", k.BOOLEAN, raises=values[0].raises)


def _extract(values: list[Value]) -> Value:
    pattern = translate(_constant(values[1], "the pattern"))
    group = values[2].constant if len(values) > 2 else 1  # noqa: PLR2004
    if not isinstance(group, int) or not 0 <= group <= pattern.groups:
        raise Mismatch(f"the pattern has the groups 0 to {pattern.groups}, not {group}")
    if pattern.ends and group == 0:
        raise Mismatch("$ with the group 0 is not supported", hint="Put it in parentheses and take group 1.")
    sql = f"regexp_extract({values[0].sql}, {literal(pattern.text)}, {group})"
    return Value("", sql, k.STRING, raises=values[0].raises)


def _replace(values: list[Value]) -> Value:
    pattern = translate(_constant(values[1], "the pattern"))
    if pattern.nullable:
        raise Mismatch("a pattern that can match nothing is not supported here", hint="Write + instead of *.")
    new = _replacement(_constant(values[2], "the replacement"), pattern.groups)
    text = pattern.text
    if pattern.ends:
        text, new = _keep_end(text, pattern.groups), new + f"\\{pattern.groups + 1}"
    sql = f"regexp_replace({values[0].sql}, {literal(text)}, {literal(new)}, 'g')"
    return Value("", sql, k.STRING, raises=values[0].raises)


def _searched(values: list[Value], what: str) -> Regex:
    """Return the pattern of a function that finds one match after the other."""
    pattern = translate(_constant(values[1], "the pattern"))
    if pattern.nullable:
        raise Mismatch(f"a pattern that can match nothing is not supported in {what}", hint="Write + instead of *.")
    if pattern.ends:
        raise Mismatch(f"$ is not supported in {what}")
    return pattern


def _extract_all(values: list[Value]) -> Value:
    pattern = _searched(values, "regexp_extract_all")
    group = values[2].constant if len(values) > 2 else 1  # noqa: PLR2004
    if not isinstance(group, int) or not 0 <= group <= pattern.groups:
        raise Mismatch(f"the pattern has the groups 0 to {pattern.groups}, not {group}")
    sql = f"regexp_extract_all({values[0].sql}, {literal(pattern.text)}, {group})"
    if group:  # a group that took no part is an empty text
        sql = f"list_transform({sql}, lambda x: coalesce(x, ''))"
    return Value("", sql, pa.list_(k.STRING), raises=values[0].raises)


def _count(values: list[Value]) -> Value:
    text = values[0].sql
    found = f"regexp_extract_all({text}, {literal(_searched(values, 'regexp_count').text)})"
    return Value("", f"CAST(len({found}) AS INTEGER)", k.INT, raises=values[0].raises)


def _first(values: list[Value]) -> Value:
    pattern, text = literal(_searched(values, "regexp_substr").text), values[0].sql
    sql = f"(CASE WHEN regexp_matches({text}, {pattern}) THEN regexp_extract({text}, {pattern}) END)"
    return Value("", sql, k.STRING, raises=values[0].raises)


def _place(values: list[Value]) -> Value:
    """Count the characters before the first match."""
    pattern, text = _searched(values, "regexp_instr").text, values[0].sql
    before = f"regexp_extract({text}, {literal(f'(?s)^(.*?)(?:{pattern})')}, 1)"
    sql = (
        f"CAST((CASE WHEN {text} IS NULL THEN NULL WHEN regexp_matches({text}, {literal(pattern)})"
        f" THEN length({before}) + 1 ELSE 0 END) AS INTEGER)"
    )
    return Value("", sql, k.INT, raises=values[0].raises)


def _keep_end(text: str, groups: int) -> str:
    """Put the line terminator that `$` takes into a last group, so that it can be given back."""
    end = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
    if text.count(end) != 1 or not text.endswith(end) or "|" in text.replace(end, ""):
        raise Mismatch("$ is supported at the end of the pattern only", detail=f"It has {groups} groups.")
    return text.removesuffix(end) + "(" + end.removesuffix(r"\z") + r")\z"


def _replacement(text: str, groups: int) -> str:
    """Return Java's replacement text, with its `$1`, in RE2's words."""
    rewritten, at = "", 0
    while at < len(text):
        here = text[at]
        if here == "\\" and at + 1 < len(text):
            at += 1
            rewritten += "\\\\" if text[at] == "\\" else text[at]
        elif here == "$":
            found = re.match(r"\$(\d)(?!\d)", text[at:])
            if not found or int(found[1]) > groups:
                raise Mismatch(f"the replacement {text!r} refers to a group that the pattern does not have")
            rewritten += f"\\{found[1]}"
            at += 1
        elif here == "\\":
            raise Mismatch(f"the replacement {text!r} ends in a \\")
        else:
            rewritten += here
        at += 1
    return rewritten


def _split(values: list[Value]) -> Value:
    written = _constant(values[1], "the pattern")
    text, limit = values[0].sql, values[2].constant if len(values) > 2 else -1  # noqa: PLR2004
    if not isinstance(limit, int):
        raise Mismatch("the limit of split must be a constant")
    plain = re.sub(r"\\([^a-zA-Z0-9])", r"\1", written)
    if written and not re.search(r"[.+*?()|\[\]{}^$\\]", re.sub(r"\\[^a-zA-Z0-9]", "", written)):
        parts, marks = f"string_split({text}, {literal(plain)})", f"{(limit - 1) * len(plain)}"
    else:
        pattern = translate(written)
        if pattern.nullable or pattern.ends:
            raise Mismatch("a pattern that can match nothing, or has $, is not supported in split")
        parts = f"string_split_regex({text}, {literal(pattern.text)})"
        marks = _lengths(f"regexp_extract_all({text}, {literal(pattern.text)})", limit - 1)
    if limit > 0:
        first = f"{_lengths('__p', limit - 1)} + {marks}" if limit > 1 else "0"
        rest = f"list_concat(__p[1:{limit - 1}], [substring({text}, CAST({first} AS BIGINT) + 1)])"
        parts = bound("__p", parts, f"CASE WHEN len(__p) <= {limit} THEN __p ELSE {rest} END")
    return Value("", parts, pa.list_(k.STRING), raises=values[0].raises)


def _lengths(texts: str, count: int) -> str:
    """Return SQL for how long the first texts of a list are together."""
    return f"list_sum(list_transform({texts}[1:{count}], lambda __t: length(__t)))"


ENTRIES: tuple[Function, ...] = (
    built(
        "like",
        "string, string, [word]",
        _like(fold=False),
        "s like 'a%'",
        "s like '%b_'",
        "s like t",
        r"s like '\\%%'",
        "s like '/_%' escape '/'",
        "s not like '%a%'",
        "s like any ('a%', t)",
        "s not like all ('a%', '%b')",
        notes="also `like any (…)`, `like some (…)` and `like all (…)`",
    ),
    built("ilike", "string, string, [word]", _like(fold=True), "s ilike 'A%'", "s ilike t"),
    built(
        "rlike regexp regexp_like",
        "string, string",
        _rlike,
        "s rlike 'a+b'",
        "s rlike '^[a-c]'",
        "regexp_like(s, '(?i)ab|é$')",
        "s rlike r'^.$'",
        r"s rlike r'\\d\\s'",
        "s rlike 'b$'",
        notes=_NOTE,
    ),
    built(
        "regexp_extract",
        "string, string, [whole]",
        _extract,
        "regexp_extract(s, '(a)(b?)', 2)",
        "regexp_extract(s, '[a-z]+', 0)",
        "regexp_extract(s, '(.)$')",
        notes=_NOTE,
    ),
    built(
        "regexp_replace",
        "string, string, string",
        _replace,
        "regexp_replace(s, '[ab]+', '<$0>')",
        "regexp_replace(s, '(a)(b)', '$2$1')",
        r"regexp_replace(s, r'\\s+$', '')",
        notes=_NOTE + ", and cannot match nothing",
    ),
    built(
        "split",
        "string, string, [whole]",
        _split,
        "split(s, 'b')",
        "split(s, '[ab]')",
        "split(s, ' ')",
        "split(s, 'b', 2)",
        "split(s, '[ab]+', 3)",
        "split(s, '[ab]', 1)",
        "split(s, ' ', -1)",
        r"split(s, '\\\\.')",
        notes=_NOTE,
    ),
    built(
        "regexp_extract_all",
        "string, string, [whole]",
        _extract_all,
        "regexp_extract_all(s, '[a-z]+', 0)",
        "regexp_extract_all(s, '([a-z])(b)?', 2)",
        "regexp_extract_all(s, '^(a)')",
        notes=_NOTE + ", and cannot match nothing",
    ),
    built(
        "regexp_count",
        "string, string",
        _count,
        "regexp_count(s, '[a-z]')",
        "regexp_count(s, ',|\\\\s')",
        r"regexp_count(s, r'\\d\\W?')",
        notes=_NOTE + ", and cannot match nothing",
    ),
    built(
        "regexp_substr",
        "string, string",
        _first,
        "regexp_substr(s, '[bc]+')",
        "regexp_substr(s, '\\\\d+')",
        notes=_NOTE + ", and cannot match nothing",
    ),
    built(
        "regexp_instr",
        "string, string",
        _place,
        "regexp_instr(s, 'b')",
        "regexp_instr(s, '[^a]')",
        notes=_NOTE + ", and cannot match nothing",
    ),
)
