"""The one way in which typing rules say no; the compiler turns it into an error with the step and the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import WrongType

if TYPE_CHECKING:
    from headrace.base.errors import PlanError


class Mismatch(Exception):
    """A rule does not hold for these types; `condition` is the error that it becomes."""

    def __init__(self, what: str, *, detail: str = "", hint: str = "", condition: type[PlanError] = WrongType) -> None:
        super().__init__(what)
        self.what = what
        self.detail = detail
        self.hint = hint
        self.condition = condition
