"""Columns that are written as fields of Protobuf of another shape, and maps of messages."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from headrace.base.errors import InvalidPlan
from headrace.base.schema import as_schema
from headrace.connect.formats import protobuf

KINDS = descriptor_pb2.FieldDescriptorProto
ONE, MANY = KINDS.LABEL_OPTIONAL, KINDS.LABEL_REPEATED


def described():
    file = descriptor_pb2.FileDescriptorProto(name="shapes.proto", package="shapes", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="a", number=1, type=KINDS.TYPE_INT32, label=ONE)
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="id", number=1, type=KINDS.TYPE_INT32, label=ONE)
    outer.field.add(name="tags", number=2, type=KINDS.TYPE_STRING, label=MANY)
    outer.field.add(name="inner", number=3, type=KINDS.TYPE_MESSAGE, label=ONE, type_name=".shapes.Inner")
    outer.field.add(name="inners", number=4, type=KINDS.TYPE_MESSAGE, label=MANY, type_name=".shapes.Inner")
    for number, name, of in ((5, "By", ".shapes.Inner"), (6, "At", ".google.protobuf.Timestamp"), (7, "Count", None)):
        entry = outer.nested_type.add(name=f"{name}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=KINDS.TYPE_STRING, label=ONE)
        kind = KINDS.TYPE_INT32 if of is None else KINDS.TYPE_MESSAGE
        entry.field.add(name="value", number=2, type=kind, label=ONE, type_name=of)
        whole = f".shapes.Outer.{name}Entry"
        outer.field.add(name=name.lower(), number=number, type=KINDS.TYPE_MESSAGE, label=MANY, type_name=whole)
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return files.SerializeToString()


FORM = protobuf("shapes.Outer", files=described())


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("by map<string,struct<a:int>>", [("x", {"a": 1}), ("y", {"a": 0})]),
        ("by map<string,struct<a:int>>", []),
        (
            "at map<string,timestamp>",
            [("x", datetime(2026, 1, 1, tzinfo=UTC)), ("y", datetime(1970, 1, 1, tzinfo=UTC))],
        ),
        ("count map<string,int>", [("x", 1), ("y", 0)]),
        ("tags array<string>", ["", "x"]),
    ],
    ids=str,
)
def test_maps_are_written_and_read_also_those_of_messages(ddl, value):
    rows = pa.RecordBatch.from_pylist([{ddl.split()[0]: value}], schema=as_schema(ddl))
    (read,) = FORM.decode(FORM.encode(rows), rows.schema).rows.to_pylist()
    found = read[ddl.split()[0]]
    assert (sorted(found, key=lambda entry: entry[0]) if "map" in ddl else found) == value  # a map has no order


@pytest.mark.parametrize(
    ("ddl", "value", "message"),
    [
        ("tags string", "x", "the field shapes.Outer.tags is repeated, and cannot be written from string"),
        ("id map<string,int>", [("x", 1)], "the field shapes.Outer.id is one value"),
        ("id array<int>", [1], "the field shapes.Outer.id is one value"),
        ("by string", "x", "the field shapes.Outer.by is a map"),
        ("by array<struct<key:string,value:struct<a:int>>>", [], "the field shapes.Outer.by is a map"),
        ("inner map<string,int>", [("a", 1)], "the field shapes.Outer.inner is one value"),
        ("inner struct<a:int,b:int>", {"a": 1, "b": 2}, 'the message shapes.Inner has no field "b"'),
        ("inners struct<a:int>", {"a": 1}, "the field shapes.Outer.inners is repeated"),
        ("inners array<struct<b:int>>", [{"b": 1}], 'the message shapes.Inner has no field "b"'),
        ("inners array<struct<a:int>>", [None], "a row is no message shapes.Outer"),
        ("by map<string,struct<a:int>>", [("x", None)], "a row is no message shapes.Outer"),
        ("nothing int", 1, 'the message shapes.Outer has no field "nothing"'),
    ],
    ids=str,
)
def test_a_column_of_another_shape_is_refused_by_name(ddl, value, message):
    rows = pa.RecordBatch.from_pylist([{ddl.split()[0]: value}], schema=as_schema(ddl))
    with pytest.raises(InvalidPlan, match=message):
        FORM.encode(rows)
