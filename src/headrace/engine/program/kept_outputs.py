"""A whole reset that keeps what output topics have: whether it is possible, and how far back the replay goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import DamagedFile
from headrace.base.outside import OffsetsBeyondEnd, OutputsNotKept, SourceDiverged, SourceReplaced
from headrace.connect.embedded import log_path
from headrace.connect.embedded.marks import marks_of
from headrace.connect.stores import open_topics
from headrace.engine.input import only_replayable
from headrace.engine.inputs import Inputs
from headrace.engine.outside import bound_inputs, names_of_topics
from headrace.engine.recovery.journal import Journal
from headrace.engine.recovery.same_sources import SOURCES, check_instances, check_offsets
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine.storage import Commit, Storage
    from headrace.plan.plan import Plan

Reach = dict[str, dict[str, dict[str, int]]]
"""By source and partition: `first`, the first offset that is still there, and `read`, up to where the app has read."""


def has_outputs(plan: Plan, storage: Storage, topics: str | None) -> bool:
    """Whether an app has written anything but views: then a run from the start would write it again."""
    if any(sink.view is None and not sink.is_probe for sink in plan.sinks):
        return True
    try:
        stored = storage.read_json("plan.json") or {}
    except DamagedFile:
        stored = {}
    if any(not name.startswith("view:") for name in stored.get("sinks", {})):
        return True
    path = log_path(storage.path, topics).absolute()
    if not path.exists():
        return False
    with Log(path) as log:
        return any(log.has_topic(name) for name in names_of_topics(plan) if name.endswith(".dead"))


def reach_of(plan: Plan, storage: Storage, last: Commit, topics: str | None) -> Reach:
    """Return how far back a replay goes up to the offsets of the last commit; changes nothing.

    Raises:
        OutputsNotKept: it cannot get there: Spark alone knows the offsets, a source is not the one that was read, or
            epochs were published that the storage does not have.

    """
    with Log(log_path(storage.path, topics).absolute()) as log:
        store = open_topics(topics, log, clock=log.clock, partitions=1, fault=lambda point: None)  # noqa: ARG005 -- nothing happens
        bound = bound_inputs(plan, store)
        if not only_replayable(bound):
            raise OutputsNotKept(plan.app, why="it reads with app.read, so Spark alone knows how far it is read")
        _refuse_lost_epochs(storage, log, last)
        _refuse_other_names(plan, storage, last)
        stored = storage.read_json(SOURCES) or {}
        for step, each in bound.items():
            now = "" if each.source is None else each.source.identity
            if stored.get(step, now) != now and step in last.sources:
                raise OutputsNotKept(plan.app, why=f'the source "{step}" is {now}, and was {stored[step]}')
        inputs = Inputs(bound, clock=log.clock)
        try:
            check_instances(bound, last)
            check_offsets(inputs, last)
            return {
                step: _reach(inputs.bounds_of(step).earliest, last.sources[step].offsets)
                for step in bound
                if step in last.sources and any(last.sources[step].offsets.values())
            }
        except (SourceReplaced, SourceDiverged, OffsetsBeyondEnd) as error:
            raise OutputsNotKept(plan.app, why=error.what) from error
        finally:
            inputs.close()


def _reach(earliest: Mapping[str, int], read: Mapping[str, int]) -> dict[str, dict[str, int]]:
    return {partition: {"first": earliest.get(partition, 0), "read": end} for partition, end in sorted(read.items())}


def _refuse_lost_epochs(storage: Storage, log: Log, last: Commit) -> None:
    """Refuse where the log knows a later epoch than the storage: what it published would be appended again."""
    newest = newest_published(storage, log)
    if newest > last.epoch:
        why = f"its storage ends at epoch {last.epoch}, and epochs up to {newest} were published"
        raise OutputsNotKept(storage.app, why=why, first="Start the app once, which recovers them, and reset it then. ")


def newest_published(storage: Storage, log: Log) -> int:
    """Return the last epoch of an app that the log knows of: its journal, or its output topics; -1 for none."""
    identity = storage.about().get("id", "")
    known = [marks.last for marks in marks_of(log, storage.app) if marks.id == identity]
    journal = Journal(log.path, storage.app, identity).last_epoch()
    return max([*known, -1 if journal is None else journal])


def _refuse_other_names(plan: Plan, storage: Storage, last: Commit) -> None:
    """Refuse a source under another name than the one under which the topic was read: offsets are kept by name."""
    stored = (storage.read_json("plan.json") or {}).get("sources", {})
    names = {plan.name(node) for node in plan.sources()}
    gone = {source["topic"]: name for name, source in stored.items() if name not in names and name in last.sources}
    for node in plan.sources():
        old = gone.get(node.topic)
        if old is not None and node.topic is not None and plan.name(node) not in last.sources:
            why = f'the topic "{node.topic}" was read as "{old}", and is read as "{plan.name(node)}"'
            raise OutputsNotKept(plan.app, why=why, first=f'Give the source its old name: .named("{old}"). ')
