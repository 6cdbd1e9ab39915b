"""The error that ended a query: our own where there is one, with Spark's trace as its cause."""

from __future__ import annotations

import re

from headrace.base import errors
from headrace.base.errors import HeadraceError, OutsideError

_OURS = re.compile(r"headrace\.base\.\w+\.(\w+): \[[A-Z_]+\] (.*)")


class SparkFailed(OutsideError):
    """Spark ended the query, and the reason is none of our errors."""

    condition = "SPARK_FAILED"


def explained(failed: BaseException) -> HeadraceError:
    """Return our error from the text of a Spark exception, or an error that quotes Spark."""
    text = str(failed)
    found = _OURS.search(text)
    if found is None:
        first = next((line for line in text.splitlines() if line.strip()), "no reason given")
        return SparkFailed(f"Spark ended the query: {first.strip()}", hint="The whole trace is this error's cause.")
    kind = getattr(errors, found[1], HeadraceError)
    error: HeadraceError = kind.__new__(kind)
    detail, hint = _after(text[found.end() :])
    HeadraceError.__init__(error, found[2].strip(), detail=detail, hint=hint)
    return error


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
