"""Errors of the disk, as errors of the log: no public call of a log or a topic raises a bare `OSError`."""

from __future__ import annotations

import errno
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.base.errors import DiskFailed, OutsideError
from headrace.base.outside import FileTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Call = TypeVar("Call", bound="Callable[..., Any]")
Item = TypeVar("Item")


def disk_error(place: str, error: OSError) -> OutsideError:
    """Return the error of ours for one of the disk."""
    if error.errno == errno.EFBIG:
        return FileTooLarge(place, str(error))
    return DiskFailed(place, error)


def disk(call: Call) -> Call:
    """Decorate a method so that errors of the disk are raised as `DiskFailed`; `self.place` says where."""

    @wraps(call)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(self, *args, **kwargs)
        except OSError as error:
            raise disk_error(self.place, error) from error

    return cast("Call", guarded)


def each(place: str, items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items of an iterator that reads the disk."""
    try:
        yield from items
    except OSError as error:
        raise disk_error(place, error) from error
