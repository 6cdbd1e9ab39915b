"""Names, folders and times of groups and queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import InvalidName, InvalidTime
from headrace.base.names import MAX_LENGTH, TOPIC
from headrace.base.time import MICROS, duration, show_duration

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path


def check_group(group: object) -> str:
    """Return the name of a group; the letters of topics are allowed.

    Raises:
        InvalidName: it is none.

    """
    if isinstance(group, str) and TOPIC.fullmatch(group) and len(group) <= MAX_LENGTH:
        return group
    raise InvalidName(
        f"{group!r} is not allowed as the name of a group",
        detail=f"Letters, digits, '.', '_' and '-' are allowed, up to {MAX_LENGTH}; the first is not '.' or '-'.",
    )


def checked_seconds(value: str | timedelta, argument: str) -> float:
    """Return a duration that is longer than nothing, in seconds.

    Raises:
        InvalidTime: it is none.

    """
    micros = duration(value, what=argument)
    if micros <= 0:
        raise InvalidTime(f"{argument} is {show_duration(micros)}, and must be longer than nothing")
    return micros / MICROS


def groups_folder(log: Path) -> Path:
    """Return the folder of a log's consumer groups."""
    return log / "groups"


def group_folder(log: Path, group: str) -> Path:
    """Return the folder of a consumer group."""
    return groups_folder(log) / group


def queues_folder(log: Path) -> Path:
    """Return the folder of a log's queues."""
    return log / "queues"


def queue_folder(log: Path, group: str, topic: str) -> Path:
    """Return the folder of a queue."""
    return queues_folder(log) / group / topic
