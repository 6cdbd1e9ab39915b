"""`listagg(text, delimiter) within group (order by …)`: its delimiter, and the order of the texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidExpression
from headrace.expressions import kinds as k
from headrace.expressions.coercion import comparable, implicit
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.sort_keys import sort_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expressions.values import Value


def delimiter_of(name: str, trees: Sequence[exp.Expression]) -> str:
    """Return the constant that stands between two texts.

    Raises:
        Mismatch: it is no constant text, or there are more arguments.

    """
    if not 1 <= len(trees) <= 2:  # noqa: PLR2004 -- a text and a delimiter
        raise Mismatch(f"{name} takes a text and a delimiter, not {len(trees)} arguments")
    if len(trees) == 1 or isinstance(trees[1], exp.Null):
        return ""
    if not isinstance(trees[1], exp.Literal) or not trees[1].is_string:
        raise Mismatch(f"the delimiter of {name} must be a constant text", hint=f"For example {name}(name, ', ').")
    return str(trees[1].this)


def ordered_texts(
    name: str, given: Value, terms: Sequence[tuple[Value, exp.Expression]], *, distinct: bool
) -> tuple[list[Value], list[str]]:
    """Return the text and what it is ordered by, and the terms of the order over these as `v0…`.

    Texts that the order leaves equal follow in their own order, so that the result is one.

    Raises:
        Mismatch: this is no text; or distinct texts are ordered by another value, of which each may have several.

    """
    if given.type == k.BINARY:
        raise Mismatch(f"{name} takes text, not binary", hint="Write it as text: hex(x), base64(x).")
    text = implicit(given, k.STRING)
    if text is None:
        raise Mismatch(f"{name} takes text, not {k.shown(given.type)}")
    values, order = [text], []
    for by, term in terms:
        comparable(by, name)
        if distinct and by.sql not in (given.sql, text.sql):
            raise Mismatch(
                f"{name} of distinct values is ordered by these values",
                hint="Order by the same expression, or leave distinct out.",
                condition=InvalidExpression,
            )
        place = 0
        if by.sql != text.sql:
            place = len(values)
            values.append(sort_key(by) if k.is_nested(by.type) else by)
        nulls = "FIRST" if term.args.get("nulls_first") else "LAST"
        order.append(f"v{place} {'DESC' if term.args.get('desc') else 'ASC'} NULLS {nulls}")
    return values, [*order, "v0 ASC"]
