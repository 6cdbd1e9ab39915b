"""`grouping sets`, `rollup` and `cube`: each row counts in a group of each set, the other keys being null there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.dsl.sql.output import column
from headrace.dsl.sql.parsing import sql_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.dsl.stream_table import StreamOrTable

_MOST = 128
"""Sets of one query: each row is sent once for each of them."""
_SEVERAL = (exp.Rollup, exp.Cube, exp.GroupingSets)
Trees = tuple[exp.Expression, ...]


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """The keys of a query, in the order of `group by`, and which of them each set groups by."""

    keys: Trees
    sets: tuple[frozenset[int], ...]

    def expanded(self, handle: StreamOrTable, names: Mapping[str, exp.Expression], number: str) -> StreamOrTable:
        """Return each row once for each set, with its keys under their names, and the number of the set."""
        rows = []
        for place, kept in enumerate(self.sets):
            keys = {}
            for at, (name, tree) in enumerate(names.items()):
                text = sql_text(tree)
                keys[name] = text if at in kept else f"case when false then {text} end"
            rows.append(handle.with_columns(**keys, **{number: str(place)}))
        return rows[0].union(*rows[1:]) if len(rows) > 1 else rows[0]  # type: ignore[arg-type] # of one kind

    def indicator(self, call: exp.Anonymous, number: str) -> exp.Expression:
        """Return `grouping(key)` or `grouping_id(keys…)` over the number of the set: a bit is 1 where a key is not in.

        Raises:
            InvalidQuery: an argument is none of the keys.

        """
        name = call.name.lower()
        given = [self._place(tree) for tree in call.expressions]
        if name == "grouping" and len(given) != 1:
            raise InvalidQuery(f'"{sql_text(call)}": grouping takes one key', hint="grouping_id(a, b) takes several.")
        places = given or list(range(len(self.keys)))
        values = [sum((at not in kept) << bit for bit, at in enumerate(reversed(places))) for kept in self.sets]
        branches = [
            exp.If(this=exp.Literal.number(place), true=exp.Literal.number(value)) for place, value in enumerate(values)
        ]
        kind = exp.DataType.build("tinyint" if name == "grouping" else "bigint")
        return exp.Cast(this=exp.Case(this=column(number), ifs=branches), to=kind)

    def _place(self, tree: exp.Expression) -> int:
        if tree not in self.keys:
            raise InvalidQuery(
                f'"{sql_text(tree)}" is none of the keys that are grouped by',
                detail=f"The keys are: {', '.join(map(sql_text, self.keys))}.",
            )
        return self.keys.index(tree)


def is_indicator(tree: exp.Expression) -> bool:
    """Return whether an expression asks which keys a row is grouped by."""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in ("grouping", "grouping_id")


def grouping_sets_of(group: exp.Group, key: Callable[[exp.Expression], exp.Expression]) -> GroupingSets | None:
    """Return the sets that a query groups by, if there are several groupings in it; `key` resolves one key.

    Raises:
        UnsupportedQuery: there are too many.

    """
    elements = list(group.expressions)
    for name, kind in (("rollup", exp.Rollup), ("cube", exp.Cube)):
        if group.args.get(name):  # group by a, b with rollup
            elements = [kind(expressions=elements)]
    written = [each for each in group.args.get("grouping_sets") or () if isinstance(each, exp.GroupingSets)]
    if not written and not any(isinstance(each, _SEVERAL) for each in elements):
        return None
    order = _leaves(elements)  # group by a, b grouping sets (…): the keys are those before it
    parts = [_sets(each) for each in written or elements]
    count = 1
    for part in parts:
        count *= len(part)
    if count > _MOST:
        raise UnsupportedQuery(
            sql_text(group),
            f"{count} groupings are too many: each row is sent once for each, and {_MOST} are possible",
            hint="Name those that you need: grouping sets ((a, b), (a), ()).",
        )
    sets = [tuple(chain.from_iterable(each)) for each in product(*parts)]
    keys = tuple(dict.fromkeys(key(tree) for tree in (*order, *chain.from_iterable(sets))))
    return GroupingSets(keys, tuple(frozenset(keys.index(key(tree)) for tree in each) for each in sets))


def _sets(tree: exp.Expression) -> list[Trees]:
    if isinstance(tree, exp.GroupingSets):
        return [each for part in tree.expressions for each in _sets(part)]
    parts = [_flat(part) for part in tree.expressions] if isinstance(tree, exp.Rollup | exp.Cube) else []
    if isinstance(tree, exp.Rollup):
        return [_joined(parts[:count]) for count in range(len(parts), -1, -1)]
    if isinstance(tree, exp.Cube):
        chosen = (each for count in range(len(parts), -1, -1) for each in combinations(parts, count))
        return [_joined(each) for each in chosen]
    return [_flat(tree)]


def _joined(parts: Iterable[Trees]) -> Trees:
    return tuple(chain.from_iterable(parts))


def _flat(tree: exp.Expression) -> Trees:
    """Return the keys of `a`, `(a)` or `(a, b)`."""
    if isinstance(tree, exp.Paren):
        return _flat(tree.this)
    if isinstance(tree, exp.Tuple):
        return _joined(_flat(part) for part in tree.expressions)
    return (tree,)


def _leaves(trees: Sequence[exp.Expression]) -> list[exp.Expression]:
    found: list[exp.Expression] = []
    for tree in trees:
        found += _leaves(tree.expressions) if isinstance(tree, _SEVERAL) else _flat(tree)
    return found
