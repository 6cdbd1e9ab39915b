"""Binds the sources and sinks of a plan to connectors; no other file knows both.

The rest of the engine knows inputs (a source and the shape of its records) and sink groups, of any kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.dead_letters import DEAD, DEAD_SINK
from headrace.base.errors import InvalidPlan, did_you_mean
from headrace.connect.decoding import RecordShape, Span
from headrace.connect.embedded import EmbeddedTopics, log_path
from headrace.connect.formats import format_of
from headrace.connect.objects import ObjectSink
from headrace.connect.stores import open_topics
from headrace.connect.topics import TopicSpec
from headrace.connect.views import ViewSink
from headrace.engine.input import Input
from headrace.engine.served import views_at
from headrace.engine.sink_groups import open_sink_groups
from headrace.log import Log
from headrace.plan.nodes import ARRIVED, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.base.time import Clock
    from headrace.connect.feed import Feed
    from headrace.connect.open_topic import OpenTopic
    from headrace.connect.sink import Sink
    from headrace.connect.topics import TopicStore
    from headrace.engine.sink_groups import SinkGroup
    from headrace.log.privacy.subjects import Origin
    from headrace.plan.nodes import Source as PlanSource
    from headrace.plan.plan import Plan
    from headrace.plan.sinks import Sink as PlanSink


def bound_inputs(plan: Plan, topics: TopicStore) -> dict[str, Input]:
    """Return the inputs of a plan by their steps."""
    return {plan.name(node): _input(plan, node, topics) for node in plan.sources()}


def _input(plan: Plan, node: PlanSource, topics: TopicStore) -> Input:
    source = None if node.read_by_spark else node.replayable or topics.source(spec_of(node))
    undecoded = source is not None and source.undecoded
    shape = RecordShape(
        topic=node.topic or plan.name(node),
        schema=node.schema,
        event_time=node.event_time,
        sent_time=node.sent_time,
        key=node.record_key,
        upserts=node.upserts,
        format=None if node.read_by_spark else format_of(node.format, "json" if undecoded else None),
        key_format=format_of(node.key_format, "text") if undecoded else None,
        undecoded=undecoded,
        arrived=ARRIVED if id(node) in plan.arrivals else None,
        span=Span.around(_reach(plan)),
    )
    return Input(
        source=source,
        shape=shape,
        on_error=node.on_error or "dead_letter",
        takes_out=node.on_error == "dead_letter",
        out_of_order=node.out_of_order,
        idle_after=node.idle_after,
        in_order=plan.in_order.get(id(node)),
        timing=node.timing,
    )


def _reach(plan: Plan) -> int:
    """Return how far all windows of a plan, one below the other, reach around an event time, with their grace."""
    windows = [node.window for node in plan.nodes if isinstance(node, Windowed) and node.window is not None]
    return sum(window.reach + window.grace for window in windows)


def spec_of(node: PlanSource) -> TopicSpec:
    """Return the topic that a source reads, as the app declares it."""
    assert node.topic is not None  # noqa: S101 -- the caller checks it
    return TopicSpec(
        name=node.topic,
        schema=node.schema,
        key=node.record_key,
        event_time=node.event_time,
        sent_time=node.sent_time,
        partitions=node.partitions,
        upserts=node.upserts,
        format=format_of(node.format),
        key_format=format_of(node.key_format),
        private=node.private,
        follows=node.feed is not None and node.feed.reader_group is not None,
    )


def spec_of_sink(sink: PlanSink) -> TopicSpec:
    """Return the topic that a sink appends to, as the app declares it."""
    assert sink.topic is not None  # noqa: S101 -- the caller checks it
    return TopicSpec(
        name=sink.topic,
        schema=sink.up.schema,
        key=sink.record_key,
        changelog=sink.up.is_table,
        sealed=sink.up.sealed,
        format=format_of(sink.format),
        key_format=format_of(sink.key_format),
    )


class Outside:
    """Everything that an app reads or writes: its topics, its views, and the connectors of `source=` and `.to`.

    Args:
        plan: its sources and sinks are opened.
        storage: the app's folder.
        location: the value of `App(topics=)`.
        clock: the clock of the app.
        sync: whether written data survives a power cut.
        partitions: the number of partitions of a topic that is created.
        fault: called at each point where a test may crash.

    """

    def __init__(
        self,
        plan: Plan,
        storage: Path,
        location: str | None,
        *,
        clock: Clock,
        sync: bool = True,
        partitions: int = 1,
        fault: Callable[[str], None] = lambda point: None,  # noqa: ARG005 -- nothing happens there
    ) -> None:
        self.plan = plan
        self.clock = clock
        self.fault = fault
        path = log_path(storage, location).absolute()  # tasks open it too, from folders of their own
        self.log = Log(path, clock=clock, fsync=sync)
        """The embedded log: of the app's topics, or where these are elsewhere, of its journal."""
        self.topics = open_topics(location, self.log, app=plan.app, clock=clock, partitions=partitions, fault=fault)
        self.views = views_at(storage, durable=sync, fault=fault)
        self.inputs = bound_inputs(plan, self.topics)
        self.replays = False
        """Whether records are read that were read before: dead letters are not written again."""
        self.origins: list[Origin] = []
        """The topics that have the keys of the app's private columns."""

    def prepare_sources(self) -> None:
        """Create the topics that are missing, and check those that exist.

        Raises:
            HeadraceError: one is not as the plan declares it.

        """
        for bound in self.inputs.values():
            if bound.source is not None:
                bound.source.prepare(clock=self.clock)
                self.origins += bound.source.key_origins()

    def prepare_sinks(self) -> None:
        """Create the output topics and views that are missing, and check those that exist.

        Raises:
            HeadraceError: one is not as the plan declares it.

        """
        for sink in self.sinks().values():
            sink.prepare(clock=self.clock)

    def opened(self, topic: str) -> OpenTopic:
        """Return a topic of the app, as rows: one that it reads or writes, or the dead letters of one.

        Raises:
            UnknownTopic: the app has none of this name, or it does not exist.

        """
        declared = [spec_of(node) for node in self.plan.sources() if node.topic is not None and node.topic == topic]
        declared += [spec_of_sink(sink) for sink in self.plan.sinks if sink.topic is not None and sink.topic == topic]
        return self.topics.opened(declared[0] if declared else TopicSpec(name=topic, schema=DEAD))

    def feeds(self) -> Iterator[tuple[str, Feed, TopicSpec]]:
        """Yield the feeds of the plan: the step that reads the feed's topic, the feed, and the topic that it fills.

        Raises:
            InvalidPlan: two feeds fill one topic; or feeds that share a reader read one table into two topics.

        """
        filled_by: dict[str, str] = {}
        fills: dict[str, str] = {}
        for node in self.plan.sources():
            if node.feed is None or node.topic is None:
                continue
            first = filled_by.setdefault(node.topic, node.feed.identity)
            if first != node.feed.identity:
                raise InvalidPlan(
                    f'two feeds fill the topic "{node.topic}": {first} and {node.feed.identity}',
                    hint="Give each a topic of its own, and bring the streams together with .union(…).",
                )
            topic = fills.setdefault(node.feed.identity, node.topic)
            if topic != node.topic and node.feed.reader_group is not None:
                raise InvalidPlan(
                    f'{node.feed.identity} is to fill two topics: "{topic}" and "{node.topic}"',
                    hint="Name the source once, and use what app.table(…) returned as often as you need it.",
                )
            if node is self._first_reader(node.topic):
                yield self.plan.name(node), node.feed, spec_of(node)

    def _first_reader(self, topic: str) -> PlanSource:
        return next(node for node in self.plan.sources() if node.topic == topic and node.feed is not None)

    def sinks(self) -> dict[str, Sink]:
        """Return the sinks of the plan by their names, in the order in which they are published.

        Topics (of dead letters too) come before views: an epoch that is visible in a view is also in the topics.
        """
        ordered = sorted(self.plan.sinks, key=lambda sink: (sink.topic is None, sink.view is None))
        named = {sink.name: self._sink(sink) for sink in ordered}
        topics = [] if self.replays else [bound.shape.topic for bound in self.inputs.values()]
        dead = {topic: self.topics.dead_letters(topic) for topic in topics}
        return {f"{DEAD_SINK}{topic}": sink for topic, sink in dead.items()} | named

    def _sink(self, sink: PlanSink) -> Sink:
        table = sink.up.is_table
        if sink.topic is not None:
            return self.topics.sink(spec_of_sink(sink), origins=self.origins)
        if sink.view is not None:
            key = sink.up.key if table else None
            return ViewSink(views=self.views, view=sink.view, schema=sink.up.schema, key=key, fault=self.fault)
        return sink.connector or ObjectSink(sink.target)

    def open_sink_groups(self, writer: str) -> list[SinkGroup]:
        """Open all sinks for writing; `writer` is `<app>/<storage id>`."""
        return open_sink_groups(self.sinks(), self.plan, writer=writer, clock=self.clock)

    def close(self) -> None:
        """Close the topics, the log and the views."""
        self.views.close()
        self.topics.close()
        self.log.close()


