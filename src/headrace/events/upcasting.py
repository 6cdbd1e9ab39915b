"""Old events in the shape of new ones: functions from the data of one schema to those of the next."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.arguments import a_text, a_whole_number
from headrace.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.events.event import Recorded

    Upcast = Callable[[dict[str, Any]], dict[str, Any]]


class Upcasts:
    """The upcasts of a store: at most one for each type and schema."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], Upcast] = {}

    def __bool__(self) -> bool:
        return bool(self._steps)

    @property
    def identity(self) -> str:
        """Which there are: what was made of events with others is not what these make of them."""
        return ", ".join(f"{kind} {schema}" for kind, schema in sorted(self._steps))

    def register(self, type: str, schema: int) -> Callable[[Upcast], Upcast]:  # noqa: A002 -- the event's word
        """Return a decorator: the function turns data of an event type from `schema` to `schema` + 1.

        It must be deterministic: it runs each time an old event is read. Events are never rewritten.

        Raises:
            InvalidArgument: there is one for this type and schema.

        """
        key = (a_text(type, "type"), a_whole_number(schema, "schema", least=1))

        def keep(upcast: Upcast) -> Upcast:
            if key in self._steps:
                raise InvalidArgument(f"there is an upcast of {type} from schema {schema} already")
            self._steps[key] = upcast
            return upcast

        return keep

    def upcast(self, event: Recorded) -> Recorded:
        """Return an event with the newest schema that there is a way to."""
        data, schema = event.data, event.schema
        while (step := self._steps.get((event.type, schema))) is not None:
            data, schema = step(data), schema + 1
        return event if schema == event.schema else replace(event, data=data, schema=schema)

    def columns(self, types: pa.Array, schemas: pa.Array, data: pa.Array) -> pa.Array:
        """Return the column `data` upcast; only rows with an upcast are touched."""
        result = data.to_pylist()
        old = {pair for pair in zip(types.to_pylist(), schemas.to_pylist(), strict=True) if pair in self._steps}
        if not old:
            return data
        for at, pair in enumerate(zip(types.to_pylist(), schemas.to_pylist(), strict=True)):
            if pair in old:
                result[at] = self._text(pair[0], pair[1], result[at])
        return pa.array(result, pa.string())

    def schemas(self, types: pa.Array, schemas: pa.Array) -> pa.Array:
        """Return the column `schema` that `columns` gives the data."""
        pairs = zip(types.to_pylist(), schemas.to_pylist(), strict=True)
        return pa.array([self._newest(kind, schema) for kind, schema in pairs], pa.int32())

    def _newest(self, kind: str, schema: int) -> int:
        while (kind, schema) in self._steps:
            schema += 1
        return schema

    def _text(self, kind: str, schema: int, text: str) -> str:
        data = json.loads(text)
        while (step := self._steps.get((kind, schema))) is not None:
            data, schema = step(data), schema + 1
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
