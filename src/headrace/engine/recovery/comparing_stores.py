"""Stores compared with the tables that they follow, and repaired.

The rows that a store should have are those that would fill it if it were new: the fill of its sink is computed from
the state of the steps above, staged, and never committed.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan
from headrace.base.time import SystemClock
from headrace.engine.epoch import Settings
from headrace.engine.inprocess import InProcess
from headrace.engine.program.fill import fill_of, history
from headrace.engine.recovery.opening import open_engine
from headrace.engine.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.connect.sink import Difference
    from headrace.dsl.app import App
    from headrace.engine.engine import Engine
    from headrace.plan.sinks import Sink


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A sink, and how its store differs; `difference` is None where it was not compared; `why_not` says why."""

    sink: str
    difference: Difference | None = None
    why_not: str = ""


def compare_stores(app: App, *, repair: bool) -> Iterator[Compared]:
    """Yield for each sink of `.to(connector)` how its store differs from its table, and with `repair` mend it.

    What the app has committed and not published yet is published first.

    Raises:
        InvalidPlan: the app has no such sink, or has never run.
        StorageBusy: the app runs.
        HeadraceError: the app cannot be started, or a store does not answer.

    """
    plan = app.plan()
    sinks = [sink for sink in plan.sinks if sink.connector is not None]
    about = Storage(app.storage, app.name).about() if app.storage.is_dir() else {}
    if not sinks or about.get("shards") is None:
        why = "writes to no store" if not sinks else "has never run"
        raise InvalidPlan(f'the app "{app.name}" {why}', hint="table.to(store) names one; headrace run FILE fills it.")
    settings = Settings(storage=app.storage, topics=app.topics, shards=int(about["shards"]), clock=SystemClock())
    engine = open_engine(plan, settings)
    try:
        for sink in sinks:
            yield _compared(engine, sink, repair=repair)
    finally:
        engine.close()


def _compared(engine: Engine, sink: Sink, *, repair: bool) -> Compared:
    store = engine.outside.sinks()[sink.name]
    if not sink.up.is_table:
        return Compared(sink=sink.name, why_not="it has the rows of a stream, which are added and never changed")
    kept = history(engine.plan, sink.up, ())
    lacking = next((step for step, keeps in sorted(kept.items()) if keeps != "all"), None)
    if lacking is not None:
        return Compared(sink=sink.name, why_not=f'"{lacking}" does not keep all of its rows')
    engine.fill = fill_of(engine.plan, engine.last, engine.views.names(), [sink.name])
    if engine.fill is None:
        found = store.compare(iter(()), repair=repair)
    else:
        carrier = InProcess(engine)
        commit = carrier.compute_fill()
        try:
            found = store.compare(engine.publisher.rows(commit, sink.name), repair=repair)
        finally:
            carrier.close()
            shutil.rmtree(engine.storage.staging(commit.epoch), ignore_errors=True)
            engine.fill = None
    if found is None:
        return Compared(sink=sink.name, why_not="its connector cannot compare")
    return Compared(sink=sink.name, difference=found)