def create_declared(plan: Plan, log: Log, name: str, *, partitions: int) -> None:
    """Create a topic as the app would at its start.

    Args:
        plan: what declares it, as the topic of a source or a sink.
        log: the app's log.
        name: the topic's name.
        partitions: how many, unless the plan says it.

    Raises:
        InvalidPlan: the plan has no topic of this name.

    """
    topics = EmbeddedTopics(log, partitions=partitions, fault=lambda point: None)  # noqa: ARG005 -- nothing happens
    sources = [node for node in plan.sources() if node.topic is not None and node.replayable is None]
    for node in sources:
        if node.topic == name:
            topics.source(spec_of(node)).prepare(clock=log.clock)
            return
    for sink in plan.sinks:
        if sink.topic == name:
            read = [topics.source(spec_of(node)) for node in sources] if sink.up.sealed else []
            topics.sink(spec_of_sink(sink), origins=[at for each in read for at in each.key_origins()]).opened()
            return
    names = sorted({str(node.topic) for node in sources} | {sink.topic for sink in plan.sinks if sink.topic})
    raise InvalidPlan(
        f'the app declares no topic "{name}"',
        detail=f"Its topics are: {', '.join(names)}." if names else "It has no topics.",
        hint=did_you_mean(name, names) or "Give its columns: --schema DDL.",
    )


def no_spark(inputs: Mapping[str, Input]) -> None:
    """Refuse sources that only Spark can read.

    Raises:
        InvalidPlan: the plan has one.

    """
    for bound in inputs.values():
        if bound.source is None:
            raise InvalidPlan(
                f'the source "{bound.shape.topic}" is read by Spark, and this carrier runs without Spark',
                hint='Run the app with app.start(), or Driver(app, carrier="spark").',
            )


def names_of_topics(plan: Plan) -> Sequence[str]:
    """Return the topics that a plan reads and appends to, dead letters included."""
    read = [node.topic for node in plan.sources() if node.topic is not None]
    written = [sink.topic for sink in plan.sinks if sink.topic is not None]
    return [*read, *written, *(f"{name}.dead" for name in (*read, *written))]
