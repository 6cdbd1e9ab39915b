"""Events, as they are given and as they are recorded, and the answers of an append."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.base.arguments import a_text, a_whole_number
from headrace.base.errors import InvalidArgument
from headrace.base.schema import as_schema

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

SCHEMA: pa.Schema = as_schema(
    "stream string not null, version bigint not null, type string not null, schema int not null, "
    "data string not null, meta string, command string, at timestamp not null"
)
"""The columns of the topic: `data` and `meta` are JSON objects, `command` is the id of the command."""
STREAM, VERSION = "stream", "version"
MOST_SCHEMAS = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened, not recorded yet.

    Args:
        type: what has happened, in the past tense: "SeatTaken".
        data: the facts: a dict that JSON can hold.
        schema: the version of the type's data: raise it when their shape changes, and register an upcast.
        meta: what is no fact, such as who caused it.

    Raises:
        InvalidArgument: something is of the wrong type, or no JSON.

    """

    type: str
    data: dict[str, Any] = field(default_factory=dict)
    schema: int = 1
    meta: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not a_text(self.type, "type"):
            raise InvalidArgument("type='' is no name of an event", hint='For example Event("SeatTaken", {…}).')
        if a_whole_number(self.schema, "schema", least=1) > MOST_SCHEMAS:
            raise InvalidArgument(f"schema={self.schema} is not possible", hint=f"Give at most {MOST_SCHEMAS}.")
        self.data_text()
        self.meta_text()

    def data_text(self) -> str:
        """Return the facts as JSON."""
        return _json(self.data, "data", self.type)

    def meta_text(self) -> str | None:
        """Return what is no fact as JSON."""
        return None if self.meta is None else _json(self.meta, "meta", self.type)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event of a stream. `version`: 1 for its first event. `at`: when it was recorded, an aware datetime."""

    stream: str
    version: int
    type: str
    data: dict[str, Any]
    schema: int
    meta: dict[str, Any] | None
    command: str | None
    at: datetime


class Appended(NamedTuple):
    """The events are recorded; `version` is that of the last one: so many events the stream has."""

    version: int


class Conflict(NamedTuple):
    """Nothing was recorded: the stream has another version than was expected."""

    version: int


def _json(value: object, what: str, event: str) -> str:
    if not isinstance(value, dict):
        raise InvalidArgument(f"{what}={value!r} of the event {event} is no dict")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()  # half of a surrogate pair has no bytes
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"{what} of the event {event} is no JSON: {error}", hint="Give texts, numbers, booleans, lists and dicts."
        ) from error
    return text
