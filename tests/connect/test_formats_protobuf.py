"""Messages of Protobuf, as the library writes them."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from uuid import uuid4

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import InvalidPlan
from headrace.base.schema import as_schema
from headrace.connect.formats import protobuf, protobuf_cells, protobuf_values
from headrace.connect.formats.cells import NotInColumns

PROTO = """syntax = "proto3";
package shop;
message Other { int32 x = 1; }
message Order {
  message Line { string item = 1; optional int32 count = 2; }
  enum Color { NONE = 0; RED = 1; }
  int64 id = 1;
  optional string note = 2;
  double price = 3;
  Color color = 4;
  bytes raw = 5;
  repeated Line lines = 6;
  Line first = 7;
  repeated int32 numbers = 8;
  uint64 big = 9;
}
"""
DECLARED = as_schema(
    "id bigint, note string, price double, color string, raw binary, lines array<struct<item string, count int>>, "
    "first struct<item string, count int>, numbers array<int>, big bigint"
)
ROWS = [
    {
        "id": 1,
        "note": "é",
        "price": 1.5,
        "color": "RED",
        "raw": b"\xff",
        "lines": [{"item": "a", "count": 2}, {"item": "b", "count": None}],
        "first": {"item": "c", "count": 0},
        "numbers": [1, -2],
        "big": 2**62,
    },
    {"id": 0, "note": None, "price": 0.0, "color": "NONE", "raw": b"", "lines": [], "first": None,
     "numbers": [], "big": 0},
]  # fmt: skip


def described():
    """Return the file of PROTO, as protoc writes it."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other").field.add(name="x", number=1, type=kinds.TYPE_INT32, label=1)
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="item", number=1, type=kinds.TYPE_STRING, label=1)
    line.oneof_decl.add(name="_count")
    line.field.add(name="count", number=2, type=kinds.TYPE_INT32, label=1, proto3_optional=True, oneof_index=0)
    color = order.enum_type.add(name="Color")
    color.value.add(name="NONE", number=0)
    color.value.add(name="RED", number=1)
    order.oneof_decl.add(name="_note")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=1)
    order.field.add(name="note", number=2, type=kinds.TYPE_STRING, label=1, proto3_optional=True, oneof_index=0)
    order.field.add(name="price", number=3, type=kinds.TYPE_DOUBLE, label=1)
    order.field.add(name="color", number=4, type=kinds.TYPE_ENUM, label=1, type_name=".shop.Order.Color")
    order.field.add(name="raw", number=5, type=kinds.TYPE_BYTES, label=1)
    order.field.add(name="lines", number=6, type=kinds.TYPE_MESSAGE, label=3, type_name=".shop.Order.Line")
    order.field.add(name="first", number=7, type=kinds.TYPE_MESSAGE, label=1, type_name=".shop.Order.Line")
    order.field.add(name="numbers", number=8, type=kinds.TYPE_INT32, label=3)
    order.field.add(name="big", number=9, type=kinds.TYPE_UINT64, label=1)
    return file


def order():
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def batch():
    return pa.RecordBatch.from_pylist(ROWS, schema=DECLARED)


def test_what_was_written_is_read_and_what_is_not_set_is_null_where_that_can_be_told():
    form = protobuf(order())
    assert form.decode(form.encode(batch()), DECLARED).rows.to_pylist() == ROWS


def test_the_library_reads_what_was_written():
    message = order().FromString(protobuf(order()).encode(batch())[0].as_py())
    assert (message.id, message.note, message.color, message.lines[0].count) == (1, "é", 1, 2)
    assert not message.lines[1].HasField("count")


def test_bytes_that_are_no_message_and_numbers_out_of_range_are_bad():
    records = [b"\xff", order()(big=2**63).SerializeToString(), None, order()(id=5).SerializeToString()]
    read = protobuf(order()).decode(pa.array(records, pa.binary()), as_schema("id bigint, big bigint"))
    assert read.rows.to_pylist() == [{"id": 5, "big": 0}]
    assert read.reasons.to_pylist()[:3] == [
        "it is no message shop.Order",
        f"the field big is out of the range of BIGINT: {2**63}",
        "it has no value",
    ]


