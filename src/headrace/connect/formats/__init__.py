"""The record formats by the names that `format=` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan, did_you_mean
from headrace.connect.formats.avro_format import avro
from headrace.connect.formats.cloudevents_format import CloudEventsFormat, cloudevents
from headrace.connect.formats.csv_format import CsvFormat, csv
from headrace.connect.formats.debezium_format import DebeziumFormat, debezium
from headrace.connect.formats.json_format import JsonFormat
from headrace.connect.formats.plain import BinaryFormat, TextFormat
from headrace.connect.formats.protobuf_format import protobuf
from headrace.connect.formats.registry import registry

if TYPE_CHECKING:
    from headrace.connect.format import Format

__all__ = ["FORMATS", "avro", "cloudevents", "csv", "debezium", "format_named", "format_of", "protobuf", "registry"]

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (JsonFormat(), TextFormat(), BinaryFormat(), CsvFormat(), CloudEventsFormat(), DebeziumFormat())
}
"""The formats that need no options; `avro` and `protobuf` do."""


def format_of(given: str | Format | None, default: str | None = None) -> Format | None:
    """Return the format that `format=` names, or is; `default` is the name of one where nothing was given.

    Raises:
        InvalidPlan: there is no format of this name.

    """
    given = default if given is None else given
    return format_named(given) if isinstance(given, str) else given


def format_named(name: str) -> Format:
    """Return a format.

    Raises:
        InvalidPlan: there is no format of this name.

    """
    if name not in FORMATS:
        raise InvalidPlan(
            f"format={name!r} is not known",
            detail=f"Known are: {', '.join(FORMATS)}.",
            hint=did_you_mean(name, FORMATS),
        )
    return FORMATS[name]
