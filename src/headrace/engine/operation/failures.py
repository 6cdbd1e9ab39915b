"""Which failures are ours to name, and which may pass: a full disk, a busy machine, a place outside that is down."""

from __future__ import annotations

import errno

from headrace.base.disk import says_full
from headrace.base.errors import HeadraceError, InternalError, OutsideError
from headrace.base.outside import AccessRefused, DiskFull, FileTooLarge, OutsideBusy

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_PASSING = (errno.EAGAIN, errno.EBUSY, errno.ENOMEM, errno.ENFILE, errno.EMFILE, errno.ESTALE)


def as_ours(error: BaseException) -> HeadraceError:
    """Return an error of ours for any error, with the other as its cause."""
    ours = _named(error)
    if ours is not error:
        ours.__cause__ = error
    return ours


def _named(error: BaseException) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    if says_full(error):
        return DiskFull(str(error))
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return FileTooLarge("storage", str(error))
    if isinstance(error, OSError) and error.errno in _REFUSED:
        return AccessRefused.to_file(str(error.filename or "a file"), error.strerror or str(error))
    if isinstance(error, OSError):
        kind = OutsideBusy if error.errno in _PASSING else OutsideError
        return kind(f"{type(error).__name__}: {error}")
    return InternalError(
        f"{type(error).__name__}: {error}",
        detail="This should not happen.",
        hint="Please report it with what HEADRACE_TRACE=1 shows.",
    )
