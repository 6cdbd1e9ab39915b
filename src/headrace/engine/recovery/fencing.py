"""Taking an app over from an owner that does not answer, and may come back.

The next epoch is committed without input. The other owner computes that very epoch, so it can commit nothing any more:
its files after the last commit may be removed, and it stops with `Fenced` when it tries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.outside import MayStillRun
from headrace.engine.input import only_replayable
from headrace.engine.publish import with_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine.input import Input
    from headrace.engine.storage import Commit, Storage

FENCE = "fence"
"""The carrier of such an epoch; Spark begins a new checkpoint after it."""


def check_fence(storage: Storage, inputs: Mapping[str, Input], *, lost: bool) -> None:
    """Refuse to take an app over where an epoch cannot be committed without its input.

    Args:
        storage: the app's storage.
        inputs: what it reads.
        lost: whether there are lost epochs, which are run again over the input that they had.

    Raises:
        MayStillRun: what prevents it, and what to do.

    """
    if not only_replayable(inputs):
        why = "It reads sources of Spark's own, whose offsets are in Spark's checkpoint."
        raise MayStillRun(str(storage.path), lease=str(storage.lease.folder), why=why)
    if lost:
        why = "Its newest commits are lost, and their epochs are run again: by one process only."
        raise MayStillRun(str(storage.path), lease=str(storage.lease.folder), why=why)


def fence_after(last: Commit, *, now: int) -> Commit:
    """Return the commit of an epoch that reads and computes nothing; the one after it works with what `last` left."""
    return replace(
        last,
        epoch=last.epoch + 1,
        ranges=[],
        staged=[],
        filled=[],
        replaced=[],
        published=with_rows(last),
        counts={},
        rows=0,
        at=now,
        carrier=FENCE,
    )
