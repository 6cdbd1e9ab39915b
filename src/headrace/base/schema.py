"""Schemas: Spark's DDL text ⇄ Arrow schemas ⇄ DuckDB's column types.

A schema is a `pyarrow.Schema`. `timestamp` is `timestamp[us, tz=UTC]`, an instant, as in Spark with a session in
UTC; `timestamp_ntz` is `timestamp[us]`. Inside DuckDB both are `TIMESTAMP` (an instant is its UTC reading).
"""

from __future__ import annotations

import re
from typing import NoReturn

import pyarrow as pa

from headrace.base.errors import InvalidSchema, did_you_mean
from headrace.base.names import is_unicode, quote

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
MAX_PRECISION = 38
MAX_DEPTH = 50
"""So many types may be inside each other."""
RESERVED = frozenset(
    {"_weight", "_time", "_shard", "_topic", "_offset", "_partition", "_deleted", "_headers", "_appended"}
)


def is_reserved(name: str) -> bool:
    """Tell whether a column name is reserved for Headrace."""
    return name in RESERVED or name.lower().startswith("_headrace_")


_SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "binary": pa.binary(),
}
_ALIASES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float",
            "bool": "boolean", "text": "string", "timestamp_ltz": "timestamp"}  # fmt: skip
_NAMES = {kind: name for name, kind in _SIMPLE.items()}
_DUCKDB = {
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP",
    pa.binary(): "BLOB",
}
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([\w$]+)|(.))", re.DOTALL)


def parse(ddl: str) -> pa.Schema:
    """Return the schema that a text in Spark's DDL describes: `"id bigint not null, tags array<string>"`.

    Raises:
        InvalidSchema: the text cannot be parsed, a type is unknown, or a column is named twice.

    """
    reader = _Reader(ddl)
    fields = reader.fields(until=None)
    if not fields:
        reader.fail("it has no columns")
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            reader.fail(f'the column "{name}" is named twice')
        if is_reserved(name):
            reader.fail(f'the column name "{name}" is reserved for Headrace')
    return pa.schema(fields)


def as_schema(value: str | pa.Schema) -> pa.Schema:
    """Return `value` as a schema: DDL text, or an Arrow schema, converted to types that DDL has."""
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, pa.Schema):
        return parse(to_ddl(value))
    raise InvalidSchema(f"{value!r} is not a schema", hint='Give DDL text such as "id bigint, at timestamp".')


def parse_type(text: str) -> pa.DataType:
    """Return the type that a text in Spark's DDL names: `"decimal(10, 2)"`, `"map<string, int>"`."""
    reader = _Reader(text)
    kind = reader.type()
    if reader.peek() is not None:
        reader.fail(f'"{reader.peek()}" was not expected')
    return kind


def to_ddl(schema: pa.Schema) -> str:
    """Return a schema as text that `parse` reads back."""
    return ", ".join(_field_ddl(field, " ") for field in schema)


def type_name(kind: pa.DataType) -> str:
    """Return Spark's name of an Arrow type.

    Raises:
        InvalidSchema: Spark has no such type.

    """
    kind = _plain(kind)
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(_field_ddl(field, ':') for field in kind)}>"
    raise InvalidSchema(f"the Arrow type {kind} has no counterpart", hint=f"Known types: {', '.join(_SIMPLE)}.")


