"""One join: its equal columns, the time between two rows of streams, and its other tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headrace.base.errors import UnsupportedQuery
from headrace.dsl.sql.intervals import interval
from headrace.dsl.sql.output import free_name, join_steps, on_argument, suffix_and_names, with_computed
from headrace.dsl.sql.parsing import sql_text
from headrace.dsl.sql.qualified import equality_sides, qualified, relations_in, unqualified
from headrace.dsl.sql.relation import Scope, column_name, conjunction
from headrace.dsl.sql.times import is_time
from headrace.dsl.sql.widening import comparable
from headrace.dsl.stream_table import Stream

if TYPE_CHECKING:
    from headrace.dsl.sql.join_state import JoinState
    from headrace.dsl.stream_table import StreamOrTable


class JoinBuilder:
    """Joins the relation `number` to the step so far; `used` are the tests that the join takes in."""

    def __init__(self, state: JoinState, number: int) -> None:
        self.state = state
        self.number = number
        self.item = state.items[number]
        self.left: StreamOrTable = state.handle
        self.right: StreamOrTable = self.item.relation.handle
        self.right_names = {qualified(number, name): name for name in self.right.columns}
        self.used: list[exp.Expression] = []
        self.pairs: list[tuple[str, str]] = []

    def build(self) -> StreamOrTable:
        """Return the joined step; the state knows the names of its columns from now on."""
        state = self.state
        self._rename_alike()
        for left, right in state.columns.using_pairs(self.number):
            self._share(state.names[left], right)
        for test in state.join_tests(self.number):
            sides = equality_sides(test, state.joined, self.number)
            if sides is not None:
                self._add_equality(test, *sides)
        options: dict[str, Any] = {"on": on_argument(self.pairs), "how": self.item.how} | self._timing()
        suffix, after = self._names_after()
        tests = self._other_tests()
        if tests:
            names = {**state.names, **after}
            options["where"] = sql_text(conjunction([unqualified(test, names) for test in tests]))
        if suffix is not None:
            options["suffix"] = suffix
        step = join_steps(state.context, self.left, self.right, options)
        if self.item.how not in ("semi", "anti"):
            state.names |= after
        for left, right in state.columns.using_pairs(self.number):
            state.names[left] = state.names.get(right, state.names[left])
        return step

    def _rename_alike(self) -> None:
        """Rename the right columns whose names differ from left ones in case alone: a step has no such two."""
        left = {name.lower() for name in self.left.columns}
        for each, name in list(self.right_names.items()):
            if name.lower() in left and name not in self.left.columns:
                self._rename(each, free_name(f"{name}_{self.item.alias or 'right'}", self.left.columns))

    # ---- equal columns ----

    def _share(self, left: str, right: str) -> None:
        """Take in a column of `using`: both sides have it under one name."""
        if self.right_names[right] != left:
            self._rename(right, left)
        self.pairs.append((left, left))

    def _add_equality(self, test: exp.Expression, left: exp.Expression, right: exp.Expression) -> None:
        """Take in an equality, unless another one has one of its columns already."""
        left_tree, right_tree = comparable(
            unqualified(left, self.state.names), self.left, unqualified(right, self.right_names), self.right
        )
        left_name, right_name = column_name(left_tree), column_name(right_tree)
        if any(
            name is not None and name in pair for name, pair in zip((left_name, right_name), self._taken(), strict=True)
        ):
            return
        if left_name is None:
            self.left, left_name = with_computed(self.left, left_tree, "_left", self.right)
        if right_name is None:
            self.right, right_name = with_computed(self.right, right_tree, "_right", self.left)
        elif right_name == left_name and self._differ(column_name(left), column_name(right)):
            right_name = self._rename(str(column_name(right)), f"{right_name}_{self.item.alias}")
        self.pairs.append((left_name, right_name))
        self.used.append(test)

    def _taken(self) -> tuple[set[str], set[str]]:
        """Return the columns that equalities have already, left and right."""
        return {left for left, _ in self.pairs}, {right for _, right in self.pairs}

    def _differ(self, left: str | None, right: str | None) -> bool:
        """Return whether two equal columns are not one: an outer join makes nulls of one, and the query reads it."""
        read = self.state.read(but=self.number)
        nulls = {"left": [right], "right": [left], "full": [left, right]}.get(self.item.how, [])
        return any(each in read for each in nulls)

    def _rename(self, qualified_name: str, name: str) -> str:
        name = free_name(name, self.right.columns)
        self.right = self.right.rename(**{name: self.right_names[qualified_name]})
        self.right_names[qualified_name] = name
        return name

    # ---- other tests ----

    def _other_tests(self) -> list[exp.Expression]:
        """Return the other tests of `on` whose relations are joined with this one."""
        joined = {*self.state.joined, self.number}
        tests = [test for test in self.state.on_tests.get(self.number, []) if test not in self.used]
        ready = [test for test in tests if relations_in(test) <= joined]
        self.used += ready
        return ready

    def _timing(self) -> dict[str, Any]:
        """Return how far apart in time two rows of streams may be, or how a stream looks a table up."""
        if isinstance(self.right, Stream) and (isinstance(self.left, Stream) or self.state.only_streams(self.number)):
            return self._within()
        if not isinstance(self.left, Stream):
            return {}
        text = sql_text(self.item.tree)
        at = self.item.at
        if at is None and self.right.node.is_constant:
            return {}
        if at is None:
            raise UnsupportedQuery(
                text,
                "a row of a stream looks a table up once, and is not joined again when the table changes",
                hint="Say when: join t for system_time as of s.at (the event time of the stream's row), or as of "
                "current_timestamp() (when it arrives); or make the stream a table first: stream.latest(key).",
            )
        if isinstance(at, exp.Anonymous) and at.name.lower() in ("current_timestamp", "now"):
            return {}
        scope = Scope(self.state.columns.relation(self.number))
        time = unqualified(scope.resolved(at), self.state.names)
        name = column_name(time)
        if name is None or not is_time(time, self.left.node):
            raise UnsupportedQuery(sql_text(at), "a table is looked up as of the event time of the stream's rows")
        return {"as_of": name, "grace": self.state.context.require_grace(text)}

    def _within(self) -> dict[str, Any]:
        """Return how far apart in time rows may be; without a bound on both sides the streams are growing tables."""
        context = self.state.context
        names = {**self.state.names, **self.right_names}

        def side(tree: exp.Expression) -> int | None:
            sides = {int(number == self.number) for number in relations_in(tree)}
            if len(sides) != 1:
                return None
            right = sides.pop()
            return right if is_time(unqualified(tree, names), (self.right if right else self.left).node) else None

        bounds = interval(self.state.join_tests(self.number), side) if isinstance(self.left, Stream) else None
        if bounds is None:
            self.left = self.left.as_table() if isinstance(self.left, Stream) else self.left
            self.right = self.right.as_table() if isinstance(self.right, Stream) else self.right
            return {}
        self.used += bounds.used
        context.timed = True
        return {"within": bounds.within} | ({} if context.grace is None else {"grace": context.grace})

    # ---- names ----

    def _names_after(self) -> tuple[str | None, dict[str, str]]:
        """Return the suffix of columns that both sides have, if any, and the right columns by qualified name."""
        shared = [left for left, right in self.pairs if left == right]
        suffix, after = suffix_and_names(self.left.columns, self.right.columns, shared, self.item.alias or "right")
        return suffix, {each: after[name] for each, name in self.right_names.items()}
