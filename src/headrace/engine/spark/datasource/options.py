"""The options of the format, in Kafka's words: parsed once, checked, and refused with the nearest name."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.base.errors import InvalidOption, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EARLIEST, LATEST = -2, -1
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
READ = (
    "path", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "startingOffsetsByTimestampStrategy", "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss",
    "includeMetadata", "columns",
)  # fmt: skip
_WRITE = ("path", "topic", "producer", "sequence")
_OF_SPARK = ("queryName", "checkpointLocation")  # Spark hands a streaming sink its own options too
_CHOICES = ("subscribe", "subscribePattern", "assign")

Offsets: TypeAlias = "Mapping[str, Mapping[int, int]]"


@dataclass(frozen=True)
class OffsetBound:
    """Where reading begins or ends: everywhere at EARLIEST or LATEST, at given offsets, or at an event time in ms."""

    everywhere: int | None = None
    offsets: Offsets = field(default_factory=dict)
    time_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What is read; `start` and `end` are None where the user gave none: batch and stream have different defaults."""

    path: Path
    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    start: OffsetBound | None = None
    end: OffsetBound | None = None
    unmatched: str = "error"
    most: int | None = None
    tasks: int = 1
    fail_on_data_loss: bool = True
    metadata: bool = False
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Where rows go; with `producer` and `sequence` a batch write that is repeated appends nothing."""

    path: Path
    topic: str
    producer: str | None = None
    sequence: int | None = None


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a reader.

    Raises:
        InvalidOption: an option is unknown, malformed, missing, or excludes another one.

    """
    options = exact_names(given, READ, "reading")
    return ReadOptions(path=_path(options), **read_parts(options))


