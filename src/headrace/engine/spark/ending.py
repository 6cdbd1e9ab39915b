"""Lets Python processes that Spark's daemon forked end without a word where Spark leaves before they have told it all.

Such a process flushes what it wrote when its function returns. Over a Unix socket that fails at once where Spark does
not read any more: it had its answer, or its JVM ended. The daemon prints a trace of that, which nobody can act on.
"""

from __future__ import annotations

import sys
import traceback
from functools import wraps
from typing import TYPE_CHECKING, Any

from headrace.base.trace import traced

if TYPE_CHECKING:
    from collections.abc import Callable

_DAEMON, _LOOP = "pyspark.daemon", "manager"


def quietly() -> None:
    """Call in such a process, before it ends. Anywhere else, or where traces are asked for, it does nothing."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _DAEMON and not traced() and not hasattr(traceback.print_exc, "__wrapped__"):
        traceback.print_exc = unless_spark_left(traceback.print_exc)


def unless_spark_left(print_exc: Callable[..., None]) -> Callable[..., None]:
    """Return a function that prints the current exception, unless it broke a connection and reached the daemon."""

    @wraps(print_exc)
    def printed(*given: Any, **named: Any) -> None:
        error = sys.exc_info()[1]
        trace = error.__traceback__ if isinstance(error, ConnectionError) else None
        if (
            trace is None
            or trace.tb_frame.f_code.co_name != _LOOP
            or trace.tb_frame.f_globals["__name__"] != "__main__"
        ):
            print_exc(*given, **named)

    return printed
