"""Formats on a real broker, with a real registry: an app writes a topic, another one reads it."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
import writing
from confluent_kafka import Producer

import headrace as hr
from headrace.base.errors import UnreadableRecord
from headrace.connect import kafka
from headrace.connect.formats import avro, cloudevents, csv, debezium
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.client.administration import cluster
from headrace.engine.program.reset import reset
from headrace.testing import Driver

SCHEMA = "id int, who string, price decimal(10,2)"
RECORDED = Path(__file__).parents[1] / "connect" / "recorded_debezium"
FORMS = {
    "avro": lambda url: avro(registry=url),
    "binary events": lambda _: cloudevents(source="/shop", type="order", mode="binary"),
    "events": lambda _: cloudevents(source="/shop", type="order"),
    "batches of events": lambda _: cloudevents(source="/shop", type="order", mode="batch", size=2),
    "csv": lambda _: csv(delimiter=";"),
    "debezium": lambda _: debezium(decimals="string"),
}


def rows(*ids):
    return [{"id": n, "who": f"w{n}", "price": f"{n}.50"} for n in ids]


@pytest.mark.parametrize("name", list(FORMS))
def test_what_an_app_writes_in_a_format_another_one_reads(broker, request, name):
    """Headers and the schema's subject, which is the topic's, go through the sink and the source."""
    form = FORMS[name](request.getfixturevalue("registry") if name == "avro" else None)
    topic = f"orders-{uuid4().hex[:8]}"
    first = hr.App("first")
    first.stream("in", SCHEMA).to(kafka.topic(broker.address, topic, key="id", format=form, partitions=1))
    with Driver(first) as driver:
        driver.send("in", *rows(1, 2, 3))
        driver.run()
    second = hr.App("second")
    stream = second.stream("again", SCHEMA, source=kafka.topic(broker.address, topic), format=form, key="id")
    stream.where("id > 1").to_topic("out")
    with Driver(second) as driver:
        driver.run()
        found = driver.read("out")
    assert [(row["id"], row["who"], str(row["price"])) for row in found] == [(2, "w2", "2.50"), (3, "w3", "3.50")]


def test_a_record_that_a_format_cannot_read_is_a_dead_letter_with_its_offset(broker):
    topic = f"lines-{uuid4().hex[:8]}"
    first = hr.App("first")
    lines = first.stream("in", "line string")
    lines.to(kafka.topic(broker.address, topic, format="text", partitions=1))
    with Driver(first) as driver:
        driver.send("in", {"line": "1;a"}, {"line": "x;b"}, {"line": "3;c;d"})
        driver.run()
    second = hr.App("second")
    source = kafka.topic(broker.address, topic)
    second.stream("lines", "id int, who string", source=source, format=csv(delimiter=";")).to_topic("out")
    with Driver(second) as driver:
        driver.run()
        assert [row["id"] for row in driver.read("out")] == [1]
        reasons = {row["offset"]: row["reason"] for row in driver.read("lines.dead")}
    assert reasons == {1: 'the field id is no whole number: "x"', 2: "it has more than 2 values"}


def produced(broker, name, records):
    """Write records as another program would, in order into one partition; return the source of the topic."""
    cluster(KafkaAddress.parse(broker.address)).create(broker.topic(name), partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in records:
        producer.produce(broker.topic(name), key=key, value=value)
    assert not producer.flush(30)
    return kafka.topic(broker.address, name)


@pytest.mark.parametrize("kind", ["stream", "table"])
def test_a_record_whose_key_cannot_be_read_is_a_dead_letter(broker, kind):
    """The value has no key of its own; a record without any key is a row of a stream."""
    records = [("7", '{"name":"a"}'), ("x", '{"name":"b"}'), (None, '{"name":"c"}'), ("y", '{"id":3,"name":"d"}')]
    app = hr.App("reader")
    source = produced(broker, f"keyed-{uuid4().hex[:8]}", records)
    declare = app.stream if kind == "stream" else app.table
    declare("keyed", "id int, name string", key="id", source=source).to_topic("out")
    with Driver(app) as driver:
        driver.run()
        found = [(row["id"], row["name"]) for row in driver.read("out")]
        reasons = {row["offset"]: row["reason"] for row in driver.read("keyed.dead")}
    assert reasons.pop(1) == 'its key cannot be read: the field id is no whole number: "x"'
    assert sorted(found, key=str) == [(3, "d"), (7, "a"), *([(None, "c")] if kind == "stream" else [])]
    assert [*reasons] == ([] if kind == "stream" else [2])


@pytest.mark.parametrize("file", ["plain", "schemas"])
def test_a_truncate_of_debezium_is_a_dead_letter_and_what_follows_is_read(broker, file):
    """Debezium's record has no key: it is in one partition of many, so its order among the rows is not known."""
    lines = [line.split("\t") for line in (RECORDED / f"{file}.tsv").read_text(encoding="utf-8").splitlines()]
    records = [(None if key == r"\N" else key, value) for topic, key, value in lines if topic.endswith(".emptied")]
    assert [key is None for key, _ in records] == [False, False, True, False]
    app = hr.App("reader")
    source = produced(broker, "emptied", records)
    app.table("emptied", "id int", key="id", source=source, format="debezium").to_view("rows")
    with Driver(app) as driver:
        driver.run()
        assert sorted(row["id"] for row in driver.view("rows")) == [1, 2, 3]
        (dead,) = driver.read("emptied.dead")
    assert dead["offset"] == 2
    assert "delete them by DELETE instead of TRUNCATE" in dead["reason"]


def test_a_truncate_of_debezium_stops_a_table_that_may_not_miss_a_change(broker):
    event = {"before": None, "after": {"id": 1}, "op": "c"}
    records = [('{"id":1}', json.dumps(event)), (None, json.dumps(event | {"after": None, "op": "t"}))]
    app = hr.App("reader")
    source = produced(broker, "emptied", records)
    app.table("emptied", "id int", key="id", source=source, format="debezium", on_error="fail").to_view("rows")
    with Driver(app) as driver, pytest.raises(UnreadableRecord, match="DELETE instead of TRUNCATE"):
        driver.run()


def named(topics=None):
    app = hr.App("named", topics=topics)
    app.table("users", "id int, name string", key="id").to_topic("named", format="debezium", key_format="json")
    return app


def test_events_of_a_table_leave_its_rows_also_after_a_reset_that_writes_them_again(broker, tmp_path):
    """Each event says what its row was, so that a reader without a key knows which one goes."""
    with Driver(named(broker.address), storage=tmp_path) as driver:
        driver.send("users", *({"id": n, "name": f"u{n}"} for n in range(4)))
        driver.run()
        driver.send("users", {"id": 3, "name": "other"})
        driver.delete("users", id=1)
        driver.run()
        driver.delete("users", id=2)
    reset(named(broker.address).plan(), tmp_path, sync=False)
    with Driver(named(broker.address), storage=tmp_path) as driver:
        driver.run()
    left, tombstones, deletions = [], 0, 0
    for part in writing.records(broker, "named").values():
        for record in part:
            event = json.loads(record["value"] or "null")
            tombstones += event is None
            if event is None:
                continue
            deletions += event["op"] == "d"
            assert json.loads(record["_key"])["id"] == (event["after"] or event["before"])["id"]
            assert (event["before"] is None, event["after"] is None) == (event["op"] == "c", event["op"] == "d")
            if event["before"] is not None:
                left.remove(event["before"])
            if event["after"] is not None:
                left.append(event["after"])
    assert sorted(left, key=json.dumps) == [{"id": 0, "name": "u0"}, {"id": 3, "name": "other"}]
    assert tombstones == deletions > 2
