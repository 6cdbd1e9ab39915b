"""The error that ended a query: our own where there is one, else what of Spark failed."""

from __future__ import annotations

import logging
import re
from importlib import import_module
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from headrace.base import errors
from headrace.base.disk import says_full
from headrace.base.errors import HeadraceError, OutsideError
from headrace.base.outside import SparkLost, Unavailable, WorkerLost
from headrace.base.trace import traced
from headrace.engine.operation.failures import as_ours

_OURS = re.compile(r"((?:\w+\.)+)(\w+): \[([A-Z_]+)\] (.*)")
_WORKER = re.compile(
    r"Python worker (?:failed to connect|did not connect|exited unexpectedly|process terminated|was idle)[^\n]*"
    r"|Cannot run program [^\n]*|[^\n]*\bpyspark\.daemon\b[^\n]*|ExecutorLostFailure[^\n]*|EOFReached[^\n]*"
    r"|[^\n]*SocketTimeoutException[^\n]*|[^\n]*FetchFailed[^\n]*"
    r"|[^\n]*Timed out while waiting for the Python worker[^\n]*"
)
_BROKEN = re.compile(
    r"(?m)^(?:: )?(?:java\.[\w.]+Exception: )?(Broken pipe|Connection reset(?: by peer)?|Stream closed|Socket closed)$"
)
"""What the JVM says of a connection to a Python process that was killed; a user's `BrokenPipeError: …` is another."""
_TRACE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")
_JAVA = re.compile(r"^.*\w(?:Exception|Error): ")
_GONE = (Py4JError, ConnectionError, EOFError)
_PY4J = ("py4j.clientserver", "py4j.java_gateway", "py4j.finalizer")
SPARK_ERRORS = (PySparkException, Py4JError, OSError, EOFError)
"""What calls of Spark raise."""


def quiet(accumulators: Any) -> None:
    """Keep what Python's side of Spark prints when a JVM is lost off standard error, unless traces were asked for.

    Args:
        accumulators: the server of accumulators of a `SparkContext`.

    """
    if not traced():
        accumulators.handle_error = lambda *_: None
        logging.getLogger().addFilter(_not_from_py4j)
        for name in _PY4J:  # what their own loggers pass on comes by no filter of the root
            logging.getLogger(name).addFilter(_not_from_py4j)


def _not_from_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


class SparkFailed(OutsideError):
    """Spark ended the query, and the reason is none of our errors."""

    condition = "SPARK_FAILED"


def explained(failed: BaseException) -> HeadraceError:
    """Return an error of ours for one of Spark: ours in its text, or what of Spark or the machine failed.

    Its cause is the other error where traces were asked for (`HEADRACE_TRACE=1`, `--trace`), else none.
    """
    error = _named(failed)
    if error is not failed:
        error.__cause__ = failed if traced() else None
        error.__suppress_context__ = True
    return error


def _named(failed: BaseException) -> HeadraceError:
    if isinstance(failed, HeadraceError):
        return failed
    text = str(failed)
    found = _OURS.search(text)
    if found is not None:
        return _rebuilt(text, found)
    if says_full(failed):
        return as_ours(failed)
    if isinstance(failed, _GONE) and not isinstance(failed, Py4JJavaError):
        return SparkLost("the connection to it broke, so it has ended or was killed")
    worker = _WORKER.search(text)
    if worker is not None:
        return WorkerLost(_JAVA.sub("", worker[0].strip())[:200].rstrip("."))
    broken = _BROKEN.search(text)
    if broken is not None:
        return WorkerLost(f"the connection to it broke ({broken[1]})")
    return SparkFailed(
        f"Spark ended the query: {_reason(text) or 'no reason given'}",
        hint="HEADRACE_TRACE=1 shows the whole trace.",
    )


def _rebuilt(text: str, found: re.Match[str]) -> HeadraceError:
    kind = _class(found[1].removesuffix("."), found[2], found[3])
    error: HeadraceError = kind.__new__(kind)
    detail, hint = _after(text[found.end() :])
    HeadraceError.__init__(error, found[4].strip(), detail=detail, hint=hint)
    return error


def _class(module: str, name: str, condition: str) -> type[HeadraceError]:
    """Return the class of an error that a worker raised; for one that is not here the class that it behaves as."""
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        kind = getattr(errors, name, Unavailable if condition == Unavailable.condition else HeadraceError)
    return kind if isinstance(kind, type) and issubclass(kind, HeadraceError) else HeadraceError


def _reason(text: str) -> str:
    """Return the error of Python's last trace, where there is one, else the first line."""
    errors_of_traces = _TRACE.findall(text)
    if errors_of_traces:
        return str(errors_of_traces[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _after(text: str) -> tuple[str, str]:
    """Return the detail and the hint that follow an error's first line."""
    detail = hint = ""
    for line in text.splitlines()[:4]:
        text = line.strip()
        if text.startswith("Detail: "):
            detail = text.removeprefix("Detail: ")
        elif text.startswith("Hint: "):
            hint = text.removeprefix("Hint: ")
    return detail, hint
