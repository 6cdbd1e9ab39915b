"""What streams and tables have in common: a step of the plan, the verbs on columns, and where rows go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from headrace.base.names import check_identifier
from headrace.base.schema import to_ddl
from headrace.dsl.columns import drop_node, rename_node, select_node, with_columns_node
from headrace.dsl.outputs import target_sink, view_sink
from headrace.dsl.rows import where_node
from headrace.dsl.verb import Verb
from headrace.plan.nodes import Top
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.dsl.registry import Registry
    from headrace.plan.nodes import Node


class Handle:
    """What a verb returns: a step of an app's plan. Immutable; verbs make new handles."""

    def __init__(self, registry: Registry, node: Node) -> None:
        self.registry = registry
        self.node = node

    @property
    def schema(self) -> pa.Schema:
        """The columns of this step's rows."""
        return self.node.schema

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self.node.schema.names)

    @property
    def name(self) -> str:
        """The step's name: given by `named`, or derived from its inputs and its verb."""
        return step_name(self.node)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {to_ddl(self.schema)}>"

    def _verb(self, name: str) -> Verb:
        return Verb(self.node, name, self.registry.functions)

    def _with(self, node: Node) -> Self:
        return type(self)(self.registry, node)

    def named(self, name: str) -> Self:
        """Return the same step under a name of your own; put it right after the verb.

        State, metrics and late rows go by this name. A new name for a stateful step means new state.

        Raises:
            InvalidName: the name is not `[A-Za-z_][A-Za-z0-9_]*`.

        """
        node = replace(self.node, name=check_identifier(name, what="step"))
        if isinstance(node, Top) and isinstance(node.up, Top) and node.up.part:
            node = replace(node, up=replace(node.up, name=f"{name}_parts"))
        return self._with(node)

    # ---- columns and rows ----

    def select(self, /, *columns: str, **named: str) -> Self:
        """Keep the columns named, and add those made by expressions: `select("user", total="price * quantity")`.

        A positional text is a column, `"*"`, or `"expression AS name"`. Order is as written.

        Raises:
            UnknownColumn: a name is not there; the nearest is the hint.
            PlanError: an expression cannot be read or has a wrong type.

        """
        return self._with(select_node(self._verb("select"), columns, named))

    def with_columns(self, /, **named: str) -> Self:
        """Add columns made by expressions; one of an existing name takes its place.

        All expressions see the columns as they were before this step.
        """
        return self._with(with_columns_node(self._verb("with_columns"), named))

    def drop(self, *columns: str) -> Self:
        """Leave columns out.

        Raises:
            UnknownColumn: a name is not there.

        """
        return self._with(drop_node(self._verb("drop"), columns))

    def rename(self, /, **new_old: str) -> Self:
        """Give columns new names: `rename(user_id="uid")` makes `uid` the column `user_id`.

        Raises:
            UnknownColumn: an old name is not there.

        """
        return self._with(rename_node(self._verb("rename"), new_old))

    def where(self, condition: str) -> Self:
        """Keep the rows for which the condition is true; neither false nor null is.

        Raises:
            PlanError: the text is no condition over these columns.

        """
        return self._with(where_node(self._verb("where"), condition))

    # ---- where rows go ----

    def to_view(self, view: str) -> None:
        """Serve the rows as a view that applications query.

        A table is kept up to date under its key; the rows of a stream pile up.

        Raises:
            InvalidName: the name is not `[A-Za-z_][A-Za-z0-9_]*`.
            PlanError: the app has a view of this name already.

        """
        self.registry.add_sink(view_sink(self.node, view))

    def to(self, sink: Any) -> None:
        """Hand each epoch's rows to a connector's sink, or to an object with `write(epoch, rows)`, after its commit.

        Args:
            sink: what a connector returns (docs/CONNECTORS.md), or an object. Its `write(epoch: int, rows:
                pyarrow.Table)` gets the columns, `_weight` (+1 inserted, -1 withdrawn) and `_time` (int64
                microseconds). Trap: after a crash the last epoch is handed over again; `write` must be idempotent by
                `epoch` to be exactly once.

        Raises:
            InvalidPlan: it is neither; or it takes another form of rows than the step has.

        """
        self.registry.add_sink(target_sink(self.node, sink))
