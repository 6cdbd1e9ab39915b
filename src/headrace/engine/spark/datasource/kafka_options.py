"""The options of the format where it reads Kafka: those of Spark's own connector, and how records are decoded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from headrace.base.errors import InvalidOption
from headrace.connect.formats import format_of
from headrace.connect.kafka.address import SCHEME, KafkaAddress, is_address
from headrace.engine.spark.datasource.options import READ, ReadOptions, exact_names, read_parts, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.connect.format import Format

Isolation = Literal["read_committed", "read_uncommitted"]
Mode = Literal["FAILFAST", "DROPMALFORMED"]
ReaderName = Literal["fast", "librdkafka"]

_OF_KAFKA = "kafka."
_SERVERS, _ISOLATION = "bootstrap.servers", "isolation.level"
_OWN = ("format", "keyFormat", "key", "mode", "reader", "includeHeaders")


@dataclass(frozen=True, kw_only=True)
class KafkaOptions(ReadOptions):
    """What is read of which cluster. `format`: None reads keys and values as bytes. `key`: the key's columns."""

    address: KafkaAddress
    isolation: Isolation = "read_committed"
    reader: ReaderName | None = None
    format: Format | None = None
    key_format: Format | None = None
    key: tuple[str, ...] = ()
    mode: Mode = "FAILFAST"


def is_kafka(given: Mapping[str, str]) -> bool:
    """Whether the options name a cluster of Kafka."""
    names = {name.lower() for name in given}
    return is_address(given.get("path", "").strip()) or f"{_OF_KAFKA}{_SERVERS}" in names


def kafka_options(given: Mapping[str, str]) -> KafkaOptions:
    """Parse the options of a reader.

    Raises:
        InvalidOption: an option is unknown, malformed, missing, or excludes another one.
        InvalidPlan: the address or a format is not possible.

    """
    brokers = {
        name.lower().removeprefix(_OF_KAFKA): value
        for name, value in given.items()
        if name.lower().startswith(_OF_KAFKA)
    }
    rest = {name: value for name, value in given.items() if not name.lower().startswith(_OF_KAFKA)}
    options = exact_names(rest, (*READ, *_OWN), "reading")
    isolation = brokers.pop(_ISOLATION, "read_committed")
    if isolation not in get_args(Isolation):
        raise wrong(f"{_OF_KAFKA}{_ISOLATION}", isolation, f"Say {' or '.join(get_args(Isolation))}.")
    formatted = format_of(options.get("format"))
    return KafkaOptions(
        path=None,  # type: ignore[arg-type] # there is no folder
        address=_address(options.get("path", "").strip(), brokers),
        isolation=isolation,  # type: ignore[arg-type] # it was checked
        reader=_choice(options, "reader", get_args(ReaderName), None),  # type: ignore[arg-type] # the same
        format=formatted,
        key_format=format_of(options.get("keyFormat"), "text") if formatted is not None else None,
        key=tuple(name.strip() for name in options.get("key", "").split(",") if name.strip()),
        mode=_choice(options, "mode", get_args(Mode), "FAILFAST"),  # type: ignore[arg-type] # the same
        **_parts(options),
    )


def _parts(options: Mapping[str, str]) -> dict[str, Any]:
    if "columns" in options:
        raise InvalidOption("columns is for a log of Headrace", hint="Give Spark's .schema(…), or select columns.")
    parts = read_parts(options)
    parts["metadata"] = parts["metadata"] or options.get("includeHeaders", "false").strip().lower() == "true"
    return parts


def _address(path: str, brokers: Mapping[str, str]) -> KafkaAddress:
    more = {name: value for name, value in brokers.items() if name != _SERVERS}
    if path and _SERVERS in brokers:
        raise InvalidOption("path and kafka.bootstrap.servers both say where Kafka is", hint="Give one of them.")
    address = KafkaAddress.parse(path or f"{SCHEME}{brokers[_SERVERS]}")
    return replace(address, options=tuple(sorted((dict(address.options) | more).items())))


def _choice(options: Mapping[str, str], name: str, known: tuple[str, ...], default: str | None) -> str | None:
    given = options.get(name, default)
    for each in known:
        if given is not None and given.strip().lower() == each.lower():
            return each
    if given is None:
        return None
    raise wrong(name, given, f"Say {' or '.join(known)}.")
