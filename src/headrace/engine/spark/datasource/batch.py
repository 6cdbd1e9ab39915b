"""`spark.read.format("headrace")`: offsets are fixed when the query is planned, filters prune what is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

from headrace.base.errors import InvalidOption
from headrace.connect.source import OffsetRange
from headrace.engine.spark.datasource import columns, filters, read_tasks, subscription
from headrace.engine.spark.datasource.options import EARLIEST
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter, InputPartition
    from pyspark.sql.types import StructType

    from headrace.engine.spark.datasource.filters import ColumnTest
    from headrace.engine.spark.datasource.options import ReadOptions
    from headrace.log import Topic


class PushFilters:
    """Takes filters where Spark offers them, and looks like Spark's own empty method where it does not.

    Spark refuses a reader that has a `pushFilters` of its own while `spark.sql.python.filterPushdown.enabled` is
    off, as it is by default: it looks at the method's `__func__`.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader) -> None:
        self.reader = reader

    def __call__(self, given: list[Filter]) -> list[Filter]:
        """Keep the filters that can be tested in the reader; Spark tests all of them again."""
        self.reader.tests = filters.column_tests(given, self.reader.schema)
        return given


class BatchReader(DataSourceReader):
    """Reads the records of a subscription between two sets of offsets."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.most is not None:
            raise InvalidOption(
                "maxOffsetsPerTrigger is for streams: a batch has no triggers",
                hint="Give endingOffsets, or leave it out.",
            )
        self.options = options
        self.schema = self.arrow_schema(schema)
        self.tests: tuple[ColumnTest, ...] = ()
        self.pushFilters: Any = PushFilters(self)

    def arrow_schema(self, schema: StructType) -> pa.Schema:
        """Return the columns that Spark asks for, if the topics have them."""
        with self.log() as log:
            return columns.arrow_schema(subscription.subscribed(log, self.options), schema)

    def log(self) -> Log:
        """Return the log, open."""
        return Log(self.options.path)

    def partitions(self) -> Sequence[InputPartition]:
        """Fix the offsets and return the tasks."""
        with self.log() as log:
            topics = subscription.subscribed(log, self.options)
            first = subscription.starts(topics, self.options, default=EARLIEST)
            last = subscription.ends(topics, self.options)
            ranges = []
            for topic in topics:
                for number, start in first[topic.name].items():
                    range_ = _range(topic.name, number, start, last[topic.name][number])
                    ranges += self.pruned(topic, range_)
        return read_tasks.plan_tasks(ranges, least=self.options.tasks) or [read_tasks.ReadTask([])]

    def pruned(self, topic: Topic, range_: OffsetRange) -> list[OffsetRange]:
        """Return the parts of a range that can hold records which pass the filters."""
        return read_tasks.pruned(topic, range_, self.tests)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        assert isinstance(partition, read_tasks.ReadTask)  # noqa: S101 -- `partitions` returned it
        plan = read_tasks.ReadPlan(self.options.path, self.schema, self.tests, self.options.fail_on_data_loss)
        return read_tasks.batches(plan, partition.ranges)


def _range(topic: str, number: int, start: int, end: int) -> OffsetRange:
    if end < start:
        raise InvalidOption(
            f'topic "{topic}", partition {number}: reading ends at offset {end}, before it begins at {start}',
            hint="Give endingOffsets behind startingOffsets.",
        )
    return OffsetRange(source=topic, partition=str(number), start=start, end=end)
