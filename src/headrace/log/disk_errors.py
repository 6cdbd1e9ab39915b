"""Errors of the disk, as errors of the log: no public call of a log or a topic raises a bare `OSError`."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.base.errors import DiskFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Call = TypeVar("Call", bound="Callable[..., Any]")
Item = TypeVar("Item")


def disk(call: Call) -> Call:
    """Decorate a method so that errors of the disk are raised as `DiskFailed`; `self.place` says where."""

    @wraps(call)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(self, *args, **kwargs)
        except OSError as error:
            raise DiskFailed(self.place, error) from error

    return cast("Call", guarded)


def each(place: str, items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items of an iterator that reads the disk."""
    try:
        yield from items
    except OSError as error:
        raise DiskFailed(place, error) from error
