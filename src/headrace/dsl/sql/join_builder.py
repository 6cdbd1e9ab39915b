"""One join: the columns in which rows agree, the time between them, and what else is asked of two rows that meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headrace.base.errors import UnsupportedQuery
from headrace.dsl.sql.intervals import interval
from headrace.dsl.sql.marks import mark, numbers, placed, sides
from headrace.dsl.sql.output import agreeing, apart, computed, free, joined
from headrace.dsl.sql.reading import shown
from headrace.dsl.sql.relation import Scope, name_of, together
from headrace.dsl.sql.times import is_time
from headrace.dsl.stream_table import Stream

if TYPE_CHECKING:
    from headrace.dsl.sql.joining import Joins
    from headrace.dsl.stream_table import StreamOrTable

Pair = tuple[str, str]


class JoinBuilder:
    """A join on its way: `used` are the tests that it takes in."""

    def __init__(self, joins: Joins, number: int) -> None:
        self.joins = joins
        self.number = number
        self.item = joins.items[number]
        self.left: StreamOrTable = joins.handle
        self.right: StreamOrTable = self.item.relation.handle
        self.own = {mark(number, name): name for name in self.right.columns}
        self.used: list[exp.Expression] = []
        self.pairs: list[Pair] = []

    def made(self) -> StreamOrTable:
        """Return the joined step; the names of its columns are known to the joins from now on."""
        for left, right in self.joins.marked.pairs(self.number):
            self._merge(self.joins.names[left], right)
        for test in self.joins.candidates(self.number):
            found = sides(test, self.joins.joined, self.number)
            if found is not None:
                self._agree(test, *found)
        said: dict[str, Any] = {"on": agreeing(self.pairs), "how": self.item.how}
        said |= self._timed()
        suffix, after = self._names()
        tests = self._rest()
        if tests:
            names = {**self.joins.names, **after}
            said["where"] = shown(together([placed(test, names) for test in tests]))
        if suffix is not None:
            said["suffix"] = suffix
        made: StreamOrTable = joined(self.joins.queries.context, self.left, self.right, said)
        if self.item.how not in ("semi", "anti"):
            self.joins.names |= after
        for left, right in self.joins.marked.pairs(self.number):
            self.joins.names[left] = self.joins.names.get(right, self.joins.names[left])
        return made

    # ---- keys ----

    def _merge(self, left: str, right: str) -> None:
        """Take in a column of `using`: both sides have it under one name."""
        if self.own[right] != left:
            self._rename(right, left)
        self.pairs.append((left, left))

    def _agree(self, test: exp.Expression, left: exp.Expression, right: exp.Expression) -> None:
        """Take in an equality, if its left side does not stand in one already."""
        here = placed(left, self.joins.names)
        name = name_of(here)
        if name is not None and any(name == taken for taken, _ in self.pairs):
            return
        if name is None:
            self.left, name = computed(self.left, here, "_left", self.right)
        there = placed(right, self.own)
        other = name_of(there)
        if other is None:
            self.right, other = computed(self.right, there, "_right", self.left)
        elif other == name and self._apart(name_of(left), name_of(right)):
            other = self._rename(str(name_of(right)), f"{other}_{self.item.alias}")
        self.pairs.append((name, other))
        self.used.append(test)

    def _apart(self, left: str | None, right: str | None) -> bool:
        """Return whether two equal columns are not one: an outer join makes nulls of one, and somebody reads it."""
        read = self.joins.read(but=self.number)
        nulls = {"left": [right], "right": [left], "full": [left, right]}.get(self.item.how, [])
        return any(each in read for each in nulls)

    def _rename(self, marked: str, name: str) -> str:
        name = free(name, self.right.columns)
        self.right = self.right.rename(**{name: self.own[marked]})
        self.own[marked] = name
        return name

    # ---- what else is asked ----

    def _rest(self) -> list[exp.Expression]:
        """Return the other tests of `on` that are about relations that are there."""
        there = {*self.joins.joined, self.number}
        tests = [test for test in self.joins.ons.get(self.number, []) if test not in self.used]
        ready = [test for test in tests if numbers(test) <= there]
        self.used += ready
        return ready

    def _timed(self) -> dict[str, Any]:
        """Return how far apart in time two rows of streams may be, or how a stream looks a table up."""
        if not isinstance(self.left, Stream):
            return {}
        if isinstance(self.right, Stream):
            return self._within()
        text = shown(self.item.tree)
        at = self.item.at
        if at is None:
            raise UnsupportedQuery(
                text,
                "a row of a stream meets a table once, and is not joined again when the table changes",
                hint="Say when: join t for system_time as of s.at (the event time of the stream's row), or as of "
                "current_timestamp() (when it arrives); or make the stream a table first: stream.latest(key).",
            )
        if isinstance(at, exp.Anonymous) and at.name.lower() in ("current_timestamp", "now"):
            return {}
        scope = Scope(self.joins.marked.seen(self.number))
        asked = placed(scope.resolved(at), self.joins.names)
        name = name_of(asked)
        if name is None or not is_time(asked, self.left.node):
            raise UnsupportedQuery(shown(at), "a table is looked up as of the event time of the stream's rows")
        return {"as_of": name, "grace": self.joins.queries.context.said_grace(text)}

    def _within(self) -> dict[str, Any]:
        context = self.joins.queries.context
        candidates = self.joins.candidates(self.number)
        names = {**self.joins.names, **self.own}

        def which(tree: exp.Expression) -> int | None:
            about = {number == self.number for number in numbers(tree)}
            if len(about) != 1:
                return None
            right = about.pop()
            return int(right) if is_time(placed(tree, names), (self.right if right else self.left).node) else None

        found = interval(candidates, which, shown(self.item.tree))
        self.used += found.used
        said: dict[str, Any] = {"within": found.within}
        context.timed = True
        return said | ({} if context.grace is None else {"grace": context.grace})

    # ---- names ----

    def _names(self) -> tuple[str | None, dict[str, str]]:
        """Return the suffix of columns that both sides have, if any, and the names of the right ones by their marks."""
        shared = [left for left, right in self.pairs if left == right]
        suffix, after = apart(self.left.columns, self.right.columns, shared, self.item.alias or "right")
        return suffix, {marked: after[name] for marked, name in self.own.items()}
