"""The rows that a query returns: its columns by name, distinct rows, first rows in an order; and names for joins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.dsl.sql.parsing import identifier, sql_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.dsl.sql.context import Context
    from headrace.dsl.stream_table import StreamOrTable
    from headrace.plan.nodes import Ties

Output = tuple[str, exp.Expression]
"""A column that a query returns: its name, and the expression over the columns of the step."""


@dataclass(frozen=True, slots=True)
class First:
    """How many rows of each group, under which numbers where equal ones are; `rank` is the column of the number."""

    n: int
    rank: str | None = None
    ties: Ties = "row_number"


def column(name: str) -> exp.Column:
    """Return a column of a step as an expression."""
    return exp.Column(this=identifier(name))


def select_outputs(handle: StreamOrTable, outputs: Sequence[Output]) -> StreamOrTable:
    """Return those columns; nothing is done where the step has just them.

    Raises:
        InvalidQuery: two have one name.

    """
    names = [name for name, _ in outputs]
    for name in names:
        if [each.lower() for each in names].count(name.lower()) > 1:
            raise InvalidQuery(f'the query returns two columns "{name}"', hint=f"Give one another name: … as {name}_2.")
    if selects_all(handle, outputs):
        return handle
    return handle.select(**{name: sql_text(tree) for name, tree in outputs})


def selects_all(handle: StreamOrTable, outputs: Sequence[Output]) -> bool:
    """Return whether columns are those that a step has, in its order."""
    return [name for name, _ in outputs] == handle.columns and all(tree == column(name) for name, tree in outputs)


def distinct(handle: StreamOrTable, context: Context) -> StreamOrTable:
    """Return each row once."""
    return context.uniquely_named(handle.group_by(*handle.columns).agg())


def first_rows(
    handle: StreamOrTable,
    outputs: Sequence[Output],
    by: Sequence[exp.Ordered],
    context: Context,
    *,
    first: First,
    within: Sequence[exp.Expression] = (),
) -> StreamOrTable:
    """Return the first rows of each group, in an order over the step's columns.

    What rows are grouped and ordered by is computed first, if it is no output, and left out again.
    """
    if first.n < 1:
        raise UnsupportedQuery(", ".join(map(sql_text, by)), f"of this order no row is asked for: the first {first.n}")
    columns = _OrderColumns(handle, outputs)
    keys = [columns.name(tree) for tree in within]
    terms = [_term(columns, term) for term in by]
    above = select_outputs(handle, [*outputs, *columns.hidden])
    step = context.uniquely_named(
        above.group_by(*dict.fromkeys(keys)).top(first.n, ", ".join(terms), first.rank, first.ties)
    )
    names = [name for name, _ in outputs] + ([] if first.rank is None else [first.rank])
    return select_outputs(step, [(name, column(name)) for name in names])


class _OrderColumns:
    """The outputs of a query, and hidden columns that only its order needs."""

    def __init__(self, handle: StreamOrTable, outputs: Sequence[Output]) -> None:
        self.taken = {name.lower() for name, _ in outputs}
        self.outputs = list(outputs)
        self.same = selects_all(handle, outputs)
        self.hidden: list[Output] = []

    def name(self, tree: exp.Expression) -> str:
        """Return the column that holds an expression."""
        for name, output in [*self.outputs, *self.hidden]:
            if output == tree:
                return name
        name = free_name("_by", [*self.taken, *(name for name, _ in self.hidden)])
        self.hidden.append((name, tree))
        return name

    def text(self, tree: exp.Expression) -> str:
        """Return the text of an expression over the outputs and the hidden columns."""
        return sql_text(tree) if self.same else sql_text(column(self.name(tree)))


def _term(columns: _OrderColumns, term: exp.Ordered) -> str:
    down = bool(term.args.get("desc"))
    nulls_first = bool(term.args.get("nulls_first"))
    nulls = "" if nulls_first is not down else f" nulls {'first' if nulls_first else 'last'}"
    return f"{columns.text(term.this)} {'desc' if down else 'asc'}{nulls}"


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken: this one, or this one with a number."""
    low, number, tried = {each.lower() for each in taken}, 1, name
    while tried.lower() in low:
        number += 1
        tried = f"{name}_{number}"
    return tried


def with_computed(
    handle: StreamOrTable, tree: exp.Expression, name: str, other: StreamOrTable
) -> tuple[StreamOrTable, str]:
    """Return a step with one more column, which holds an expression, and its name, which `other` does not have."""
    name = free_name(name, [*handle.columns, *other.columns])
    return handle.with_columns(**{name: sql_text(tree)}), name


def on_argument(pairs: Sequence[tuple[str, str]]) -> object:
    """Return the argument `on` of a join for pairs of equal columns: a name, names, or pairs where names differ."""
    if any(left != right for left, right in pairs):
        return dict(pairs)
    names = tuple(left for left, _ in pairs)
    return names[0] if len(names) == 1 else names


def suffix_and_names(
    left: Sequence[str], right: Sequence[str], shared: Sequence[str], alias: str
) -> tuple[str | None, dict[str, str]]:
    """Return the suffix for right columns that the left side has too, if any, and the right names in the join."""
    twice = [name for name in right if name in left and name not in shared]
    suffix, number = f"_{alias}", 1
    while any(f"{name}{suffix}" in (*left, *right) for name in twice):
        number += 1
        suffix = f"_{alias}_{number}"
    after = {name: f"{name}{suffix}" if name in twice else name for name in right}
    return (suffix if twice else None), after


def join_steps(
    context: Context, left: StreamOrTable, right: StreamOrTable, options: Mapping[str, Any]
) -> StreamOrTable:
    """Return the join of two steps, under a name of its own."""
    step: StreamOrTable = left.join(right, **options)  # type: ignore[arg-type] # the verb refuses the wrong sides
    return context.uniquely_named(step)
