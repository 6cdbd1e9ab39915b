"""`df.write.format("headrace")` and `df.writeStream.format("headrace")`: appends, the stream's exactly once.

The writer's identity needs no option: Spark gives every task the identity of its query, which lives in the
checkpoint, and the number of the micro-batch.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.base.errors import InvalidOption, OutsideError
from headrace.engine.spark.datasource.staging import StagedFile, StagedWrite
from headrace.log import Log
from headrace.log.rows import rows_to_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headrace.engine.spark.datasource.options import WriteOptions

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_FOREACH = (
    'Append, or write upserts in foreachBatch with .outputMode("update"): a batch with the options producer (a name) '
    "and sequence (the batch's number) is appended once."
)


@dataclass
class TaskResult(WriterCommitMessage):
    """What a task tells the driver: the file that it staged, if it had rows, and for which query."""

    query: str
    staged: StagedFile | None


class BatchWriter(DataSourceArrowWriter):
    """Appends a batch: nothing before every task is done, then all rows of a partition at once."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _check(options, schema, overwrite=overwrite, instead='Say .mode("append").')
        self.options = options
        if options.producer is None:
            self.name = f"batch-{uuid.uuid4().hex}"
        else:
            self.name = "producer-" + blake2b(options.producer.encode(), digest_size=16).hexdigest()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows."""
        with Log(self.options.path) as log:
            topic = log.topic(self.options.topic)
            staged = self._staged_write().stage(iterator, topic.schema, _task(), seal=topic.seal)
        return TaskResult(self.name, staged)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what the tasks staged."""
        with Log(self.options.path) as log:
            self._staged_write().append(log.topic(self.options.topic), _files(messages))
        if self.options.producer is None:
            self._staged_write().forget()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks staged."""
        self._staged_write().abandon(_files(messages))
        if self.options.producer is None:
            self._staged_write().forget()

    def _staged_write(self) -> StagedWrite:
        return _staged_write_of(self.options, self.name, self.options.sequence or 0)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends micro-batches exactly once: a micro-batch that Spark runs again appends nothing.

    The identity is the query's, which Spark keeps in the checkpoint: a query with a new checkpoint is another one, and
    appends what it reads, even if an earlier query did already.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if options.producer is not None:
            raise InvalidOption(
                "producer and sequence are for batches: a stream has an identity of its own",
                detail="It is the query's, in the checkpoint, and the number of the micro-batch.",
                hint="Leave them out.",
            )
        _check(options, schema, overwrite=overwrite, instead=_FOREACH)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows."""
        query, batch = _property(_QUERY), int(_property(_BATCH))
        with Log(self.options.path) as log:
            topic = log.topic(self.options.topic)
            staged = self._staged_write(query, batch).stage(iterator, topic.schema, _task(), seal=topic.seal)
        return TaskResult(query, staged)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Append what the tasks staged, unless this micro-batch was appended before."""
        for query in {message.query for message in messages if isinstance(message, TaskResult)}:
            with Log(self.options.path) as log:
                self._staged_write(query, batchId).append(log.topic(self.options.topic), _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Remove what the tasks staged."""
        for query in {message.query for message in messages if isinstance(message, TaskResult)}:
            self._staged_write(query, batchId).abandon(_files(messages))

    def _staged_write(self, query: str, batch: int) -> StagedWrite:
        return _staged_write_of(self.options, query, batch)


def _staged_write_of(options: WriteOptions, name: str, commit: int) -> StagedWrite:
    identity = f"{name}/{options.topic}"
    return StagedWrite(options.path / "spark" / options.topic / name, identity, commit)


def _check(options: WriteOptions, schema: StructType, *, overwrite: bool, instead: str) -> None:
    """Refuse rows that the topic cannot take, before any task runs.

    Raises:
        InvalidOption: the mode is overwrite.
        UnknownTopic: there is no such topic.
        InvalidRows: a column is unknown to the topic, or of another type.

    """
    if overwrite:
        raise InvalidOption(
            f'the topic "{options.topic}" cannot be overwritten: a topic only grows',
            hint=f'{instead} To start over, delete it: headrace topics delete {options.topic} --log "{options.path}".',
        )
    with Log(options.path) as log:
        topic = log.topic(options.topic)
        rows_to_table(to_arrow_schema(schema, timezone="UTC").empty_table(), topic.schema)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [message.staged for message in messages if isinstance(message, TaskResult) and message.staged is not None]


def _task() -> int:
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def _property(name: str) -> str:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise OutsideError(
            f"this Spark does not tell its tasks {name}, so a stream cannot be appended exactly once",
            hint=_FOREACH,
        )
    return str(value)
