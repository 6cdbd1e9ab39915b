"""The settings of a topic: what `Log.create_topic` takes and `Topic.alter` changes, and how each is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.base.time import duration
from headrace.log.cleaning import archive as archives

if TYPE_CHECKING:
    from collections.abc import Callable


def _length(name: str) -> Callable[[Any], Any]:
    return lambda value: None if value is None else duration(value, what=name)


SETTINGS: dict[str, Callable[[Any], Any]] = {
    "retention": _length("retention"),
    "cleanup": lambda value: value,
    "retention_bytes": lambda value: value,
    "delete_retention": _length("delete_retention"),
    "archive": lambda value: None if value is None else archives.check(value),
    "archive_after": _length("archive_after"),
}
"""By name, what turns a setting as given into the value that is stored; `Meta.check` checks the result."""
