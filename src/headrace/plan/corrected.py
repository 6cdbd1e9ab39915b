"""Event times of devices with clocks of their own, corrected to the clock that received the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.names import quote
from headrace.base.schema import TIMESTAMP
from headrace.expressions import Scalar
from headrace.plan.nodes import CORRECTED, Select

if TYPE_CHECKING:
    from headrace.plan.nodes import TopicSource


def uncorrected(event_time: str) -> str:
    """Return the column that keeps the event time that the device sent."""
    return f"{event_time}_uncorrected"


def corrected(source: TopicSource) -> Select:
    """Return the rows with the corrected event time in its column, and the device's time in a last column."""
    at = source.event_time
    assert at is not None  # noqa: S101 -- checked where the source is declared
    own = {field.name: _column(field.name, field.type) for field in source.schema}
    now = Scalar(text="the corrected time", sql=CORRECTED, type=TIMESTAMP, columns=frozenset())
    columns = (*{**own, at: now}.items(), (uncorrected(at), own[at]))
    schema = source.schema.append(pa.field(uncorrected(at), TIMESTAMP))
    return Select(up=source, schema=schema, columns=columns, shown="corrected")


def _column(name: str, kind: pa.DataType) -> Scalar:
    return Scalar(text=name, sql=quote(name), type=kind, columns=frozenset({name}))
