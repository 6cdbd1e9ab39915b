"""The words on streams: each verb checks what it is given, adds a node, and returns a new handle."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from headrace.base.errors import InvalidPlan, SealedColumn, WrongColumnType
from headrace.base.names import check_identifier, check_topic, quote
from headrace.base.schema import as_schema, to_ddl, type_name
from headrace.base.time import duration
from headrace.dsl.joins import JoinOptions, joined
from headrace.expressions import Scalar, calls_of, condition, scalar
from headrace.plan import check
from headrace.plan.nodes import Dedupe, Explode, Late, Latest, MapBatches, Select, Stateful, Top, Union, Where
from headrace.plan.sinks import CallSink, TopicSink, ViewSink
from headrace.plan.steps import step_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.dsl.app import App
    from headrace.dsl.grouped import Grouped
    from headrace.dsl.table import Table
    from headrace.plan.nodes import How, Node

_ALIAS = re.compile(r"(?is)^(.*\S)\s+as\s+(?:`(.+)`|([a-z_]\w*))\s*$")


class Handle:
    """What a verb returns: a step of an app's plan. Immutable; verbs make new handles."""

    def __init__(self, app: App, node: Node) -> None:
        self._app = app
        self._node = node

    @property
    def schema(self) -> pa.Schema:
        """The columns of this step's rows."""
        return self._node.schema

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self._node.schema.names)

    @property
    def name(self) -> str:
        """The step's name: given by `named`, or derived from its inputs and its verb."""
        return step_name(self._node)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {to_ddl(self.schema)}>"

    def _with(self, node: Node) -> Self:
        return type(self)(self._app, node)

    def named(self, name: str) -> Self:
        """Return the same step under a name of your own; put it right after the verb.

        State, metrics and late rows go by this name. A new name for a stateful step means new state.

        Raises:
            InvalidName: the name is not `[A-Za-z_][A-Za-z0-9_]*`.

        """
        node = replace(self._node, name=check_identifier(name, what="step"))
        if isinstance(node, Top) and isinstance(node.up, Top) and node.up.part:
            node = replace(node, up=replace(node.up, name=f"{name}_parts"))
        return self._with(node)

    # ---- columns ----

    def select(self, /, *columns: str, **named: str) -> Self:
        """Keep the columns named, and add those made by expressions: `select("user", total="price * quantity")`.

        A positional text is a column, `"*"`, or `"expression AS name"`. Order is as written.

        Raises:
            UnknownColumn: a name is not there; the nearest is the hint.
            PlanError: an expression cannot be read or has a wrong type.

        """
        step = self._step("select")
        made: list[tuple[str, Scalar]] = []
        for text in columns:
            if text == "*":
                made += self._all()
            elif text in self.schema.names:
                made.append((text, self._column(text)))
            elif isinstance(text, str) and (alias := _ALIAS.match(text)):
                made.append((alias[2] or alias[3], self._scalar(alias[1], step)))
            else:
                check.named(text, self.schema, step=step, verb="select")
        made += [(name, self._scalar(text, step)) for name, text in named.items()]
        return self._select(made, "select")

    def with_columns(self, /, **named: str) -> Self:
        """Add columns made by expressions; one of an existing name takes its place.

        All expressions see the columns as they were before this step.
        """
        step = self._step("with_columns")
        made = dict(self._all()) | {name: self._scalar(text, step) for name, text in named.items()}
        return self._select(list(made.items()), "with_columns")

    def drop(self, *columns: str) -> Self:
        """Leave columns out.

        Raises:
            UnknownColumn: a name is not there.

        """
        gone = check.columns(columns, self.schema, step=self._step("drop"))
        return self._select([c for c in self._all() if c[0] not in gone], "drop")

    def rename(self, /, **new_old: str) -> Self:
        """Give columns new names: `rename(user_id="uid")` makes `uid` the column `user_id`.

        Raises:
            UnknownColumn: an old name is not there.

        """
        step = self._step("rename")
        new = {check.has_column(old, self.schema, step=step): name for name, old in new_old.items()}
        return self._select([(new.get(name, name), made) for name, made in self._all()], "rename")

    def where(self, condition_: str) -> Self:
        """Keep the rows for which the condition is true; neither false nor null is.

        Raises:
            PlanError: the text is no condition over these columns.

        """
        made = self._condition(condition_, self._step("where"))
        return self._with(Where(up=self._node, schema=self.schema, condition=made))

    def group_by(self, /, *keys: str, **named: str) -> Grouped:
        """Group by columns, and by expressions that get a name: `group_by("user", day="date_trunc('day', at)")`.

        Without any key there is one group, and no row for it while it is empty. Null is a group like any other.

        Raises:
            UnknownColumn: a key is not there.

        """
        from headrace.dsl.grouped import Grouped

        step = self._step("group_by")
        plain = tuple(check.named(key, self.schema, step=step, verb="group_by") for key in keys)
        check.no_repeats([*plain, *named], step=step)
        over = self.with_columns(**named) if named else self
        every = (*plain, *named)
        check.groupable(every, over.schema, step=step)
        check.clear(every, over._node.sealed, step=step, role="a key")
        return Grouped(self._app, over._node, every)

    # ---- where rows go ----

    def to_view(self, view: str) -> None:
        """Serve the rows as a view that applications query.

        A table is kept up to date under its key; the rows of a stream pile up.

        Raises:
            InvalidName: the name is not `[A-Za-z_][A-Za-z0-9_]*`.
            PlanError: the app has a view of this name already.

        """
        check_identifier(view, what="view")
        self._app._add(ViewSink(up=self._node, name=f"view:{view}", view=view))

    def to(self, sink: Any) -> None:
        """Hand each epoch's rows to an object with `write(epoch: int, rows: pyarrow.Table)`, once it is committed.

        `rows` has the columns and `_weight` (+1 came, -1 went away). Trap: after a crash the last epoch is
        handed over again; `write` must be idempotent by `epoch` to be exactly once.
        """
        if not callable(getattr(sink, "write", None)):
            raise InvalidPlan(
                f"{sink!r} cannot take rows",
                hint="Give an object with a method write(epoch, rows), .to_topic(name) or .to_view(name).",
            )
        name = getattr(sink, "name", None) or type(sink).__name__
        self._app._add(CallSink(up=self._node, name=f"call:{name}", target=sink))

    # ---- inside ----

    def _step(self, verb: str) -> str:
        return f"{self.name}_{verb}"

    def _scalar(self, text: str, step: str) -> Scalar:
        sealed = self._node.sealed
        return self._steady(scalar(text, self.schema, step=step, functions=self._app._functions, sealed=sealed), step)

    def _condition(self, text: str, step: str) -> Scalar:
        sealed = self._node.sealed
        made = condition(text, self.schema, step=step, functions=self._app._functions, sealed=sealed)
        return self._steady(made, step)

    def _steady(self, made: Scalar, step: str) -> Scalar:
        check.require_deterministic(made, step=step, withdrawn=not self._node.append_only)
        return made

    def _column(self, name: str) -> Scalar:
        kind = self.schema.field(name).type
        return Scalar(text=name, sql=quote(name), type=kind, columns=frozenset({name}))

    def _all(self) -> list[tuple[str, Scalar]]:
        return [(name, self._column(name)) for name in self.schema.names]

    def _select(self, made: list[tuple[str, Scalar]], verb: str) -> Self:
        check.no_repeats([name for name, _ in made], step=self._step(verb))
        if not made:
            raise InvalidPlan(f'step "{self._step(verb)}" leaves no column')
        schema = pa.schema([(name, each.type) for name, each in made])
        return self._with(Select(up=self._node, schema=schema, columns=tuple(made), shown=verb))


