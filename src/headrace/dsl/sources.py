"""Where rows come from: the source nodes of `app.stream`, `app.table` and `app.read`, checked."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.base.errors import InvalidPlan, WrongType
from headrace.base.names import check_topic
from headrace.base.schema import TIMESTAMP, as_schema, type_name
from headrace.base.time import duration
from headrace.expressions import scalar
from headrace.plan import check
from headrace.plan.corrected import corrected
from headrace.plan.nodes import Latest, ReadSource, TopicSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from headrace.dsl.formats import Formats
    from headrace.expressions import Scalar
    from headrace.plan.nodes import Node

OnError = Literal["dead_letter", "fail"]
ON_ERROR = ("dead_letter", "fail")


class Timing(NamedTuple):
    """The event time of a source, and what is known of its order."""

    event_time: str | None
    out_of_order: str | None
    idle_after: str | None


class TopicOptions(NamedTuple):
    """The arguments of `app.stream` and `app.table`, as the user gave them."""

    source: Any
    key: str | Sequence[str] | None
    timing: Timing
    formats: Formats
    on_error: OnError | None
    partitions: int | None
    private: Mapping[str, str] | Sequence[str] | None


def check_location(topics: str | None) -> str | None:
    """Return where an app's topics live: None is the embedded log under its storage.

    Raises:
        InvalidPlan: it is no place for topics.

    """
    if topics is None or (isinstance(topics, str) and re.match("log:.|kafka://.", topics)):
        return topics
    raise InvalidPlan(
        f"topics={topics!r} is not a place for topics",
        hint='Leave it out for the embedded log under the storage, or say "log:PATH" or "kafka://host:port".',
    )


def check_views_location(views: str | None) -> str | None:
    """Return where an app's views are served from: None is a SQLite file under its storage.

    Raises:
        InvalidPlan: it is no such place, or has a password, which would be kept in the storage.

    """
    if views is None:
        return None
    if not isinstance(views, str) or not re.match(r"postgres(ql)?://.", views):
        shown = repr(views) if not isinstance(views, str) or "@" not in views else "it"
        raise InvalidPlan(
            f"views= is not a place for views: {shown} is no address",
            hint='Leave it out for a file of SQLite in the storage, or say "postgresql://user@host/database".',
        )
    parts = urlsplit(views)
    password = unquote(parts.netloc.rpartition("@")[0].partition(":")[2])
    options = [value for name, value in parse_qsl(parts.query, keep_blank_values=True) if name == "password"]
    if any(text and not text.startswith("env:") for text in (password, *options)):
        raise InvalidPlan(
            "views= has a password",
            detail="The address is kept in the storage, where every command finds it.",
            hint='Say "postgresql://user:env:NAME@host/database" for that of the variable NAME, or leave it out: '
            "PGPASSWORD and ~/.pgpass are read.",
        )
    return views


def check_on_error(on_error: OnError | None) -> OnError | None:
    """Return what happens to bad records and rows.

    Raises:
        InvalidPlan: the word is not known.

    """
    if on_error is not None and on_error not in ON_ERROR:
        raise InvalidPlan(f"on_error={on_error!r} is not known", hint='Say "dead_letter" or "fail".')
    return on_error


def stream_source(topic: str, schema: str | pa.Schema | None, options: TopicOptions, *, sent_time: str | None) -> Node:
    """Return the step that reads a topic as a stream, event times corrected where records say when they were sent.

    Raises:
        PlanError: a name, type, duration or option is wrong.

    """
    node = _topic_source(topic, schema, options, upserts=False)
    if sent_time is None:
        return node
    check.sent_time(sent_time, node.event_time, node.schema, step=topic)
    check.not_sealed([sent_time], node.sealed, step=topic, role="sent time")
    return corrected(replace(node, sent_time=sent_time))


def table_source(topic: str, schema: str | pa.Schema | None, options: TopicOptions, *, history: str | None) -> Latest:
    """Return the step that reads a topic as a table.

    Raises:
        PlanError: a name, type, duration or option is wrong, or there is no key.

    """
    node = _topic_source(topic, schema, options, upserts=True)
    if not node.record_key:
        raise InvalidPlan(f'the table "{topic}" needs a key', hint='Name the columns that identify a row: key="id".')
    check.groupable(node.record_key, node.schema, step=topic)
    kept_for = _length(history, "history") or 0
    return Latest(up=node, schema=node.schema, keys=node.record_key, by_time=False, history=kept_for)


def _topic_source(topic: str, schema: str | pa.Schema | None, options: TopicOptions, *, upserts: bool) -> TopicSource:
    step = check_topic(topic)
    schema, options = _declared(topic, schema, options)
    columns = as_schema(schema)
    check.no_repeats(columns.names, step=step)
    partitions = options.partitions
    if partitions is not None and (not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1):
        raise InvalidPlan(f"partitions={partitions!r} is not possible", hint="Give a number above zero.")
    event_time, out_of_order, idle_after = options.timing
    timing, formats = _timing(event_time, columns, step=step), _formats(options, step=step)
    node = TopicSource(
        schema=columns,
        topic=topic,
        connector=_connector(options.source, step=step),
        record_key=check.columns(options.key, columns, step=step),
        event_time=None if timing else check.event_time(event_time, columns, step=step),
        timing=timing,
        out_of_order=_length(out_of_order, "out_of_order") or 0,
        idle_after=_length(idle_after, "idle_after"),
        format=formats.format,
        key_format=formats.key_format,
        on_error=check_on_error(options.on_error),
        partitions=partitions,
        upserts=upserts,
        private=check.private(options.private, columns, step=step),
    )
    times = filter(None, [node.event_time, *(timing.columns if timing else ())])
    check.not_sealed((*node.record_key, *times), node.sealed, step=step, role="key or event time")
    return node


def _declared(
    topic: str, schema: str | pa.Schema | None, options: TopicOptions
) -> tuple[str | pa.Schema, TopicOptions]:
    """Return the columns and the options; what the program leaves out, a feed may declare: the columns, and the key."""
    if schema is not None:
        return schema, options
    declares = getattr(options.source, "declares", None)
    found = declares() if callable(declares) else None
    if found is None:
        raise InvalidPlan(
            f'the topic "{topic}" needs a schema',
            hint='Declare its columns: "id int, name string". Only a source that knows its columns needs none.',
        )
    return found.schema, options._replace(key=list(found.key) or None) if options.key is None else options


def _timing(event_time: str | None, columns: pa.Schema, *, step: str) -> Scalar | None:
    """Return the expression that computes the event time; None where a column is it."""
    if not isinstance(event_time, str) or event_time in columns.names or re.fullmatch(r"\w*", event_time):
        return None
    computed = scalar(event_time, columns, step=step)
    check.require_deterministic(computed, step=step, withdrawn=True)
    if computed.type != TIMESTAMP:
        raise WrongType(
            f'step "{step}": the event time {event_time!r} is of type {type_name(computed.type)}',
            detail="It must be timestamp.",
            hint=f"For example {check.TIME_EXPRESSIONS}.",
        )
    return computed


def _connector(source: Any, *, step: str) -> Any:
    """Return the argument `source`, if it is a connector's source (it can be opened) or feed (it runs)."""
    if source is None or callable(getattr(source, "open", None)) or callable(getattr(source, "run", None)):
        return source
    raise InvalidPlan(
        f'step "{step}": source={source!r} is no source',
        hint="Give what a connector returns, such as files.lines(path); or leave it out for a topic of the app.",
    )