def duckdb_type(kind: pa.DataType) -> str:
    """Return the DuckDB column type in which Headrace stores an Arrow type."""
    if kind in _DUCKDB:
        return _DUCKDB[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"{duckdb_type(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({duckdb_type(kind.key_type)}, {duckdb_type(kind.item_type)})"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{quote(f.name)} {duckdb_type(f.type)}' for f in kind)})"
    raise InvalidSchema(f"the Arrow type {kind} has no counterpart in DuckDB")


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of ours that an Arrow type is equivalent to."""
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz else TIMESTAMP_NTZ
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_type)
    return kind


def _field_ddl(field: pa.Field, between: str) -> str:
    name = field.name if re.fullmatch(r"\w+", field.name) else "`" + field.name.replace("`", "``") + "`"
    return f"{name}{between}{type_name(field.type)}{'' if field.nullable else ' not null'}"


class _Reader:
    """A parser of DDL text that looks one token ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [m for m in _TOKEN.finditer(text.strip()) if m[0].strip()]
        self.at = 0
        self.depth = 0
        if not is_unicode(text):
            self.fail("it has half a character of Unicode, a surrogate")

    def fail(self, why: str) -> NoReturn:
        raise InvalidSchema(
            f"the schema {self.text!r} cannot be read: {why}",
            hint='Write "column type, column type, …", for example "id bigint, at timestamp".',
        )

    def peek(self) -> str | None:
        return self.tokens[self.at][0].strip() if self.at < len(self.tokens) else None

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if token is None:
            self.fail("it ends too early")
        if expected is not None and token != expected:
            self.fail(f'"{expected}" was expected instead of "{token}"')
        self.at += 1
        return token

    def name(self) -> str:
        token = self.take()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"[\w$]+", token):
            self.fail(f'"{token}" is not a name')
        return token

    def fields(self, until: str | None) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while self.peek() != until:
            if fields:
                self.take(",")
            name = self.name()
            if self.peek() == ":":
                self.take()
            fields.append(pa.field(name, self.type(), nullable=not self._not_null()))
        return fields

    def _not_null(self) -> bool:
        if (self.peek() or "").lower() != "not":
            return False
        self.take()
        if self.take().lower() != "null":
            self.fail('"null" was expected after "not"')
        return True

    def type(self) -> pa.DataType:
        word = self.name().lower()
        word = _ALIASES.get(word, word)
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in ("decimal", "numeric", "dec"):
            return self._decimal()
        if word in ("varchar", "char"):
            self.take("("), self.take(), self.take(")")
            return pa.string()
        if word in ("array", "map", "struct"):
            return self._nested(word)
        types = [*_SIMPLE, *_ALIASES, "decimal", "array", "map", "struct"]
        raise InvalidSchema(
            f'the schema {self.text!r} has an unknown type "{word}"',
            hint=did_you_mean(word, types)
            or f"Known types: {', '.join([*_SIMPLE, 'decimal', 'array', 'map', 'struct'])}.",
        )

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self.peek() == "(":
            self.take()
            precision = self._number()
            if self.peek() == ",":
                self.take()
                scale = self._number()
            self.take(")")
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            self.fail(f"decimal({precision},{scale}) is not possible")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        token = self.take()
        if not re.fullmatch("[0-9]{1,4}", token):
            self.fail(f'"{token}" is not a number')
        return int(token)

    def _nested(self, word: str) -> pa.DataType:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"types are inside each other more than {MAX_DEPTH} times")
        self.take("<")
        if word == "struct":
            kind = pa.struct(self._distinct(self.fields(until=">")))
        elif word == "array":
            kind = pa.list_(self.type())
        else:
            key = self.type()
            self.take(",")
            kind = pa.map_(key, self.type())
        self.take(">")
        self.depth -= 1
        return kind

    def _distinct(self, fields: list[pa.Field]) -> list[pa.Field]:
        names = [field.name for field in fields]
        if not names:
            self.fail("a struct has no fields")
        if twice := [name for name in names if names.count(name) > 1]:
            self.fail(f'the field "{twice[0]}" of a struct is named twice')
        return fields


_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def wider_integer(before: str, after: str) -> bool:
    """Whether two names of types are integers, and the second has room for more: `int` and then `bigint`."""
    return before in _INTEGERS and after in _INTEGERS and _INTEGERS.index(before) < _INTEGERS.index(after)


def has_floats(kind: pa.DataType) -> bool:
    """Tell whether values of a type contain floating point numbers: as keys they have one form, 0.0 for -0.0."""
    if pa.types.is_map(kind):
        return False  # a map is no key
    return bool(
        pa.types.is_floating(kind) or any(has_floats(kind.field(index).type) for index in range(kind.num_fields))
    )