class Stream(Handle):
    """An unbounded append-only sequence of records: facts."""

    def explode(self, column: str, as_: str | Sequence[str]) -> Stream:
        """Make one row for each element of an array (`as_` names it), or entry of a map (`as_` names key and value).

        The other columns are repeated. A row whose array or map is null or empty disappears.

        Raises:
            UnknownColumn: the column is not there.
            PlanError: it is neither array nor map, or `as_` does not fit it.

        """
        step = self._step("explode")
        made = self._scalar(column, step)
        into = (as_,) if isinstance(as_, str) else tuple(as_)
        types = _exploded(made, step, column)
        if len(into) != len(types):
            raise InvalidPlan(
                f'step "{step}": {type_name(made.type)} explodes into {len(types)} column(s), {len(into)} named',
                hint='For a map give two names: as_=("key", "value").',
            )
        fields = {field.name: field.type for field in self.schema} | dict(zip(into, types, strict=True))
        check.no_repeats([*into], step=step)
        return Stream(self._app, Explode(up=self._node, schema=pa.schema(list(fields.items())), column=made, into=into))

    def map_batches(self, fn: Callable[[pa.Table], pa.Table], schema: str | pa.Schema) -> Stream:
        """Put every batch of rows through a function, Arrow table in, Arrow table out with the columns of `schema`.

        The table has an extra last column `_time`, each row's event time. Where the function gives back as many
        rows as it got, they keep their times by position; otherwise it must give a `_time` column itself.
        Batches are cut anywhere: the function must not depend on how.
        """
        if not callable(fn):
            raise InvalidPlan(f"map_batches needs a function, not {fn!r}")
        check.nothing_sealed(self._node.sealed, step=self._step("map_batches"), what="the function")
        return Stream(self._app, MapBatches(up=self._node, schema=as_schema(schema), function=fn))

    def union(self, *others: Stream) -> Stream:
        """Put streams of the same columns together; columns are matched by name.

        Raises:
            PlanError: the columns or their types differ.

        """
        for other in others:
            if not isinstance(other, Stream) or other._app is not self._app:
                raise InvalidPlan(f'step "{self._step("union")}": {other!r} is no stream of this app')
        return Stream(self._app, united(self, others))

    def dedupe(self, *keys: str, within: str) -> Stream:
        """Let the first row of each key pass and drop the others, while the key is kept.

        First is: the row that was read in an earlier epoch, and of one epoch the row of the least event time (of
        equal times the least row, column by column). A key is kept until the watermark has passed its first row by
        more than `within`, so of rows in order that are no more than `within` apart one passes. Null is a key like
        any other. Trap: rows of a key that lie further apart are dropped too while the watermark has not got there,
        as in one large epoch: choose keys that come once, such as the id of an event.

        A row more than `within` behind the watermark is late: its key may be forgotten. It goes to `.late`.

        Raises:
            UnknownColumn: a key is not there.
            PlanError: no key, or rows that may be withdrawn.
            InvalidTime: `within` is no duration.

        """
        step = self._step("dedupe")
        if not keys:
            raise InvalidPlan(
                f'step "{step}" has no key',
                hint='Name the columns that tell one event from another: dedupe("id", within="1 hour").',
            )
        named = tuple(check.named(key, self.schema, step=step, verb="dedupe") for key in keys)
        check.no_repeats(named, step=step)
        check.groupable(named, self.schema, step=step)
        check.clear(named, self._node.sealed, step=step, role="a key")
        horizon = duration(within, what="horizon of dedupe")
        if horizon < 0:
            raise InvalidPlan(f'step "{step}": within={within!r} is negative')
        if not self._node.append_only:
            raise InvalidPlan(
                f'step "{step}": rows of its input may be withdrawn, and a row that was dropped cannot be',
                hint="Say dedupe on the stream before the table.",
            )
        return Stream(self._app, Dedupe(up=self._node, schema=self.schema, keys=named, within=horizon))

    def join(  # noqa: PLR0913 -- the contract of DESIGN.md names these options
        self,
        other: Handle,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: How = "inner",
        within: str | tuple[str, str] | None = None,
        as_of: str | None = None,
        grace: str | None = None,
        where: str | None = None,
        suffix: str = "_right",
    ) -> Stream:
        """Join with another stream, or look a table up.

        With a stream, rows meet whose times are near: `within="1 hour"` either way, or
        `within=("-10 seconds", "1 hour")` for right time - left time, bounds included; `how` is inner, left, right or
        full. A row that meets none comes out once, when none can come any more: when the watermark of both sides has
        passed its last possible partner by more than `grace`. A row more than `grace` behind the watermark is late.

        With a table, each row meets the table as it is when the row arrives; changes of the table trigger nothing.
        `as_of="at"` instead asks for the table's row that was valid at that time of the stream's row; the answer comes
        when the watermark of both sides has passed it by more than `grace`, and is final. `how` is inner or left.

        `on`, `where` and `suffix` are those of `Table.join`.

        Raises:
            UnknownColumn: a column is not there.
            PlanError: the arguments do not fit the sides, or each other.

        """
        same_app(self, other, "join")
        said = JoinOptions(on=on, how=how, within=within, as_of=as_of, grace=grace, where=where, suffix=suffix)
        return Stream(self._app, joined(self._app, self._node, other._node, said))

    @property
    def late(self) -> Stream:
        """The rows that came too late for this step, untouched.

        For `dedupe`, to know whether they are the first of their key. For a join by time, to meet others: such a row
        has the join's columns, null on the other side.

        Raises:
            PlanError: this step does not judge rows by their time.

        """
        node = self._node
        if not isinstance(node, Stateful) or not node.detects_late:
            raise InvalidPlan(
                f'step "{self.name}" has no late rows',
                hint="Steps with a window have, dedupe and joins by time have; take .late right after the verb.",
            )
        return Stream(self._app, Late(of=node, schema=node.late_schema))

    def branch(self, /, **conditions: str) -> Mapping[str | None, Stream]:
        """Split the rows: each goes to the first condition that it meets, and under `None` where it meets none."""
        step = self._step("branch")
        made: dict[str | None, Stream] = {}
        before: list[Scalar] = []
        for name, text in conditions.items():
            test = self._condition(text, step)
            made[name] = self._branch(text, test, before)
            before.append(test)
        made[None] = self._branch("none of them", None, before)
        return made

    def _branch(self, text: str, test: Scalar | None, before: list[Scalar]) -> Stream:
        every = [*before, test] if test else before
        parts = [f"NOT coalesce(({each.sql}), false)" for each in before] + ([f"({test.sql})"] if test else [])
        whole = Scalar(
            text=text,
            sql=" AND ".join(parts) or "true",
            type=pa.bool_(),
            columns=frozenset[str]().union(*(each.columns for each in every)),
            calls=calls_of(every),
        )
        check.same_each_time(every, step=self._step("branch"))
        return Stream(self._app, Where(up=self._node, schema=self.schema, condition=whole))

    def latest(self, *key: str) -> Table:
        """Read the stream as a table: of each key the row of the greatest event time, of equal ones the later arrival.

        Null is a key like any other, as in `group_by`. What arrived later: the later epoch, partition, offset.

        Raises:
            UnknownColumn: a key is not there.
            PlanError: there is no key, or the stream's rows are withdrawn (late rows of a table's aggregate).

        """
        from headrace.dsl.table import Table

        step = self._step("latest")
        keys = check.columns(key, self.schema, step=step)
        if not keys:
            raise InvalidPlan(f'step "{step}" needs a key', hint='Name the columns that tell its rows: latest("id").')
        check.groupable(keys, self.schema, step=step)
        check.clear(keys, self._node.sealed, step=step, role="a key")
        if not self._node.append_only:
            raise InvalidPlan(
                f'step "{step}": rows of the stream above are withdrawn, so none of them is the last',
                detail="They are the late rows of an aggregate over a table.",
                hint="Take .latest(…) of a stream of facts, or of .changes().",
            )
        return Table(self._app, Latest(up=self._node, schema=self.schema, keys=keys, by_time=True))

    def to_topic(self, topic: str, key: str | Sequence[str] | None = None) -> None:
        """Append the rows to a topic, exactly once; it is created if it is missing.

        `key` names the columns whose values choose the partition: rows of equal key keep their order.

        Raises:
            InvalidName: the name is not allowed.
            UnknownColumn: a key is not there.

        """
        check_topic(topic)
        keys = check.columns(key, self.schema, step=self.name)
        check.clear(keys, self._node.sealed, step=self.name, role="the key of a topic")
        self._app._add(TopicSink(up=self._node, name=f"topic:{topic}", topic=topic, location=None, record_key=keys))


