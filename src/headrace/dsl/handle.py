"""What streams and tables have in common: a step of the plan, the verbs on columns, and sinks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from headrace.base.errors import InvalidPlan
from headrace.base.names import check_identifier
from headrace.base.schema import to_ddl
from headrace.dsl.columns import drop_node, explode_node, rename_node, select_node, with_columns_node
from headrace.dsl.outputs import target_sink, view_sink
from headrace.dsl.rows import where_node
from headrace.dsl.verb import Verb
from headrace.plan.nodes import Stateful, Suppress, Top
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.dsl.registry import Registry
    from headrace.plan.nodes import Node


class Handle:
    """What a verb returns: a step of an app's plan. Immutable: a verb returns a new handle."""

    def __init__(self, registry: Registry, node: Node) -> None:
        self.registry = registry
        self.node = node

    @property
    def schema(self) -> pa.Schema:
        """The names and types of this step's columns."""
        return self.node.schema

    @property
    def columns(self) -> list[str]:
        """The names of this step's columns."""
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

    def named(self, name: str, *, renamed_from: str | None = None) -> Self:
        """Return the same step under a name of your own; put it right after the verb.

        State, metrics and late rows go by this name. A new name for a stateful step means new state, unless
        `renamed_from` says under which name its state was kept: then the next start moves it. It may stay in the
        program afterwards.

        Args:
            name: the step's name.
            renamed_from: the name that a step with state had before, given or derived (`headrace explain` shows it).

        Raises:
            InvalidName: a name is not `[A-Za-z_][A-Za-z0-9_]*`.
            InvalidPlan: `renamed_from` for a step without state.

        Examples:
            >>> orders.where("price > 0").named("paid").name
            'paid'

        """
        node = replace(self.node, name=check_identifier(name, what="step"))
        parts = isinstance(node, Top) and isinstance(node.up, Top) and node.up.part
        if isinstance(node, Top) and parts:
            node = replace(node, up=replace(node.up, name=f"{name}_parts"))
        if isinstance(node, Suppress) and node.early:
            node = replace(node, up=replace(node.up, name=f"{name}_changes"))
        if renamed_from is not None:
            node = _renamed(node, check_identifier(renamed_from, what="step"))
        return self._with(node)

    # ---- columns and rows ----

    def select(self, /, *columns: str, **named: str) -> Self:
        """Keep some columns, and add columns computed by expressions.

        Args:
            columns: names of columns, `"*"` for all of them, or `"expression AS name"`; their order is kept.
            named: expressions in Spark SQL by the name of the new column.

        Raises:
            UnknownColumn: a name is not there; the nearest is the hint.
            PlanError: an expression cannot be read or has a wrong type, or a name is taken.

        Examples:
            >>> orders.select("user", "upper(user) AS shout", total="price * quantity").columns
            ['user', 'shout', 'total']

        """
        return self._with(select_node(self._verb("select"), columns, named))

    def with_columns(self, /, **named: str) -> Self:
        """Add columns computed by expressions; one of an existing name replaces that column.

        All expressions see the columns as they were before this step.

        Args:
            named: expressions in Spark SQL by the name of the column.

        Raises:
            UnknownColumn: an expression names a column that is not there.
            PlanError: an expression cannot be read or has a wrong type.

        Examples:
            >>> orders.with_columns(price="price * 0.9", total="price * quantity").columns
            ['id', 'user', 'price', 'quantity', 'tags', 'at', 'total']

        """
        return self._with(with_columns_node(self._verb("with_columns"), named))

    def drop(self, *columns: str) -> Self:
        """Leave columns out.

        Raises:
            UnknownColumn: a name is not there.
            InvalidPlan: no column is left.

        Examples:
            >>> orders.drop("tags", "quantity").columns
            ['id', 'user', 'price', 'at']

        """
        return self._with(drop_node(self._verb("drop"), columns))

    def rename(self, /, **new_old: str) -> Self:
        """Give columns new names.

        Args:
            new_old: the old name by the new one.

        Raises:
            UnknownColumn: an old name is not there.
            InvalidPlan: two columns would have one name, or one column two.

        Examples:
            >>> orders.rename(buyer="user").columns
            ['id', 'buyer', 'price', 'quantity', 'tags', 'at']

        """
        return self._with(rename_node(self._verb("rename"), new_old))

    def where(self, condition: str) -> Self:
        """Keep the rows for which a condition is true: not those for which it is false or null.

        Args:
            condition: a boolean expression in Spark SQL.

        Raises:
            UnknownColumn: it names a column that is not there.
            PlanError: it cannot be read, or is not boolean.

        Examples:
            >>> orders.where("price > 100 and user is not null").name
            'orders_where'

        """
        return self._with(where_node(self._verb("where"), condition))

    def explode(self, column: str, as_: str | Sequence[str]) -> Self:
        """Make one row for each element of an array, or each entry of a map; the other columns are repeated.

        A row whose array or map is null or empty disappears. Of a table the result is a bag, without a key: when a row
        changes, its elements are withdrawn and those of the new row inserted.

        Args:
            column: the array or map: a column or an expression.
            as_: the new column's name; of a map the names for key and value.

        Raises:
            UnknownColumn: the column is not there.
            PlanError: it is neither array nor map, or `as_` does not fit it.

        Examples:
            >>> orders.explode("tags", "tag").select("id", "tag").columns
            ['id', 'tag']

        """
        return self._with(explode_node(self._verb("explode"), column, as_))

    # ---- sinks ----

    def to_view(self, view: str) -> None:
        """Serve the rows as a view that applications query.

        A table is kept up to date under its key. The rows of a stream are appended.

        Args:
            view: the view's name, `[A-Za-z_][A-Za-z0-9_]*`.

        Raises:
            InvalidName: the name is not allowed.
            PlanError: the app has a view of this name already.

        Examples:
            >>> users.to_view("users_now")

        """
        self.registry.add_sink(view_sink(self.node, view))

    def to(self, sink: Any) -> None:
        """Hand each epoch's rows to a connector's sink, or to an object with `write(epoch, rows)`, after its commit.

        Trap: after a crash the last epoch is handed over again, so `write` must be idempotent by `epoch` to be exactly
        once.

        Args:
            sink: what a connector returns (docs/CONNECTORS.md), or an object. Its `write(epoch: int, rows:
                pyarrow.Table)` gets the columns, `_weight` (1: inserted, -1: withdrawn) and `_time` (int64
                microseconds).

        Raises:
            InvalidPlan: it is neither; or it takes another form of rows than the step has.

        Examples:
            >>> class Printer:
            ...     def write(self, epoch, rows):
            ...         print(epoch, rows.num_rows)
            >>> users.to(Printer())

        """
        self.registry.add_sink(target_sink(self.node, sink))


def _renamed(node: Node, old: str) -> Node:
    """Return a step with the name under which its state was kept; its parts, which rank first, have state too."""
    if not isinstance(node, Stateful):
        raise InvalidPlan(
            f'step "{node.name}" keeps no state that could move from "{old}"',
            hint="Leave renamed_from out: the name of a step without state may change freely.",
        )
    if isinstance(node, Top) and isinstance(node.up, Top) and node.up.part:
        node = replace(node, up=replace(node.up, renamed_from=f"{old}_parts"))
    if isinstance(node, Suppress) and node.early and isinstance(node.up, Stateful):
        node = replace(node, up=replace(node.up, renamed_from=f"{old}_changes"))
    return replace(node, renamed_from=old)


def check_same_app(handle: Handle, other: object, verb: str) -> None:
    """Refuse to put together what belongs to two apps, or is neither stream nor table."""
    if not isinstance(other, Handle) or other.registry is not handle.registry:
        raise InvalidPlan(
            f'step "{handle.name}": {other!r} is no stream or table of this app, so it cannot {verb} it',
            hint="Declare both with one app: app.stream(…), app.table(…).",
        )
