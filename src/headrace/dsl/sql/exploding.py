"""`explode` in a query: `lateral view`, `lateral explode(…)` behind the joins of `from`, or a column of `select`.

All three are one: rows of `from` become a row for each element, under further names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.base.schema import type_name
from headrace.dsl.sql.output import free_name
from headrace.dsl.sql.parsing import check_parts, identifier, sql_text
from headrace.dsl.sql.relation import ITEM, Relation, Scope, VisibleColumn, conjunction, conjuncts
from headrace.dsl.sql.widening import type_of, widened, wider_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dsl.stream_table import StreamOrTable

_KNOWN = ("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack")
_STACK = "stack"


def with_lateral_items(select: exp.Select, *, grouped: bool) -> exp.Select:
    """Return a select whose column `explode(…)` is a lateral view, and a column of it.

    Raises:
        UnsupportedQuery: there are several, or the query has groups.

    """
    found = [at for at, item in enumerate(select.expressions) if makes_rows(item)]
    if not found:
        return select
    item = select.expressions[found[0]]
    if grouped:
        hint = "Explode them in from: lateral view explode(…) e as x."
        raise UnsupportedQuery(sql_text(item), "rows are exploded before they are grouped", hint=hint)
    if len(found) > 1:
        hint = "Explode the others in from: lateral view explode(…) e as x."
        raise UnsupportedQuery(sql_text(select.expressions[found[1]]), "one column explodes rows, not two", hint=hint)
    names = _names(item)
    alias = exp.TableAlias(this=exp.to_identifier(ITEM), columns=[name.copy() for name in names])
    view = exp.Lateral(this=_unnamed(item).copy(), view=True, alias=alias)
    columns: list[exp.Expression] = [exp.Column(this=name.copy(), table=exp.to_identifier(ITEM)) for name in names]
    changed = select.copy()
    items = changed.expressions
    every = exp.Column(this=exp.Star(), table=exp.to_identifier(ITEM))
    changed.set("expressions", [*items[: found[0]], *(columns or [every]), *items[found[0] + 1 :]])
    changed.set("laterals", [*(changed.args.get("laterals") or ()), view])
    return changed


def makes_rows(item: exp.Expression) -> bool:
    """Return whether a column of a select makes several rows of one."""
    return _is_generator(_unnamed(item))


def take_laterals(select: exp.Select) -> tuple[exp.Select, list[exp.Lateral], list[exp.Expression]]:
    """Return a select without what explodes its rows; that; and the tests of `where` to be applied after it.

    Raises:
        UnsupportedQuery: another relation is joined after that, or it is no plain `explode`.

    """
    joins = list(select.args.get("joins") or ())
    own = [join for join in joins if isinstance(join.this, exp.Lateral)]
    laterals = [*(join.this for join in own), *(select.args.get("laterals") or ())]
    if not laterals:
        return select, [], []
    for at, join in enumerate(own, len(joins) - len(own)):
        is_plain = str(join.args.get("kind") or "") in ("", "CROSS", "INNER")
        if join is not joins[at] or not is_plain or join.args.keys() & {"side", "on", "using", "method"}:
            reason = "rows are exploded after all joins, without a condition"
            raise UnsupportedQuery(sql_text(join), reason, hint="Put it last, and its condition into where.")
    for lateral in laterals:
        _check(lateral)
    where = select.args.get("where")
    tests = conjuncts(None if where is None else where.this)
    later = [test for test in tests if test.find(exp.Query) or any(_reads(test, lateral) for lateral in laterals)]
    first = [test for test in tests if test not in later]
    plain = select.copy()
    plain.set("joins", [join.copy() for join in joins if join not in own])
    plain.set("laterals", None)
    plain.set("where", exp.Where(this=conjunction(first)) if first else None)
    for tree in (*(lateral.this for lateral in laterals), *later):  # joins keep what is read after them
        plain.append("expressions", tree.copy())
    return plain, laterals, later


def exploded(relation: Relation, laterals: Sequence[exp.Lateral]) -> Relation:
    """Return the rows of a relation with one for each element, and the elements under their names.

    Raises:
        PlanError: what is exploded is not known, or neither an array nor a map.

    """
    for lateral in laterals:
        relation = _exploded(relation, lateral)
    return relation


@dataclass(frozen=True, slots=True)
class _Elements:
    """What is exploded, and the columns of an element; `fields`: each is a struct, whose fields these are."""

    text: str
    names: Sequence[str]
    fields: Sequence[str] = ()

    @staticmethod
    def of(lateral: exp.Lateral, text: str, kind: pa.DataType | None) -> _Elements:
        """Return what a lateral view makes of a value of this type.

        Raises:
            UnsupportedQuery: it needs an array of structs.

        """
        name = lateral.this.name.lower()
        is_map = kind is not None and pa.types.is_map(kind)
        outer = lateral.args.get("outer") or name.endswith("_outer")
        fields = list[str]()
        if name.startswith("inline"):
            if kind is None or not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
                raise UnsupportedQuery(sql_text(lateral.this), "it needs an array of structs")
            fields = [field.name for field in kind.value_type]
        elif name.startswith("posexplode"):
            fields = ["pos", "key", "value"] if is_map else ["pos", "col"]
            parts = "'key', x.key, 'value', x.value" if is_map else "'col', x"
            values = f"map_entries({text})" if is_map else text
            text = f"transform({values}, (x, i) -> named_struct('pos', i, {parts}))"
        elif is_map and outer:
            fields, text = ["key", "value"], f"map_entries({text})"
        if outer:
            text = f"if(size({text}) > 0, {text}, array(null))"
        return _Elements(text, fields or (["key", "value"] if is_map else ["col"]), fields)

    @staticmethod
    def stacked(lateral: exp.Lateral, trees: Sequence[exp.Expression], handle: StreamOrTable) -> _Elements:
        """Return the rows of `stack(n, …)`: the values in n rows of equal length, the last one filled with nulls.

        Raises:
            UnsupportedQuery: n is no number, values are fewer than rows, or those of a column have no wider type.

        """
        count, values = trees[0], list(trees[1:])
        rows = int(count.name) if isinstance(count, exp.Literal) and count.is_int else 0
        if not 0 < rows <= len(values):
            raise UnsupportedQuery(sql_text(lateral.this), "stack(n, …) makes n rows, of at least as many values")
        width = -(-len(values) // rows)
        values += [exp.Null() for _ in range(rows * width - len(values))]
        columns = [_of_one_type(values[at::width], handle) for at in range(width)]
        names = [f"col{at}" for at in range(width)]
        structs = (
            ", ".join(f"'{name}', {sql_text(tree)}" for name, tree in zip(names, row, strict=True))
            for row in zip(*columns, strict=True)
        )
        return _Elements(f"array({', '.join(f'named_struct({each})' for each in structs)})", names, names)


def _of_one_type(trees: Sequence[exp.Expression], handle: StreamOrTable) -> list[exp.Expression]:
    """Return expressions, cast to the widest of their types if they have several; a null is cast to it, too.

    Raises:
        UnsupportedQuery: there is no such type.

    """
    kinds = [None if isinstance(tree, exp.Null) else type_of(tree, handle) for tree in trees]
    wider: pa.DataType | None = None
    for tree, kind in zip(trees, kinds, strict=True):
        found = wider_type(wider, kind) if wider and kind else kind or wider
        if found is None and wider:
            reason = f"it is {type_name(kind)}, and another value of the column {type_name(wider)}"
            raise UnsupportedQuery(sql_text(tree), reason, hint="Cast both to one type.")
        wider = found
    return [widened(tree, kind or pa.null(), wider) for tree, kind in zip(trees, kinds, strict=True)]


def _exploded(relation: Relation, lateral: exp.Lateral) -> Relation:
    handle, (called, given) = relation.handle, _called(lateral)
    if called.lower() in relation.aliases:
        raise InvalidQuery(f'two relations are called "{called}"', hint="Give one another name.")
    trees = [Scope(relation).resolved(tree) for tree in lateral.this.expressions]
    if lateral.this.name.lower() == _STACK:
        elements = _Elements.stacked(lateral, trees, handle)
    else:
        elements = _Elements.of(lateral, sql_text(trees[0]), type_of(trees[0], handle))
    names, inside = given or elements.names, list[str]()
    if len(names) != len(elements.names):
        raise InvalidQuery(f'"{sql_text(lateral)}" makes {len(elements.names)} column(s), {len(names)} named')
    for name in names:
        inside.append(free_name(name, [*handle.columns, *inside]))
    if elements.fields:
        struct = free_name("_element", [*handle.columns, *inside])
        rows = handle.explode(elements.text, as_=struct)
        parts = dict(zip(inside, (f"{struct}.{sql_text(identifier(each))}" for each in elements.fields), strict=True))
        rows = rows.with_columns(**parts).drop(struct)
    else:
        rows = handle.explode(elements.text, as_=inside)
    of = (called,) if called else ()
    seen = tuple(VisibleColumn(name, of, column) for name, column in zip(names, inside, strict=True))
    return replace(relation, handle=rows, columns=(*relation.columns, *seen))


def _check(lateral: exp.Lateral) -> None:
    check_parts(lateral)
    call, (called, _) = lateral.this, _called(lateral)
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if name not in _KNOWN or not call.expressions or (len(call.expressions) > 1 and name != _STACK):
        hint = "Known are explode, posexplode and inline, each with _outer too, of one value, and stack(n, …)."
        text = sql_text(call if called == ITEM else lateral)
        raise UnsupportedQuery(text, "this makes no rows here", hint=hint)


def _called(lateral: exp.Lateral) -> tuple[str, list[str]]:
    """Return the names of a lateral view and of its columns, as far as it has any."""
    alias = lateral.args.get("alias")
    if alias is None:
        return "", []
    return alias.name, [name.name for name in alias.args.get("columns") or ()]


def _is_generator(tree: exp.Expression) -> bool:
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in (*_KNOWN, "json_tuple")


def _unnamed(item: exp.Expression) -> exp.Expression:
    return item.this if isinstance(item, exp.Alias | exp.Aliases) else item


def _names(item: exp.Expression) -> list[exp.Identifier]:
    if isinstance(item, exp.Alias):
        return [item.args["alias"]]
    return list(item.expressions) if isinstance(item, exp.Aliases) else []


def _reads(test: exp.Expression, lateral: exp.Lateral) -> bool:
    """Return whether a test may read what a lateral view adds."""
    called, names = _called(lateral)
    added = {called.lower(), *(name.lower() for name in names or ("col", "key", "value"))}
    return any(column.parts[0].name.lower() in added for column in test.find_all(exp.Column))
