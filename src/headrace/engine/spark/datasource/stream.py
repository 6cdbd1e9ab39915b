"""`spark.readStream.format("headrace")`: offsets live in Spark's checkpoint, as `{"topic": {"0": 23}}`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace.base.errors import InvalidOption, UnknownTopic
from headrace.connect.source import OffsetRange
from headrace.engine.pace import share
from headrace.engine.spark.datasource import columns, read_tasks, subscription
from headrace.engine.spark.datasource.options import LATEST
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from headrace.engine.spark.datasource.options import ReadOptions
    from headrace.log import Topic

Offset = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches of a subscription; partitions and topics that appear are read from their start."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.end is not None:
            raise InvalidOption(
                "a stream has no end: endingOffsets and endingTimestamp are for batches",
                hint="Leave it out, or read a batch: spark.read.",
            )
        self.options = options
        self.target: Offset | None = None
        self.schema = self.arrow_schema(schema)

    def arrow_schema(self, schema: StructType) -> pa.Schema:
        """Return the columns that Spark asks for, if the topics have them."""
        with self.log() as log:
            return columns.arrow_schema(subscription.subscribed(log, self.options), schema)

    def log(self) -> Log:
        """Return the log, open."""
        return Log(self.options.path)

    def initialOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """Return where a new query begins: at the end, unless the options say otherwise."""
        with self.log() as log:
            topics = subscription.subscribed(log, self.options)
            return _spark_offset(subscription.starts(topics, self.options, default=LATEST))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """Return how many rows a micro-batch takes at most."""
        return ReadAllAvailable() if self.options.most is None else ReadMaxRows(self.options.most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 -- Spark's name
        """Return the end of the next micro-batch; under a limit all partitions get equal parts."""
        ends = self.target if self.target is not None else self._ends(start)
        if not isinstance(limit, ReadMaxRows):
            return ends
        ranges = self._ranges(start, ends)
        taken = share([range_.rows for range_ in ranges], limit.max_rows)
        limited = {
            (range_.source, int(range_.partition)): range_.start + rows
            for range_, rows in zip(ranges, taken, strict=True)
        }
        return {
            topic: {number: limited.get((topic, int(number)), end) for number, end in each.items()}
            for topic, each in ends.items()
        }

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 -- Spark's name
        """Return where the topics end, for the query's progress."""
        with self.log() as log:
            return _spark_offset({topic.name: topic.end_offsets() for topic in self._topics(log)})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Fix the end of the query: later records are for its next run."""
        self.target = self._ends({})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch."""
        return read_tasks.plan_tasks(self._ranges(start, end), least=self.options.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        assert isinstance(partition, read_tasks.ReadTask)  # noqa: S101 -- `partitions` returned it
        plan = read_tasks.ReadPlan(self.options.path, self.schema, (), self.options.fail_on_data_loss)
        return read_tasks.batches(plan, partition.ranges)

    # ---- inside ----

    def _topics(self, log: Log) -> list[Topic]:
        """Return the current topics; named ones that are gone are left out, unless that is an error."""
        options = self.options
        if not options.fail_on_data_loss:
            options = replace(
                options,
                names=tuple(name for name in options.names if log.has_topic(name)),
                assigned={name: some for name, some in options.assigned.items() if log.has_topic(name)},
            )
            if options.pattern is None and not options.names and not options.assigned:
                return []
        return subscription.subscribed(log, options)

    def _ends(self, start: Mapping[str, Mapping[str, int]]) -> Offset:
        """Return where the partitions end now; a topic that is gone stays where it was read to."""
        with self.log() as log:
            found = {
                topic.name: {
                    number: topic.end_offsets()[number] for number in subscription.partitions_read(topic, self.options)
                }
                for topic in self._topics(log)
            }
            gone = [name for name in start if name not in found]
            if gone and self.options.fail_on_data_loss:
                raise UnknownTopic(gone[0], log=str(log.path), topics=log.topics())
        return {name: dict(start[name]) for name in gone} | _spark_offset(found)

    def _ranges(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> list[OffsetRange]:
        fail = self.options.fail_on_data_loss
        ranges = []
        with self.log() as log:
            for name, each in end.items():
                if not fail and not log.has_topic(name):
                    continue
                topic = log.topic(name)
                first, last = topic.start_offsets(), topic.end_offsets()
                for text, until in each.items():
                    number = int(text)
                    read_to = start.get(name, {}).get(text)
                    here = (first[number], last[number])
                    at = (
                        first[number]
                        if read_to is None
                        else subscription.clamped(topic, number, read_to, here, fail=fail)
                    )
                    if read_to is not None and read_to > last[number]:
                        at = first[number]  # another topic of the same name, which is read from its start
                    if until > at:
                        ranges.append(OffsetRange(source=name, partition=str(number), start=at, end=until))
        return ranges


def _spark_offset(ends: Mapping[str, Mapping[int, int]]) -> Offset:
    return {topic: {str(number): at for number, at in sorted(each.items())} for topic, each in ends.items()}
