"""How far the joins of one `from` have come: which relations are one step already, which tests still wait."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.dsl.sql.qualified import equality_sides, qualified, relation_of, relations_in, unqualified
from headrace.dsl.sql.relation import Relation, columns_in
from headrace.dsl.stream_table import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from headrace.dsl.sql.context import Context
    from headrace.dsl.sql.from_items import FromItem
    from headrace.dsl.sql.qualified import QualifiedColumns
    from headrace.dsl.stream_table import StreamOrTable


@dataclass(slots=True)
class JoinState:
    """The relations of `from` on their way to one step.

    `tests` are those of `where` that wait for their relations, `on_tests` those of each relation's `on`, and
    `read_later` the columns that are read after the joins, by qualified name. `joined` are the numbers of the relations
    that are joined, and `names` the columns of the step by qualified name. `prune`: columns that nobody reads go.
    `streams` are the relations that are streams before they are joined.
    """

    context: Context
    items: Sequence[FromItem]
    columns: QualifiedColumns
    tests: list[exp.Expression]
    read_later: set[str]
    prune: bool = False
    names: dict[str, str] = field(default_factory=dict)
    joined: set[int] = field(default_factory=set)
    on_tests: dict[int, list[exp.Expression]] = field(default_factory=dict)
    streams: frozenset[int] = frozenset()

    @property
    def handle(self) -> StreamOrTable:
        """The step so far."""
        return self.items[0].relation.handle

    def begin(self, relation: Relation) -> None:
        """Start with the first relation."""
        self.streams = frozenset(n for n, item in enumerate(self.items) if isinstance(item.relation.handle, Stream))
        self.items[0].relation = relation
        self.joined.add(0)
        self.names = {qualified(0, name): name for name in relation.handle.columns}

    def relation(self, visible: Relation) -> Relation:
        """Return the step's rows under the names that the query has for its columns."""
        columns = (replace(v, column=self.names[v.column]) for v in visible.columns if v.column in self.names)
        return Relation(self.handle, tuple(columns), visible.hidden)

    def over_step(self, tree: exp.Expression) -> exp.Expression:
        """Return a test over qualified names as one over the columns of the step."""
        return unqualified(tree, self.names)

    def only_streams(self, number: int) -> bool:
        """Return whether the relations that are joined, and this one, were all streams."""
        return {*self.joined, number} <= self.streams

    def is_preserved(self, number: int) -> bool:
        """Return whether `where` sees rows of a relation only, and no nulls that an outer join puts in their place."""
        if self.items[number].how in ("left", "full"):
            return False
        return not any(item.how in ("right", "full") for item in self.items[number + 1 :])

    def read(self, but: int | None = None) -> set[str]:
        """Return the columns that are still to be read, by qualified name; `but`: not by the `on` of that relation."""
        on_tests = (test for number, tests in self.on_tests.items() if number != but for test in tests)
        return self.read_later | {each.name for test in (*self.tests, *on_tests) for each in columns_in(test)}

    def join_tests(self, number: int) -> list[exp.Expression]:
        """Return the tests that may say how a relation is joined."""
        own = list(self.on_tests.get(number, []))
        if self.items[number].how != "inner":
            return own
        return own + [test for test in self.tests if all(self.is_preserved(each) for each in relations_in(test))]

    def is_met(self, test: exp.Expression, number: int, used: Sequence[exp.Expression]) -> bool:
        """Return whether all rows pass a test of `where` because a relation's join has taken some tests in.

        A test that `on` has too is not met by an outer join, which keeps rows that fail it.
        """
        if self.items[number].how != "inner" or test not in used:
            return False
        return all(self.is_preserved(each) for each in relations_in(test))

    def is_connected(self, number: int) -> bool:
        """Return whether an equality connects a relation with those that are joined."""
        item = self.items[number]
        reads = {each for test in self.on_tests.get(number, []) for each in relations_in(test)}
        if item.how != "inner" and not reads <= {*self.joined, number}:
            return False
        if item.using:
            return all(relation_of(left) in self.joined for left, _ in self.columns.using_pairs(number))
        return any(equality_sides(test, self.joined, number) for test in self.join_tests(number))