def test_a_field_that_the_reader_does_not_know_is_ignored():
    read = protobuf(order()).decode(pa.array([b"\xa0\x06\x05" + b"\x08\x07"]), as_schema("id bigint, gone int"))
    assert read.rows.to_pylist() == [{"id": 7, "gone": None}]


def test_a_time_is_an_instant():
    time = timestamp_pb2.Timestamp(seconds=1769853600, nanos=5_000)
    form = protobuf(timestamp_pb2.Timestamp)
    read = form.decode(pa.array([time.SerializeToString()]), as_schema("seconds bigint, nanos int"))
    assert read.rows.to_pylist() == [{"seconds": 1769853600, "nanos": 5_000}]
    file = descriptor_pb2.FileDescriptorProto(
        name="t.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="T").field.add(
        name="at", number=1, type=kinds.TYPE_MESSAGE, label=1, type_name=".google.protobuf.Timestamp"
    )
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    form, schema = protobuf("T", files=files.SerializeToString()), as_schema("at timestamp")
    rows = pa.RecordBatch.from_pylist([{"at": datetime(2026, 1, 31, 10, 0, 0, 5, UTC)}, {"at": None}], schema=schema)
    assert form.decode(form.encode(rows), schema).rows.equals(rows)


def test_rows_are_written_with_a_registered_schema_and_the_place_of_the_message(registry):
    form = protobuf(order(), registry=registry, schema=PROTO).bound(f"orders-{uuid4().hex}")
    records = form.encode(batch())
    assert records[0].as_py()[5:7] == b"\x02\x02"  # one number, which is 1: the second message of the file
    assert form.decode(records, DECLARED).rows.to_pylist() == ROWS
    first = records[0].as_py()
    odd = pa.array([first[:5] + b"\0" + first[7:], b"\1", b"\0\0\0\0\1\xff"], pa.binary())
    reasons = form.decode(odd, DECLARED).reasons.to_pylist()
    assert "another message of the schema" in reasons[0]
    assert reasons[1:] == ["it does not begin with a zero and the id of a schema"] * 2


def test_a_format_is_a_value_and_what_is_no_message_is_refused():
    form = protobuf(order(), registry="http://localhost:8081")
    assert pickle.loads(pickle.dumps(form)) == form  # noqa: S301 -- our own
    assert "8081" not in form.identity
    with pytest.raises(InvalidPlan, match="no message"):
        protobuf("shop.Order")
    with pytest.raises(InvalidPlan, match="no message"):
        protobuf("shop.No", files=descriptor_pb2.FileDescriptorSet(file=[described()]).SerializeToString())
    with pytest.raises(InvalidPlan, match="no field"):
        protobuf(order()).encode(pa.record_batch({"gone": pa.array([1])}))


SCALARS = {
    "int32": "int", "int64": "bigint", "uint32": "bigint", "uint64": "bigint", "sint32": "int", "sint64": "bigint",
    "fixed32": "bigint", "fixed64": "bigint", "sfixed32": "int", "sfixed64": "bigint", "bool": "boolean",
    "float": "float", "double": "double", "string": "string", "bytes": "binary",
}  # fmt: skip
"""A field of each type of Protobuf with the type of its column; twice: with presence, and without."""
NUMBERS = {"int": 31, "bigint": 63}
MADE = {
    "boolean": st.booleans(),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=200),
    "binary": st.binary(max_size=5),
}


