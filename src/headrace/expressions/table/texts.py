"""Text: searching, replacing, splitting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expressions.casts import raising
from headrace.expressions.functions import Function, entry, expand

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.expressions.values import Value


def _locate(values: Sequence[Value], _: pa.DataType) -> str:
    part, text = values[0].sql, values[1].sql
    if len(values) == 2:  # noqa: PLR2004
        return f"CAST({_strpos(text, part)} AS INTEGER)"
    start = values[2].sql
    rest = f"substring({text}, {start})"
    found = _strpos(rest, part)
    return (
        f"CAST((CASE WHEN {start} IS NULL THEN 0 WHEN {text} IS NULL OR {part} IS NULL THEN NULL"
        f" WHEN {start} < 1 THEN 0"
        f" WHEN {part} = '' THEN 1 WHEN {found} = 0 THEN 0 ELSE {found} + {start} - 1 END) AS INTEGER)"
    )


def _strpos(text: str, part: str) -> str:
    return f"(CASE WHEN {part} = '' AND {text} IS NOT NULL THEN 1 ELSE strpos({text}, {part}) END)"


def _instr(values: Sequence[Value], kind: pa.DataType) -> str:
    return _locate([values[1], values[0]], kind)


def _replace(values: Sequence[Value], _: pa.DataType) -> str:
    new = values[2].sql if len(values) > 2 else "''"  # noqa: PLR2004
    return f"replace({values[0].sql}, {values[1].sql}, {new})"


def _split_part(values: Sequence[Value], kind: pa.DataType) -> str:
    """Where the separator and the number are constants, several parts of a text come from one list of all of them."""
    text, separator, number = values
    constant = isinstance(separator.constant, str) and isinstance(number.constant, int)
    if constant and separator.constant and number.constant:
        parts = f"string_split({text.sql}, {separator.sql})"
        return f"coalesce(list_extract({parts}, {number.sql}), left({text.sql}, 0))"
    return expand(_SPLIT_PART, values, kind)


_NO_ZERO = raising("INVALID_INDEX_OF_ZERO", "the index 0 is invalid: parts are counted from 1, or from -1 at the end")
_SPLIT_PART = (
    f"(CASE WHEN $1 IS NULL OR $2 IS NULL OR $3 IS NULL THEN NULL WHEN $3 = 0 THEN {_NO_ZERO}"
    " WHEN $2 = '' THEN CASE WHEN $3 IN (1, -1) THEN $1 ELSE '' END ELSE split_part($1, $2, $3) END)"
)

ENTRIES: tuple[Function, ...] = (
    entry(
        "replace",
        "string, string, [string]",
        "string",
        _replace,
        "replace(s, 'a', 'xy')",
        "replace(s, t, '')",
        "replace(s, t)",
    ),
    entry("instr", "string, string", "int", _instr, "instr(s, 'a')", "instr(s, t)", "instr(s, '')"),
    entry(
        "locate position",
        "string, string, [int]",
        "int",
        _locate,
        "locate('a', s)",
        "position('b', s, 2)",
        "locate(t, s, i)",
        "position(t in s)",
        order="all",
    ),
    entry("startswith", "string, string", "boolean", "starts_with($1, $2)", "startswith(s, t)", "startswith(s, 'a')"),
    entry("endswith", "string, string", "boolean", "ends_with($1, $2)", "endswith(s, t)", "endswith(s, '')"),
    entry("contains", "string, string", "boolean", "contains($1, $2)", "contains(s, t)", "contains(s, '')"),
    entry(
        "translate",
        "string, string, string",
        "string",
        "translate($1, $2, $3)",
        "translate(s, 'abc', 'xy')",
        "translate(s, t, 'é')",
    ),
    entry(
        "split_part",
        "string, string, int",
        "string",
        _split_part,
        "split_part(s, 'b', 1)",
        "split_part(s, 'b', 2)",
        "split_part(s, t, i)",
        "split_part(s, t, 1)",
        "split_part(s, ' ', -1)",
        "split_part(s, '', 1)",
        raises=True,
    ),
    entry("ascii", "string", "int", "ascii($1)", "ascii(s)"),
    entry(
        "chr char",
        "bigint",
        "string",
        "(CASE WHEN $1 < 0 THEN '' ELSE chr(CAST($1 % 256 AS INTEGER)) END)",
        "chr(i)",
        "chr(65)",
    ),
)