def _formats(options: TopicOptions, *, step: str) -> Formats:
    formats = options.formats.checked()
    if formats.format is not None and options.private:
        raise InvalidPlan(
            f'step "{step}": private= seals columns, and format={formats.format!r} puts them all into one',
            hint="Leave format out: the topic then has the columns.",
        )
    return formats


def spark_source(
    source: Any,
    schema: str | pa.Schema | None,
    options: Mapping[str, object],
    *,
    event_time: str | None,
    out_of_order: str | None,
    idle_after: str | None,
) -> ReadSource:
    """Return the step that reads a streaming source of Spark: a format's name or a streaming DataFrame.

    Raises:
        PlanError: a name, type or option is wrong, or no schema can be found.

    """
    label, columns = _label_and_schema(source, schema)
    return ReadSource(
        schema=columns,
        source_name=label,
        format=source if isinstance(source, str) else None,
        options=tuple(sorted((name, str(value)) for name, value in options.items())),
        frame=None if isinstance(source, str) else source,
        event_time=check.event_time(event_time, columns, step=label),
        out_of_order=_length(out_of_order, "out_of_order") or 0,
        idle_after=_length(idle_after, "idle_after"),
    )


def _label_and_schema(source: Any, schema: str | pa.Schema | None) -> tuple[str, pa.Schema]:
    if isinstance(source, str):
        if schema is None:
            raise InvalidPlan(
                f'the source "{source}" needs a schema',
                hint='app.read("rate", "timestamp timestamp, value bigint")',
            )
        return source, as_schema(schema)
    if hasattr(source, "isStreaming"):
        if not source.isStreaming:
            raise InvalidPlan("this DataFrame is not streaming", hint="Make it with spark.readStream.")
        return "frame", as_schema(schema if schema is not None else _ddl(source))
    raise InvalidPlan(f"{source!r} is no source", hint="Give a format's name or a streaming DataFrame.")


def _ddl(frame: Any) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema.fields)


def _length(text: str | None, what: str) -> int | None:
    if text is None:
        return None
    length = duration(text, what=what)
    if length < 0:
        raise InvalidPlan(f"{what}={text!r} is below zero")
    return length
