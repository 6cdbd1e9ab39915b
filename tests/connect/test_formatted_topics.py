"""Topics of the embedded log whose records have a format: what one app writes, another one reads, deletions too."""

from __future__ import annotations

import json

import pytest
from google.protobuf import descriptor_pb2

import headrace as hr
from budget import fast
from headrace.base.errors import TopicDiffers
from headrace.connect.formats import avro, cloudevents, csv, debezium, protobuf
from headrace.engine.program.reset import reset
from headrace.testing import Driver

SCHEMA = "id int, who string, price double"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "who", "type": "string"},
            {"name": "price", "type": "double"},
        ],
    }
)  # no field may be null: a deletion has no record


def message():
    """Return a format of messages with the columns."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("id", "INT32"), ("who", "STRING"), ("price", "DOUBLE")), 1):
        order.field.add(name=name, number=number, type=getattr(kinds, f"TYPE_{kind}"), label=1)
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return protobuf("shop.Order", files=files.SerializeToString())


FORMS = {
    "json": "json",
    "text": "text",
    "csv": csv(delimiter=";"),
    "avro": avro(schema=AVRO),
    "protobuf": message(),
    "cloudevents": cloudevents(source="/shop", type="order"),
    "events in headers": cloudevents(source="/shop", type="order", mode="binary"),
    "debezium": debezium(decimals="string"),
}


def row(number, who=None):
    return {"id": number, "who": who or f"w{number}", "price": number + 0.5}


@pytest.fixture
def log(tmp_path):
    return f"log:{tmp_path / 'log'}"


@pytest.mark.parametrize("name", fast("json", "debezium", "avro", of=FORMS))
def test_a_table_that_is_written_in_a_format_is_read_as_a_table(log, name):
    """A tombstone has no value: neither a format whose fields may not be null nor one without nulls sees it."""
    form = FORMS[name]
    writer = hr.App("writer", topics=log, shards=1)
    writer.table("in", SCHEMA, key="id").to_topic("orders", format=form)
    reader = hr.App("reader", topics=log, shards=1)
    reader.table("orders", SCHEMA, key="id", format=form).to_view("orders")
    with Driver(writer) as writing, Driver(reader) as reading:
        writing.send("in", row(1), row(2), row(3))
        writing.run()
        reading.run()
        assert reading.view("orders") == [row(1), row(2), row(3)]
        writing.delete("in", id=2)
        writing.send("in", row(3, "new"))
        writing.run()
        reading.run()
        assert reading.view("orders") == [row(1), row(3, "new")]
        gone, new = [each for each in writing.read("orders") if each.get("_deleted") or each["who"] == "new"]
        assert gone == {"id": 2, "who": None, "price": None, "_deleted": True}
        assert new == row(3, "new")
        assert not reading.log.has_topic("orders.dead")


@pytest.mark.parametrize("name", fast("csv", "protobuf", "json", of=FORMS))
def test_a_stream_that_is_written_in_a_format_is_read_as_a_stream(log, name):
    form = FORMS[name]
    writer = hr.App("writer", topics=log, shards=1)
    writer.stream("in", SCHEMA).where("id > 1").to_topic("orders", format=form)
    reader = hr.App("reader", topics=log, shards=1)
    reader.stream("orders", SCHEMA, format=form).select("id", "who", "price").to_topic("out")
    with Driver(writer) as writing, Driver(reader) as reading:
        writing.send("in", row(1), row(2), row(3))
        writing.run()
        reading.run()
        assert [{name: each[name] for name in row(1)} for each in reading.read("out")] == [row(2), row(3)]


def test_bytes_of_one_column_are_records(log):
    writer = hr.App("writer", topics=log, shards=1)
    writer.stream("in", "raw binary").to_topic("blobs", format="binary")
    reader = hr.App("reader", topics=log, shards=1)
    reader.stream("blobs", "raw binary", format="binary").to_topic("out")
    with Driver(writer) as writing, Driver(reader) as reading:
        writing.send("in", {"raw": b"\xff\x00"})
        writing.run()
        reading.run()
        assert [each["raw"] for each in reading.read("out")] == [b"\xff\x00"]


def test_deletions_of_another_database_delete_rows():
    """Events of Debezium with op d are deletions in a topic of the log, as they are in Kafka."""
    app = hr.App("cdc", storage="unused", shards=1)
    app.table("t", "id int, city string", key="id", format="debezium").to_view("rows")

    def event(op, before=None, after=None):
        return {"id": (before or after)["id"], "value": json.dumps({"op": op, "before": before, "after": after})}

    with Driver(app) as driver:
        driver.send("t", event("c", after={"id": 1, "city": "Bern"}), event("c", after={"id": 2, "city": "Rom"}))
        driver.run()
        driver.send("t", event("d", before={"id": 1, "city": "Bern"}))
        driver.delete("t", id=1)
        driver.run()
        assert driver.view("rows") == [{"id": 2, "city": "Rom"}]


def test_a_driver_sends_rows_or_records(log):
    app = hr.App("sent", topics=log, shards=1)
    app.stream("orders", SCHEMA, format="json").to_topic("out")
    with Driver(app) as driver:
        driver.send("orders", row(1))
        driver.send("orders", {"value": '{"id": 2, "who": "w2", "price": 2.5}'})
        driver.run()
        assert [each["id"] for each in driver.read("out")] == [1, 2]


def test_keys_that_a_table_has_no_more_are_withdrawn_in_its_format(tmp_path):
    """A start after `reset` compares the rows of the topic with those of the table, and appends records."""

    def app():
        made = hr.App("shop", shards=1)
        orders = made.table("in", SCHEMA, key="id")
        orders.where("id < 9").to_topic("orders", format="json")
        return made

    with Driver(app(), storage=tmp_path) as driver:
        driver.send("in", row(1), row(2))
        driver.run()
        driver.delete("in", id=1)
    reset(app().plan(), tmp_path, sync=False)
    with Driver(app(), storage=tmp_path) as driver:
        driver.run()
        last = {each["id"]: each for each in driver.read("orders")}
        assert last == {1: {"id": 1, "who": None, "price": None, "_deleted": True}, 2: row(2)}


def test_bytes_are_not_written_to_a_topic_of_text(log):
    first = hr.App("first", topics=log, shards=1)
    first.stream("in", SCHEMA).to_topic("orders", format="json")
    second = hr.App("second", topics=log, shards=1)
    second.stream("in", SCHEMA).to_topic("orders", format=avro(schema=AVRO))
    with Driver(first):
        pass
    with pytest.raises(TopicDiffers, match="the format avro writes bytes"), Driver(second):
        pass
