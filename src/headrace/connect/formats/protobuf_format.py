"""The format `protobuf`: messages, with a schema registry (Confluent's framing) or bare."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.errors import InvalidPlan
from headrace.connect.compiled import worth_compiling
from headrace.connect.formats import framing
from headrace.connect.formats.json_values import BadValue, converter
from headrace.connect.formats.plain import NO_RECORD
from headrace.connect.formats.registered import RegisteredFormat
from headrace.connect.formats.registry import Registry, registry_of
from headrace.connect.formats.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.connect.format import Formatted


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufFormat(RegisteredFormat):
    """Messages of Protobuf; `protobuf` creates it."""

    message: str
    files: bytes = field(repr=False)
    schema: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """`"protobuf"`."""
        return "protobuf"

    @property
    def identity(self) -> str:
        """The name, the message, and a checksum of its description."""
        return f"protobuf({self.message}, {sha256(self.files).hexdigest()[:16]})"

    def decode(self, values: pa.Array, schema: pa.Schema) -> Formatted:
        """Return records as rows."""
        from headrace.connect.formats import protobuf_values

        verdicts = Verdicts(len(values))
        kind = protobuf_values.message_of(self.files, self.message)
        place = protobuf_values.place_of(kind.DESCRIPTOR)
        convert = {each.name: converter(each.type) for each in schema}
        columns: dict[str, list[Any]] = {name: [None] * len(values) for name in schema.names}
        for row, value in enumerate(values.cast(pa.binary()).to_pylist()):
            try:
                record = protobuf_values.read(kind, self._unframed(value, place))
            except BadValue as error:
                verdicts.refuse_each({row: str(error)})
                continue
            except ValueError:
                verdicts.refuse_each({row: f"it is no message {self.message}"})
                continue
            for name, column in columns.items():
                try:
                    column[row] = convert[name](record.get(name))
                except BadValue as error:
                    verdicts.refuse_each({row: error.reason(name)})
        return verdicts.formatted([pa.array(columns[each.name], each.type) for each in schema], schema.names)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return each row as a message; with a registry the schema is registered.

        Raises:
            Unavailable: the registry does not answer.
            RegistryRefused: it does not take the schema.
            InvalidPlan: the rows are no such messages, or no subject or schema is known.

        """
        from headrace.connect.formats import protobuf_values

        kind, head = protobuf_values.message_of(self.files, self.message), b""
        if self.registry is not None:
            if self.schema is None or self.subject is None:
                raise InvalidPlan(
                    "protobuf has no schema or subject to register",
                    hint='Say protobuf(…, schema=Path("order.proto").read_text(), subject="orders-value").',
                )
            number = self.registry.register(self.subject, self.schema, "PROTOBUF")
            place = protobuf_values.place_of(kind.DESCRIPTOR)
            head = framing.header(number) + (b"\0" if place == (0,) else _indexes(place))
        if worth_compiling(rows.num_rows):
            from headrace.connect.formats import cells, protobuf_cells

            with suppress(cells.NotInColumns):
                return protobuf_cells.write(rows, kind, head)
        return pa.array(protobuf_values.write(rows, kind, head), pa.binary())

    def _unframed(self, value: bytes | None, place: tuple[int, ...]) -> bytes:
        """Return a message's bytes.

        Raises:
            BadValue: there is none, or it is another message.

        """
        if value is None:
            raise BadValue(NO_RECORD)
        if self.registry is None:
            return value
        if len(value) <= framing.LENGTH or value[0]:
            raise BadValue(framing.NO_FRAME)
        numbers = _longs(value, framing.LENGTH)
        count, at = next(numbers)
        found = []
        for _ in range(count):
            number, at = next(numbers)
            found.append(number)
        if tuple(found or (0,)) != place:
            number = int.from_bytes(value[1 : framing.LENGTH], "big")
            raise BadValue(f"it is another message of the schema {number} than {self.message}")
        return value[at:]


def _longs(value: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield numbers of variable length, zigzag, with the place after each."""
    while True:
        found = shift = 0
        while True:
            if at >= len(value) or shift > 63:
                raise BadValue(framing.NO_FRAME)
            found |= (value[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if value[at - 1] < 0x80:
                break
        yield (found >> 1) ^ -(found & 1), at


def _indexes(place: tuple[int, ...]) -> bytes:
    found = bytearray()
    for number in (len(place), *place):
        left = number << 1
        while left > 0x7F:
            found.append(left & 0x7F | 0x80)
            left >>= 7
        found.append(left)
    return bytes(found)


def protobuf(
    message: Any,
    *,
    files: bytes | None = None,
    registry: str | Registry | None = None,
    schema: str | None = None,
    subject: str | None = None,
) -> ProtobufFormat:
    """Return the format of Protobuf's messages, read by the names of fields into the declared columns.

    A message is read by the numbers of its fields, so newer and older writers need no schema of their own: unknown
    fields are ignored; a field that is not set is null if it has presence (`optional`, messages, `oneof`), and else its
    default. `google.protobuf.Timestamp` is a timestamp, wrappers are their values, enums are the names of their values.

    Needs the extra: `pip install headrace[protobuf]`.

    Args:
        message: the generated class, or the full name of a message in `files`.
        files: a serialized FileDescriptorSet: `protoc --descriptor_set_out --include_imports`.
        registry: a schema registry: records have Confluent's framing. None: they are bare.
        schema: the text of the `.proto` file, which is registered when rows are written.
        subject: under which it is registered; None: `<topic>-value`, or `<topic>-key`.

    Raises:
        InvalidPlan: there is no such message, or the package is not installed.

    """
    if find_spec("google.protobuf") is None:
        raise InvalidPlan("protobuf needs a package that is not installed", hint="pip install headrace[protobuf]")
    from headrace.connect.formats import protobuf_values

    described = getattr(message, "DESCRIPTOR", None)
    if not isinstance(files, bytes | None):
        hint = "Read the file that protoc wrote: files=Path(…).read_bytes()."
        raise InvalidPlan(f"files={files!r} is no serialized FileDescriptorSet", hint=hint)
    if described is None and (not isinstance(message, str) or files is None):
        raise InvalidPlan(
            f"protobuf({message!r}) is no message", hint="Give the generated class, or a name and files=…."
        )
    try:
        name = message if described is None else described.full_name
        raw = files if described is None else protobuf_values.files_of(described)
        protobuf_values.message_of(raw or b"", name)
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidPlan(f"there is no message {message!r} in files=", detail=str(error)) from error
    return ProtobufFormat(
        message=name, files=raw or b"", registry=registry_of(registry), schema=schema, subject=subject
    )
