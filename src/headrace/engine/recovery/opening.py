"""Opening an engine that is ready for its next epoch: lost epochs run again, and what is new is filled."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.base.errors import PlanChanged
from headrace.engine.engine import Engine
from headrace.engine.inprocess import InProcess
from headrace.engine.program.replay import replay, replay_of
from headrace.engine.program.withdrawing import withdraw

if TYPE_CHECKING:
    from headrace.engine.epoch import Settings
    from headrace.engine.storage import Storage
    from headrace.plan.plan import Plan

logger = logging.getLogger("headrace.engine")


def open_engine(plan: Plan, settings: Settings, held: Storage | None = None) -> Engine:
    """Open an engine on a storage (`held`: one that is locked already); the carrier of the app follows.

    Lost epochs (`lost_epochs`) are run again one after the other, and what is new is filled (`fill`), in this process
    whatever carries the app, and published before this returns.

    Raises:
        HeadraceError: the storage cannot be opened, or lost epochs cannot be run again; nothing was published.
        PlanChanged: what is new cannot be filled.

    """
    engine = Engine(plan, settings, held)
    try:
        withdrawn = withdraw(engine)
        if withdrawn is not None:
            engine.publish(withdrawn)
        if engine.lost:
            first, last = engine.lost[0].epoch, engine.lost[-1].epoch
            logger.warning("epochs %d to %d were lost: they run again over the same input", first, last)
            _run_here(engine)
        elif engine.fill is not None or engine.last.refill or engine.last.replay:
            _refuse_rows_of_spark(engine)
            _run_here(engine)
    except BaseException:
        engine.close()
        raise
    return engine


def _run_here(engine: Engine) -> None:
    """Run lost epochs again, and fill what is new."""
    carrier = InProcess(engine)
    try:
        first = not engine.lost or bool(engine.lost[0].filled)
        again = replay_of(engine) if first and (engine.last.refill or engine.last.replay) else None
        if again is not None:
            engine.publish(replay(engine, again))
        elif engine.fill is not None and first:
            carrier.fill()
        while engine.lost:
            carrier.repeat_lost()
    finally:
        carrier.close()


def _refuse_rows_of_spark(engine: Engine) -> None:
    """Refuse an epoch between those of Spark, where only Spark knows how far it has read a source."""
    if engine.fill is None:
        return
    for bound in engine.outside.inputs.values():
        if bound.source is None:
            names = ", ".join(sorted(engine.fill.steps | engine.fill.sinks))
            raise PlanChanged(
                f"what is new cannot be filled in an app that reads from Spark: {names}",
                detail=f'The source "{bound.shape.topic}" is read by app.read: Spark alone knows how far.',
                hint="Leave it out; or bring the rows of app.read into a topic, and read that.",
            )
