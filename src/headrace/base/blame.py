"""The four kinds of errors, by whom they blame, and how an error is shown. All errors are in `base.errors`.

`PlanError` blames the user's program, `FunctionError` a user's function, `OutsideError` a disk, a broker or another
process, `InternalError` Headrace.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(name: object, among: Iterable[str]) -> str | None:
    """Return the known name that looks most like `name`, or None; what is no text looks like none."""
    if not isinstance(name, str):
        return None
    by_lower = {candidate.lower(): candidate for candidate in among}
    matches = get_close_matches(name.lower(), list(by_lower), n=1)
    return by_lower[matches[0]] if matches else None


def did_you_mean(name: object, among: Iterable[str]) -> str:
    """Return a hint with the nearest known name, or an empty text."""
    suggestion = nearest(name, among)
    return f'Did you mean "{suggestion}"?' if suggestion else ""


class HeadraceError(Exception):
    """The base class of every error; `str` is `[CONDITION] what`, then detail and hint on lines of their own."""

    condition = "ERROR"
    may_pass: ClassVar[bool] = False
    """Whether the same call may work later: sinks and feeds that raise it are called again, with back-off."""

    def __init__(self, what: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [f"[{self.condition}] {self.what}"]
        if self.detail:
            lines.append(f"Detail: {self.detail}")
        if self.hint:
            lines.append(f"Hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        """Errors are pickled on their way from executors to the driver: keep their parts, whatever `__init__` takes."""
        return _rebuild, (type(self), self.what, self.detail, self.hint)


def _rebuild(kind: type[HeadraceError], what: str, detail: str, hint: str) -> HeadraceError:
    error = kind.__new__(kind)
    HeadraceError.__init__(error, what, detail=detail, hint=hint)
    return error


# ---- whom to blame -------------------------------------------------------------------------------------


class PlanError(HeadraceError):
    """The program asks for something that is not possible; raised at the line that asks for it."""

    condition = "INVALID_PLAN"


class FunctionError(HeadraceError):
    """A function of the user raised an error; its file and line are in `what`."""

    condition = "FUNCTION_FAILED"


class OutsideError(HeadraceError):
    """A disk, a broker or another process failed; trying again may help."""

    condition = "OUTSIDE_FAILED"


class InternalError(HeadraceError):
    """Headrace broke one of its own rules: please report it."""

    condition = "INTERNAL_ERROR"
