"""`from t match_recognize (partition by k order by at … pattern (a b+) within interval 1 hour define …)`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.base.time import show_duration
from headrace.dsl.sql.output import with_computed
from headrace.dsl.sql.parsing import identifier, sql_text
from headrace.dsl.sql.relation import Relation, Scope, column_name, reads_outer, rewritten
from headrace.dsl.sql.times import is_time, length, times

if TYPE_CHECKING:
    from headrace.dsl.sql.context import Context
    from headrace.plan.nodes import After

_AFTER: dict[str, After] = {
    "AFTER MATCH SKIP PAST LAST ROW": "past last row",
    "AFTER MATCH SKIP TO NEXT ROW": "next row",
}
_NAME = re.compile(r"[^\W\d]\w*")


def matched(context: Context, match: exp.MatchRecognize, relation: Relation, called: str) -> tuple[Relation, str]:
    """Return the matches in the rows of a relation, and their alias: the keys, their bounds, and the measures.

    Raises:
        PlanError: a part is not supported, or the verb `match` refuses it.

    """
    scope, handle = Scope(relation), relation.handle
    pattern, within = match.args.get("pattern"), match.args.get("within")
    if pattern is None:
        raise InvalidQuery("match_recognize has no pattern", hint="For example pattern (a b+).")
    if within is None:
        raise UnsupportedQuery(
            "match_recognize",
            "without an end in time, rows would be kept for ever",
            hint="Say it after the pattern: pattern (a b+) within interval 10 minutes.",
        )
    after = _after(match)
    _check_order(match, scope)
    symbols = {name.lower(): name for name in _NAME.findall(pattern.name)}
    keys = []
    for tree in match.args.get("partition_by") or ():
        resolved = scope.resolved(tree)
        name = column_name(resolved)
        if name is None:
            handle, name = with_computed(handle, resolved, "_by", handle)
        keys.append(name)
    define = {
        symbols.get(each.alias.lower(), each.alias): _text(each.this, scope, symbols)
        for each in match.args.get("define") or ()
    }
    found = handle.group_by(*dict.fromkeys(keys)).match(
        pattern.name,
        within=show_duration(length(within)),
        define=define,
        after=after,
    )
    measures = _measures(match, scope, symbols)
    alias = match.args.get("alias")
    called = alias.name if alias is not None and alias.this is not None else called
    return Relation.of_step(context.uniquely_named(found.agg(**measures)), called or None), called


def _after(match: exp.MatchRecognize) -> After:
    """Return where the search goes on, as the verb says it; a match is one row."""
    after = match.args.get("after")
    skip: After | None = "past last row" if after is None else _AFTER.get(after.name.upper())
    if skip is None:
        raise UnsupportedQuery(after.name.lower(), "a search goes on past the last row of a match, or at its next row")
    rows = match.args.get("rows")
    if rows is not None and rows.name.upper() != "ONE ROW PER MATCH":
        raise UnsupportedQuery(rows.name.lower(), "a match is one row")
    return skip


def _measures(match: exp.MatchRecognize, scope: Scope, symbols: dict[str, str]) -> dict[str, str]:
    measures: dict[str, str] = {}
    for each in match.args.get("measures") or ():
        name = each.this.alias
        if not name:
            raise InvalidQuery(f'the measure "{sql_text(each.this)}" has no name', hint="Say as name after it.")
        if str(each.args.get("window_frame") or "").upper() == "RUNNING":
            raise UnsupportedQuery(sql_text(each.this), "a measure of one row per match is that of all its rows")
        if name in measures:
            raise InvalidQuery(f'two measures are called "{name}"')
        measures[name] = _text(each.this.this, scope, symbols)
    return measures


def _check_order(match: exp.MatchRecognize, scope: Scope) -> None:
    order = match.args.get("order")
    terms = order.expressions if order is not None else []
    node = scope.relation.handle.node
    by = scope.resolved(terms[0].this) if len(terms) == 1 and not terms[0].args.get("desc") else None
    if by is None or not is_time(by, node):
        known = sorted(times(node))
        raise UnsupportedQuery(
            sql_text(order) if order is not None else "match_recognize",
            "rows are matched in the order of their event time",
            hint=f"Say order by {known[0]}." if len(known) == 1 else 'Say app.stream(…, event_time="at").',
        )


def _text(tree: exp.Expression, scope: Scope, symbols: dict[str, str]) -> str:
    """Return an expression over the columns of the step, with the symbols as they are."""

    def change(part: exp.Expression) -> exp.Expression | None:
        if not isinstance(part, exp.Column):
            return None
        symbol = symbols.get(part.parts[0].name.lower())
        if symbol is None or len(part.parts) > 2:  # noqa: PLR2004 -- symbol.column
            return None if isinstance(part.this, exp.Star) else scope.resolved(part)
        if len(part.parts) == 1 or isinstance(part.this, exp.Star):
            return part
        column = scope.resolved(exp.Column(this=part.this.copy()))
        return exp.Column(this=column.this, table=identifier(symbol))

    resolved = rewritten(tree, change)
    if reads_outer(resolved):
        raise UnsupportedQuery(sql_text(tree), "a pattern cannot read the outer query")
    return sql_text(resolved)
