"""What a task reads is handed to Spark in batches of a size that is worth it."""

import pyarrow as pa
import pytest
from searching import SCHEMA, search

from headrace.base.errors import DataLoss, TopicDiffers
from headrace.base.schema import parse
from headrace.connect.source import OffsetRange
from headrace.engine.spark.datasource import read_tasks


def read(log, schema, topic="t", *, last, fail=True):
    plan = read_tasks.ReadPlan(log.path, schema, (), fail)
    return list(read_tasks.batches(plan, [OffsetRange(source=topic, partition="0", start=0, end=last)]))


def test_single_appends_become_large_batches(log):
    """One record an append is one batch in the log, and must not be one for Spark."""
    topic = log.create_topic("t", SCHEMA)
    for n in range(300):
        topic.append([search(n)])
    batches = read(log, topic.schema, last=300)
    assert [batch.num_rows for batch in batches] == [300]
    assert batches[0].column("id").to_pylist() == list(range(300))


def test_large_appends_are_not_copied(log):
    topic = log.create_topic("t", "id bigint")
    topic.append(pa.table({"id": range(40_000)}))
    (batch,) = read(log, topic.schema, last=40_000)
    (stored,) = topic.batches(0, 0, 40_000)
    assert batch.equals(stored)
    assert batch.column(0).buffers()[1].size == stored.column(0).buffers()[1].size


def test_records_deleted_after_planning_are_lost_data_or_passed_over(log):
    topic = log.create_topic("t", SCHEMA)
    topic.append([search(n) for n in range(3)])
    with pytest.raises(DataLoss, match="the records from 0 on are gone"):
        read(log, topic.schema, last=5)
    (batch,) = read(log, topic.schema, last=5, fail=False)
    assert batch.num_rows == 3


def test_a_column_that_changed_under_a_query_is_reported(log):
    log.create_topic("t", "id bigint").append([{"id": 1 << 40}])
    (batch,) = read(log, parse("id bigint, more string"), last=1)
    assert batch.to_pylist() == [{"id": 1 << 40, "more": None}]
    with pytest.raises(TopicDiffers, match='the column "id" of topic "t" has another type than when the query began'):
        read(log, parse("id int"), last=1)


def test_tasks_are_few_for_few_rows_and_many_for_many():
    def tasks(*rows, least=1):
        ranges = [OffsetRange(source="t", partition=str(n), start=0, end=last) for n, last in enumerate(rows)]
        return [sum(range_.rows for range_ in task.ranges) for task in read_tasks.plan_tasks(ranges, least=least)]

    assert tasks(10, 20) == [30]
    assert tasks(300_000, 10) == [150_000, 150_000, 10]
    assert tasks(100, least=4) == [25, 25, 25, 25]
    assert len(tasks(10_000_000_000)) == 1_000
    assert tasks() == []
