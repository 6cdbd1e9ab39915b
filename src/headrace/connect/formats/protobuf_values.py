"""Messages of Protobuf as JSON has them, and rows as messages, one by one, by the library."""

from __future__ import annotations

import base64
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from headrace.base.errors import InvalidPlan
from headrace.base.schema import type_name
from headrace.connect.formats.calendar_text import time_text
from headrace.connect.formats.json_text import plain
from headrace.connect.formats.json_values import Number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TIME = "google.protobuf.Timestamp"
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
}


def files_of(descriptor: Any) -> bytes:
    """Return the file of a message with all that it imports, as a serialized FileDescriptorSet."""
    found: dict[str, Any] = {}

    def add(file: Any) -> None:
        if file.name not in found:
            for other in file.dependencies:
                add(other)
            found[file.name] = file

    add(descriptor.file)
    files = descriptor_pb2.FileDescriptorSet()
    for file in found.values():
        file.CopyToProto(files.file.add())
    return bytes(files.SerializeToString(deterministic=True))


@lru_cache(maxsize=100)
def message_of(files: bytes, name: str) -> Any:
    """Return the class of a message.

    Raises:
        KeyError: there is none of this name.
        ValueError: it is no FileDescriptorSet.

    """
    described = descriptor_pb2.FileDescriptorSet()
    try:
        described.ParseFromString(files)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    pool = descriptor_pool.DescriptorPool()
    for file in described.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def place_of(descriptor: Any) -> tuple[int, ...]:
    """Return where a message stands in its file: its number, within the message with its number, and so on."""
    if descriptor.containing_type is None:
        return (list(descriptor.file.message_types_by_name).index(descriptor.name),)
    above = descriptor.containing_type
    return (*place_of(above), list(above.nested_types_by_name).index(descriptor.name))


def read(kind: Any, record: bytes) -> dict[str, Any]:
    """Return a message's fields as JSON has them.

    Raises:
        ValueError: the bytes are no such message.

    """
    message = kind()
    try:
        message.ParseFromString(record)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return {field.name: _field(message, field) for field in kind.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    if field.is_repeated:
        found = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            return {_name(key): _value(found[key], value) for key in found}
        return [_value(each, field) for each in found]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(getattr(message, field.name), field)


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == TIME:
            return time_text(value.seconds * 1_000_000 + value.nanos // 1_000, "Z")
        if name in WRAPPERS:
            return _value(value.value, field.message_type.fields_by_name["value"])
        return {each.name: _field(value, each) for each in field.message_type.fields}
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return Number(value) if known is None else known.name
    if isinstance(value, bool | str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return Number(value)


def _name(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def write(rows: pa.RecordBatch, kind: Any, head: bytes) -> list[bytes]:
    """Return rows as messages, each after `head`; a null is a field that is not set.

    Raises:
        InvalidPlan: the message has no field for a column, or a value is none of the field's type.

    """
    columns = [plain(column) for column in rows.columns]
    setters = [_setter(_field_of(kind.DESCRIPTOR, field.name), field.type) for field in rows.schema]
    found = []
    for row in zip(*columns, strict=True):
        message = kind()
        try:
            for value, put in zip(row, setters, strict=True):
                if value is not None:
                    put(message, value)
            found.append(head + message.SerializeToString(deterministic=True))
        except (TypeError, ValueError, KeyError) as error:
            raise InvalidPlan(f"a row is no message {kind.DESCRIPTOR.full_name}: {error}") from error
    return found


def _field_of(described: Any, name: str) -> Any:
    fields = described.fields_by_name
    if name not in fields:
        raise InvalidPlan(
            f'the message {described.full_name} has no field "{name}"', hint=f"Its fields are: {', '.join(fields)}."
        )
    return fields[name]


def _setter(field: Any, kind: pa.DataType) -> Callable[[Any, Any], None]:
    name = field.name
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    if (pa.types.is_map(kind), pa.types.is_list(kind)) != (is_map, field.is_repeated and not is_map):
        what = "a map" if is_map else "repeated" if field.is_repeated else "one value"
        raise InvalidPlan(f"the field {field.full_name} is {what}, and cannot be written from {type_name(kind)}")
    if is_map:
        of = field.message_type.fields_by_name["value"]
        if of.message_type is not None:
            put = _message(of.message_type, kind.item_type)
            return lambda message, values: _each_of_map(getattr(message, name), values, put)
        inner = _plain_value(of, kind.item_type)
        return lambda message, value: getattr(message, name).update({key: inner(each) for key, each in value})
    if field.is_repeated:
        if field.message_type is not None:
            put = _message(field.message_type, kind.value_type)
            return lambda message, value: _each(getattr(message, name), value, put)
        inner = _plain_value(field, kind.value_type)
        return lambda message, value: getattr(message, name).extend(map(inner, value))
    if field.message_type is not None:
        put = _message(field.message_type, kind)
        return lambda message, value: put(getattr(message, name), value)
    inner = _plain_value(field, kind)
    return lambda message, value: setattr(message, name, inner(value))


def _each(found: Any, values: Sequence[Any], put: Callable[[Any, Any], None]) -> None:
    for value in values:
        put(found.add(), value)


def _each_of_map(found: Any, values: Sequence[Any], put: Callable[[Any, Any], None]) -> None:
    for key, value in values:
        put(found[key], value)


def _message(described: Any, kind: pa.DataType) -> Callable[[Any, Any], None]:
    if described.full_name == TIME and pa.types.is_timestamp(kind):
        return _put_time
    if described.full_name in WRAPPERS:
        inner = _plain_value(described.fields_by_name["value"], kind)
        return lambda message, value: setattr(message, "value", inner(value))
    if not pa.types.is_struct(kind):
        raise InvalidPlan(f"{type_name(kind)} cannot be written as a message {described.full_name}")
    setters = {field.name: _setter(_field_of(described, field.name), field.type) for field in kind}

    def put(message: Any, value: Any) -> None:
        message.SetInParent()
        for name, inner in setters.items():
            if value[name] is not None:
                inner(message, value[name])

    return put


def _put_time(message: Any, micros: int) -> None:
    message.SetInParent()
    message.seconds, rest = divmod(micros, 1_000_000)
    message.nanos = rest * 1_000


def _plain_value(field: Any, kind: pa.DataType) -> Callable[[Any], Any]:
    if field.enum_type is not None and pa.types.is_string(kind):
        return lambda value: field.enum_type.values_by_name[value].number
    if pa.types.is_decimal(kind):
        return str
    return lambda value: value
