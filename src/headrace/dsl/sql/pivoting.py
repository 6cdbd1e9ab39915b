"""`pivot` and `unpivot` behind a relation of `from`: each is written as a query over it.

    t pivot (sum(x) as s, count(*) as n for q in ('a', 'b' as other))
    select …, sum(x) filter (where q = 'a') as a_s, … from t group by …

    t unpivot (v for k in (a, b as other))
    select …, k, v from t lateral view stack(2, 'a', a, 'other', b) as k, v where v is not null

The dots are the columns of `t` that are not read there. As in Spark, all of a pair of group and value that has no rows
is null, counts too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.dsl.sql.aggregates import is_aggregate, is_null_over_nothing
from headrace.dsl.sql.parsing import identifier, sql_text
from headrace.dsl.sql.relation import columns_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.dsl.sql.context import Context
    from headrace.dsl.sql.relation import Relation

_ITEMS = "headrace_unpivoted"
_KNOWN = {"expressions", "fields", "unpivot", "include_nulls", "alias", "columns", "pivot_column_naming"}


def take_pivot(tree: exp.Expression) -> tuple[exp.Expression, exp.Pivot | None]:
    """Return a relation of `from` without its last pivot, and that; it may have several."""
    pivots = tree.args.get("pivots") or ()
    if not pivots:
        return tree, None
    plain = type(tree)(**{**tree.args, "pivots": list(pivots[:-1]) or None})
    return plain, pivots[-1]


def pivoted(context: Context, pivot: exp.Pivot, tree: exp.Expression, relation: Relation) -> exp.Select:
    """Return the query that a pivot of a relation is; `tree` is the relation as a part of `from`.

    Raises:
        InvalidQuery: a value has parts for more columns than there are.
        UnsupportedQuery: a part of it is not known.

    """
    fields = pivot.args.get("fields") or []
    if len(fields) != 1 or not isinstance(fields[0], exp.In) or {n for n, p in pivot.args.items() if p} - _KNOWN:
        raise UnsupportedQuery(sql_text(pivot), "known is: pivot (sum(x) for column in ('a', 'b'))")
    source = exp.From(this=tree)
    if pivot.args.get("unpivot"):
        return _unpivoted(pivot, source, relation)
    return _pivoted(context, pivot, source, relation)


def _pivoted(context: Context, pivot: exp.Pivot, source: exp.From, relation: Relation) -> exp.Select:
    over, aggregates = pivot.args["fields"][0], pivot.expressions
    for each in aggregates:
        if not is_aggregate(each.unalias(), context):
            raise UnsupportedQuery(sql_text(each), "a pivot has aggregates only")
        if len(aggregates) > 1 and not isinstance(each, exp.Alias):
            raise UnsupportedQuery(sql_text(each), "of several aggregates each needs a name", hint="sum(x) as total.")
    others = _others(relation, [over.this, *aggregates])
    items: list[exp.Expression] = [exp.Column(this=identifier(name)) for name in others]
    for value in over.expressions:
        test, name = _test(over.this, value.unalias()), _value_name(value)
        for each in aggregates:
            column = name if len(aggregates) == 1 else f"{name}_{each.alias}"
            items.append(exp.alias_(_of_rows(each.unalias(), test, context), identifier(column)))
    group = exp.Group(expressions=[item.copy() for item in items[: len(others)]]) if others else None
    return exp.Select(expressions=items, from_=source, group=group)


def _of_rows(aggregate: exp.Expression, test: exp.Expression, context: Context) -> exp.Expression:
    """Return an aggregate of the rows that pass a test, null where there are none."""
    call, tests = aggregate, test
    if isinstance(aggregate, exp.Filter):
        call, tests = aggregate.this, exp.and_(test, aggregate.expression.this)
    found = exp.Filter(this=call.copy(), expression=exp.Where(this=tests.copy()))
    if is_null_over_nothing(aggregate, context) and aggregate is call:
        return found
    count = exp.Anonymous(this="count", expressions=[exp.Star()])
    rows = exp.Filter(this=count, expression=exp.Where(this=test.copy()))
    return exp.If(this=exp.GT(this=rows, expression=exp.Literal.number(0)), true=found, false=exp.Null())


def _test(over: exp.Expression, value: exp.Expression) -> exp.Expression:
    """Return the test that rows of a value pass; of several columns, each has its own."""
    overs = over.expressions if isinstance(over, exp.Tuple) else [over]
    values = value.expressions if isinstance(value, exp.Tuple) else [value]
    if len(overs) != len(values):
        raise InvalidQuery(f'"{sql_text(value)}" has {len(values)} value(s) for {len(overs)} column(s)')
    tests = (
        exp.Is(this=left.copy(), expression=right.copy())
        if isinstance(right, exp.Null)
        else exp.EQ(this=left.copy(), expression=right.copy())
        for left, right in zip(overs, values, strict=True)
    )
    return exp.and_(*tests)


def _unpivoted(pivot: exp.Pivot, source: exp.From, relation: Relation) -> exp.Select:
    of, into = pivot.args["fields"][0], pivot.expressions
    if len(into) != 1 or not isinstance(into[0], exp.Identifier) or not isinstance(of.this, exp.Identifier):
        raise UnsupportedQuery(sql_text(pivot), "known is: unpivot (value for name in (a, b))")
    columns = [each.unalias() for each in of.expressions]
    names = [each.alias_or_name for each in of.expressions]
    if not all(isinstance(column, exp.Column) for column in columns):
        raise UnsupportedQuery(sql_text(of), "only columns become rows")
    pairs = [part for name, column in zip(names, columns, strict=True) for part in (exp.Literal.string(name), column)]
    stack = exp.Anonymous(this="stack", expressions=[exp.Literal.number(len(columns)), *(p.copy() for p in pairs)])
    new = [of.this.copy(), into[0].copy()]
    view = exp.Lateral(this=stack, view=True, alias=exp.TableAlias(this=exp.to_identifier(_ITEMS), columns=new))
    added = [exp.Column(this=name.copy(), table=exp.to_identifier(_ITEMS)) for name in new]
    items = [*(exp.Column(this=identifier(name)) for name in _others(relation, columns)), *added]
    where = None
    if not pivot.args.get("include_nulls"):
        where = exp.Where(this=exp.Not(this=exp.Is(this=added[1].copy(), expression=exp.Null())))
    return exp.Select(expressions=items, from_=source, laterals=[view], where=where)


def _others(relation: Relation, trees: Iterable[exp.Expression]) -> list[str]:
    """Return the columns of a relation that expressions do not read."""
    read = set()
    for tree in trees:
        for column in columns_in(tree):
            read |= {visible.column for visible, _ in relation.find([part.name for part in column.parts])}
    return [visible.name for visible in relation.columns if visible.column not in read]


def _value_name(value: exp.Expression) -> str:
    """Return the name of a value's column, as Spark writes the value.

    Raises:
        UnsupportedQuery: it needs a name.

    """
    if isinstance(value, exp.PivotAlias):
        return str(value.alias)
    number = value.this if isinstance(value, exp.Neg) else value
    if isinstance(number, exp.Literal):
        return str(number.name) if number is value else f"-{number.name}"
    if isinstance(value, exp.Boolean | exp.Null):
        return sql_text(value)
    raise UnsupportedQuery(sql_text(value), "this value needs a name", hint=f"{sql_text(value)} as name.")
