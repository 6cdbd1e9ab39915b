"""Where a crash can be made to happen, one for each step of the protocol."""

from __future__ import annotations

from headrace.base.errors import PlanError, did_you_mean

POINTS = (
    "before_staging",  # a task has computed, and written nothing
    "after_staging",  # its outputs are staged, its state is not written
    "during_snapshot",  # it writes its whole state
    "during_commit",  # the commit is written aside, and not yet there
    "after_commit",  # the epoch has happened, and nobody sees it
    "between_topics",  # one topic has it, the next does not
    "before_views",  # the topics have it, the views do not
)


class Crash(BaseException):  # noqa: N818 -- it is no error of the app: it stands for the death of the process
    """The process died, as far as the engine can tell."""


class Faults:
    """Dies at the point it is armed for; at no other."""

    def __init__(self) -> None:
        self.armed: str | None = None

    def arm(self, point: str) -> None:
        """Die when this point is reached next."""
        if point not in POINTS:
            raise PlanError(
                f"there is no crash point {point!r}",
                detail=f"There are {', '.join(POINTS)}.",
                hint=did_you_mean(str(point), POINTS),
            )
        self.armed = point

    def disarm(self) -> None:
        """Die no more."""
        self.armed = None

    def __call__(self, point: str) -> None:
        if self.armed == point:
            self.armed = None
            raise Crash(point)
