"""The words on tables: current rows by key, the sum of a stream of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.base.names import check_topic
from headrace.dsl.joins import JoinOptions, joined
from headrace.dsl.stream import Handle, Stream, same_app, united
from headrace.plan import check
from headrace.plan.nodes import CHANGE_TYPE, Changes, Late, TableJoin, Top, Windowed
from headrace.plan.sinks import TopicSink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.plan.nodes import How, Node


class Table(Handle):
    """Current rows, kept up to date; verbs on it are kept up to date too."""

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that identify a row; None when a verb dropped one of them."""
        return self._node.key

    @property
    def late(self) -> Stream:
        """The rows that came after all their windows had closed, untouched.

        Over a table they have `_change_type`: insert, or delete where a row went too late.

        Raises:
            PlanError: this step has no windows, so nothing can be late for it.

        """
        if not isinstance(self._node, Windowed) or self._node.window is None:
            raise InvalidPlan(
                f'step "{self.name}" has no late rows',
                hint="Only steps with a window do; take .late right after .agg(…) or .top(…).",
            )
        schema = self._node.late_schema
        check.no_repeats(schema.names, step=self._step("late"))
        return Stream(self._app, Late(of=self._node, schema=schema))

    def changes(self) -> Stream:
        """Read the table as a stream of what happened to its rows.

        Adds `_change_type`: insert, update_preimage, update_postimage or delete; the two halves of an update
        follow each other.

        Raises:
            PlanError: the table has lost its key.

        """
        self._keyed("changes")
        schema = self.schema.append(pa.field(CHANGE_TYPE, pa.string()))
        check.no_repeats(schema.names, step=self._step("changes"))
        return Stream(self._app, Changes(up=self._node, schema=schema))

    def to_topic(self, topic: str) -> None:
        """Write the table's changelog to a compacted topic, exactly once: upserts, and tombstones for rows that went.

        The topic is keyed by the table's key and is created if it is missing.

        Raises:
            InvalidName: the name is not allowed.
            PlanError: the table has lost its key.

        """
        check_topic(topic)
        key = self._keyed("to_topic")
        self._app._add(TopicSink(up=self._node, name=f"topic:{topic}", topic=topic, location=None, record_key=key))

    def join(
        self,
        other: Table,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: How = "inner",
        where: str | None = None,
        suffix: str = "_right",
    ) -> Table:
        """Join with another table, kept up to date under every change of either side.

        `on="k"` or `on=("a", "b")` for columns of equal names, which become one; `on={"buyer": "id"}` for others, where
        both stay. `how`: inner, left, right, full, semi (rows that meet one, as they are) or anti (rows that meet
        none). `where` is a condition over the columns of both, under their names in the result; other columns that
        both have get `suffix` on the right side. Null meets nothing. Any columns will do, keys or not; the result's
        key is the shared key where both sides are joined on their whole keys, the left one where the right side is
        joined on its whole key and every row has a left side, and both otherwise.

        Raises:
            UnknownColumn: a column is not there.
            PlanError: the arguments do not fit the sides, or each other.

        """
        same_app(self, other, "join")
        said = JoinOptions(on=on, how=how, where=where, suffix=suffix)
        return Table(self._app, joined(self._app, self._node, other._node, said))

    def union(self, *others: Handle) -> Table:
        """Put the rows of tables and streams of the same columns together; columns are matched by name.

        What leaves one of them leaves the whole. Rows are not told apart by their table, so there is no key: a row that
        is in two of them is there twice.

        Raises:
            PlanError: the columns or their types differ.

        """
        return Table(self._app, united(self, others))

    def _keyed(self, verb: str) -> tuple[str, ...]:
        if self._node.key is None:
            why, then = _keyless(self._node)
            raise InvalidPlan(f'step "{self._step(verb)}" needs the key of the table above, and {why}', hint=then)
        return self._node.key


def _keyless(node: Node) -> tuple[str, str]:
    """Return why a table has no key, and what to do about it."""
    if isinstance(node, Top):
        return "the rows of a stream have none", 'Make the position a part of it: .top(…, rank="position").'
    if isinstance(node, TableJoin) and None not in (node.left.key, node.right.key):
        if node.where is not None:
            then = 'Let both keys stay: on={"id": "other_id"}, with .rename(other_id="id") on the right side.'
            return "rows of both sides that meet none, because of where, may have the same one", then
        then = f'Say that they are there: .where("{node.on[0][0]} is not null") on one of the sides.'
        return "rows of both sides may have the same nulls in it", then
    return "a step dropped it", "Keep the key's columns in .select(…)."
