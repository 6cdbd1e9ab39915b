"""The app: declares sources and functions, and collects what the verbs describe into a plan."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.base.arguments import a_path
from headrace.base.errors import InvalidPlan
from headrace.base.names import check_identifier
from headrace.dsl import functions, sql
from headrace.dsl.formats import Formats
from headrace.dsl.registry import Registry
from headrace.dsl.rpc import ID, Rpc, columns_of_requests
from headrace.dsl.sources import (
    Timing,
    TopicOptions,
    check_location,
    check_on_error,
    check_views_location,
    spark_source,
    stream_source,
    table_source,
)
from headrace.dsl.stream_table import Stream, Table
from headrace.plan.explain import Explanation
from headrace.plan.plan import Plan, make_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.dsl.sources import OnError
    from headrace.plan.nodes import Emit


MAX_SHARDS = 10_000
TOPICS_VARIABLE = "HEADRACE_TOPICS"


class App:
    """A program over streams: sources, steps and sinks, described first and run later.

    Args:
        name: the app's name, `[A-Za-z_][A-Za-z0-9_]*`.
        storage: the folder of everything that the app owns.
        topics: where topics live: None is the embedded log under the storage, `"log:PATH"` another embedded log,
            `"kafka://host:port"` a Kafka cluster (docs/kafka.md). Where nothing is said, the variable `HEADRACE_TOPICS`
            of the environment decides.
        views: where views are served from: None is a SQLite file in the storage, `"postgresql://user@host/database"`
            tables of a database (docs/views.md). The address stays in the storage, so its password is `env:NAME`, or
            comes from PGPASSWORD or ~/.pgpass.
        shards: into how many parts the state is cut; by default the cores that Spark has. It is fixed by the first
            start.
        on_error: what happens to records that cannot be read, and to rows on which an expression or a function fails:
            "dead_letter": they go to `<topic>.dead` with the reason; "fail": they stop the app. By default the former
            go there and the latter stop the app. docs/failures.md has the details.

    Raises:
        InvalidName: the name is not allowed.
        InvalidPlan: `topics`, `views`, `shards` or `on_error` is not possible.

    """

    def __init__(
        self,
        name: str,
        *,
        storage: str | Path = ".headrace",
        topics: str | None = None,
        views: str | None = None,
        shards: int | None = None,
        on_error: OnError | None = None,
    ) -> None:
        self.name = check_identifier(name, what="app")
        self.storage = a_path(storage, "storage")
        self.topics = check_location(os.environ.get(TOPICS_VARIABLE) if topics is None else topics)
        self.views = check_views_location(views)
        number = isinstance(shards, int) and not isinstance(shards, bool)
        if shards is not None and not (number and 1 <= shards <= MAX_SHARDS):
            raise InvalidPlan(f"shards={shards!r} is not possible", hint=f"Give a number from 1 to {MAX_SHARDS}.")
        self.shards = shards
        self.on_error = check_on_error(on_error)
        self._registry = Registry(self._constants)

    def __repr__(self) -> str:
        return f"<App {self.name}: {len(self._registry.sinks)} sinks, storage {self.storage}>"

    def stream(  # noqa: PLR0913 -- the contract of DESIGN.md names these options
        self,
        topic: str,
        schema: str | pa.Schema | None = None,
        *,
        key: str | Sequence[str] | None = None,
        event_time: str | None = None,
        sent_time: str | None = None,
        out_of_order: str | None = None,
        idle_after: str | None = None,
        source: Any = None,
        format: Any = None,  # noqa: A002 -- as in DESIGN.md
        key_format: Any = None,
        on_error: OnError | None = None,
        partitions: int | None = None,
        private: Mapping[str, str] | Sequence[str] | None = None,
    ) -> Stream:
        """Read a topic as a stream of facts, from its start; a topic that does not exist is created.

        Traps: of `idle_after`, next rows of a partition as old as its silence find their windows closed; of
        `sent_time`, how long a record was on its way counts as an error of the device's clock.

        Args:
            topic: the topic's name.
            schema: its columns, as DDL text or `pyarrow.Schema`; a `source` that knows them needs none.
            key: the columns that choose the partition.
            event_time: the timestamp column or the expression of when it happened; by default when the log got it.
            sent_time: the timestamp column that says when a device sent it, by the clock of `event_time`, which is
                corrected: `at` becomes `at + (when the log got it - sent)`, and `at_uncorrected` has the old time.
            out_of_order: how far rows may be behind the newest one: `"10 seconds"`; by default not at all.
            idle_after: a partition without rows for so long, by the machine's clock, does not hold the watermark back;
                once all are idle, the watermark follows the clock, so that windows close without new rows.
            format: how records are written: "json", another name of docs/formats.md, or a format with options. By
                default Kafka has JSON, an embedded log the columns; else it has `value` and the key's columns.
            key_format: the same of the keys of records, in Kafka; by default text.
            source: a connector's source, read instead of the topic, or its feed, which fills it.
            on_error: "dead_letter": records that cannot be read, and rows on which an expression or a function fails,
                go to `<topic>.dead`; "fail": they stop the app. By default that of the app.
            partitions: how many a topic is created with; by default the shards.
            private: the private columns, as in `Log.create_topic`; only passed on (docs/privacy.md).

        Raises:
            PlanError: a name, type, duration or option is wrong.

        Examples:
            >>> app.stream("visits", "user string, at timestamp", event_time="at", out_of_order="10 seconds").columns
            ['user', 'at']

        """
        on_error = self.on_error if on_error is None else on_error
        timing = Timing(event_time, out_of_order, idle_after)
        options = TopicOptions(source, key, timing, Formats(format, key_format), on_error, partitions, private)
        node = stream_source(topic, schema, options, sent_time=sent_time)
        self._registry.add_source(topic, node)
        return Stream(self._registry, node)

    def table(  # noqa: PLR0913 -- the contract of DESIGN.md names these options
        self,
        topic: str,
        schema: str | pa.Schema | None = None,
        *,
        key: str | Sequence[str] | None = None,
        event_time: str | None = None,
        out_of_order: str | None = None,
        idle_after: str | None = None,
        source: Any = None,
        format: Any = None,  # noqa: A002 -- as in DESIGN.md
        key_format: Any = None,
        on_error: OnError | None = None,
        partitions: int | None = None,
        history: str | None = None,
        private: Mapping[str, str] | Sequence[str] | None = None,
        values: Any = None,
        path: str | Path | None = None,
    ) -> Table:
        """Read a topic as a table: each record is the row of its key from then on, a tombstone deletes it.

        The last record of a key is the one of the greatest offset, whatever its event time. A topic that does not exist
        is created, compacted by the key. Records with a null in the key go to `<topic>.dead`. A tombstone without an
        event time has that of the row that it deletes.

        With `values` or `path` the table is a bounded one: its rows are there before anything else arrives, so that
        every row of a stream finds them, and once they are read it holds no watermark back. Another content is another
        source, which a storage refuses.

        Args:
            topic: the topic's name; of a bounded table the name of its step.
            schema: as in `stream`; that of a Parquet file or an Arrow table may be left out.
            key: the columns that identify a row; with a `source` that knows it, its own.
            event_time, out_of_order, idle_after: as in `stream`.
            source, format, key_format, on_error, private: as in `stream`.
            partitions: how many a topic is created with; by default the shards.
            history: how long joins with `as_of` keep old versions of rows beyond their grace, in event time: `"1 day"`.
            values: the rows: dicts, or an Arrow table. They are part of the program.
            path: a file with the rows, `.parquet` or `.csv` (with a header; an empty field is null).

        Raises:
            PlanError: a name, type, duration or option is wrong, or there is no key; or a file is not there.

        Examples:
            >>> app.table("cities", "id string, country string", key="id").key
            ('id',)

        """
        if values is not None or path is not None:
            if source is not None:
                raise InvalidPlan(f'the table "{topic}" has a source already', hint="Leave values and path out.")
            source = self._bounded(values, path, schema)
        on_error = self.on_error if on_error is None else on_error
        timing = Timing(event_time, out_of_order, idle_after)
        options = TopicOptions(source, key, timing, Formats(format, key_format), on_error, partitions, private)
        node = table_source(topic, schema, options, history=history)
        self._registry.add_source(topic, node)
        return Table(self._registry, node)

    def rpc(self, topic: str, schema: str | pa.Schema, *, remember: str = "10 minutes") -> Rpc:
        """Answer the requests of `headrace.Client`: a stream of requests in, a stream of replies out (docs/rpc.md).

        The workers of the app share the requests. Each request is worked on once, exactly once with its effects on
        views and topics; a repetition of its id gets the same reply.

        Args:
            topic: the service: requests are in this topic, replies in `<topic>.replies`.
            schema: the columns of a request.
            remember: how long the id of a request is remembered.

        Raises:
            PlanError: a name, a type or the duration is wrong.

        Examples:
            >>> quotes = app.rpc("quotes", "product string, amount int")
            >>> quotes.requests.columns
            ['request_id', 'deadline', 'product', 'amount']
            >>> quotes.reply(quotes.requests.select("request_id", price="amount * 3"))

        """
        requests = self.stream(topic, columns_of_requests(schema), key=ID)
        return Rpc(topic, requests.dedupe(ID, within=remember))

    def _bounded(self, values: Any, path: str | Path | None, schema: str | pa.Schema | None) -> Any:
        """Return the source of a bounded table; an app that can run knows one."""
        raise NotImplementedError

    def _constants(self, sql: str, schema: pa.Schema) -> Any:
        """Return the source of the rows of SQL that reads no table; an app that can run knows one."""
        raise NotImplementedError

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
        """Read any streaming source of Spark. Only the Spark carrier can run such an app.

        Its rows are encoded to Arrow in Spark; its offsets are in Spark's checkpoint under the storage.

        Args:
            source: the name of a format, or a streaming DataFrame.
            schema: its columns, as DDL text or `pyarrow.Schema`; required for a format's name.
            event_time: as in `stream`.
            out_of_order: as in `stream`.
            idle_after: as in `stream`.
            options: the options of the format.

        Raises:
            PlanError: a name, type or option is wrong, or there is no schema.

        Examples:
            >>> app.read("rate", "timestamp timestamp, value bigint", rowsPerSecond=10).columns
            ['timestamp', 'value']

        """
        node = spark_source(
            source, schema, options, event_time=event_time, out_of_order=out_of_order, idle_after=idle_after
        )
        node = replace(node, on_error=self.on_error)
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
        """Make a Python function callable in the expressions of every verb that is declared after it.

        A scalar function gets `pyarrow` arrays (one for each argument, all of one length, nulls included) and returns
        an array of that length. It is called once for a batch, for all its rows: also for those that a `case` or the
        other half of an `and` would leave out. An aggregate is an object, or its class, with `state` (the columns of a
        group's state), `init(count)`, `add(groups, …)`, `merge(left, right)`, `result(states)`, and `remove(left,
        right)` where rows can be withdrawn; docs/functions.md describes them.

        Trap: a change of the code is not noticed by the state that is there already; give another `version` when
        results change their meaning.

        Args:
            name: the function's name, `[A-Za-z_][A-Za-z0-9_]*`, in any case.
            fn: the function, or the aggregate.
            returns: the type of its result: DDL text or a `pyarrow.DataType`.
            takes: the types of its arguments, to which they are cast as in Spark: `"string, double"` or a sequence; by
                default arguments are passed as they are.
            deterministic: False for a function that may return another result for the same arguments.
            version: any value; part of the identity of the steps that call the function.

        Raises:
            InvalidName: the name is not allowed.
            InvalidFunction: the name is taken, or `fn` is neither a function nor an aggregate.
            InvalidSchema: a type cannot be read.

        Examples:
            >>> import pyarrow.compute as pc
            >>> app.function("shout", pc.utf8_upper, returns="string", takes="string")
            >>> orders.select(loud="shout(user)").columns
            ['loud']

        """
        functions.check_name(name, self._registry.functions)
        read = functions.aggregate_function if functions.is_aggregate(fn) else functions.scalar_function
        self._registry.functions[name.lower()] = functions.user_function(
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
        """Return the rows of a Spark SQL query, kept up to date: it becomes the steps that the verbs would make.

        A query over tables is a table. A query over a stream stays a stream while rows only pass through. What cannot
        be kept up to date is refused, with the part of the text; docs/sql.md has the lists. Trap: a topic that is
        declared twice is two sources, so pass the one that is meant.

        Args:
            text: one query. A name in `from` is a step of `relations`, or else a source of the app by its topic.
            grace: how long windows are corrected, in event time; required where there are windows.
            emit: "changes" or "final", as in `Grouped.window`.
            name: a prefix for the names of the steps that keep state.
            relations: streams and tables of this app by the name that the query has for them.

        Raises:
            InvalidQuery: the text cannot be read, or a name in it may mean several things.
            UnknownRelation: a name in `from` is neither given nor a source.
            UnsupportedQuery: a part of it cannot be kept up to date, or is not known.
            PlanError: as the verbs that it becomes.

        Examples:
            >>> app.sql("select user, count(*) as n from paid group by user", paid=orders.where("price > 0")).key
            ('user',)

        """
        return sql.query(self._registry, text, relations, grace=grace, emit=emit, name=name)

    def plan(self) -> Plan:
        """Return the plan of all steps that lead to a sink.

        Raises:
            PlanError: there is no sink, or steps do not fit together.

        """
        return make_plan(self.name, self._registry.sinks, views=self.views)

    def explain(self) -> Explanation:
        """Return the plan in readable form: `print` it as text, or take `.mermaid` for a graph or `.json` for machines.

        Raises:
            PlanError: there is no sink, or steps do not fit together.

        """
        return Explanation(self.plan())
