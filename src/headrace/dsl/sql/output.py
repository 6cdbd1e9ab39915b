"""What a query gives out: columns under their names, each row once where it says distinct, first rows of an order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headrace.base.errors import InvalidQuery
from headrace.dsl.sql.reading import identifier, shown
from headrace.dsl.stream_table import Stream, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.dsl.sql.context import Context
    from headrace.dsl.stream_table import StreamOrTable

Output = tuple[str, exp.Expression]
"""A column that is given out: its name, and what it is over the columns of the step."""


def column(name: str) -> exp.Column:
    """Return a column of a step as an expression."""
    return exp.Column(this=identifier(name))


def selected(handle: StreamOrTable, out: Sequence[Output]) -> StreamOrTable:
    """Return those columns; nothing is done where the step has just them.

    Raises:
        InvalidQuery: two have one name.

    """
    names = [name for name, _ in out]
    for name in names:
        if [each.lower() for each in names].count(name.lower()) > 1:
            raise InvalidQuery(
                f'the query gives out two columns "{name}"', hint=f"Give one another name: … as {name}_2."
            )
    if is_all(handle, out):
        return handle
    return handle.select(**{name: shown(tree) for name, tree in out})


def is_all(handle: StreamOrTable, out: Sequence[Output]) -> bool:
    """Return whether columns are those that a step has, in its order."""
    return [name for name, _ in out] == handle.columns and all(tree == column(name) for name, tree in out)


def distinct(handle: StreamOrTable, context: Context) -> StreamOrTable:
    """Return each row once."""
    return context.settled(handle.group_by(*handle.columns).agg())


def ranked(
    handle: StreamOrTable,
    out: Sequence[Output],
    by: Sequence[exp.Ordered],
    context: Context,
    *,
    n: int,
    within: Sequence[exp.Expression] = (),
    rank: str | None = None,
) -> StreamOrTable:
    """Return the first `n` rows of each group, in an order over the step's columns; `rank` adds the position.

    What rows are grouped and ordered by is computed before, if it is not given out, and left out again.
    """
    hidden = _Hidden(handle, out)
    keys = [hidden.name(tree) for tree in within]
    terms = [_term(hidden, term) for term in by]
    above = selected(handle, [*out, *hidden.made])
    made = context.settled(above.group_by(*dict.fromkeys(keys)).top(n, ", ".join(terms), rank=rank))
    given = [name for name, _ in out] + ([] if rank is None else [rank])
    return selected(made, [(name, column(name)) for name in given])


class _Hidden:
    """The columns of a step as a query gives them out, and others that only an order needs."""

    def __init__(self, handle: StreamOrTable, out: Sequence[Output]) -> None:
        self.taken = {name.lower() for name, _ in out}
        self.out = list(out)
        self.same = is_all(handle, out)
        self.made: list[Output] = []

    def name(self, tree: exp.Expression) -> str:
        """Return the column that holds an expression."""
        for name, known in [*self.out, *self.made]:
            if known == tree:
                return name
        name = free("_by", [*self.taken, *(name for name, _ in self.made)])
        self.made.append((name, tree))
        return name

    def text(self, tree: exp.Expression) -> str:
        """Return an expression over what is given out."""
        return shown(tree) if self.same else shown(column(self.name(tree)))


def _term(hidden: _Hidden, term: exp.Ordered) -> str:
    down = bool(term.args.get("desc"))
    nulls_first = bool(term.args.get("nulls_first"))
    nulls = "" if nulls_first is not down else f" nulls {'first' if nulls_first else 'last'}"
    return f"{hidden.text(term.this)} {'desc' if down else 'asc'}{nulls}"


def free(name: str, taken: Iterable[str]) -> str:
    """Return a name that nobody has: this one, or it with a number."""
    low, number, tried = {each.lower() for each in taken}, 1, name
    while tried.lower() in low:
        number += 1
        tried = f"{name}_{number}"
    return tried


def computed(
    handle: StreamOrTable, tree: exp.Expression, name: str, beside: StreamOrTable
) -> tuple[StreamOrTable, str]:
    """Return a step with one column more, which holds an expression, and its name: `beside` has none like it."""
    name = free(name, [*handle.columns, *beside.columns])
    return handle.with_columns(**{name: shown(tree)}), name


def agreeing(pairs: Sequence[tuple[str, str]]) -> object:
    """Return what a join says of the columns in which rows agree: a name, names, or pairs where these differ."""
    if any(left != right for left, right in pairs):
        return dict(pairs)
    names = tuple(left for left, _ in pairs)
    return names[0] if len(names) == 1 else names


def apart(
    left: Sequence[str], right: Sequence[str], shared: Sequence[str], alias: str
) -> tuple[str | None, dict[str, str]]:
    """Return the suffix for right columns that the left side has too, if any, and the names of right ones then."""
    twice = [name for name in right if name in left and name not in shared]
    suffix, number = f"_{alias}", 1
    while any(f"{name}{suffix}" in (*left, *right) for name in twice):
        number += 1
        suffix = f"_{alias}_{number}"
    after = {name: f"{name}{suffix}" if name in twice else name for name in right}
    return (suffix if twice else None), after


def joined(context: Context, left: StreamOrTable, right: StreamOrTable, said: Mapping[str, Any]) -> StreamOrTable:
    """Return the join of two steps, under a name of its own."""
    assert isinstance(left, Stream | Table)  # noqa: S101 -- a step is one of the two
    made: Stream | Table = left.join(right, **said)  # type: ignore[arg-type] # the verb says which sides cannot be
    return context.settled(made)
