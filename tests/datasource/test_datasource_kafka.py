"""Plain PySpark reads topics of Kafka: with the options and columns of Spark's own connector, and decoded."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException

from headrace.base.errors import InvalidOption
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.client.administration import cluster
from headrace.engine.spark.datasource.kafka_options import kafka_options


@pytest.fixture
def orders(broker):
    """Ten records in two partitions, the even ones in the first."""
    topic = broker.topic("orders")
    cluster(KafkaAddress.parse(broker.address)).create(topic, partitions=2, settings={"retention.ms": "-1"})
    write(broker, range(10))
    return topic


def write(broker, ids):
    writer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in ids:
        value = json.dumps({"id": number, "name": f"n{number}"})
        headers = [("h", b"%d" % number)] if number else None
        where = {"partition": number % 2, "timestamp": 1_700_000_000_000 + number}
        writer.produce(broker.topic("orders"), value, key=f"k{number}", headers=headers, **where)
    writer.flush()


@pytest.fixture
def frame(spark, broker, orders):  # noqa: ARG001 -- it is read
    """Return a batch of the format, with the options given; names of options are those of Spark's connector."""

    def load(schema=None, **options):
        reader = spark.read.format("headrace").options(**{"path": broker.address, "subscribe": "orders"} | options)
        return (reader if schema is None else reader.schema(schema)).load()

    return load


def test_a_batch_has_the_columns_of_sparks_own_connector(spark, broker, orders):
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = reader.option("subscribe", orders).option("includeHeaders", "true").load()
    assert rows.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    found = rows.selectExpr("string(key)", "topic", "partition", "offset", "unix_millis(timestamp)", "timestampType")
    assert sorted(map(tuple, found.collect())) == sorted(
        (f"k{n}", orders, n % 2, n // 2, 1_700_000_000_000 + n, 0) for n in range(10)
    )
    headers = {row.key: row.headers for row in rows.selectExpr("string(key) AS key", "headers").collect()}
    assert headers["k0"] == []
    assert [(each["key"], bytes(each["value"])) for each in headers["k3"]] == [("h", b"3")]


def test_records_are_decoded_with_what_is_beside_them(frame):
    schema = "id int, name string, _offset bigint, _partition int"
    rows = frame(schema, format="json", startingOffsets='{"orders": {"0": 3, "1": -1}}').collect()
    assert sorted(map(tuple, rows)) == [(6, "n6", 3, 0), (8, "n8", 4, 0)]


def test_a_record_that_cannot_be_decoded_is_named_or_dropped(frame, broker):
    writer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    writer.produce(broker.topic("orders"), b"{broken", partition=0)
    writer.flush()
    with pytest.raises(PySparkException, match="partition 0, offset 5"):
        frame("id int", format="json").collect()
    assert frame("id int", format="json", mode="dropmalformed").count() == 10


def test_a_batch_may_begin_at_a_time(frame):
    late = frame("id int", format="json", startingTimestamp="1700000000007", endingOffsets="latest")
    assert sorted(row.id for row in late.collect()) == [7, 8, 9]


def test_a_stream_goes_on_from_its_checkpoint(spark, broker, orders, tmp_path):  # noqa: ARG001 -- the same
    """Without an option for it a micro-batch has all that is committed; with a limit equal parts."""

    def run():
        rows = spark.readStream.format("headrace").options(path=broker.address, subscribe="orders")
        rows = rows.options(startingOffsets="earliest", format="json", maxOffsetsPerTrigger="4")
        query = (
            rows.schema("id int")
            .load()
            .writeStream.format("parquet")
            .options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        read = sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect())
        return [each.numInputRows for each in query.recentProgress if each.numInputRows], read

    assert run() == ([4, 4, 2], list(range(10)))
    write(broker, range(10, 13))
    assert run() == ([3], list(range(13)))


def test_options_are_checked():
    def refused(**options):
        with pytest.raises(InvalidOption) as error:
            kafka_options({"path": "kafka://localhost", "subscribe": "t"} | options)
        return str(error.value)

    assert "path and kafka.bootstrap.servers both say" in refused(**{"kafka.bootstrap.servers": "localhost"})
    assert 'has no option "startingOfsets"' in refused(startingOfsets="earliest")
    assert 'cannot be "snapshot"' in refused(**{"kafka.isolation.level": "snapshot"})
    assert 'cannot be "KEEP"' in refused(mode="KEEP")
    assert "exactly one of" in refused(assign='{"t": [0]}')
    given = {"kafka.bootstrap.servers": "a:1", "kafka.client.id": "me", "subscribe": "t"}
    assert kafka_options(given).address.configuration() == {"bootstrap.servers": "a:1", "client.id": "me"}
