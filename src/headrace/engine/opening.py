"""Opening an engine that is ready for its next epoch: lost epochs are run again first, in this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.engine.engine import Engine
from headrace.engine.inprocess import InProcess

if TYPE_CHECKING:
    from headrace.engine.engine import Settings
    from headrace.engine.storage import Storage
    from headrace.plan.plan import Plan

logger = logging.getLogger("headrace.engine")


def open_engine(plan: Plan, settings: Settings, held: Storage | None = None) -> Engine:
    """Open an engine on a storage (`held`: one that is locked already); the carrier of the app follows.

    Lost epochs (`lost_epochs`) are run again one after the other, in this process whatever carries the app, and
    published before this returns.

    Raises:
        HeadraceError: the storage cannot be opened, or lost epochs cannot be run again; nothing was published.

    """
    engine = Engine(plan, settings, held)
    try:
        if engine.lost:
            first, last = engine.lost[0].epoch, engine.lost[-1].epoch
            logger.warning("epochs %d to %d were lost: they run again over the same input", first, last)
            carrier = InProcess(engine)
            try:
                while engine.lost:
                    carrier.repeat_lost()
            finally:
                carrier.close()
    except BaseException:
        engine.close()
        raise
    return engine