def read_parts(options: Mapping[str, str]) -> dict[str, Any]:
    """Parse the options that say which records are read, of any kind of log: the fields of `ReadOptions`, without path.

    Raises:
        InvalidOption: an option is malformed, missing, or excludes another one.

    """
    chosen = [name for name in _CHOICES if name in options]
    if len(chosen) != 1:
        raise InvalidOption(
            f"exactly one of {', '.join(_CHOICES)} says which topics are read, not {' and '.join(chosen) or 'none'}",
            hint='For example .option("subscribe", "searches,clicks").',
        )
    for clock, offsets in (("startingTimestamp", "startingOffsets"), ("endingTimestamp", "endingOffsets")):
        if clock in options and offsets in options:
            raise InvalidOption(f"{clock} and {offsets} exclude each other", hint="Give one of them.")
    unmatched = options.get("startingOffsetsByTimestampStrategy", "error")
    if unmatched not in ("error", "latest"):
        raise wrong("startingOffsetsByTimestampStrategy", unmatched, 'Say "error" or "latest".')
    return {
        "names": _list(options, "subscribe"),
        "pattern": _pattern(options),
        "assigned": _assigned(options),
        "start": _bound(options, "startingOffsets", "startingTimestamp", lowest=EARLIEST),
        "end": _bound(options, "endingOffsets", "endingTimestamp", lowest=LATEST),
        "unmatched": unmatched,
        "most": _number(options, "maxOffsetsPerTrigger") if "maxOffsetsPerTrigger" in options else None,
        "tasks": _number(options, "minPartitions") if "minPartitions" in options else 1,
        "fail_on_data_loss": _flag(options, "failOnDataLoss", default=True),
        "metadata": _flag(options, "includeMetadata", default=False),
        "columns": _list(options, "columns"),
    }


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a writer.

    Raises:
        InvalidOption: an option is unknown, malformed or missing.

    """
    options = exact_names(given, _WRITE, "writing", but=_OF_SPARK)
    if not options.get("topic", "").strip():
        raise InvalidOption("no topic to write to is given", hint='Say .option("topic", "searches").')
    if ("producer" in options) != ("sequence" in options):
        raise InvalidOption("producer and sequence belong together", hint="Give both or neither.")
    return WriteOptions(
        path=_path(options),
        topic=options["topic"].strip(),
        producer=options.get("producer"),
        sequence=_number(options, "sequence", least=0) if "sequence" in options else None,
    )


def exact_names(
    given: Mapping[str, str], names: Iterable[str], doing: str, *, but: Iterable[str] = ()
) -> dict[str, str]:
    """Return the options under their exact names: Spark hands them over in any case.

    Raises:
        InvalidOption: one is not among `names` or `but`.

    """
    spelled = {name.lower(): name for name in (*names, *but)}
    options = {}
    for name, value in given.items():
        if name.lower() not in spelled:
            hint = did_you_mean(name, names)
            if name.lower().startswith("kafka."):
                hint = 'Options of brokers are for topics of Kafka: .option("kafka.bootstrap.servers", "host:port").'
            raise InvalidOption(
                f'{doing} a topic has no option "{name}"',
                detail=f"The options are: {', '.join(names)}.",
                hint=hint,
            )
        options[spelled[name.lower()]] = value
    return options


def _path(options: Mapping[str, str]) -> Path:
    text = options.get("path", "").strip()
    if not text:
        raise InvalidOption("the log's folder is not given", hint='Say .option("path", ".headrace/log").')
    path = Path(text.removeprefix("file://").removeprefix("file:"))
    if not path.is_dir():
        raise InvalidOption(
            f'there is no log at "{text}"',
            detail=f"Looked for the folder {path.absolute()}.",
            hint='Give the folder of an hr.Log, as seen from where Spark runs: .option("path", "/data/log").',
        )
    return path.absolute()


def _list(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    if name not in options:
        return ()
    found = tuple(dict.fromkeys(part.strip() for part in options[name].split(",") if part.strip()))
    if not found:
        raise wrong(name, options[name], "Names are separated by commas.")
    return found


def _pattern(options: Mapping[str, str]) -> str | None:
    text = options.get("subscribePattern")
    try:
        return None if text is None else re.compile(text).pattern
    except re.error as error:
        raise wrong("subscribePattern", str(text), f"It is no regular expression: {error}.") from None


def _assigned(options: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    if "assign" not in options:
        return {}
    hint = 'Say the partitions of each topic: {"searches": [0, 1]}.'
    found: dict[str, tuple[int, ...]] = {}
    for topic, numbers in _json(options, "assign", hint).items():
        if not isinstance(numbers, list) or not numbers or not all(_is_count(number) for number in numbers):
            raise wrong("assign", options["assign"], hint)
        found[topic] = tuple(sorted(set(numbers)))
    return found


def _bound(options: Mapping[str, str], offsets: str, clock: str, *, lowest: int) -> OffsetBound | None:
    if clock in options:
        return OffsetBound(time_ms=_number(options, clock, least=0))
    if offsets not in options:
        return None
    text = options[offsets].strip()
    words = [word for word, at in _WORDS.items() if at >= lowest]
    if text.lower() in words:
        return OffsetBound(_WORDS[text.lower()])
    choices = " or ".join(f'"{word}"' for word in words)
    hint = f'Say {choices}, or an offset for each partition: {{"searches": {{"0": 23, "1": {lowest}}}}}.'
    found: dict[str, dict[int, int]] = {}
    for topic, each in _json(options, offsets, hint).items():
        if not isinstance(each, dict) or not all(number.isdecimal() for number in each):
            raise wrong(offsets, text, hint)
        if not all(isinstance(at, int) and not isinstance(at, bool) and at >= lowest for at in each.values()):
            raise wrong(offsets, text, hint)
        found[topic] = {int(number): at for number, at in each.items()}
    return OffsetBound(offsets=found)


def _json(options: Mapping[str, str], name: str, hint: str) -> dict[str, object]:
    try:
        found = json.loads(options[name])
    except ValueError:
        raise wrong(name, options[name], hint) from None
    if not isinstance(found, dict) or not found:
        raise wrong(name, options[name], hint)
    return found


def _number(options: Mapping[str, str], name: str, *, least: int = 1) -> int:
    text = options[name].strip()
    if not text.isdecimal() or int(text) < least:
        raise wrong(name, text, f"It is a whole number from {least} on.")
    return int(text)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise wrong(name, text, 'Say "true" or "false".')
    return text == "true"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def wrong(name: str, value: str, hint: str) -> InvalidOption:
    """Return the error of an option with an impossible value."""
    return InvalidOption(f'the option {name} cannot be "{value}"', hint=hint)
