"""Withdraws what changelog topics have before an app that was reset appends all of its output again.

A topic with a table's changelog is the table: the latest row of each key. An app that reads its sources from their
start appends the keys that its table has now. One that the table had when the topic got it, and has no more, would stay
in the topic for ever. So the first epoch after such a reset reads nothing, and publishes a tombstone for each key that
the topics have. It is committed and published like any other: a crash never loses or repeats it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.log_errors import CorruptBatch
from headrace.engine.epoch import task
from headrace.engine.inprocess import CARRIER
from headrace.engine.program.levelling import difference, shadows_of
from headrace.kernels.task import stage

if TYPE_CHECKING:
    from headrace.engine.engine import Engine
    from headrace.engine.storage import Commit
    from headrace.plan.sinks import Sink

logger = logging.getLogger("headrace.engine")


def withdraw(engine: Engine) -> Commit | None:
    """Commit the epoch that withdraws what the topics have; return its commit, which is not published yet.

    None where there is nothing to withdraw: the app was not reset, it has run since, or its topics have no key.
    """
    if engine.last.epoch >= 0 or not engine.storage.about().get("again"):
        return None
    lost = engine.lost[0] if engine.lost else None
    if lost is not None and not lost.filled:
        return None  # the first epoch had input: there was nothing to withdraw
    rows = {sink.name: _tombstones(engine, sink) for sink in _changelogs(engine)}
    if lost is None and not any(each.num_rows for each in rows.values()):
        return None
    planned = engine.planned_without_input(engine.before)
    here = task(engine.settings, planned, shard=0, shards=engine.shards, attempt=CARRIER.replace(" ", "-"))
    commit = replace(
        planned.before,
        epoch=planned.epoch,
        staged=[stage(here, 0, name, each) for name, each in rows.items() if each.num_rows],
        sinks=[sink.name for sink in engine.plan.sinks],
        filled=sorted(rows),
    )
    return engine.commit_grafted(commit, planned, carrier=CARRIER)


def _changelogs(engine: Engine) -> list[Sink]:
    """Return the sinks whose topics are a table's changelog."""
    names = shadows_of(engine.plan)
    return [sink for sink in engine.plan.sinks if sink.name in names]


def _tombstones(engine: Engine, sink: Sink) -> pa.Table:
    """Return a tombstone for each key of a topic; none of a damaged one, since such a reset is the way out of that."""
    no_rows = pa.schema([(field.name, field.type) for field in sink.up.schema]).empty_table()
    try:
        return difference(engine.topics, engine.plan.app, sink, no_rows)
    except CorruptBatch as error:
        logger.warning('the topic "%s" keeps the keys that it has, since it is damaged: %s', sink.topic, error.what)
        return no_rows