def same_app(handle: Handle, other: object, verb: str) -> None:
    """Refuse what is no step of the same app."""
    if not isinstance(other, Handle) or other._app is not handle._app:
        raise InvalidPlan(
            f'step "{handle.name}": {other!r} is no stream or table of this app, so it cannot {verb} it',
            hint="Declare both with one app: app.stream(…), app.table(…).",
        )


def _exploded(made: Scalar, step: str, column: str) -> list[pa.DataType]:
    if pa.types.is_map(made.type):
        return [made.type.key_type, made.type.item_type]
    if pa.types.is_list(made.type):
        return [made.type.value_type]
    raise WrongColumnType(column, step=step, is_type=type_name(made.type), needs="an array or a map", role="exploded")


def united(first: Handle, others: Sequence[Handle]) -> Union:
    """Return the step of all rows of several.

    Raises:
        InvalidPlan: one is of another app, or has other columns.
        SealedColumn: a column is private in one of them alone.

    """
    step = first._step("union")
    nodes = [first._node]
    for other in others:
        same_app(first, other, "unite with")
        nodes.append(_matched(first, other, step)._node)
    return Union(streams=tuple(nodes), schema=first.schema)


def _matched(first: Handle, other: Handle, step: str) -> Handle:
    """Bring `other` to the columns of `first`, or say how they differ."""
    ours = {field.name: field.type for field in first.schema}
    theirs = {field.name: field.type for field in other.schema}
    if ours != theirs:
        raise InvalidPlan(
            f'step "{step}": what it puts together has different columns',
            detail=f"{to_ddl(first.schema)}  against  {to_ddl(other.schema)}",
            hint="Bring them to the same names and types with .select(…) first.",
        )
    if first._node.sealed != other._node.sealed:
        only = ", ".join(sorted(first._node.sealed ^ other._node.sealed))
        raise SealedColumn(
            f'step "{step}": {only} is private in one of them, and clear in the other',
            hint="Declare it private in both topics, or give one of the columns another name.",
        )
    return other if first.columns == other.columns else other.select(*first.columns)
