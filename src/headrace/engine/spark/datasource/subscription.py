"""Which topics are read, and from which offset to which: the options, compared with the log as it is now."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.base.errors import DataLoss, InvalidOption, InvalidTopic
from headrace.engine.spark.datasource.options import EARLIEST, LATEST, OffsetBound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.engine.spark.datasource.options import ReadOptions
    from headrace.log import Log, Topic

Ends = dict[str, dict[int, int]]
"""An offset for each topic and partition."""


def subscribed(log: Log, options: ReadOptions) -> list[Topic]:
    """Return the topics that are read, by name.

    Raises:
        UnknownTopic: one that is named does not exist.
        InvalidOption: the pattern matches none.
        InvalidTopic: a partition that is assigned does not exist.

    """
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        names = [name for name in log.topics() if pattern.fullmatch(name)]
        if not names:
            raise InvalidOption(
                f'no topic matches the subscribePattern "{options.pattern}"',
                detail=f"The topics of {log.path} are: {', '.join(log.topics()) or 'none'}.",
                hint="The pattern is a regular expression for the whole name.",
            )
    else:
        names = sorted(options.names or options.assigned)
    topics = [log.topic(name) for name in names]
    for topic in topics:
        for number in options.assigned.get(topic.name, ()):
            if number >= topic.partitions:
                raise InvalidTopic(
                    f'the topic "{topic.name}" has no partition {number}, which "assign" names',
                    hint=f"Its partitions are 0 to {topic.partitions - 1}.",
                )
    return topics


def partitions_read(topic: Topic, options: ReadOptions) -> Sequence[int]:
    """Return the partitions of a topic that are read."""
    return options.assigned.get(topic.name) or range(topic.partitions)


def starts(topics: Sequence[Topic], options: ReadOptions, *, default: int) -> Ends:
    """Return where reading begins.

    Raises:
        InvalidOption: offsets are given, but not for every partition; or no record has the given time or a later one.
        DataLoss: a given offset is not in the log, and data loss is an error.

    """
    bound = options.start or OffsetBound(default)
    found = {topic.name: _resolved(topic, options, bound, "startingOffsets") for topic in topics}
    _check_all_read(bound, found, "startingOffsets")
    if bound.time_ms is not None and options.unmatched == "error":
        for topic in topics:
            _check_time_found(topic, found[topic.name], bound.time_ms)
    return found


def ends(topics: Sequence[Topic], options: ReadOptions) -> Ends:
    """Return where a batch ends: by default at the current end.

    Raises:
        InvalidOption: offsets are given, but not for every partition.
        DataLoss: a given offset is not in the log, and data loss is an error.

    """
    bound = options.end or OffsetBound(LATEST)
    found = {topic.name: _resolved(topic, options, bound, "endingOffsets") for topic in topics}
    _check_all_read(bound, found, "endingOffsets")
    return found


def _resolved(topic: Topic, options: ReadOptions, bound: OffsetBound, option: str) -> dict[int, int]:
    first, last, partitions = topic.start_offsets(), topic.end_offsets(), partitions_read(topic, options)
    if bound.time_ms is not None:
        at = topic.offsets_at(bound.time_ms)
        return {number: at[number] for number in partitions}
    if bound.everywhere is not None:
        return {number: (first if bound.everywhere == EARLIEST else last)[number] for number in partitions}
    given = bound.offsets.get(topic.name, {})
    missing = [number for number in partitions if number not in given]
    if missing:
        raise InvalidOption(
            f'{option} has no offset for topic "{topic.name}", partition {missing[0]}',
            detail="If offsets are given, every partition that is read needs one.",
            hint=f"Give {'-2 for its start or ' if option == 'startingOffsets' else ''}-1 for its end: "
            f'{{"{topic.name}": {{"{missing[0]}": -1}}}}.',
        )
    return {
        number: _offset(topic, number, given[number], (first[number], last[number]), fail=options.fail_on_data_loss)
        for number in partitions
    }


def _offset(topic: Topic, number: int, at: int, span: tuple[int, int], *, fail: bool) -> int:
    if at in (EARLIEST, LATEST):
        return span[0] if at == EARLIEST else span[1]
    return clamped(topic, number, at, span, fail=fail)


def clamped(topic: Topic, number: int, at: int, span: tuple[int, int], *, fail: bool) -> int:
    """Return an offset moved into the range that a partition holds, [first, last].

    Raises:
        DataLoss: it is outside, and `fail`.

    """
    first, last = span
    if fail and not first <= at <= last:
        raise DataLoss(
            f'topic "{topic.name}", partition {number} is to be read at offset {at}, which it does not hold',
            detail=f"It holds the offsets from {first} up to, not including, {last}: "
            + ("older records were deleted." if at < first else "the topic was perhaps deleted and created anew."),
            hint='Go on with what is there: .option("failOnDataLoss", "false"). What is gone is not read.',
        )
    return min(max(at, first), last)


def _check_all_read(bound: OffsetBound, found: Mapping[str, Mapping[int, int]], option: str) -> None:
    for topic, each in bound.offsets.items():
        for number in each:
            if number not in found.get(topic, {}):
                raise InvalidOption(
                    f'{option} names topic "{topic}", partition {number}, which is not read',
                    detail=f"Read are: {', '.join(f'{name} {sorted(some)}' for name, some in found.items())}.",
                    hint="Leave it out, or subscribe to it.",
                )


def _check_time_found(topic: Topic, found: Mapping[int, int], time_ms: int) -> None:
    last = topic.end_offsets()
    for number, at in found.items():
        if at >= last[number]:
            raise InvalidOption(
                f'topic "{topic.name}", partition {number} has no record of startingTimestamp {time_ms} or later',
                detail="The time is an event time in milliseconds since 1970.",
                hint='Begin at the end of such partitions: .option("startingOffsetsByTimestampStrategy", "latest").',
            )
