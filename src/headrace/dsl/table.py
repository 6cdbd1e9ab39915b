"""The words on tables: current rows by key, the sum of a stream of changes."""

from __future__ import annotations

import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.base.names import check_topic
from headrace.dsl.stream import Handle, Stream
from headrace.plan import check
from headrace.plan.nodes import Aggregate, Changes, Late, Top, TopicSink

CHANGE_TYPE = "_change_type"


class Table(Handle):
    """Current rows, kept up to date; verbs on it are kept up to date too."""

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that identify a row; None when a verb dropped one of them."""
        return self._node.key

    @property
    def late(self) -> Stream:
        """The rows that came after all their windows had closed, untouched.

        Raises:
            PlanError: this step has no windows, so nothing can be late for it.

        """
        if not isinstance(self._node, Aggregate) or self._node.window is None:
            raise InvalidPlan(
                f'step "{self.name}" has no late rows',
                hint="Only steps with a window do; take .late right after .agg(…).",
            )
        return Stream(self._app, Late(of=self._node, schema=self._node.up.schema))

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

    def _keyed(self, verb: str) -> tuple[str, ...]:
        if self._node.key is None:
            ranked = isinstance(self._node, Top)
            raise InvalidPlan(
                f'step "{self._step(verb)}" needs the key of the table above, and '
                + ("the rows of a stream have none" if ranked else "a step dropped it"),
                hint='Make the position a part of it: .top(…, rank="position").'
                if ranked
                else "Keep the key's columns in .select(…).",
            )
        return self._node.key
