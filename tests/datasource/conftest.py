"""Topics in an embedded log, and plain PySpark that reads and writes them."""

import pytest
from searching import SCHEMA, search

from headrace.log import Log


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as log:
        yield log


@pytest.fixture
def searches(log):
    """Ten records in two partitions, a minute apart, by turns: the even ones are in partition 0."""
    topic = log.create_topic("searches", SCHEMA, partitions=2, event_time="at")
    for n in range(10):
        topic.append([search(n)], partition=n % 2)
    return topic


@pytest.fixture
def read(spark, log):
    """Return a batch of the format, with the options given."""

    def load(**options):
        return spark.read.format("headrace").options(**{"path": str(log.path)} | options).load()

    return load


@pytest.fixture
def run(spark, log, tmp_path):
    """Run a streaming query until it has read what there is: source topic to sink topic, over one checkpoint."""

    def once(topic, to, checkpoint="checkpoint", change=lambda frame: frame, mode="append", **options):
        options = {"path": str(log.path), "subscribe": topic, "startingOffsets": "earliest"} | options
        options = {name: value for name, value in options.items() if value is not None}
        frame = change(spark.readStream.format("headrace").options(**options).load())
        writer = frame.writeStream.outputMode(mode).format("headrace").option("path", str(log.path)).option("topic", to)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    return once
