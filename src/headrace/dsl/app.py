"""The app: where streams come from, and what the verbs add up to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.base.errors import InvalidPlan
from headrace.base.names import check_identifier
from headrace.dsl import functions, sql
from headrace.dsl.registry import Registry
from headrace.dsl.sources import TopicOptions, check_location, spark_source, stream_source, table_source
from headrace.dsl.stream_table import Stream, Table
from headrace.plan.explain import Explanation
from headrace.plan.plan import Plan, make_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from headrace.plan.nodes import Emit


class App:
    """A program over streams: sources, steps and sinks, described first and run later.

    Everything the app owns is under `storage`. `topics` says where topics live: None is the embedded log under
    the storage, `"log:PATH"` another embedded log. `shards` is how many parts the state is cut into; it defaults
    to the cores that Spark has and is kept from the first start on.
    """

    def __init__(
        self,
        name: str,
        *,
        storage: str | Path = ".headrace",
        topics: str | None = None,
        shards: int | None = None,
    ) -> None:
        self.name = check_identifier(name, what="app")
        self.storage = Path(storage)
        self.topics = check_location(topics)
        if shards is not None and (not isinstance(shards, int) or isinstance(shards, bool) or shards < 1):
            raise InvalidPlan(f"shards={shards!r} is not possible", hint="Give a number above zero.")
        self.shards = shards
        self._registry = Registry()

    def __repr__(self) -> str:
        return f"<App {self.name}: {len(self._registry.sinks)} sinks, storage {self.storage}>"

    def stream(  # noqa: PLR0913 -- the contract of DESIGN.md names these options
        self,
        topic: str,
        schema: str | pa.Schema,
        *,
        key: str | Sequence[str] | None = None,
        event_time: str | None = None,
        sent_time: str | None = None,
        out_of_order: str | None = None,
        idle_after: str | None = None,
        source: Any = None,
        format: str | None = None,  # noqa: A002 -- as in DESIGN.md
        on_error: Literal["dead_letter", "fail"] = "dead_letter",
        partitions: int | None = None,
        private: Mapping[str, str] | Sequence[str] | None = None,
    ) -> Stream:
        """Read a topic as a stream of facts, from its start; a topic that does not exist is created.

        `event_time` names the timestamp column that says when things happened (default: when the log got them).
        `out_of_order` is how far rows may lag behind the newest before the watermark leaves them behind (default:
        not at all). `idle_after`: a partition quiet for so long, by the machine's clock, no longer holds the watermark
        back; once all are, the watermark goes on with the clock, so that windows close when nothing comes. Trap: a
        partition that comes back with rows as old as its silence finds their windows closed. Records that cannot be
        read go to the topic `<topic>.dead` with the reason, or stop the app with `on_error="fail"`.
        `private={"email": "user_id"}` says what `Log.create_topic` is told; for a topic that exists, its private
        columns by name are enough. The app has them sealed, and only passes them on: see docs/privacy.md.
        `source` is what a connector returns (docs/CONNECTORS.md): a source is read in place of the topic; a feed
        lands its records in the topic, and runs while the app does. `format="json"`: records are JSON text in the
        topic's column `value`, beside the columns of the key; those that cannot be decoded are dead letters.

        `sent_time` names the timestamp column that says when a device sent the record, by the clock that `event_time`
        is of: `at` becomes `at + (when the log got it - sent)`, the event time by the log's clock, and what the device
        said stays as `at_uncorrected`. A record without a `sent_time` keeps its time. Trap: how long a record was on
        its way counts as the clock's error.

        Raises:
            PlanError: a name, type, duration or option is wrong.

        """
        options = TopicOptions(
            source=source,
            key=key,
            event_time=event_time,
            out_of_order=out_of_order,
            idle_after=idle_after,
            format=format,
            on_error=on_error,
            partitions=partitions,
            private=private,
        )
        node = stream_source(topic, schema, options, sent_time=sent_time)
        self._registry.add_source(topic, node)
        return Stream(self._registry, node)

    def table(  # noqa: PLR0913 -- the contract of DESIGN.md names these options
        self,
        topic: str,
        schema: str | pa.Schema,
        *,
        key: str | Sequence[str],
        event_time: str | None = None,
        out_of_order: str | None = None,
        idle_after: str | None = None,
        source: Any = None,
        format: str | None = None,  # noqa: A002 -- as in DESIGN.md
        on_error: Literal["dead_letter", "fail"] = "dead_letter",
        partitions: int | None = None,
        history: str | None = None,
        private: Mapping[str, str] | Sequence[str] | None = None,
    ) -> Table:
        """Read a topic as a table: each record is the row of its key from then on, a tombstone deletes it.

        The last record of a key is the one of the greatest offset, whatever its event time. A topic that does not
        exist is created, compacted by the key. Records with a null in the key go to `<topic>.dead`, or stop the app
        with `on_error="fail"`; the other options are those of `stream`. A delete without an event time has that of
        the row it deletes. `history` is how long joins with `as_of` keep old versions of
        its rows beyond what their grace needs, for rows of the stream that ask for times long past.

        Raises:
            PlanError: a name, type, duration or option is wrong, or there is no key.

        """
        options = TopicOptions(
            source=source,
            key=key,
            event_time=event_time,
            out_of_order=out_of_order,
            idle_after=idle_after,
            format=format,
            on_error=on_error,
            partitions=partitions,
            private=private,
        )
        node = table_source(topic, schema, options, history=history)
        self._registry.add_source(topic, node)
        return Table(self._registry, node)

    def read(
        self,
        source: Any,
        schema: str | pa.Schema | None = None,
        *,
        event_time: str | None = None,
        out_of_order: str | None = None,
        idle_after: str | None = None,
        **options: object,
    ) -> Stream:
        """Read any streaming source of Spark: the name of a format with its options, or a streaming DataFrame.

        A format's name needs a schema. Its rows are encoded to Arrow in Spark; its offsets stay in Spark's
        checkpoint under the storage. Only the Spark carrier can run such an app.

        Raises:
            PlanError: a name, type or option is wrong, or no schema can be found.

        """
        node = spark_source(
            source, schema, options, event_time=event_time, out_of_order=out_of_order, idle_after=idle_after
        )
        return Stream(self._registry, node)

    def function(
        self,
        name: str,
        fn: Any,
        *,
        returns: str | pa.DataType,
        takes: str | Sequence[str] | None = None,
        deterministic: bool = True,
        version: object = None,
    ) -> None:
        """Make a function of yours one that the expressions of this app know, in every verb declared after it.

        A function of `pyarrow` arrays (one for each argument, all of one length, nulls included) gives an array of
        that length and of the type `returns`. It is called once for a batch, for every row of it: also for those
        that a `case` or the other half of an `and` would leave out. An aggregate is an object, or its class, with
        `state` (the columns kept for a group) and `init(count)`, `add(groups, …)`, `merge(left, right)`,
        `result(states)`, and `remove(left, right)` where rows can be withdrawn; docs/functions.md has them all.

        `takes` are the arguments' types, to which they are cast as Spark does; without it they come as they are.
        `deterministic=False` says that it may give something else for the same arguments. Trap: a change of the
        code is not noticed by what is kept already; say another `version` where it changes what results mean.

        Raises:
            InvalidName: the name is not `[A-Za-z_][A-Za-z0-9_]*`.
            InvalidFunction: the name is taken, or what is given is neither of the two.
            InvalidSchema: a type cannot be read.

        """
        functions.check_name(name, self._registry.functions)
        read = functions.aggregate_function if functions.is_aggregate(fn) else functions.scalar_function
        self._registry.functions[name.lower()] = functions.declared(
            name, read(name, fn, returns, takes), deterministic=deterministic, version=version
        )

    def sql(
        self,
        text: str,
        /,
        *,
        grace: str | None = None,
        emit: Emit = "changes",
        name: str | None = None,
        **relations: Stream | Table,
    ) -> Stream | Table:
        """Return what a Spark SQL query gives, kept up to date: the steps that the verbs would make.

        A name in `from` is a step given here (`app.sql("select … from paid", paid=orders.where(…))`), else a source
        of the app by its topic. A table is a table of the query's rows; a stream stays one while rows only pass. What
        cannot be kept up to date, or is not known, is refused with the part of the text; docs/sql.md has the lists.
        `grace` is how long windows are corrected, and has no default where there are any; `emit` is that of `window`.
        `name` stands before the names of the steps that keep state. Trap: a topic that is declared twice is two
        sources, so give the one that is meant.

        Raises:
            InvalidQuery: the text cannot be read, or a name in it may mean several things.
            UnknownRelation: a name in `from` is neither given nor a source.
            UnsupportedQuery: a part of it cannot be kept, or is not known.
            PlanError: as the verbs that it becomes.

        """
        return sql.query(self._registry, text, relations, grace=grace, emit=emit, name=name)

    def plan(self) -> Plan:
        """Return the whole plan as it stands.

        Raises:
            PlanError: nothing is asked for, or steps do not go together.

        """
        return make_plan(self.name, self._registry.sinks)

    def explain(self) -> Explanation:
        """Return the plan for people: `print` it as text, or take `.mermaid` for a graph or `.json` for machines."""
        return Explanation(self.plan())