def every():
    """Return a message with each type, an enum, a message inside, a time and a wrapped number; numbers above 15 too."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="every.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="b", number=2, type=kinds.TYPE_STRING, label=1)
    inner.field.add(name="a", number=1, type=kinds.TYPE_INT32, label=1)
    message = file.message_type.add(name="Every")
    color = message.enum_type.add(name="Color")
    for number, name in enumerate(("NONE", "RED", "BLUE")):
        color.value.add(name=name, number=number)
    for at, name in enumerate(SCALARS):
        kind = getattr(kinds, f"TYPE_{name.upper()}")
        message.field.add(name=name, number=40 - at, type=kind, label=1)
        message.oneof_decl.add(name=f"_o_{name}")
        message.field.add(name=f"o_{name}", number=100 + at, type=kind, label=1, proto3_optional=True, oneof_index=at)
    for at, (name, kind) in enumerate(
        {"inner": ".shop.Inner", "at": ".google.protobuf.Timestamp", "wrapped": ".google.protobuf.Int64Value"}.items()
    ):
        message.field.add(name=name, number=1 + at, type=kinds.TYPE_MESSAGE, label=1, type_name=kind)
    message.field.add(name="color", number=9, type=kinds.TYPE_ENUM, label=1, type_name=".shop.Every.Color")
    pool = descriptor_pool.DescriptorPool()
    for each in (timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR):
        pool.AddSerializedFile(each.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Every"))


def drawn(name, kind):
    if kind not in NUMBERS:
        return MADE[kind]
    bits = 32 if name in ("uint32", "fixed32") else NUMBERS[kind]
    return st.integers(0 if name.startswith(("u", "fixed")) else -(2**bits), 2**bits - 1)


EVERY_KIND = as_schema(
    ", ".join(
        [f"{name} {kind}" for name, kind in SCALARS.items()] + [f"o_{name} {kind}" for name, kind in SCALARS.items()]
    )
    + ", wrapped bigint, inner struct<a int, b string>, at timestamp, color string"
)
EVERY_ROW = st.fixed_dictionaries(
    {name: st.none() | drawn(name, kind) for name, kind in SCALARS.items()}
    | {f"o_{name}": st.none() | drawn(name, kind) for name, kind in SCALARS.items()}
    | {
        "wrapped": st.none() | st.integers(-5, 5),
        "inner": st.none()
        | st.fixed_dictionaries({"a": st.none() | st.integers(-1, 1), "b": st.none() | st.text(max_size=2)}),
        "at": st.none() | st.integers(-(10**16), 10**16),
        "color": st.none() | st.sampled_from(["NONE", "RED", "BLUE"]),
    }
)


@settings(max_examples=25)
@given(rows=st.lists(EVERY_ROW, max_size=4), cut=st.integers(0, 2))
def test_messages_that_are_written_in_columns_are_those_of_the_library(rows, cut):
    """Byte by byte, also of a part of a batch."""
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in EVERY_KIND]
    part = pa.RecordBatch.from_arrays(columns, names=EVERY_KIND.names).slice(cut)
    kind = every()
    assert protobuf_cells.write(part, kind, b"\0h").to_pylist() == protobuf_values.write(part, kind, b"\0h")


@pytest.mark.parametrize(
    "column",
    [
        {"int32": pa.array([2**31], pa.int64())},
        {"uint64": pa.array([-1], pa.int64())},
        {"float": pa.array([1.5], pa.float64())},
        {"string": pa.array([b"x"], pa.binary())},
        {"color": pa.array(["GREEN"])},
        {"nothing": pa.array([1])},
        {"int64": pa.array([[1]])},
    ],
)
def test_what_is_not_exactly_a_type_of_a_field_is_left_to_the_library(column):
    with pytest.raises(NotInColumns):
        protobuf_cells.write(pa.record_batch(column), every(), b"")


def test_lists_are_left_to_the_library():
    with pytest.raises(NotInColumns):
        protobuf_cells.write(batch(), order(), b"")


def test_many_messages_are_written_in_columns(monkeypatch):
    monkeypatch.setattr(protobuf_values, "write", None)
    rows = pa.record_batch({"id": pa.array(range(1_000), pa.int64()), "note": pa.array(["é"] * 1_000)})
    form = protobuf(order())
    assert form.decode(form.encode(rows), rows.schema).rows.equals(rows)


def test_a_path_is_no_description_of_a_message():
    with pytest.raises(InvalidPlan, match="no serialized FileDescriptorSet") as error:
        protobuf("shop.Order", files="order.desc")
    assert "read_bytes" in error.value.hint
