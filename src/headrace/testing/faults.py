"""Where a crash can be made to happen, one for each step of the protocol."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from headrace.base.errors import PlanError, did_you_mean

POINTS = (
    "before_bounds",  # the planner has not asked what there is to read
    "after_bounds",  # it has, and no epoch is planned yet
    "before_read",  # a task has begun, and read nothing of a range
    "after_read",  # it has read a range
    "before_staging",  # a task has computed, and written nothing
    "after_staging",  # its outputs are staged, its state is not written
    "during_snapshot",  # it writes its whole state
    "during_commit",  # the commit is written aside, and not yet there
    "after_commit",  # the epoch has happened, and nobody sees it
    "after_journal",  # the journal beside the log has it, no sink does
    "before_sink",  # rows are about to be handed to a place outside
    "between_topics",  # one topic has it, the next does not
    "before_mark",  # the topics have it, and no other app may read it yet
    "before_views",  # the topics have it, the views do not
    "after_sink",  # a place outside has it, the next does not
    "before_acknowledge",  # sources have not heard that the epoch is committed
    "after_acknowledge",  # they have
)

START_POINTS = (
    "before_adopting",  # the changes of the program are accepted, and nothing is written
    "before_moving",  # what is to be done is written down
    "after_moving",  # the files of state are under their new names, the commit is not
    "after_renaming",  # the commit has the new names, plan.json the old program
    "before_adopted",  # all is done, and the note that says what to do is still there
)
"""The points that a start passes when it takes over a changed program."""

TRANSACTION_POINTS = (
    "before_transaction",  # rows are about to be sent to a cluster
    "in_transaction",  # they are sent, and perhaps stored
    "before_transaction_mark",  # they are stored, and the epoch's mark is not sent
    "before_transaction_ends",  # all is sent, and nothing is visible
    "after_transaction",  # the cluster has the epoch, and the app does not know
)
"""The points that an epoch passes on its way to the topics of a cluster."""


class Crash(BaseException):
    """The process died, as far as the engine can tell."""


class Faults:
    """Dies at the point it is armed for; at no other. A copy that is sent to another process dies at none."""

    def __init__(self) -> None:
        self.armed: str | None = None

    def __reduce__(self) -> tuple[type[Faults], tuple[()]]:
        """Send no armed copy: Spark's task would die of it each time that it is tried."""
        return Faults, ()

    def arm(self, point: str) -> None:
        """Die when this point is reached next."""
        if point not in (*POINTS, *START_POINTS, *TRANSACTION_POINTS):
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
        """Reach a point of the protocol."""
        if self.armed == point:
            self.armed = None
            raise Crash(point)


@dataclass(frozen=True)
class Kill:
    """Kills the process of the app, and whoever notices, with signal 9 at a point; once, as `marker` remembers.

    It travels to Spark's workers: points inside tasks are reached there.
    """

    point: str
    process: int
    marker: str

    def __call__(self, point: str) -> None:
        """Reach a point of the protocol."""
        if point == self.point and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(self.process, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
