"""Replay: a step that was reset is computed again from the topics, up to where the app has read them.

A second engine runs what is above the step, and the step, in a folder of its own, as the first run of an app would:
the same watermarks, so the same rows are late. It goes as far as the app did and no further: what a step emits by a
later watermark comes out in the app's next epoch. It publishes to its own views only. Then one epoch of the app takes
over the state of the steps and the rows of the views (`graft`): they are complete, and seen, at once. A replay that a
crash cut short begins again; until its epoch is committed, nothing of it counts.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.disk import sync_folder
from headrace.base.errors import InternalError
from headrace.connect.embedded import log_path
from headrace.connect.stores import is_elsewhere
from headrace.engine.engine import Engine
from headrace.engine.epoch import task
from headrace.engine.inprocess import CARRIER, InProcess
from headrace.engine.program.fill import Fill, fed_by, filled, history, nearest_gives
from headrace.engine.program.levelling import difference, shadows_of
from headrace.kernels.task import Report, stage
from headrace.plan.nodes import Suppress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.engine.epoch import PlannedEpoch
    from headrace.engine.storage import Commit
    from headrace.plan.nodes import Node
    from headrace.plan.plan import Plan
    from headrace.plan.sinks import Sink

FOLDER = "replay"
_LONG_AGO = -59_011_459_200_000_000
"""The year 100: before any period in which changes wait, and late enough for calendars to count from."""
logger = logging.getLogger("headrace.engine")


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What is computed again: `steps` and their views' `sinks`, by `plan`, from records up to offsets `upto`.

    `until`: the watermarks that the steps had worked with, by step; they end with these. `shadows`: views of what
    topics with changelogs should have, by the names of their sinks. `begins`: the first offsets that are still there,
    where that is not the start.
    """

    steps: frozenset[str]
    sinks: tuple[Sink, ...]
    plan: Plan
    shadows: Mapping[str, Sink]
    upto: Mapping[str, Mapping[str, int]]
    until: Mapping[str, int | None]
    begins: Mapping[str, Mapping[str, int]]


def replay_of(engine: Engine) -> Replay | None:
    """Return what an app replays before its next epoch: what was reset, unless the state of the steps above has it.

    After a whole reset that is everything. State has no rows of a stream that a view has beside those of the steps, nor
    what topics with a table's changelog were told, which are to be brought level. None also where the topics cannot say
    what the steps above have: the beginning of a topic is gone, or one of these steps began later; or Spark reads a
    source.
    """
    plan, last = engine.plan, engine.last
    stateful = [plan.name(node) for node in plan.stateful()]
    steps = frozenset(stateful if last.replay else {*stateful} & {*last.refill})
    if not steps and not last.replay:
        return None
    ends = [node for node in plan.stateful() if plan.name(node) in steps]
    sinks = tuple(sink for sink in plan.sinks if sink.view is not None and (last.replay or sink.name in last.refill))
    shadows = {
        name: shadow for name, shadow in shadows_of(plan).items() if last.replay or fed_by(plan, shadow.up, steps)
    }
    gives = {keeps for node in ends for keeps in nearest_gives(plan, node, steps)}
    gives |= {keeps for sink in sinks for keeps in history(plan, sink.up, steps).values()}
    if gives <= {"all"} and not last.replay and not shadows:
        return None
    part = _above(plan, ends, (*sinks, *shadows.values()))
    if not part.nodes:
        return None
    sources = [part.name(node) for node in part.sources()]
    if any(bound.source is None for bound in engine.outside.inputs.values()):
        return None
    upto = {name: dict(last.sources[name].offsets) for name in sources if name in last.sources}
    begins = {}
    for name in sources:
        earliest = {p: offset for p, offset in engine.inputs.bounds_of(name).earliest.items() if offset > 0}
        if earliest:
            begins[name] = earliest
    above = {part.name(node) for node in part.stateful()} - steps
    if above and (begins or above.intersection(last.partial)):
        for topic in (sink.topic for sink in plan.sinks if sink.name in shadows):
            logger.warning('the topic "%s" is not brought level: those that are read begin too late', topic)
        return None
    until = {name: last.reached.get(name, last.previous.get(name)) for name in above | steps if name in last.previous}
    return Replay(steps=steps, sinks=sinks, plan=part, shadows=shadows, upto=upto, until=until, begins=begins)


def _above(plan: Plan, ends: Sequence[Node], sinks: tuple[Sink, ...]) -> Plan:
    """Return the part of a plan from the sources to some steps and sinks."""
    inside = {id(up) for node in (*ends, *(sink.up for sink in sinks)) for up in node.walk()}
    return replace(plan, nodes=tuple(node for node in plan.nodes if id(node) in inside), sinks=sinks)


def replay(engine: Engine, what: Replay) -> Commit:
    """Compute it again and commit the epoch that takes it over; return its commit, which is not published yet."""
    folder = engine.settings.storage / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    for name, earliest in what.begins.items():
        logger.warning('"%s" is replayed from offset %s on: what was before is gone', name, earliest)
    topics = engine.settings.topics
    if not is_elsewhere(topics):  # the second storage has no topics of its own
        topics = f"log:{log_path(engine.settings.storage, topics).absolute()}"
    settings = replace(
        engine.settings,
        storage=folder,
        topics=topics,
        shards=engine.shards,
        upto=what.upto,
        until=what.until,
    )
    second = Engine(what.plan, settings)
    try:
        _run(second, what)
        planned = _planned(engine, what)
        commit = _graft(engine, second, what, planned)
    finally:
        second.close()
    commit = engine.commit_grafted(commit, planned, carrier=CARRIER)
    shutil.rmtree(folder, ignore_errors=True)
    return commit


def _run(second: Engine, what: Replay) -> None:
    """Run the second engine to its end, then let each step, from above, reach the watermark of the app's.

    Records alone may not bring it there: the clock did, where a source was idle; or a partition had its first record
    later, or `out_of_order` was less. What the step would leave open has been emitted, and would be so again. Where
    changes wait for the end of a period there are none before the only epoch with rows, so all come out after it.
    """
    carrier = InProcess(second)
    try:
        for node in second.plan.stateful():
            if isinstance(node, Suppress):
                second.move_watermark(second.plan.name(node), _LONG_AGO)
        _rest(carrier)
        for step in map(second.plan.name, second.plan.stateful()):
            if second.move_watermark(step, what.until.get(step)):
                carrier.step()
                _rest(carrier)
        second.settle()  # its files will be in another storage than its redo logs
    finally:
        carrier.close()
    for name, offsets in what.upto.items():
        read = second.last.sources[name].offsets if name in second.last.sources else {}
        missing = {
            p: end for p, end in offsets.items() if end > max(read.get(p, 0), what.begins.get(name, {}).get(p, 0))
        }
        if missing:
            raise InternalError(f'the replay of "{name}" ended before {missing}')


def _rest(carrier: InProcess) -> None:
    while not carrier.engine.needs_no_epoch:
        carrier.step()


def _fill(what: Replay) -> Fill:
    names = frozenset(sink.name for sink in what.sinks)
    return Fill(steps=what.steps, sinks=names, plan=what.plan, snapshots=frozenset(), replaced=names)


def _planned(engine: Engine, what: Replay) -> PlannedEpoch:
    return engine.planned_without_input(_fill(what).before(engine.before))


def _graft(engine: Engine, second: Engine, what: Replay, planned: PlannedEpoch) -> Commit:
    """Move the files of the state, stage the rows of the views, and return the commit that has both."""
    replayed = second.last
    for step in what.steps:
        _take_over(second.settings.storage / "state" / step, engine.settings.storage / "state" / step)
    if engine.settings.sync and (engine.settings.storage / "state").is_dir():
        sync_folder(engine.settings.storage / "state")
    here = task(engine.settings, planned, shard=0, shards=engine.shards, attempt=CARRIER.replace(" ", "-"))
    report = Report(shard=None)
    for sink in what.sinks:
        assert sink.view is not None  # noqa: S101 -- only views are among them
        rows = second.views.read(sink.view)
        if rows.num_rows:
            rows = rows.append_column("_weight", pa.repeat(pa.scalar(1, pa.int32()), rows.num_rows))
            rows = rows.append_column("_time", pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows))
            report.staged.append(stage(here, 0, sink.name, rows))
    for name, shadow in what.shadows.items():
        assert shadow.view is not None  # noqa: S101 -- it is a view
        sink = next(each for each in engine.plan.sinks if each.name == name)
        rows = difference(engine.topics, engine.plan.app, sink, second.views.read(shadow.view))
        if rows.num_rows:
            report.staged.append(stage(here, 0, name, rows))
    before = replace(
        planned.before,
        heads=planned.before.heads | {step: replayed.heads[step] for step in what.steps if step in replayed.heads},
        previous=planned.before.previous | {step: replayed.previous.get(step) for step in what.steps},
        totals=planned.before.totals | {name: replayed.totals[name] for name in what.steps if name in replayed.totals},
    )
    commit = filled(engine.plan, _fill(what), before, [report])
    return replace(
        commit, partial=sorted({*commit.partial} - {*what.steps} | ({*what.steps} if what.begins else set()))
    )


def _take_over(replayed: Path, there: Path) -> None:
    shutil.rmtree(there, ignore_errors=True)
    if replayed.is_dir():
        there.parent.mkdir(parents=True, exist_ok=True)
        replayed.rename(there)
